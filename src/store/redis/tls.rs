//! TLS by rustls.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::fault;
use super::wire::Socket;
use crate::config::{Address, TlsConfig};
use crate::error::{Error, ErrorKind};

/// Reads every file now: what is wrong with one is said when the client is opened.
pub(super) fn config(files: &TlsConfig) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| file(path, error))?;
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(system.certs);
        }
    }
    if roots.is_empty() {
        return Err(wrong("no certificate authority is trusted; name one with ca="));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_root_certificates(roots);
    let config = match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, error))?;
            config
                .with_client_auth_cert(certificates(cert)?, secret)
                .map_err(|error| file(key, error))?
        }
        _ => config.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

pub(super) fn server(address: &Address) -> Result<ServerName<'static>, Error> {
    let host = match address {
        Address::Tcp { host, .. } => host.clone(),
        Address::Unix(_) => return Err(wrong("TLS needs a host, not a unix socket")),
    };
    ServerName::try_from(host).map_err(|_| wrong("the host can be in no certificate; use its name"))
}

pub(super) fn handshake(
    config: &Arc<ClientConfig>,
    address: &Address,
    socket: &mut Socket,
) -> Result<ClientConnection, Error> {
    let mut connection =
        ClientConnection::new(Arc::clone(config), server(address)?).map_err(wrong)?;
    while connection.is_handshaking() {
        connection.complete_io(socket).map_err(|error| refused(&error))?;
    }
    Ok(connection)
}

/// rustls gives its own errors as invalid data; everything else is the network's.
fn refused(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::new(ErrorKind::Tls, error.to_string()),
        // A server without TLS, or one that does not like our certificate, just hangs up.
        io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Tls, "the server hung up during the handshake")
        }
        _ => fault::io("the TLS handshake", error),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| file(path, error))?;
    let found: Result<Vec<_>, _> = found.collect();
    let found = found.map_err(|error| file(path, error))?;
    if found.is_empty() {
        return Err(file(path, "no certificate in it"));
    }
    Ok(found)
}

fn file(path: &Path, error: impl std::fmt::Display) -> Error {
    wrong(format!("{}: {error}", path.display()))
}

fn wrong(detail: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Tls, detail.to_string())
}
