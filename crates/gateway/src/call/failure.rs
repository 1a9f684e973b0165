//! Failures of calls to upstreams, in words for callers: a failure of the gateway's own client begins with
//! `polyrpc-gateway` and names the upstream, but not the addresses of its servers.

use std::error::Error as _;

use polyrpc::{Code, Protocol, Scope, Status};

use crate::log_rate::LogRate;
use crate::upstream::Upstream;

/// Returns the failure of an upstream as callers see it: without the metadata that came with it.
#[cold]
pub(super) fn for_caller(upstream: &Upstream, status: &Status) -> Status {
    let text = status.message();
    match is_own(status) {
        true => own(&upstream.spec.name, status),
        false if upstream.protocol() == Protocol::BaiduStd => {
            with_text(status, without_prefix(text).to_owned())
        }
        false => with_text(status, text.to_owned()),
    }
}

/// Whether a call failed at this gateway's client. What a server sent has neither a cause in this process nor the scope of a
/// connection; for the rest only the texts are known.
fn is_own(status: &Status) -> bool {
    let begins = |start: &&str| status.message().starts_with(start);
    status.source().is_some()
        || status.scope() == Scope::Connection
        || HARMLESS.iter().any(|start| begins(start))
        || REVEALING.iter().any(|start| begins(start))
}

fn own(upstream: &str, status: &Status) -> Status {
    static RATE: LogRate = LogRate::new();
    let reason = status.message();
    if let Some(suppressed) = RATE.allow() {
        tracing::info!(target: "polyrpc_gateway", upstream, reason, suppressed, "a call to an upstream failed");
    }
    let text = match HARMLESS.iter().any(|start| reason.starts_with(start)) {
        true => format!("polyrpc-gateway: upstream `{upstream}`: {reason}"),
        false => format!("polyrpc-gateway: upstream `{upstream}` {}", outcome(status.code())),
    };
    with_text(status, text)
}

fn outcome(code: Code) -> &'static str {
    match code {
        Code::Unavailable => "cannot be reached",
        Code::DeadlineExceeded => "does not answer in time",
        Code::ResourceExhausted => "takes no more calls",
        Code::Cancelled => "cancelled the call",
        _ => "cannot be called",
    }
}

/// The same failure with another text. Its cause stays in this process.
fn with_text(status: &Status, text: String) -> Status {
    let mut changed = Status::new(status.code(), text)
        .with_details(status.details().clone())
        .with_scope(status.scope())
        .with_fault(status.fault())
        .with_retry(status.retry());
    if let Some(number) = status.number() {
        changed = changed.with_number(number);
    }
    changed.with_source(status.clone())
}

/// The text without what brpc's servers put before it: `[ip:port]`, `[E1003]`.
fn without_prefix(mut text: &str) -> &str {
    while let Some((inner, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = ["E", "R"].iter().any(|letter| inner.strip_prefix(letter).is_some_and(is_digits));
        let is_address = inner.rsplit_once(':').is_some_and(|(host, port)| {
            is_digits(port) && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        });
        // That of a Unix socket.
        let is_path = inner.starts_with("unix:");
        // An address of IPv6 is in brackets of its own, which end after the port.
        let rest = match inner.starts_with('[') {
            true => rest.split_once(']').filter(|(port, _)| port.strip_prefix(':').is_some_and(is_digits)),
            false => (is_number || is_address || is_path).then_some(("", rest)),
        };
        let Some((_, rest)) = rest else { break };
        text = rest;
    }
    text
}

/// Beginnings of the client's texts that say nothing about where servers are.
const HARMLESS: [&str; 20] = [
    "no reply in time",
    "no connection in ",
    "rejected: too few servers are healthy",
    "the load balancer picked no server",
    "the server closed the connection",
    "the server violated the protocol",
    "the server expects TLS",
    "the server reset the stream",
    "the server does not read from the connection",
    "the connection broke",
    "the connection takes no more calls",
    "the connection is closed",
    "the connection was closed",
    "too many calls wait on this connection",
    "too many unread messages",
    "the stream was idle for too long",
    "the call has a timeout of zero",
    "the protocol cannot carry",
    "the message is larger than this side accepts",
    "unreadable reply",
];

/// Beginnings of those that may.
const REVEALING: [&str; 4] =
    ["cannot connect to ", "cannot reach ", "the server's certificate", "no server "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_client_name_the_upstream_and_no_address() {
        for (status, text) in [
            (
                Status::unavailable("cannot connect to 10.0.0.7:80: refused").with_scope(Scope::Connection),
                "polyrpc-gateway: upstream `users` cannot be reached",
            ),
            (
                Status::unavailable("all of 10.0.0.7:80 failed").with_source(std::io::Error::other("x")),
                "polyrpc-gateway: upstream `users` cannot be reached",
            ),
            (
                Status::deadline_exceeded("no reply in time"),
                "polyrpc-gateway: upstream `users`: no reply in time",
            ),
        ] {
            assert!(is_own(&status), "{status}");
            let shown = own("users", &status);
            assert_eq!((shown.message(), shown.code()), (text, status.code()));
            assert_eq!((shown.retry(), shown.scope()), (status.retry(), status.scope()));
        }
        assert!(!is_own(&Status::unavailable("the shop is closed")));
    }

    #[test]
    fn prefixes_of_brpc_are_removed() {
        for (text, wanted) in [
            ("[10.0.0.7:80][E1003]divide by zero", "divide by zero"),
            ("[10.0.0.7:80][E1003][10.0.0.8:80][E1003]divide by zero", "divide by zero"),
            ("[[::1]:80][E2]no", "no"),
            ("[unix:/run/a.sock]no", "no"),
            ("[R1][E1008]late", "late"),
            ("[a] b", "[a] b"),
            ("[E]x", "[E]x"),
            ("[10.0.0.7:80", "[10.0.0.7:80"),
            ("", ""),
        ] {
            assert_eq!(without_prefix(text), wanted);
        }
    }
}
