//! `polyrpc bench peer`: what `bench suite` starts of this program. Not for users.

mod floor;
mod serve;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Serve the contracts of suites over every protocol
    Serve(serve::Options),
    /// Answer frames with frames of the same length
    FloorServe(floor::ServeOptions),
    /// Send frames, and measure when they come back
    FloorCall(floor::CallOptions),
}

pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    match &options.action {
        Action::Serve(options) => serve::run(options),
        Action::FloorServe(options) => floor::serve(options),
        Action::FloorCall(options) => floor::call(options),
    }?;
    Ok(ExitCode::SUCCESS)
}
