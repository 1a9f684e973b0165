//! A directory for files that other programs read while something is measured.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A new directory for temporary files, which only this user may enter; removed when dropped.
#[derive(Debug)]
pub(super) struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// Creates a directory whose name has this purpose. It is never a directory that another user created: what is in
    /// it is sent or run.
    pub(super) fn new(purpose: &str) -> Result<Self, Failure> {
        let mut number = 0;
        loop {
            let name = format!("polyrpc-{purpose}-{}-{number}", std::process::id());
            let path = env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // A process with this id may have left one.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_TRIES => number += 1,
                Err(error) => return Err(Failure::system(format!("create {}", path.display()), &error)),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // Leftovers are in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MAX_TRIES: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directory_is_new_and_private_and_is_removed() {
        let [one, other] = ["test", "test"].map(|purpose| PrivateDirectory::new(purpose).unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let path = one.path().to_owned();
        fs::write(path.join("file"), b"").unwrap();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }
}
