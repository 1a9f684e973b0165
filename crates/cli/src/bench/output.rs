//! Destinations of the results.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use polyrpc_bench_report::model::Document;
use polyrpc_bench_report::report;

use crate::failure::Failure;
use crate::terminal;

/// Output files.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct FileOptions {
    /// Also write one HTML page with plots, which needs no network and no scripts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write each second as CSV, or each window of a comparison
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write the histograms as an HDR log, for the tools of HdrHistogram
    #[arg(long, value_name = "FILE")]
    pub(super) hdr: Option<PathBuf>,
}

impl FileOptions {
    /// The first option that was given.
    pub(super) fn given_option(&self) -> Option<&'static str> {
        let options = [("--html", &self.html), ("--csv", &self.csv), ("--hdr", &self.hdr)];
        options.into_iter().find_map(|(name, file)| file.as_ref().map(|_| name))
    }
}

/// The files of [`FileOptions`]. They are opened before the load starts, so that a wrong path loses no measurement.
pub(super) struct Files {
    html: Option<OpenFile>,
    csv: Option<OpenFile>,
    hdr: Option<OpenFile>,
}

impl Files {
    pub(super) fn open(options: &FileOptions) -> Result<Self, Failure> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OpenFile::open).transpose();
        Ok(Self { html: open(&options.html)?, csv: open(&options.csv)?, hdr: open(&options.hdr)? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.html.is_none() && self.csv.is_none() && self.hdr.is_none()
    }

    /// Writes documents with their names. CSV and HDR logs hold one document. A file that cannot be written does not
    /// keep the others from being written.
    pub(super) fn write(&self, documents: &[(String, Document)]) -> Result<(), Failure> {
        let written = [self.write_html(documents), self.write_csv(documents), self.write_hdr(documents)];
        written.into_iter().collect()
    }

    fn write_html(&self, documents: &[(String, Document)]) -> Result<(), Failure> {
        if let Some(file) = &self.html {
            let title = match documents {
                [(name, _)] => format!("polyrpc bench: {name}"),
                _ => "polyrpc bench".to_owned(),
            };
            file.replace(&report::html(&title, documents))?;
        }
        Ok(())
    }

    fn write_csv(&self, documents: &[(String, Document)]) -> Result<(), Failure> {
        match &self.csv {
            Some(file) => file.replace(&report::csv(single_document("--csv", documents)?)),
            None => Ok(()),
        }
    }

    fn write_hdr(&self, documents: &[(String, Document)]) -> Result<(), Failure> {
        let Some(file) = &self.hdr else { return Ok(()) };
        let Document::Run(run) = single_document("--hdr", documents)? else {
            return Err(Failure::new("a comparison of two servers keeps no histograms for --hdr"));
        };
        file.replace(&report::hdr_log(run))
    }
}

/// The document of a file that holds one.
fn single_document<'d>(option: &str, documents: &'d [(String, Document)]) -> Result<&'d Document, Failure> {
    match documents {
        [(_, document)] => Ok(document),
        _ => Err(Failure::new(format!("{option} takes one result"))),
    }
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

impl Output {
    /// Opens the destination of `--json`.
    pub(super) fn open(json: Option<&Path>) -> Result<Self, Failure> {
        match json {
            None => Ok(Self::Text),
            Some(path) if path.as_os_str() == "-" => Ok(Self::Json),
            Some(path) => Ok(Self::TextAndFile(OpenFile::open(path)?)),
        }
    }

    /// Prints the text, or prints or writes the JSON.
    pub(super) fn print(&self, text: &str, json: impl FnOnce() -> String) -> Result<(), Failure> {
        match self {
            Self::Text => terminal::print(text).map(drop),
            Self::Json => terminal::print(&json()).map(drop),
            Self::TextAndFile(file) => {
                terminal::print(text)?;
                file.replace(&(json() + "\n"))
            }
        }
    }
}

impl OpenFile {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Failure::system(format!("write {}", path.display()), &error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub(super) fn replace(&self, text: &str) -> Result<(), Failure> {
        let refused = |error| Failure::system(format!("write {}", self.path.display()), &error);
        // A pipe or a terminal cannot be truncated.
        if self.file.metadata().is_ok_and(|file| file.is_file()) {
            self.file.set_len(0).map_err(refused)?;
        }
        (&self.file).write_all(text.as_bytes()).map_err(refused)
    }
}
