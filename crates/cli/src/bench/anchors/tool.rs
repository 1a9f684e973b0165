//! A load tool that this program can run.

use std::path::PathBuf;
use std::process::Output;

use super::reading::{Environment, Load, Reading};
use super::{ghz, h2load, oha, own, wrk};

/// A tool, and the protocol over which it calls the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// This program.
    Own(&'static str),
    /// This program built with the feature `clock-at-send`.
    ClockAtSend,
    Ghz,
    H2load,
    Wrk,
    /// oha, with or without its correction of latencies.
    Oha {
        corrected: bool,
    },
}

impl Tool {
    pub(super) const ALL: [Self; 9] = [
        Self::Own("baidu-std"),
        Self::Own("grpc"),
        Self::Own("http"),
        Self::ClockAtSend,
        Self::Ghz,
        Self::H2load,
        Self::Wrk,
        Self::Oha { corrected: false },
        Self::Oha { corrected: true },
    ];

    /// Its name in the table, and for `--path`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Own(_) => "polyrpc",
            Self::ClockAtSend => "clock-at-send",
            Self::Ghz => "ghz",
            Self::H2load => "h2load",
            Self::Wrk => "wrk",
            Self::Oha { .. } => "oha",
        }
    }

    /// The protocol that it speaks.
    pub(super) fn protocol(self) -> &'static str {
        match self {
            Self::Own(protocol) => protocol,
            Self::ClockAtSend | Self::Ghz => "grpc",
            Self::H2load => "grpc (HTTP/2)",
            Self::Wrk | Self::Oha { corrected: false } => "http",
            Self::Oha { corrected: true } => "http, --latency-correction",
        }
    }

    /// The program, or why there is none.
    pub(super) fn program(self, paths: &[(String, PathBuf)]) -> Result<PathBuf, String> {
        let given = paths.iter().find(|(name, _)| name == self.name()).map(|(_, path)| path.clone());
        match (self, given) {
            (_, Some(path)) => Ok(path),
            (Self::Own(_), None) => std::env::current_exe().map_err(|error| error.to_string()),
            (Self::ClockAtSend, None) => Err("not given by --path clock-at-send=FILE".to_owned()),
            (Self::Ghz | Self::H2load | Self::Wrk | Self::Oha { .. }, None) => {
                find_program(self.name()).ok_or_else(|| format!("not installed: {}", self.source()))
            }
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::Ghz => "go install github.com/bojand/ghz/cmd/ghz@latest",
            Self::H2load => "Debian's nghttp2-client",
            Self::Oha { .. } => "cargo install oha",
            _ => "Debian's wrk",
        }
    }

    /// Arguments for a load; `None` if the tool cannot make it.
    pub(super) fn arguments(self, load: Load, environment: Environment<'_>) -> Option<Vec<String>> {
        match self {
            Self::Own(protocol) => Some(own::arguments(protocol, load, environment)),
            Self::ClockAtSend => Some(own::arguments("grpc", load, environment)),
            Self::Ghz => Some(ghz::arguments(load, environment)),
            Self::H2load => Some(h2load::arguments(load, environment)),
            Self::Wrk => wrk::arguments(load, environment),
            Self::Oha { corrected } => Some(oha::arguments(corrected, load, environment)),
        }
    }

    /// What it says that it measured.
    pub(super) fn read(
        self,
        output: &Output,
        load: Load,
        environment: Environment<'_>,
    ) -> Result<Reading, String> {
        let text = String::from_utf8_lossy(&output.stdout);
        let reading = match self {
            Self::Own(_) | Self::ClockAtSend => own::read(&text),
            Self::Ghz => ghz::read(&text),
            Self::H2load => h2load::read(&text, load, environment),
            Self::Wrk => wrk::read(&text),
            Self::Oha { .. } => oha::read(&text),
        };
        reading.filter(|reading| reading.calls > 0).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            let said = errors.lines().chain(text.lines()).find(|line| !line.trim().is_empty());
            format!("it measured nothing: {}", said.unwrap_or("it printed nothing"))
        })
    }
}

/// A program in the directories of `PATH`.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
