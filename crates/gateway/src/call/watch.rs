//! What is counted of calls of several messages.

use std::sync::Arc;
use std::time::Instant;

use polyrpc::fallback::RawResponse;
use polyrpc::{Failure, Result, Status};

use super::decision::Decision;
use crate::plan::Route;

/// Counts how a stream ends. A stream that its caller gives up is not counted.
#[derive(Clone)]
pub(super) struct Watch {
    route: Arc<Route>,
    /// Place of the upstream in the route.
    place: usize,
    began: Instant,
}

/// The side that ended an attached stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    OfCaller,
    OfUpstream,
}

impl Watch {
    pub(super) fn of(decision: &Decision) -> Self {
        Self { route: decision.route.clone(), place: decision.place, began: Instant::now() }
    }

    /// Counts a call that the upstream did not begin to answer.
    pub(super) fn failed(&self, failure: Failure) -> Failure {
        self.route.record_stream(self.place, Some(failure.code()), self.began);
        failure
    }

    /// Counts the response once it has ended.
    pub(super) fn watched(self, answer: Result<RawResponse>) -> Result<RawResponse> {
        let mut answer = answer.map_err(|failure| self.failed(failure))?;
        answer.on_end(move |result| {
            self.route.record_stream(self.place, result.err().map(Status::code), self.began);
        });
        Ok(answer)
    }

    /// Counts an attached stream, whose failure no protocol tells the caller.
    pub(super) fn ended_attached(&self, target: &str, ended: &Result<End>) {
        if let Err(failure) = ended {
            let (upstream, failure) = (self.route.upstream_name(self.place), failure.status());
            tracing::warn!(target: "polyrpc_gateway", method = target, upstream, %failure, "a stream failed");
        }
        let code = ended.as_ref().err().map(Failure::code);
        self.route.record_stream(self.place, code, self.began);
    }
}
