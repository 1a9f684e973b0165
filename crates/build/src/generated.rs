use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::error::Kind;

/// Generated code that is not written yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Generated {
    /// The files: their names below the directory they are meant for, and what is in them.
    pub files: Vec<(PathBuf, String)>,
    /// The `.proto` files that were read, imports included: code is to be generated again when one changes.
    pub inputs: Vec<PathBuf>,
    /// What might surprise in the generated code, a sentence each.
    pub warnings: Vec<String>,
}

impl Generated {
    /// Writes the files that `dir` does not hold already; the others keep their time of change. Directories
    /// are made as needed.
    ///
    /// # Errors
    ///
    /// When a directory or a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        for (path, text) in self.stale(dir) {
            let parent = path.parent().unwrap_or(dir);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, text))
                .map_err(|source| Kind::Write { path, source })?;
        }
        Ok(())
    }

    /// The files that `dir` does not hold, or not as they should be, with what should be in them.
    ///
    /// A test that wants none of them keeps checked-in code as its `.proto` says.
    pub fn stale(&self, dir: &Path) -> Vec<(PathBuf, &str)> {
        let files = self.files.iter().map(|(name, text)| (dir.join(name), text.as_str()));
        files.filter(|(path, text)| fs::read(path).ok().as_deref() != Some(text.as_bytes())).collect()
    }
}
