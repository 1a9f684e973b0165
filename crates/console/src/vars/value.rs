use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// Value of a variable.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Integer(i64),
    Number(f64),
    Text(String),
}

impl Value {
    /// Returns it as a number, unless it is text.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Number(value) => Some(*value),
            Self::Text(_) => None,
        }
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

/// As brpc writes it: text in quotes.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => write!(f, "\"{value}\""),
        }
    }
}

/// Type of a variable, for Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows.
    Counter,
    Gauge,
}

/// A variable at one time.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) name: String,
    /// Names and values.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) kind: Kind,
    pub(crate) value: Value,
}

impl Reading {
    pub(crate) fn new(name: impl Into<String>, kind: Kind, value: impl Into<Value>) -> Self {
        Self { name: name.into(), labels: Vec::new(), kind, value: value.into() }
    }

    /// Returns the name with its labels, as Prometheus writes them.
    pub(crate) fn full_name(&self) -> Cow<'_, str> {
        if self.labels.is_empty() {
            return Cow::Borrowed(&self.name);
        }
        let labels: Vec<_> = self
            .labels
            .iter()
            .map(|(name, value)| {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                format!("{name}=\"{value}\"")
            })
            .collect();
        Cow::Owned(format!("{}{{{}}}", self.name, labels.join(",")))
    }
}
