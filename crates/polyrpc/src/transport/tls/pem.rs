use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fmt, fs};

use bytes::Bytes;
use polyrpc_core::Status;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Certificates or a key, as PEM: in a file or in memory.
#[derive(Clone)]
pub struct Pem(Source);

#[derive(Clone)]
enum Source {
    File(PathBuf),
    Bytes(Bytes),
}

impl Pem {
    /// Creates one from a file, read each time it is loaded.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// Creates one from these bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self(Source::Bytes(bytes.into()))
    }

    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Status> {
        let text = self.read()?;
        let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| self.wrong(&error, "certificate"))?;
        match certificates.is_empty() {
            true => Err(self.wrong(&Error::NoItemsFound, "certificate")),
            false => Ok(certificates),
        }
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, Status> {
        PrivateKeyDer::from_pem_slice(&self.read()?).map_err(|error| self.wrong(&error, "private key"))
    }

    /// Returns a stamp that changes with the file; `None` if there is no file.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let Source::File(path) = &self.0 else { return None };
        let metadata = fs::metadata(path).ok()?;
        Some(Stamp { modified: metadata.modified().ok()?, length: metadata.len() })
    }

    fn read(&self) -> Result<Cow<'_, [u8]>, Status> {
        match &self.0 {
            Source::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Source::File(path) => fs::read(path)
                .map(Cow::Owned)
                .map_err(|error| Status::invalid_argument(format!("cannot read {self}: {error}"))),
        }
    }

    fn wrong(&self, error: &Error, wanted: &str) -> Status {
        Status::invalid_argument(match error {
            Error::NoItemsFound => format!("there is no {wanted} in {self}"),
            error => format!("{self} is not PEM: {error}"),
        })
    }
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::File(path) => path.display().fmt(f),
            Source::Bytes(_) => f.write_str("the given PEM"),
        }
    }
}

impl fmt::Debug for Pem {
    /// Prints only where it is, since it may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A path.
impl From<&str> for Pem {
    fn from(path: &str) -> Self {
        Self::file(path)
    }
}

/// A path.
impl From<String> for Pem {
    fn from(path: String) -> Self {
        Self::file(path)
    }
}

/// A path.
impl From<&Path> for Pem {
    fn from(path: &Path) -> Self {
        Self::file(path)
    }
}

/// A path.
impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Self {
        Self::file(path)
    }
}

/// Stamp to detect a change of a file. Changing the target of a symbolic link changes it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: SystemTime,
    length: u64,
}
