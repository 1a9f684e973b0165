//! Compares the outcomes of a call at two upstreams.

use std::collections::BTreeMap;

use bytes::Bytes;
use polyrpc::Code;
use polyrpc::codec::Body;
use serde_json::Value;

use crate::compare::{Difference, Rules, Samples, differences};
use crate::pairs::Pair;

/// The upstream's answer to a caller, in the upstream's format, or the failure of the call.
pub(crate) type Answer = Result<Body, Code>;

/// Outcome of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    Failed(Code),
    /// A decoded message, and the number of parts that could not be decoded.
    Value(Value, u64),
    /// A message without a schema.
    Bytes(Bytes),
}

impl Outcome {
    pub(super) fn of(pair: &Pair, answer: Answer) -> Self {
        let body = match answer {
            Ok(body) => body,
            Err(code) => return Self::Failed(code),
        };
        let bytes = body.bytes.clone();
        let read = || {
            let translated = pair.readable.as_ref()?.translate(body).ok()?;
            let json = &translated.body.bytes;
            let value = if json.is_empty() { Value::Null } else { serde_json::from_slice(json).ok()? };
            Some(Self::Value(value, translated.lost))
        };
        read().unwrap_or(Self::Bytes(bytes))
    }

    /// Whether the upstream answered: a failure of the connection is no answer.
    pub(super) fn is_answer(&self) -> bool {
        !matches!(self, Self::Failed(Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled))
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Failed(code) => code.as_str(),
            Self::Value(..) | Self::Bytes(_) => "ok",
        }
    }
}

/// Returns the differences by path. Differences outside the message have names in parentheses, unlike any member.
pub(super) fn compare(
    rules: &Rules,
    samples: &Samples,
    renames: bool,
    one: &Outcome,
    other: &Outcome,
) -> BTreeMap<String, Difference> {
    let single = |path: &str, one: String, other: String| {
        BTreeMap::from([(path.to_owned(), Difference { one, other })])
    };
    let lengths = |bytes: &Bytes| format!("{} bytes", bytes.len());
    match (one, other) {
        (Outcome::Value(one, lost), Outcome::Value(other, other_lost)) => {
            let mut found = differences(rules, samples, renames, one, other);
            if lost != other_lost {
                found.extend(single("(unknown fields)", lost.to_string(), other_lost.to_string()));
            }
            found
        }
        (Outcome::Bytes(one), Outcome::Bytes(other)) if one == other => BTreeMap::new(),
        (Outcome::Bytes(one), Outcome::Bytes(other)) => single("(bytes)", lengths(one), lengths(other)),
        (one, other) if one.status() != other.status() => {
            single("(status)", one.status().to_owned(), other.status().to_owned())
        }
        (Outcome::Failed(_), Outcome::Failed(_)) => BTreeMap::new(),
        _ => single("(format)", "one can be read".to_owned(), "the other cannot".to_owned()),
    }
}
