use std::time::Duration;

use polyrpc::layer::Side;

use super::call::{Facts, TapCall};
use crate::wildcard::Wildcards;

/// Filter of a tap.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    /// Names of methods, with wildcards; `/` and `.` between service and method are the same.
    pub(crate) method: Wildcards,
    /// Part of the peer's address.
    pub(crate) peer: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) outcome: Outcome,
    pub(crate) side: Option<Side>,
    pub(crate) min_latency: Duration,
}

/// Filter by outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Any,
    Ok,
    Failed,
    /// The name of a code, or a number of the protocol.
    Code(String),
}

impl Filter {
    /// Whether a call may match, as far as can be decided without formatting anything.
    pub(super) fn accepts_facts(&self, facts: &Facts) -> bool {
        facts.took >= self.min_latency
            && self.outcome.accepts(facts)
            && self.side.is_none_or(|side| side == facts.side)
            && self.protocol.as_ref().is_none_or(|protocol| protocol.eq_ignore_ascii_case(facts.protocol))
    }

    /// Whether a call matches whose facts have matched.
    pub(super) fn accepts(&self, call: &TapCall) -> bool {
        self.peer.as_ref().is_none_or(|peer| call.peer.contains(peer.as_str()))
            && (self.method.accepts(&call.name) || self.method.accepts(&call.name.replace('/', ".")))
    }
}

impl Outcome {
    /// Parses `ok`, `failed`, a code's name or a number.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "" => Self::Any,
            "ok" => Self::Ok,
            "failed" => Self::Failed,
            code => Self::Code(code.replace(['_', '-'], " ")),
        }
    }

    fn accepts(&self, facts: &Facts) -> bool {
        match (self, facts.failure) {
            (Self::Any, _) | (Self::Ok, None) | (Self::Failed, Some(_)) => true,
            (Self::Ok, Some(_)) | (Self::Failed | Self::Code(_), None) => false,
            (Self::Code(wanted), Some((code, number))) => {
                code.as_str().replace(['_', '-'], " ") == *wanted
                    || number.is_some_and(|number| number.to_string() == *wanted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use polyrpc::Code;

    use super::*;

    fn call(name: &str, failure: Option<(Code, Option<i32>)>) -> TapCall {
        let facts = Facts {
            side: Side::Server,
            protocol: "grpc",
            took: Duration::from_millis(5),
            failure,
            sizes: (1, 2),
        };
        let (peer, message) = ("10.0.0.1:80".into(), "".into());
        TapCall { facts, name: name.into(), peer, ended: SystemTime::UNIX_EPOCH, message }
    }

    fn any() -> Filter {
        Filter {
            method: Wildcards::parse("").unwrap(),
            peer: None,
            protocol: None,
            outcome: Outcome::Any,
            side: None,
            min_latency: Duration::ZERO,
        }
    }

    #[test]
    fn filter_accepts_what_it_names() {
        let fine = call("example.Echo/Echo", None);
        let failed = call("add", Some((Code::NotFound, Some(1004))));
        let accepts = |filter: &Filter| {
            [&fine, &failed].map(|call| filter.accepts_facts(&call.facts) && filter.accepts(call))
        };
        assert_eq!(accepts(&any()), [true, true]);
        for (method, want) in [
            ("example.*", [true, false]),
            ("example.Echo.Echo", [true, false]),
            ("example.Echo/Ech$", [true, false]),
            ("add;x", [false, true]),
            ("x", [false, false]),
        ] {
            assert_eq!(
                accepts(&Filter { method: Wildcards::parse(method).unwrap(), ..any() }),
                want,
                "{method}"
            );
        }
        for (status, want) in [
            ("ok", [true, false]),
            ("failed", [false, true]),
            ("not_found", [false, true]),
            ("1004", [false, true]),
            ("internal", [false, false]),
        ] {
            assert_eq!(accepts(&Filter { outcome: Outcome::parse(status), ..any() }), want, "{status}");
        }
        assert_eq!(accepts(&Filter { min_latency: Duration::from_millis(6), ..any() }), [false, false]);
        assert_eq!(accepts(&Filter { protocol: Some("GRPC".into()), ..any() }), [true, true]);
        assert_eq!(accepts(&Filter { peer: Some("10.0.0.2".into()), ..any() }), [false, false]);
        assert_eq!(accepts(&Filter { side: Some(Side::Client), ..any() }), [false, false]);
    }
}
