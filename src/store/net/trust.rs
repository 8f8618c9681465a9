//! Certificates that will do although nobody has issued them for the host that was asked for.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::config::Trust;
use crate::error::{Error, ErrorKind};

/// `None` for the usual one.
pub(super) fn verifier(
    trust: Trust,
    roots: &RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ServerCertVerifier>>, Error> {
    let of_authority = || {
        let roots = Arc::new(roots.clone());
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()
    };
    let authority = match trust {
        Trust::Host => return Ok(None),
        Trust::Authority => {
            Some(of_authority().map_err(|error| Error::new(ErrorKind::Tls, error.to_string()))?)
        }
        Trust::Anybody => None,
    };
    Ok(Some(Arc::new(Lenient { authority, provider })))
}

#[derive(Debug)]
struct Lenient {
    /// Who checks by whom it was issued, if that matters.
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        let verified = authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The name comes after all else.
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
