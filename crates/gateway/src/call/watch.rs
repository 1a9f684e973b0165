//! What is counted of calls of several messages.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use polyrpc::fallback::RawResponse;
use polyrpc::{Code, Failure, Result, Status};

use super::decision::Decision;
use crate::abort::is_fault;
use crate::plan::Route;

/// Counts how a stream ends. A stream that its caller gives up is not counted.
pub(super) struct Watch {
    route: Arc<Route>,
    /// Place of the upstream in the route.
    place: usize,
    began: Instant,
}

/// How an attached stream ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The caller closed it.
    OfCaller,
    /// The caller went away, or takes no more responses.
    GivenUp,
    /// The upstream closed it.
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

    /// Counts this many streams that are attached to one call as one, once all of them have ended.
    pub(super) fn attached(self, streams: usize) -> AttachedWatch {
        let watch = AttachedWatch { watch: self, open: Mutex::new(Open { streams, worst: Worst::Well }) };
        if streams == 0 {
            watch.record(Worst::Well);
        }
        watch
    }
}

/// Counts a call by the worst end of the streams that are attached to it. A stream that is dropped without an end, as when
/// the gateway stops, was given up.
pub(super) struct AttachedWatch {
    watch: Watch,
    open: Mutex<Open>,
}

struct Open {
    /// Streams that have not ended.
    streams: usize,
    /// Of those that have ended.
    worst: Worst,
}

/// The end of a call with attached streams, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worst {
    Well,
    GivenUp,
    /// The call itself was wrong, or the caller cancelled it.
    Failed(Code),
    /// The upstream failed.
    Fault(Code),
}

impl Worst {
    fn of(ended: &Result<End>) -> Self {
        match ended {
            Ok(End::OfCaller | End::OfUpstream) => Self::Well,
            Ok(End::GivenUp) => Self::GivenUp,
            Err(failure) if is_fault(failure.code()) => Self::Fault(failure.code()),
            Err(failure) => Self::Failed(failure.code()),
        }
    }

    fn or(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::GivenUp => 1,
            Self::Failed(_) => 2,
            Self::Fault(_) => 3,
        }
    }
}

impl AttachedWatch {
    /// Counts the end of a stream, whose failure no protocol tells the caller.
    pub(super) fn ended(&self, target: &str, ended: &Result<End>) {
        if let Err(failure) = ended {
            let (upstream, failure) = (self.watch.route.upstream_name(self.watch.place), failure.status());
            tracing::warn!(target: "polyrpc_gateway", method = target, upstream, %failure, "a stream failed");
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.streams = open.streams.saturating_sub(1);
        open.worst = open.worst.or(Worst::of(ended));
        if open.streams == 0 {
            self.record(open.worst);
        }
    }

    fn record(&self, worst: Worst) {
        let code = match worst {
            Worst::Well => None,
            Worst::GivenUp => return,
            Worst::Failed(code) | Worst::Fault(code) => Some(code),
        };
        self.watch.route.record_stream(self.watch.place, code, self.watch.began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_an_upstream_is_worse_than_every_other_end() {
        let failed = |code| Err(Status::new(code, "").into());
        let ends =
            [Ok(End::OfCaller), Ok(End::GivenUp), failed(Code::InvalidArgument), failed(Code::Unknown)];
        let ends = ends.each_ref().map(Worst::of);
        for (n, end) in ends.into_iter().enumerate() {
            assert!(
                ends[..n].iter().all(|better| better.or(end) == end && end.or(*better) == end),
                "{end:?}"
            );
        }
        assert_eq!(Worst::of(&Ok(End::OfUpstream)), Worst::Well);
    }
}
