use std::fmt;

/// Why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    path: String,
    reason: &'static str,
}

impl Error {
    #[cold]
    pub(super) fn new(path: &str, reason: &'static str) -> Self {
        Self { path: path.to_owned(), reason }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(self.reason),
            path => write!(f, "`{path}`: {}", self.reason),
        }
    }
}

impl std::error::Error for Error {}
