//! `tracing` spans of calls and of their attempts. Nothing here runs unless a subscriber is interested.

use std::time::Instant;

use polyrpc_core::{Reply, Status};
use polyrpc_wire::Protocol;
use tracing::{Instrument, Level, Span};

pub(super) const TARGET: &str = "polyrpc::client";

/// Whether a subscriber is interested. Without one it costs a load and a comparison.
#[inline]
pub(super) fn is_enabled() -> bool {
    tracing::enabled!(target: TARGET, Level::DEBUG)
}

/// Runs a call, with all its attempts, within a span.
#[cold]
pub(super) async fn call<T>(
    service: &str,
    method: &str,
    protocol: Protocol,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let protocol = protocol.as_str();
    let span = tracing::debug_span!(target: TARGET, "call", service, method, protocol);
    let began = Instant::now();
    let ended = call.instrument(span.clone()).await;
    span.in_scope(|| log_outcome(ended.as_ref().err(), began, "the call ended", "the call failed"));
    ended
}

/// Runs an attempt of a call, on a connection to one server.
#[cold]
pub(super) async fn attempt(
    server: Option<String>,
    attempt: impl Future<Output = Result<Option<Reply>, Status>>,
) -> Result<Option<Reply>, Status> {
    let span = tracing::debug_span!(target: TARGET, "attempt", server);
    let began = Instant::now();
    let ended = attempt.instrument(span.clone()).await;
    let failure = super::retryable::failure(&ended);
    span.in_scope(|| log_outcome(failure, began, "the attempt succeeded", "the attempt failed"));
    ended
}

/// Logs an attempt that failed and is retried, perhaps on another server.
#[cold]
pub(super) fn log_retry(status: &Status) {
    let (code, error) = (status.code().as_str(), status.message());
    tracing::debug!(target: TARGET, code, error, "retrying the call");
}

fn log_outcome(failure: Option<&Status>, began: Instant, succeeded_message: &str, failed_message: &str) {
    let took = began.elapsed();
    let message = if failure.is_some() { failed_message } else { succeeded_message };
    let code = failure.map(|status| status.code().as_str());
    let error = failure.map(Status::message);
    Span::current().in_scope(|| tracing::debug!(target: TARGET, ?took, code, error, "{message}"));
}
