use std::sync::Arc;

use polyrpc_core::Status;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::EndEntityCert;

use super::pem::{Pem, Stamp};
use super::{expiry, provider};

/// Identity of a peer: a certificate with its chain, and its private key.
///
/// A server may present an X.509 v1 certificate, as `openssl x509 -req` creates it without extensions; Go's clients
/// accept it if they verify none. Ours do not, and no server here accepts one from a client.
///
/// An expired certificate is still presented, with a warning in the log (`polyrpc::tls`) whenever it is loaded.
#[derive(Debug, Clone)]
pub struct Identity {
    certificate: Pem,
    key: Pem,
}

impl Identity {
    /// Creates an identity from a certificate and a key: paths, or [`Pem::bytes`].
    pub fn new(certificate: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        Self { certificate: certificate.into(), key: key.into() }
    }

    pub(super) fn load(&self) -> Result<Arc<CertifiedKey>, Status> {
        let (certificates, key) = (self.certificate.certificates()?, self.key.key()?);
        if let Some(certificate) = certificates.first() {
            expiry::log_if_expired(certificate, &self.certificate);
        }
        certified_key(certificates, key).map(Arc::new).map_err(|error| {
            Status::invalid_argument(match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    format!("the key in {} is not that of the certificate in {}", self.key, self.certificate)
                }
                error => {
                    format!("the certificate in {} with the key in {}: {error}", self.certificate, self.key)
                }
            })
        })
    }

    #[cfg(feature = "quic")]
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, Status> {
        self.key.key()
    }

    pub(super) fn stamps(&self) -> [Option<Stamp>; 2] {
        [self.certificate.stamp(), self.key.stamp()]
    }
}

/// Combines certificate and key, if they match.
///
/// `openssl x509 -req` without extensions creates X.509 v1 certificates. rustls would not parse one of a peer, and so
/// cannot compare the key with one's own; but for presenting it, it is enough that the key is found in it.
fn certified_key(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, Error> {
    let key = provider().key_provider.load_private_key(key)?;
    let certified = CertifiedKey::new(certificates, key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(_) if is_v1(certified.end_entity_cert()?) => match holds_key(&certified) {
            true => Ok(certified),
            false => Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)),
        },
        Err(error) => Err(error),
    }
}

fn is_v1(certificate: &CertificateDer<'_>) -> bool {
    matches!(EndEntityCert::try_from(certificate), Err(webpki::Error::UnsupportedCertVersion))
}

/// Returns whether the certificate contains the public half of the key.
fn holds_key(certified: &CertifiedKey) -> bool {
    let (Some(certificate), Some(public)) = (certified.cert.first(), certified.key.public_key()) else {
        return false;
    };
    certificate.windows(public.len()).any(|part| part == public.as_ref())
}
