use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::error::Kind;

/// Generated code that is not written to disk yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GeneratedCode {
    /// Files: paths relative to the output directory, and contents.
    pub files: Vec<(PathBuf, String)>,
    /// The `.proto` files that were read, imports included: code must be generated again when one of them changes.
    pub inputs: Vec<PathBuf>,
    /// Warnings about the generated code, one sentence each.
    pub warnings: Vec<String>,
}

impl GeneratedCode {
    /// Writes the files that differ from those in `dir`; the others keep their modification time. Directories are
    /// created as needed.
    ///
    /// # Errors
    ///
    /// If a directory or a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        for (path, text) in self.stale(dir) {
            let parent = path.parent().unwrap_or(dir);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, text))
                .map_err(|source| Kind::Write { path, source })?;
        }
        Ok(())
    }

    /// Returns the files that are missing in `dir` or differ, with their expected contents.
    ///
    /// A test that this is empty keeps checked-in code up to date with its `.proto`.
    pub fn stale(&self, dir: &Path) -> Vec<(PathBuf, &str)> {
        let files = self.files.iter().map(|(name, text)| (dir.join(name), text.as_str()));
        files.filter(|(path, text)| fs::read(path).ok().as_deref() != Some(text.as_bytes())).collect()
    }
}
