//! Compares the outcomes of a call at two upstreams.

use std::collections::BTreeMap;

use bytes::Bytes;
use polyrpc::codec::Body;
use polyrpc::{Code, Protocol};
use serde_json::Value;

use crate::compare::{Difference, Rules, Samples, differences};
use crate::pairs::Pair;

/// The upstream's answer to a caller, in the upstream's format, or the failure of the call.
pub(crate) type Answer = Result<Body, Code>;

/// How much a code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Exact,
    /// The protocol has no codes: the failure may be any.
    Vague,
}

impl Precision {
    fn new(protocol: Protocol, code: Code) -> Self {
        let lacks_codes = [Protocol::Rpcx, Protocol::NetRpc, Protocol::RestRpc].contains(&protocol);
        if lacks_codes && code == Code::Unknown { Self::Vague } else { Self::Exact }
    }
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    Failed(Code, Precision),
    /// A message that can be read, and how many parts of it cannot.
    Value(Value, u64),
    /// A message without a schema.
    Bytes(Bytes),
}

impl Outcome {
    /// `protocol`: that of the upstream.
    pub(super) fn decode(pair: &Pair, protocol: Protocol, answer: Answer) -> Self {
        let body = match answer {
            Ok(body) => body,
            Err(code) => return Self::Failed(code, Precision::new(protocol, code)),
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
        !matches!(self, Self::Failed(Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled, _))
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Failed(code, _) => code.as_str(),
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
    let single = |path: &str, one: String, other: String| match rules.ignores_outside_message(path) {
        true => BTreeMap::new(),
        false => BTreeMap::from([(path.to_owned(), Difference { one, other })]),
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
        (Outcome::Failed(_, Precision::Vague), Outcome::Failed(..))
        | (Outcome::Failed(..), Outcome::Failed(_, Precision::Vague)) => BTreeMap::new(),
        (one, other) if one.status() != other.status() => {
            single("(status)", one.status().to_owned(), other.status().to_owned())
        }
        (Outcome::Failed(..), Outcome::Failed(..)) => BTreeMap::new(),
        _ => single("(format)", "one can be read".to_owned(), "the other cannot".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(rules: &str, one: &Outcome, other: &Outcome) -> Vec<String> {
        let rules = Rules::new(crate::config::rules(rules).unwrap());
        compare(&rules, &Samples::plain(), true, one, other).into_keys().collect()
    }

    fn failure(protocol: Protocol, code: Code) -> Outcome {
        Outcome::Failed(code, Precision::new(protocol, code))
    }

    #[test]
    fn failure_of_a_protocol_without_codes_equals_any_other() {
        let precise = failure(Protocol::Grpc, Code::InvalidArgument);
        for vague in [Protocol::Rpcx, Protocol::NetRpc, Protocol::RestRpc] {
            let vague = failure(vague, Code::Unknown);
            assert!(paths("", &vague, &precise).is_empty() && paths("", &precise, &vague).is_empty());
            assert_eq!(paths("", &vague, &Outcome::Bytes(Bytes::new())), ["(status)"]);
        }
        assert_eq!(paths("", &precise, &failure(Protocol::Grpc, Code::Unknown)), ["(status)"]);
    }

    #[test]
    fn differences_outside_the_message_are_ignored_by_rules_of_their_names() {
        let rule = |path: &str| format!("[[rule]]\npath = \"{path}\"\nignore = true");
        let (bytes, more) = (Outcome::Bytes(Bytes::new()), Outcome::Bytes(Bytes::from_static(b"x")));
        let value = |lost| Outcome::Value(Value::Null, lost);
        for (name, one, other) in [
            ("(status)", &bytes, &failure(Protocol::Grpc, Code::NotFound)),
            ("(bytes)", &bytes, &more),
            ("(unknown fields)", &value(0), &value(1)),
            ("(format)", &value(0), &bytes),
        ] {
            assert_eq!(paths("", one, other), [name]);
            assert_eq!(paths(&rule("*"), one, other), [name]);
            assert!(paths(&rule(name), one, other).is_empty());
        }
    }
}
