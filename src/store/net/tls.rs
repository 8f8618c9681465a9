//! TLS by rustls.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::failed;
use super::socket::Socket;
use crate::config::{Address, TlsConfig, TlsWords, spoken};
use crate::error::{Error, ErrorKind};

/// TLS as a URL asks for it.
pub(in crate::store) struct Tls {
    client: Arc<ClientConfig>,
    /// In which errors tell what to write in that URL.
    pub(super) words: &'static TlsWords,
}

impl Tls {
    /// Reads every file, and checks that the hosts can be in certificates: what is wrong with one is said
    /// when the client is opened. Unix sockets have no TLS.
    pub(in crate::store) fn prepare(
        files: Option<&TlsConfig>,
        addresses: &[Address],
    ) -> Result<Option<Tls>, Error> {
        let Some(files) = files else { return Ok(None) };
        let client = config(files)?;
        for address in addresses.iter().filter(|address| matches!(address, Address::Tcp { .. })) {
            server(address)?;
        }
        Ok(Some(Tls { client, words: files.words }))
    }

    /// The handshake names the protocol that is spoken behind it.
    #[cfg(feature = "etcd")]
    pub(in crate::store) fn speaking(mut self, protocol: &[u8]) -> Tls {
        Arc::make_mut(&mut self.client).alpn_protocols = vec![protocol.to_vec()];
        self
    }

    pub(super) fn handshake(
        &self,
        address: &Address,
        socket: &mut Socket,
    ) -> Result<ClientConnection, Error> {
        let client = Arc::clone(&self.client);
        let mut connection = ClientConnection::new(client, server(address)?).map_err(wrong)?;
        while connection.is_handshaking() {
            connection.complete_io(socket).map_err(|error| {
                let refused = match super::stranger::without_tls(socket.opening()) {
                    Some(what) => wrong(format!("{what}: try {}", self.words.off)),
                    None => refused(&error, self.words),
                };
                Error::new(refused.kind(), format!("{address}: {}", refused.detail()))
            })?;
        }
        Ok(connection)
    }
}

fn config(files: &TlsConfig) -> Result<Arc<ClientConfig>, Error> {
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
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    let needs_roots = files.trust != crate::config::Trust::Anybody;
    #[cfg(not(any(feature = "mysql", feature = "postgres")))]
    let needs_roots = true;
    if needs_roots && roots.is_empty() {
        let ca = files.words.ca;
        return Err(wrong(format!("no certificate authority is trusted; name one with {ca}=")));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    let config = match super::trust::verifier(files.trust, &roots, provider)? {
        Some(verifier) => config.dangerous().with_custom_certificate_verifier(verifier),
        None => config.with_root_certificates(roots),
    };
    #[cfg(not(any(feature = "mysql", feature = "postgres")))]
    let config = config.with_root_certificates(roots);
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

fn server(address: &Address) -> Result<ServerName<'static>, Error> {
    let host = match address {
        Address::Tcp { host, .. } => host.clone(),
        Address::Unix(_) => return Err(wrong("TLS needs a host, not a unix socket")),
    };
    ServerName::try_from(host).map_err(|_| wrong("the host can be in no certificate; use its name"))
}

/// What went wrong in the handshake.
fn refused(error: &io::Error, words: &TlsWords) -> Error {
    use io::ErrorKind::*;
    let TlsWords { off, cert, key, .. } = words;
    match error.kind() {
        InvalidData => explain(error, words),
        // A server without TLS, or one that does not like our certificate, just hangs up.
        UnexpectedEof | ConnectionReset => wrong(format!(
            "the server hung up during the TLS handshake; perhaps it does not speak TLS (try \
             {off}), or wants a certificate ({cert}= and {key}=)"
        )),
        // A server without TLS waits for the end of a line, which need not be in what we say.
        TimedOut => Error::new(
            ErrorKind::NoAnswer,
            format!("no answer to the TLS handshake; if the server does not speak TLS, try {off}"),
        ),
        _ => failed("the TLS handshake", error),
    }
}

/// What rustls found wrong, which it gives as invalid data.
pub(super) fn explain(error: &io::Error, words: &TlsWords) -> Error {
    use rustls::{
        AlertDescription,
        CertificateError::*,
        Error::{AlertReceived, InvalidCertificate, InvalidMessage},
    };
    let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let ago = |early: &UnixTime, late: &UnixTime| {
        spoken(Duration::from_secs(late.as_secs().saturating_sub(early.as_secs())))
    };
    let TlsWords { off, ca, cert, key, .. } = words;
    wrong(match found {
        Some(InvalidMessage(_)) => format!("the server does not speak TLS: try {off}"),
        Some(InvalidCertificate(UnknownIssuer | BadSignature)) => format!(
            "the server's certificate is by no authority that is trusted here: name in {ca}= the \
             certificate of the authority that issued it, not the server's own"
        ),
        Some(InvalidCertificate(Other(_))) if error.to_string().contains("CaUsedAsEndEntity") => {
            "the server shows a certificate that is for an authority (CA:TRUE): give it one that \
             this authority has issued, or one with CA:FALSE"
                .to_owned()
        }
        Some(InvalidCertificate(ExpiredContext { time, not_after })) => {
            format!("the server's certificate expired {} ago: renew it", ago(not_after, time))
        }
        Some(InvalidCertificate(NotValidYetContext { time, not_before })) => format!(
            "the server's certificate is valid in {} only: is the clock right?",
            ago(time, not_before)
        ),
        Some(InvalidCertificate(NotValidForNameContext { expected, presented })) => format!(
            "the server's certificate is not for {}, but for {}: write that host in the URL",
            expected.to_str(),
            presented.join(", ")
        ),
        Some(AlertReceived(AlertDescription::CertificateRequired)) => {
            format!("the server wants a certificate: name one with {cert}= and {key}=")
        }
        _ => error.to_string(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_what_to_write_in_the_url_of_its_store() {
        let found = |found: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, found);
        let stranger = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        for (words, ca, cert, off) in [
            (&TlsWords::REDIS, "name in ca=", "(cert= and key=)", "try redis://"),
            (
                &TlsWords::POSTGRES,
                "name in sslrootcert=",
                "(sslcert= and sslkey=)",
                "try sslmode=disable",
            ),
            (
                &TlsWords::MYSQL,
                "name in ssl-ca=",
                "(ssl-cert= and ssl-key=)",
                "try ssl-mode=disabled",
            ),
            (
                &TlsWords::ZOOKEEPER,
                "name in ca=",
                "(cert= and key=)",
                "try zookeeper:// without tls=yes",
            ),
            (&TlsWords::ETCD, "name in ca=", "(cert= and key=)", "try etcd://"),
        ] {
            let said = explain(&found(stranger.clone()), words);
            assert!(said.detail().contains(ca), "{said}");
            let said = explain(&found(plain.clone()), words);
            assert!(said.detail().ends_with(off), "{said}");
            let said = refused(&io::ErrorKind::UnexpectedEof.into(), words);
            assert!(said.detail().contains(off) && said.detail().contains(cert), "{said}");
        }
    }
}
