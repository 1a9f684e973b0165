//! The named files and those that they include.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::ast::Declared;
use super::parse;
use crate::Error;
use crate::error::{Kind, Place};

/// A file with what it declares.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Its path below the directory it was found under.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// It was asked for, and not only included.
    pub(super) named: bool,
    pub(super) declared: Declared,
}

/// Loads files, each after those that it includes.
pub(super) fn load(files: &[PathBuf], includes: &[PathBuf]) -> Result<Vec<Loaded>, Error> {
    let mut loader = Loader { includes, files: Vec::new(), known: HashMap::new() };
    for file in files {
        let (path, name) = loader
            .find(file, None)
            .ok_or_else(|| Kind::NotFound { file: file.clone(), includes: includes.to_vec() })?;
        loader.load(path, name, true)?;
    }
    Ok(loader.files)
}

/// The same for a file that is at hand, and includes nothing.
pub(super) fn load_text(name: &str, text: &str) -> Result<Vec<Loaded>, Error> {
    let declared = parse::parse(text)
        .map_err(|wrong| Kind::Schema { at: Place::new(name, wrong.at), reason: wrong.reason })?;
    Ok(vec![Loaded { name: name.to_owned(), path: PathBuf::from(name), named: true, declared }])
}

struct Loader<'a> {
    includes: &'a [PathBuf],
    files: Vec<Loaded>,
    /// By the canonical path: where among the files it is, or that it is being read.
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
            // Files may include each other: names are linked once all are here.
            Some(None) => return Ok(()),
            None => {}
        }
        let text = fs::read_to_string(&path).map_err(read)?;
        let declared = parse::parse(&text)
            .map_err(|wrong| Kind::Schema { at: Place::new(&name, wrong.at), reason: wrong.reason })?;
        self.known.insert(canonical.clone(), None);
        for include in &declared.includes {
            let (found, included) = self.find(Path::new(&include.value), path.parent()).ok_or_else(|| {
                let at = Place::new(&name, include.at);
                Kind::Schema { at, reason: format!("there is no file {:?} to include", include.value) }
            })?;
            self.load(found, included, false)?;
        }
        self.known.insert(canonical, Some(self.files.len()));
        self.files.push(Loaded { name, path, named, declared });
        Ok(())
    }

    /// Where a file is, and what it is called: looked for as it is named, beside the file that names it, under the
    /// directories of includes.
    fn find(&self, file: &Path, beside: Option<&Path>) -> Option<(PathBuf, String)> {
        let mut candidates = vec![];
        candidates.extend(beside.map(|beside| beside.join(file)));
        candidates.extend(self.includes.iter().map(|include| include.join(file)));
        candidates.push(file.to_owned());
        let found = candidates.into_iter().find(|candidate| candidate.is_file())?;
        let below = self.includes.iter().find_map(|include| found.strip_prefix(include).ok());
        let name = below.unwrap_or(&found).display().to_string();
        Some((found, name))
    }
}
