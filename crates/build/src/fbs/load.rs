//! Loading of the named files and their includes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::ast::Declared;
use super::parse;
use crate::Error;
use crate::error::{Kind, SourceLocation};

/// File with its declarations.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// Path relative to the include directory in which it was found.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Whether the file was named, and not only included.
    pub(super) named: bool,
    pub(super) declared: Declared,
}

/// Loads files, each after those that it includes.
pub(super) fn load(files: &[PathBuf], includes: &[PathBuf]) -> Result<Vec<SourceFile>, Error> {
    let mut loader = Loader { includes, files: Vec::new(), known: HashMap::new() };
    for file in files {
        let (path, name) = loader
            .find(file, None)
            .ok_or_else(|| Kind::NotFound { file: file.clone(), includes: includes.to_vec() })?;
        loader.load(path, name, true)?;
    }
    Ok(loader.files)
}

/// Loads a file from a text without includes.
pub(super) fn load_text(name: &str, text: &str) -> Result<Vec<SourceFile>, Error> {
    let declared = parse::parse(text)
        .map_err(|wrong| Kind::Schema { at: SourceLocation::new(name, wrong.at), reason: wrong.reason })?;
    Ok(vec![SourceFile { name: name.to_owned(), path: PathBuf::from(name), named: true, declared }])
}

struct Loader<'a> {
    includes: &'a [PathBuf],
    files: Vec<SourceFile>,
    /// By canonical path: index among the files, or `None` while it is being read.
    known: HashMap<PathBuf, Option<usize>>,
}

impl Loader<'_> {
    fn load(&mut self, path: PathBuf, name: String, named: bool) -> Result<(), Error> {
        let read = |source| Kind::Read { path: path.clone(), source };
        let canonical = fs::canonicalize(&path).map_err(read)?;
        match self.known.get(&canonical) {
            Some(Some(at)) => {
                self.files[*at].named |= named;
                return Ok(());
            }
            // Includes may be cyclic: names are resolved once all files are loaded.
            Some(None) => return Ok(()),
            None => {}
        }
        let text = fs::read_to_string(&path).map_err(read)?;
        let declared = parse::parse(&text).map_err(|wrong| Kind::Schema {
            at: SourceLocation::new(&name, wrong.at),
            reason: wrong.reason,
        })?;
        self.known.insert(canonical.clone(), None);
        for include in &declared.includes {
            let (found, included) = self.find(Path::new(&include.value), path.parent()).ok_or_else(|| {
                let at = SourceLocation::new(&name, include.at);
                Kind::Schema { at, reason: format!("the included file {:?} does not exist", include.value) }
            })?;
            self.load(found, included, false)?;
        }
        self.known.insert(canonical, Some(self.files.len()));
        self.files.push(SourceFile { name, path, named, declared });
        Ok(())
    }

    /// Returns the path and the name of a file: looked up as given, next to the including file, and in the include
    /// directories.
    fn find(&self, file: &Path, including_folder: Option<&Path>) -> Option<(PathBuf, String)> {
        let mut candidates = vec![];
        candidates.extend(including_folder.map(|including_folder| including_folder.join(file)));
        candidates.extend(self.includes.iter().map(|include| include.join(file)));
        candidates.push(file.to_owned());
        let found = candidates.into_iter().find(|candidate| candidate.is_file())?;
        let below = self.includes.iter().find_map(|include| found.strip_prefix(include).ok());
        let name = below.unwrap_or(&found).display().to_string();
        Some((found, name))
    }
}
