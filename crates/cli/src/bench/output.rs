//! Destination of the results.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::report::Report;
use crate::failure::Failure;
use crate::terminal;

/// Destination of a report. Files are opened before the load starts, so that a wrong path loses no measurement.
pub(super) enum Output {
    Text,
    Json,
    TextAndFile(File, PathBuf),
}

impl Output {
    /// Opens the destination of `--json`. An existing file keeps its content until there is a report.
    pub(super) fn open(json: Option<&Path>) -> Result<Self, Failure> {
        match json {
            None => Ok(Self::Text),
            Some(path) if path.as_os_str() == "-" => Ok(Self::Json),
            Some(path) => {
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
                let file =
                    file.map_err(|error| Failure::system(format!("write {}", path.display()), &error))?;
                Ok(Self::TextAndFile(file, path.to_owned()))
            }
        }
    }

    pub(super) fn show(self, report: &Report) -> Result<(), Failure> {
        match self {
            Self::Text => terminal::print(&report.to_string()).map(drop),
            Self::Json => terminal::print(&report.to_json()).map(drop),
            Self::TextAndFile(mut file, path) => {
                terminal::print(&report.to_string())?;
                let refused = |error| Failure::system(format!("write {}", path.display()), &error);
                // A pipe or a terminal cannot be truncated.
                if file.metadata().is_ok_and(|file| file.is_file()) {
                    file.set_len(0).map_err(refused)?;
                }
                file.write_all((report.to_json() + "\n").as_bytes()).map_err(refused)
            }
        }
    }
}
