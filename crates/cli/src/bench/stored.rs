//! Stored results: `polyrpc bench report`, and limits relative to a baseline.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use polyrpc_bench_report::model::{Document, Run, Threshold};
use polyrpc_bench_report::report;
use polyrpc_load::CheckedCondition;

use super::document;
use super::output::{FileOptions, Files};
use crate::failure::Failure;
use crate::terminal;

/// A stored result as a baseline.
#[derive(Debug, Clone, Args)]
pub(super) struct BaselineOptions {
    /// Compare with a result that --json stored
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    baseline: Option<PathBuf>,
    /// Limits of --baseline, as multiples of its figures
    #[arg(long, value_name = "CONDITIONS", default_value = "p99<1.1x,rate>0.95x", value_parser = parse_limits, requires = "baseline", help_heading = "Output")]
    limits: Limits,
}

#[derive(Debug, Clone)]
struct Limits(Vec<Threshold>);

fn parse_limits(text: &str) -> Result<Limits, String> {
    Threshold::parse_list(text).map(Limits).map_err(|error| error.to_string())
}

/// A baseline that was read.
pub(super) struct Baseline {
    run: Box<Run>,
    limits: Vec<Threshold>,
}

impl BaselineOptions {
    /// `--baseline`, if it was given.
    pub(super) fn given_option(&self) -> Option<&'static str> {
        self.baseline.as_ref().map(|_| "--baseline")
    }

    /// Reads the baseline, if there is one.
    pub(super) fn read(&self) -> Result<Option<Baseline>, Failure> {
        let Some(path) = &self.baseline else { return Ok(None) };
        match read(path)? {
            Document::Run(run) => Ok(Some(Baseline { run, limits: self.limits.0.clone() })),
            Document::Versus(_) | Document::Suite(_) => Err(Failure::new(format!(
                "{} compares several servers; a baseline is one run",
                path.display()
            ))),
        }
    }
}

impl Baseline {
    /// Compares a run with the limits.
    pub(super) fn judge(&self, run: &Run) -> Vec<CheckedCondition> {
        let judged = self.limits.iter().map(|limit| limit.judge(run, Some(&self.run)));
        let checked = judged.map(|result| CheckedCondition {
            condition: result.threshold,
            measured: result.value.or(result.reason).unwrap_or_default(),
            is_met: result.is_met,
        });
        checked.collect()
    }
}

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Results that --json stored
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: FileOptions,
    #[command(flatten)]
    baseline: BaselineOptions,
}

/// Shows stored results. Returns 1 if one of them does not meet its limits.
pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let files = Files::open(&options.output)?;
    let baseline = options.baseline.read()?;
    let mut documents = Vec::new();
    for path in &options.files {
        let mut document = read(path)?;
        if let (Some(baseline), Document::Run(run)) = (&baseline, &mut document) {
            run.thresholds.extend(baseline.judge(run).iter().map(document::threshold));
        }
        documents.push((path.display().to_string(), document));
    }
    if files.is_empty() {
        let is_coloured = terminal::is_coloured(&std::io::stdout());
        let texts: Vec<_> =
            documents.iter().map(|(_, document)| report::terminal(document, is_coloured)).collect();
        terminal::print(&texts.join("\n\n"))?;
    }
    files.write(&documents)?;
    let code = documents.iter().map(|(_, document)| exit_code(document)).max();
    Ok(ExitCode::from(code.unwrap_or_default()))
}

/// The exit code that the measurement itself had.
pub(super) fn exit_code(document: &Document) -> u8 {
    match document {
        Document::Run(run) => run.exit_code(),
        Document::Versus(versus) => versus.exit_code(),
        Document::Suite(suite) => suite.exit_code(),
    }
}

fn read(path: &Path) -> Result<Document, Failure> {
    let text = read_text(path)?;
    Document::read(&text).map_err(|error| Failure::new(format!("{} cannot be used: {error}", path.display())))
}

/// A file's text, of bounded length.
pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::system(format!("read {}", path.display()), &error);
    let mut text = String::new();
    // One byte more than a document may have, so that a longer one is rejected with a message.
    fs::File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

const MAX_BYTES: u64 = 64 << 20;
