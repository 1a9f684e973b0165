//! The `tracing` span of a call on the server. Nothing here runs unless a subscriber is interested.

use std::time::Instant;

use polyrpc_core::{Fault, Status};
use tracing::{Instrument, Level, Span};

use crate::call::{Context, Outcome, ResponseFuture};

const TARGET: &str = "polyrpc::server";

/// Returns whether a subscriber is interested in spans of calls. Without one this costs a load and a comparison.
#[inline]
pub(super) fn is_wanted() -> bool {
    tracing::enabled!(target: TARGET, Level::DEBUG)
}

/// Starts a call within a span of its own, and records how it ended.
#[cold]
pub(super) fn start(
    cx: Context,
    begin: impl FnOnce(Context) -> Result<ResponseFuture, Status>,
) -> Result<ResponseFuture, Status> {
    let span = span(&cx);
    let began = Instant::now();
    match span.in_scope(|| begin(cx)) {
        Err(status) => {
            span.in_scope(|| log_outcome(Some(&status), began));
            Err(status)
        }
        Ok(handling) => {
            let traced = async move {
                let outcome: Outcome = handling.await;
                log_outcome(outcome.failure(), began);
                outcome
            };
            Ok(Box::pin(traced.instrument(span)))
        }
    }
}

fn span(cx: &Context) -> Span {
    let current = crate::propagation::current();
    let parent = current.trace().and_then(|trace| trace.parent);
    let trace = parent.map(|parent| tracing::field::display(format!("{:032x}", parent.trace_id())));
    tracing::debug_span!(
        target: TARGET,
        "call",
        service = cx.service(),
        method = cx.method(),
        protocol = cx.protocol().as_str(),
        peer = %cx.peer(),
        trace_id = trace,
    )
}

fn log_outcome(failure: Option<&Status>, began: Instant) {
    let took = began.elapsed();
    match failure {
        None => tracing::debug!(target: TARGET, ?took, "the call ended"),
        // The caller's mistakes need no action by an operator.
        Some(status) => {
            let (code, error) = (status.code().as_str(), status.message());
            let ours = status.fault() == Fault::Us;
            tracing::debug!(target: TARGET, ?took, code, error, ours, "the call failed");
        }
    }
}
