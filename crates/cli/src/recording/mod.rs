//! `polyrpc recording`: lists, shows and converts recordings.

pub(crate) mod answer;
mod convert;
pub(crate) mod described;
pub(crate) mod files;
pub(crate) mod filter;
mod list;
mod options;
pub(crate) mod show;

pub(crate) use self::options::RecordOptions;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the methods of recordings, and the number of lost calls
    List(list::Options),
    /// Print recorded calls
    Show(show::Options),
    /// Write calls to a file of another format
    Export(convert::Export),
    /// Write a recording from a file of another format
    Import(convert::Import),
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    match &options.command {
        Command::List(options) => list::run(options),
        Command::Show(options) => show::run(options),
        Command::Export(options) => convert::export(options),
        Command::Import(options) => convert::import(options),
    }
}
