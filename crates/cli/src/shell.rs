//! `polyrpc completions` and `polyrpc man`: files that a package of the command installs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell to generate for
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = MAN)]
pub(crate) struct Man {
    /// Write one page per command to this directory instead
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn generate_completions(
    options: &Completions,
    command: &mut Command,
) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, command, "polyrpc", &mut text);
    print(&text)
}

pub(crate) fn generate_man(options: &Man, command: Command) -> Result<ExitCode, Failure> {
    let cannot = |error: &std::io::Error| Failure::system("write the manual pages", error);
    match &options.out {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(|error| cannot(&error))?;
            print(&page)
        }
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(|error| cannot(&error))?;
            clap_mangen::generate_to(command, directory).map_err(|error| cannot(&error))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    terminal::print(String::from_utf8_lossy(text).trim_end_matches('\n'))?;
    Ok(ExitCode::SUCCESS)
}

const COMPLETIONS: &str = "\
Examples:
  polyrpc completions bash > ~/.local/share/bash-completion/completions/polyrpc
  polyrpc completions fish > ~/.config/fish/completions/polyrpc.fish";

const MAN: &str = "\
Examples:
  polyrpc man | man -l -
  polyrpc man --out /usr/local/share/man/man1";
