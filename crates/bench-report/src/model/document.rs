//! A file with a result.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::run::Run;
use super::suite::Suite;
use super::versus::Versus;

/// Name and version of the format.
pub const SCHEMA: &str = "polyrpc.bench/1";

/// A result of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// A run against one server.
    Run(Box<Run>),
    /// A comparison of two servers.
    Versus(Box<Versus>),
    /// A published benchmark, made again.
    Suite(Box<Suite>),
}

/// What each document starts with.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
    kind: Option<String>,
}

#[derive(Serialize)]
struct TaggedDocument<'a, T> {
    schema: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// If it is not JSON, has another schema or version, misses a field, or holds a malformed histogram.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        if text.len() > MAX_BYTES {
            return Err(ReadError::new(format!("it is longer than {} MiB", MAX_BYTES >> 20)));
        }
        let head: Head = serde_json::from_str(text).map_err(ReadError::from_json)?;
        let schema = head
            .schema
            .ok_or_else(|| ReadError::new(format!("it has no \"schema\"; this program reads {SCHEMA:?}")))?;
        check_schema(&schema)?;
        match head.kind.as_deref() {
            Some(RUN) => Ok(Self::Run(Box::new(serde_json::from_str(text).map_err(ReadError::from_json)?))),
            Some(VERSUS) => {
                Ok(Self::Versus(Box::new(serde_json::from_str(text).map_err(ReadError::from_json)?)))
            }
            Some(SUITE) => {
                Ok(Self::Suite(Box::new(serde_json::from_str(text).map_err(ReadError::from_json)?)))
            }
            Some(kind) => Err(ReadError::new(format!(
                "it is of the unknown kind {kind:?}; known are {RUN}, {VERSUS} and {SUITE}"
            ))),
            None => Err(ReadError::new("it has no \"kind\"")),
        }
    }

    /// The document as JSON, indented if it is not a suite, which has thousands of figures.
    pub fn to_json(&self) -> String {
        let text = match self {
            Self::Run(run) => {
                serde_json::to_string_pretty(&TaggedDocument { schema: SCHEMA, kind: RUN, content: &**run })
            }
            Self::Versus(versus) => serde_json::to_string_pretty(&TaggedDocument {
                schema: SCHEMA,
                kind: VERSUS,
                content: &**versus,
            }),
            Self::Suite(suite) => {
                serde_json::to_string(&TaggedDocument { schema: SCHEMA, kind: SUITE, content: &**suite })
            }
        };
        text.expect("a document has only text keys and no failing serializer")
    }
}

fn check_schema(schema: &str) -> Result<(), ReadError> {
    if schema == SCHEMA {
        return Ok(());
    }
    let (name, _) = SCHEMA.split_once('/').unwrap_or((SCHEMA, ""));
    Err(ReadError::new(match schema.split_once('/') {
        Some((same, version)) if same == name => {
            format!("it is of version {version} of the format; this program reads version 1")
        }
        _ => format!("its schema is {schema:?}; this program reads {SCHEMA:?}"),
    }))
}

/// Why text is no document: a clause that begins with "it" or names the location.
#[derive(Debug)]
pub struct ReadError {
    text: String,
}

impl ReadError {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    fn from_json(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ReadError {}

const RUN: &str = "run";
const VERSUS: &str = "versus";
const SUITE: &str = "suite";
const MAX_BYTES: usize = 64 << 20;
