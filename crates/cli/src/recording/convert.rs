//! `polyrpc recording export` and `import`: files of brpc's `rpc_dump`, and recordings.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use polyrpc_record::Writer;
use polyrpc_record::brpc::{self, ImportedCall, Importer, Numbers};

use super::files;
use super::filter::Filter;
use crate::failure::Failure;
use crate::terminal::{self, format_count, pluralize};

/// Formats of other programs.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Target {
    /// A file for brpc's rpc_replay
    Brpc,
    /// The same for brpc after 1.17.0, which numbers its protocols differently
    BrpcAfter117,
}

/// Input formats.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Source {
    /// A file of brpc's rpc_dump
    Brpc,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The format
    #[arg(long, value_enum)]
    to: Target,
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The files, in the order of their calls
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The format
    #[arg(long, value_enum)]
    from: Source,
    /// The recording to write; it must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn export(options: &Export) -> Result<ExitCode, Failure> {
    let numbers = match options.to {
        Target::Brpc => Numbers::UpTo117,
        Target::BrpcAfter117 => Numbers::After117,
    };
    // The output does not survive a failure: the corrected command would find it in its way.
    check_readable(&options.files)?;
    let created = create(&options.out)?;
    remove_unless_written(&options.out, export_calls(options, numbers, created))
}

fn export_calls(options: &Export, numbers: Numbers, file: File) -> Result<ConversionResult, Failure> {
    let mut out = BufWriter::new(file);
    let (mut written, mut refused) = (0, BTreeMap::<String, u64>::new());
    let failed = |error| Failure::system(format!("write {}", options.out.display()), &error);
    files::for_each_call(&options.files, &options.filter, |_, call| {
        match brpc::export(&call, numbers, &mut out).map_err(failed)? {
            Ok(()) => written += 1,
            Err(why) => *refused.entry(why.to_string()).or_default() += 1,
        }
        Ok(true)
    })?;
    out.flush().map_err(failed)?;
    Ok(ConversionResult { what: "exported", written, refused, is_foreign: false })
}

pub(crate) fn import(options: &Import) -> Result<ExitCode, Failure> {
    let Source::Brpc = options.from;
    check_readable(&options.files)?;
    let created = create(&options.out)?;
    remove_unless_written(&options.out, import_calls(options, created))
}

fn import_calls(options: &Import, file: File) -> Result<ConversionResult, Failure> {
    let failed = |error| Failure::system(format!("write {}", options.out.display()), &error);
    let mut writer = Writer::new(BufWriter::new(file)).map_err(failed)?;
    let mut is_foreign = false;
    let (mut written, mut refused) = (0, BTreeMap::<String, u64>::new());
    for path in &options.files {
        let unreadable = |error| Failure::system(format!("read {}", path.display()), &error);
        let mut importer = Importer::new(BufReader::new(File::open(path).map_err(unreadable)?));
        while let Some(imported) = importer.next_call().map_err(unreadable)? {
            match imported {
                ImportedCall::Call(mut call) => {
                    written += 1;
                    // Times continue from file to file.
                    call.arrival = written * 1_000_000;
                    writer.call(&call).map_err(failed)?;
                }
                ImportedCall::Skipped(why) => *refused.entry(why).or_default() += 1,
                ImportedCall::Torn { offset, reason } => {
                    let path = path.display();
                    // Not a single call: this is another kind of file.
                    is_foreign |= offset == 0;
                    terminal::print_error(format_args!(
                        "warning: {path}: nothing is read from byte {offset} on: {reason}"
                    ));
                    break;
                }
            }
        }
    }
    writer.finish().map_err(failed)?;
    Ok(ConversionResult { what: "imported", written, refused, is_foreign })
}

/// Result of a conversion.
struct ConversionResult {
    what: &'static str,
    written: u64,
    /// Calls that were left out, by the reason.
    refused: BTreeMap<String, u64>,
    /// A file has another format.
    is_foreign: bool,
}

/// Fails if an input cannot be opened.
fn check_readable(paths: &[PathBuf]) -> Result<(), Failure> {
    paths.iter().try_for_each(|path| match File::open(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::system(format!("read {}", path.display()), &error)),
    })
}

/// Reports what was converted, and removes the output if that is nothing.
fn remove_unless_written(
    out: &Path,
    finished: Result<ConversionResult, Failure>,
) -> Result<ExitCode, Failure> {
    if finished.as_ref().map_or(0, |finished| finished.written) == 0 {
        // The file was created by this run. That it stays is worth no second failure.
        let _ = fs::remove_file(out);
    }
    let ConversionResult { what, written, refused, is_foreign } = finished?;
    for (why, calls) in refused {
        let were = if calls == 1 { "call was" } else { "calls were" };
        terminal::print_error(format_args!("warning: {} {were} left out: {why}", format_count(calls)));
    }
    terminal::print(&format!("{what} {}", pluralize(written, "call")))?;
    Ok(if written == 0 || is_foreign { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Creates a file that only its owner can read: it contains messages.
fn create(path: &Path) -> Result<File, Failure> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| Failure::system(format!("create {}", path.display()), &error))
}
