//! Logging of the library's events to standard error.

use std::env::{self, VarError};
use std::io::{self, IsTerminal};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::failure::Failure;
use crate::terminal;

/// Installs the log output, filtered by `wanted`, or else `RUST_LOG`, or else `default_level`.
///
/// Returns a handle that can replace the filter later.
///
/// # Errors
///
/// If `RUST_LOG` is invalid.
pub(crate) fn install(wanted: Option<Targets>, default_level: LevelFilter) -> Result<LogFilter, Failure> {
    let filter = match wanted {
        Some(wanted) => wanted,
        None => from_environment()?.unwrap_or_else(|| default_filter(default_level)),
    };
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(terminal::is_coloured(&io::stderr()));
    // On a terminal the user sees when a line appears; a file needs timestamps.
    let lines = match io::stderr().is_terminal() {
        true => lines.without_time().boxed(),
        false => lines.boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter);
    registry().with(lines.with_filter(filter)).init();
    Ok(handle)
}

/// The filter for a usual level. Where warnings are shown, so are the recovery of a server or a registry, and the new name
/// of an earlier recording, which the library reports as information.
fn default_filter(default_level: LevelFilter) -> Targets {
    let filter = Targets::new().with_default(default_level);
    match default_level == LevelFilter::WARN {
        true => filter.with_targets(SHOWN.map(|target| (target, LevelFilter::INFO))),
        false => filter,
    }
}

/// Targets whose information is shown as warnings are.
const SHOWN: [&str; 3] =
    ["polyrpc::client::connection::connect_gate", "polyrpc::client::cluster", "polyrpc::record"];

/// Changes the filter of the log.
pub(crate) type LogFilter = reload::Handle<Targets, Registry>;

/// A level, or levels of parts of the program: `info`, `polyrpc::client=debug,warn`.
pub(crate) fn parse_filter(text: &str) -> Result<Targets, String> {
    let wrong = || {
        format!("`{text}` is not a level: expected error, warn, info, debug, trace or off, or target=level,…")
    };
    // As a single directive, an invalid level would be parsed as a target, and an empty string as a level.
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok() || part.contains('=');
    match text.split(',').all(is_level) {
        true => text.parse().map_err(|_| wrong()),
        false => Err(wrong()),
    }
}

fn from_environment() -> Result<Option<Targets>, Failure> {
    match env::var("RUST_LOG") {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => text.parse().map(Some).map_err(|error| Failure::new(format!("RUST_LOG: {error}"))),
        Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(Failure::new(format!("RUST_LOG: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn recovery_is_shown_where_warnings_are() {
        let (serving, calling) = (default_filter(LevelFilter::WARN), default_filter(LevelFilter::ERROR));
        for target in SHOWN {
            assert!(serving.would_enable(target, &Level::INFO), "{target}");
            assert!(!serving.would_enable(target, &Level::DEBUG), "{target}");
            assert!(!calling.would_enable(target, &Level::WARN), "{target}");
        }
        assert!(!serving.would_enable("polyrpc::server", &Level::INFO));
    }

    #[test]
    fn filter_is_a_level_or_levels_per_target() {
        let debug = parse_filter("debug").unwrap();
        assert!(
            debug.would_enable("polyrpc", &Level::DEBUG) && !debug.would_enable("polyrpc", &Level::TRACE)
        );
        let parts = parse_filter("polyrpc::client=debug,warn").unwrap();
        assert!(parts.would_enable("polyrpc::client::dial", &Level::DEBUG));
        assert!(!parts.would_enable("polyrpc::server", &Level::INFO));
        assert!(!parse_filter("off").unwrap().would_enable("polyrpc", &Level::ERROR));
        for wrong in ["", "loud", "polyrpc=loud", "warn,loud"] {
            assert!(parse_filter(wrong).is_err(), "{wrong}");
        }
    }
}
