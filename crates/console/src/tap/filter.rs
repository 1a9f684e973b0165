use std::time::Duration;

use polyrpc::Code;
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
    /// Name of a protocol, in any case, with `-` or `_`. It may be one of the program's own, so any name is allowed.
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
    Code(Code),
    /// A number of the protocol.
    Number(i32),
}

impl Filter {
    /// Whether a call may match, as far as can be decided without formatting anything.
    pub(super) fn accepts_facts(&self, facts: &Facts) -> bool {
        facts.took >= self.min_latency
            && self.outcome.accepts(facts)
            && self.side.is_none_or(|side| side == facts.side)
            && self.protocol.as_ref().is_none_or(|protocol| is_same_name(protocol, facts.protocol))
    }

    /// Whether a call matches whose facts have matched.
    pub(super) fn accepts(&self, call: &TapCall) -> bool {
        self.peer.as_ref().is_none_or(|peer| call.peer.contains(peer.as_str()))
            && (self.method.accepts(&call.name) || self.method.accepts(&call.name.replace('/', ".")))
    }
}

impl Outcome {
    /// Parses `ok`, `failed`, a code's name in any case or a number, of which 0 is success, as `/rpcz` does; `None` if
    /// no call can have this outcome.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::Any);
        }
        if let Ok(number) = text.parse() {
            return Some(if number == 0 { Self::Ok } else { Self::Number(number) });
        }
        match text.replace(['_', '-'], " ").to_ascii_lowercase().as_str() {
            "ok" => Some(Self::Ok),
            "failed" => Some(Self::Failed),
            name => Code::ALL.into_iter().find(|code| code.as_str() == name).map(Self::Code),
        }
    }

    fn accepts(&self, facts: &Facts) -> bool {
        match (self, facts.failure) {
            (Self::Any, _) | (Self::Ok, None) | (Self::Failed, Some(_)) => true,
            (Self::Ok, Some(_)) | (Self::Failed | Self::Code(_) | Self::Number(_), None) => false,
            (Self::Code(wanted), Some((code, _))) => code == *wanted,
            (Self::Number(wanted), Some((_, number))) => number == Some(*wanted),
        }
    }
}

/// Whether two names of protocols differ at most in case, and in `-` instead of `_`.
fn is_same_name(one: &str, other: &str) -> bool {
    let fold = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    one.bytes().map(fold).eq(other.bytes().map(fold))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

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
            ("OK", [true, false]),
            ("0", [true, false]),
            ("not_found", [false, true]),
            ("NOT_FOUND", [false, true]),
            ("Not-Found", [false, true]),
            ("1004", [false, true]),
            ("-1004", [false, false]),
            ("internal", [false, false]),
        ] {
            let outcome = Outcome::parse(status).unwrap();
            assert_eq!(accepts(&Filter { outcome, ..any() }), want, "{status}");
        }
        for wrong in ["not_fond", "notfound", "99999999999", "4xx", " "] {
            assert_eq!(Outcome::parse(wrong), None, "{wrong}");
        }
        assert_eq!(accepts(&Filter { min_latency: Duration::from_millis(6), ..any() }), [false, false]);
        assert_eq!(accepts(&Filter { protocol: Some("GRPC".into()), ..any() }), [true, true]);
        let baidu = Facts { protocol: "baidu_std", ..fine.facts };
        for (protocol, want) in [("BAIDU-STD", true), ("baidu_std", true), ("baidu", false)] {
            let filter = Filter { protocol: Some(protocol.into()), ..any() };
            assert_eq!(filter.accepts_facts(&baidu), want, "{protocol}");
        }
        assert_eq!(accepts(&Filter { peer: Some("10.0.0.2".into()), ..any() }), [false, false]);
        assert_eq!(accepts(&Filter { side: Some(Side::Client), ..any() }), [false, false]);
    }
}
