use std::sync::Arc;

use polyrpc_wire::Status;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::pem::{Pem, Stamp};
use super::provider;

/// Who one is: a certificate, with those that lead to its authority behind it, and its private key.
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
        CertifiedKey::from_der(certificates, key, &provider()).map(Arc::new).map_err(|error| {
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
