//! Failures of calls to upstreams, in words for callers: a failure of the gateway's own client begins with
//! `polyrpc-gateway` and names the upstream, but not the addresses of its servers.

use std::error::Error as _;

use polyrpc::{Code, Protocol, Retry, Scope, Status};
use polyrpc_core::status::texts;

use crate::log_rate::LogRate;
use crate::upstream::Upstream;

/// Returns the failure of an upstream as callers see it: without the metadata that came with it.
#[cold]
pub(super) fn for_caller(upstream: &Upstream, status: &Status) -> Status {
    let text = status.message();
    if !status.is_remote() {
        return from_client(&upstream.spec.name, status);
    }
    let text =
        if upstream.protocol() == Protocol::BaiduStd { texts::without_brpc_prefix(text) } else { text };
    with_text(status, text.to_owned())
}

/// Returns the failure of a call that failed at this gateway's client.
fn from_client(upstream: &str, status: &Status) -> Status {
    static RATE: LogRate = LogRate::new();
    let reason = status.message();
    if let Some(suppressed) = RATE.allow() {
        tracing::info!(target: "polyrpc_gateway", upstream, reason, suppressed, "a call to an upstream failed");
    }
    let text = match may_name_addresses(status) {
        true => format!("polyrpc-gateway: upstream `{upstream}` {}", outcome(status)),
        false => format!("polyrpc-gateway: upstream `{upstream}`: {reason}"),
    };
    with_text(status, text)
}

/// Whether the text may name a server: it failed before a connection was there, or it contains the text of a cause.
fn may_name_addresses(status: &Status) -> bool {
    let is_unconnected = status.scope() == Scope::Connection && status.retry() == Retry::Elsewhere;
    is_unconnected || status.source().is_some()
}

fn outcome(status: &Status) -> &'static str {
    match (status.code(), status.retry()) {
        (Code::Unavailable, Retry::IfIdempotent) => "lost the connection during the call",
        // Callers may repeat any call after it.
        (Code::Unavailable, Retry::Elsewhere) => "cannot be reached",
        (Code::DeadlineExceeded, _) => "does not answer in time",
        (Code::ResourceExhausted, _) => "takes no more calls",
        (Code::Cancelled, _) => "cancelled the call",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_client_name_the_upstream_and_no_address() {
        let unconnected = |text: &'static str| {
            Status::unavailable(text).with_scope(Scope::Connection).with_retry(Retry::Elsewhere)
        };
        let lost = |text: &'static str| {
            Status::unavailable(text).with_scope(Scope::Connection).with_retry(Retry::IfIdempotent)
        };
        for (status, text) in [
            (
                unconnected("cannot connect to 10.0.0.7:80: refused"),
                "polyrpc-gateway: upstream `users` cannot be reached",
            ),
            (
                lost("the connection to 10.0.0.7:80 broke").with_source(std::io::Error::other("x")),
                "polyrpc-gateway: upstream `users` lost the connection during the call",
            ),
            (
                lost("the server closed the connection"),
                "polyrpc-gateway: upstream `users`: the server closed the connection",
            ),
            (
                Status::deadline_exceeded("no reply in time"),
                "polyrpc-gateway: upstream `users`: no reply in time",
            ),
        ] {
            let shown = from_client("users", &status);
            assert_eq!((shown.message(), shown.code()), (text, status.code()));
            assert_eq!((shown.retry(), shown.scope()), (status.retry(), status.scope()));
        }
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
            assert_eq!(texts::without_brpc_prefix(text), wanted);
        }
    }
}
