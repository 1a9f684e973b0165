use std::{fmt, io};

/// Why something cannot be described or converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    hint: Option<String>,
}

impl Error {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None }
    }

    /// Creates an error from a system call's: `cannot read x: no such file`.
    pub fn system(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("cannot {what}: {error}"))
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the text without the hint.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the hint, if there is one.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// Writes the text, and the hint in a line of its own.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{}\nhint: {hint}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for Error {}
