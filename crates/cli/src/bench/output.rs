//! Destinations of the results.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::csv;
use super::json::Document;
use super::report::Report;
use crate::failure::Failure;
use crate::terminal;

/// Destinations of a report. Files are opened before the load starts, so that a wrong path loses no measurement.
pub(super) struct Outputs {
    json: Output,
    csv: Option<OpenFile>,
}

/// Destination of the report and its JSON.
pub(super) enum Output {
    Text,
    Json,
    TextAndFile(OpenFile),
}

/// A file that keeps its content until it is replaced.
pub(super) struct OpenFile {
    file: File,
    path: PathBuf,
}

impl Outputs {
    /// Opens the destinations of `--json` and `--csv`.
    pub(super) fn open(json: Option<&Path>, csv: Option<&Path>) -> Result<Self, Failure> {
        let json = match json {
            None => Output::Text,
            Some(path) if path.as_os_str() == "-" => Output::Json,
            Some(path) => Output::TextAndFile(OpenFile::open(path)?),
        };
        Ok(Self { json, csv: csv.map(OpenFile::open).transpose()? })
    }

    pub(super) fn show(self, report: &Report<'_>) -> Result<(), Failure> {
        let json = || {
            let document = Document::new(report);
            serde_json::to_string_pretty(&document).expect("the report is made of plain values")
        };
        self.print(&report.to_string(), json)?;
        match self.csv {
            Some(file) => file.replace(&csv::seconds(report.outcome)),
            None => Ok(()),
        }
    }

    /// Prints the text, or prints or writes the JSON.
    pub(super) fn print(&self, text: &str, json: impl FnOnce() -> String) -> Result<(), Failure> {
        match &self.json {
            Output::Text => terminal::print(text).map(drop),
            Output::Json => terminal::print(&json()).map(drop),
            Output::TextAndFile(file) => {
                terminal::print(text)?;
                file.replace(&(json() + "\n"))
            }
        }
    }
}

impl OpenFile {
    fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Failure::system(format!("write {}", path.display()), &error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    fn replace(&self, text: &str) -> Result<(), Failure> {
        let refused = |error| Failure::system(format!("write {}", self.path.display()), &error);
        // A pipe or a terminal cannot be truncated.
        if self.file.metadata().is_ok_and(|file| file.is_file()) {
            self.file.set_len(0).map_err(refused)?;
        }
        (&self.file).write_all(text.as_bytes()).map_err(refused)
    }
}
