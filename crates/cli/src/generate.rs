//! `polyrpc generate`: generates the code of `.proto` or `.fbs` files, to be checked in.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Files to generate code for, ending in .proto or .fbs; all files of a package belong in one call
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Directories of the files and their imports [default: the current directory]
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    includes: Vec<PathBuf>,
    /// Output directory: one file per package, and a mod.rs that includes them
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write nothing; exit with 1 and name the files that are not up to date
    #[arg(long)]
    check: bool,
    /// Skip streaming methods
    #[arg(long)]
    skip_streaming: bool,
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    options.files.iter().try_for_each(|file| check(file))?;
    let generated = polyrpc_build::Config::new()
        .files(options.files)
        .includes(options.includes)
        .include_file("mod.rs")
        .skip_streaming(options.skip_streaming)
        .generate()?;
    for warning in &generated.warnings {
        terminal::print_error(format_args!("warning: {warning}"));
    }
    let stale: Vec<_> = generated.stale(&options.out).into_iter().map(|(path, _)| path).collect();
    if !options.check {
        generated.write(&options.out)?;
    }
    let word = if options.check { "stale" } else { "wrote" };
    for path in &stale {
        terminal::print(&format!("{word} {}", path.display()))?;
    }
    Ok(if options.check && !stale.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Rejects a file in another language: it would be parsed as .proto.
fn check(file: &Path) -> Result<(), Failure> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("proto" | "fbs") => Ok(()),
        _ => Err(Failure::new(format!("{} ends in neither .proto nor .fbs", file.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_in_another_language_is_an_error() {
        assert!(["a.proto", "dir.d/a.fbs"].iter().all(|file| check(Path::new(file)).is_ok()));
        for other in ["m.json", "proto", "a.proto.txt"] {
            let failure = check(Path::new(other)).unwrap_err();
            assert_eq!(failure.text(), format!("{other} ends in neither .proto nor .fbs"));
        }
    }
}
