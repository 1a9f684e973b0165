use std::sync::Arc;

use polyrpc_core::Status;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::EndEntityCert;

use super::pem::{Pem, Stamp};
use super::{expiry, provider};

/// Who one is: a certificate, with those that lead to its authority behind it, and its private key.
///
/// A server may show a certificate of X.509 v1, as `openssl x509 -req` makes them without extensions; Go's clients take
/// it where they check none. Ours do not, and no server here takes one of a client.
///
/// One that has expired is shown all the same, with a warning in the log (`polyrpc::tls`) whenever it is read.
#[derive(Debug, Clone)]
pub struct Identity {
    certificate: Pem,
    key: Pem,
}

impl Identity {
    /// Of a certificate and a key: paths, or [`Pem::bytes`].
    pub fn new(certificate: impl Into<Pem>, key: impl Into<Pem>) -> Self {
        Self { certificate: certificate.into(), key: key.into() }
    }

    pub(super) fn load(&self) -> Result<Arc<CertifiedKey>, Status> {
        let (certificates, key) = (self.certificate.certificates()?, self.key.key()?);
        if let Some(certificate) = certificates.first() {
            expiry::log_if_expired(certificate, &self.certificate);
        }
        certified(certificates, key).map(Arc::new).map_err(|error| {
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

    pub(super) fn stamps(&self) -> [Option<Stamp>; 2] {
        [self.certificate.stamp(), self.key.stamp()]
    }
}

/// Puts certificate and key together, if they belong together.
///
/// `openssl x509 -req` without extensions makes certificates of X.509 v1. rustls would not read one of a peer's, and so
/// cannot compare the key of one's own; but to show it is enough that it is there.
fn certified(
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

/// Whether the public half of the key is somewhere in the certificate.
fn holds_key(certified: &CertifiedKey) -> bool {
    let (Some(certificate), Some(public)) = (certified.cert.first(), certified.key.public_key()) else {
        return false;
    };
    certificate.windows(public.len()).any(|part| part == public.as_ref())
}
