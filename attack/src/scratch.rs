//! A folder of temporary files that is removed at the end.

use std::io;
use std::path::{Path, PathBuf};

/// The folder. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates it, for this use by this process.
    pub(crate) fn new(purpose: &str) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("polyrpc-{purpose}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Files that cannot be removed stay in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
