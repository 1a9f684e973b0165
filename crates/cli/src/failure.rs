//! Failures of the command.

use std::{fmt, io};

use polyrpc::{Code, Status};

/// What goes to standard error before the command ends with exit code 1.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None }
    }

    /// Something the system refused: `cannot read x: no such file`.
    pub(crate) fn system(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("cannot {what}: {error}"))
    }

    /// Adds what might help.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A call of the server at `url` that failed.
    pub(crate) fn of_call(status: &Status, url: &str) -> Self {
        let failure = Self::new(status.to_string());
        let refused = status.code() == Code::Unavailable && status.message().contains("refused");
        match url.split_once("://") {
            // Other URLs, of a registry or of several servers, do not name an address to listen at.
            Some((_, address)) if refused && status.message().contains(&format!(" {address}: ")) => {
                failure.with_hint(format!("nothing listens there; `polyrpc serve --listen {address}` would"))
            }
            _ => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.text)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<polyrpc::Error> for Failure {
    fn from(error: polyrpc::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<polyrpc_build::Error> for Failure {
    fn from(error: polyrpc_build::Error) -> Self {
        // `Debug` prints the text with its cause.
        Self::new(format!("{error:?}"))
    }
}
