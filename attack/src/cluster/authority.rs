//! Certificates of the servers: an authority that clients trust, and a certificate of it that is replaced while servers
//! use it.

use std::io;
use std::path::{Path, PathBuf};

use polyrpc::tls::{self, Identity, Pem};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};

/// An authority, and the folder of the certificate that it issues.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    /// Creates an authority, and a first certificate in this folder.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?;
        let authority = Self { issuer, folder: folder.to_owned() };
        authority.rotate()?;
        Ok(authority)
    }

    /// Replaces the certificate and its key, as a renewal does: each file at once, the key first.
    pub(crate) fn rotate(&self) -> io::Result<()> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let params = CertificateParams::new(names).map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        replace(&self.folder.join(KEY), &key.serialize_pem())?;
        replace(&self.folder.join(CERTIFICATE), &certificate.pem())
    }

    /// The server's side, which does not check its files again.
    pub(crate) fn server(&self) -> io::Result<tls::Server> {
        tls::Server::new(identity(&self.folder)).map_err(io::Error::other)
    }

    /// The authority's own certificate, which clients trust.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }
}

/// The server's side: it checks the files of this folder for changes.
pub(super) fn watch(folder: &Path) -> io::Result<tls::Server> {
    tls::Server::builder(identity(folder))
        .reload_interval(std::time::Duration::from_secs(1))
        .build()
        .map_err(io::Error::other)
}

fn identity(folder: &Path) -> Identity {
    Identity::new(Pem::file(folder.join(CERTIFICATE)), Pem::file(folder.join(KEY)))
}

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";

/// A reader sees the old content or the new one.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, content)?;
    std::fs::rename(new, path)
}
