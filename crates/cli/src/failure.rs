//! Failures of the command.

use std::{fmt, io};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc::{Code, Status};
use serde_json::{Map, Value, json};

use crate::url::Url;

/// Error printed to standard error before the command exits with a code other than 0.
#[derive(Debug)]
pub struct Failure {
    text: String,
    hint: Option<String>,
    /// Status of a failed call, if that is the reason.
    status: Option<Box<Status>>,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None, status: None }
    }

    /// Failure of a system call: `cannot read x: no such file`.
    pub(crate) fn system(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("cannot {what}: {error}"))
    }

    /// Adds a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint, unless there is one already.
    pub(crate) fn or_hint(self, hint: Option<String>) -> Self {
        match (&self.hint, hint) {
            (None, Some(hint)) => self.with_hint(hint),
            _ => self,
        }
    }

    /// Prefixes the message with its subject.
    pub(crate) fn with_subject(mut self, what: impl fmt::Display) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// The failure of a query by gRPC reflection instead, if its cause is not that the server has none. `what`: why the
    /// query was made.
    pub(crate) fn or_reason(self, what: &str, status: &Status) -> Self {
        match status.code() {
            Code::DeadlineExceeded | Code::Unavailable | Code::Unauthenticated | Code::PermissionDenied => {
                let asked = Self { status: Some(Box::new(status.clone())), ..Self::new(status.to_string()) };
                asked.with_subject(format_args!("{what}, and gRPC reflection failed")).or_hint(self.hint)
            }
            _ => self,
        }
    }

    /// Failure of a call of the server at `url`.
    pub(crate) fn from_status(status: &Status, url: &str) -> Self {
        let failure = Self { status: Some(Box::new(status.clone())), ..Self::new(status.to_string()) };
        let refused = status.code() == Code::Unavailable && status.message().contains("refused");
        let url = Url::parse(url).filter(|_| refused);
        match url.as_ref().map(Url::server) {
            // Other URLs, of a registry or of several servers, do not name an address to listen at.
            Some(address) if status.message().contains(&format!(" {address}: ")) => {
                failure.with_hint(format!("nothing listens there; `polyrpc serve --listen {address}` would"))
            }
            _ => failure,
        }
    }

    /// The failure without `error:` and its hint.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn has_hint(&self) -> bool {
        self.hint.is_some()
    }

    /// The exit code: 64 plus the status number for a failed call, as in grpcurl, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match &self.status {
            Some(status) => FAILED_CALL.saturating_add(u8::try_from(number(status.code())).unwrap_or(0)),
            None => 1,
        }
    }

    /// The failure as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = Map::new();
        if let Some(status) = &self.status {
            error.insert("code".into(), number(status.code()).into());
            error.insert("status".into(), status.code().as_str().into());
            if let Some(number) = status.number() {
                error.insert("number".into(), number.into());
            }
            error.insert("message".into(), status.message().into());
            if !status.details().is_empty() {
                error.insert("details".into(), STANDARD.encode(status.details()).into());
            }
        } else {
            error.insert("message".into(), self.text.as_str().into());
        }
        if let Some(hint) = &self.hint {
            error.insert("hint".into(), hint.as_str().into());
        }
        error.insert("exit_code".into(), self.exit_code().into());
        json!({ "error": error })
    }
}

/// gRPC's number of a status code.
pub(crate) fn number(code: Code) -> i32 {
    code as i32
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

impl From<polyrpc_transform::Error> for Failure {
    fn from(error: polyrpc_transform::Error) -> Self {
        let failure = Self::new(error.text());
        match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

impl From<polyrpc_build::Error> for Failure {
    fn from(error: polyrpc_build::Error) -> Self {
        // `Debug` prints the text with its cause.
        Self::new(format!("{error:?}"))
    }
}

/// Offset that grpcurl adds to the status of a call, to distinguish it from other exit codes.
const FAILED_CALL: u8 = 64;
