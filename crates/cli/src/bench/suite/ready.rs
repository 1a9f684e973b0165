//! When a server is ready, and how it is stopped.

use std::time::Duration;

use serde::Deserialize;

use crate::terminal;

/// When a server is ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Ready {
    /// It accepts connections: `tcp`.
    #[default]
    Tcp,
    /// It prints a line that begins so: `line:TEXT`.
    Line(String),
    /// It answers with status 200: `http:/PATH`.
    Http(String),
    /// Its health service says that it serves: `grpc-health`.
    GrpcHealth,
}

/// How a server is stopped: `term 5s` sends SIGTERM, and SIGKILL after the time; `kill` does so at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Stop {
    /// Time that it has to end by itself.
    pub(super) grace: Duration,
}

impl TryFrom<String> for Ready {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "tcp" => Ok(Self::Tcp),
            None if text == "grpc-health" => Ok(Self::GrpcHealth),
            Some(("line", line)) if !line.is_empty() => Ok(Self::Line(line.to_owned())),
            Some(("http", path)) if path.starts_with('/') => Ok(Self::Http(path.to_owned())),
            _ => Err(format!("ready is tcp, line:TEXT, http:/PATH or grpc-health, not {text:?}")),
        }
    }
}

impl TryFrom<String> for Stop {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        match words.as_slice() {
            ["kill"] => Ok(Self { grace: Duration::ZERO }),
            ["term"] => Ok(Self::default()),
            ["term", time] => Ok(Self { grace: terminal::parse_duration(time)? }),
            _ => Err(format!("stop is `term 5s` or `kill`, not {text:?}")),
        }
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self { grace: Duration::from_secs(5) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed_and_others_rejected_with_a_message() {
        let ready = |text: &str| Ready::try_from(text.to_owned());
        assert_eq!(ready("line:listening"), Ok(Ready::Line("listening".to_owned())));
        assert_eq!(ready("http:/health"), Ok(Ready::Http("/health".to_owned())));
        assert_eq!(ready("grpc-health"), Ok(Ready::GrpcHealth));
        assert!(ready("soon").unwrap_err().contains("not \"soon\""));
        let stop = |text: &str| Stop::try_from(text.to_owned()).map(|stop| stop.grace);
        assert_eq!(stop("term 1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(stop("kill"), Ok(Duration::ZERO));
        assert!(stop("ask nicely").is_err());
    }
}
