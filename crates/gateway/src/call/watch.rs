//! Counts the outcomes of streaming calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use polyrpc::fallback::{RawResponse, StreamEnd};
use polyrpc::{Code, Failure, Result, Status};

use polyrpc_record::layer::OpenCall;

use super::decision::Decision;
use crate::auto_rollback::is_fault;
use crate::call_limit::CallPermit;
use crate::log_rate::LogRate;
use crate::plan::Route;

/// Counts the outcome of a stream, and records the call if it is recorded. A stream that its caller cancels is not
/// counted, and is recorded as cancelled.
pub(super) struct Watch {
    route: Arc<Route>,
    /// Index of the upstream in the route.
    upstream_index: usize,
    began: Instant,
    record: Option<OpenCall>,
    /// Held until the stream ends.
    _permits: [CallPermit; 2],
}

impl Watch {
    /// Takes the call's permits.
    pub(super) fn new(decision: &mut Decision, record: Option<OpenCall>) -> Self {
        let (route, _permits) = (decision.route.clone(), decision.take_permits());
        Self { route, upstream_index: decision.upstream_index, began: Instant::now(), record, _permits }
    }

    /// Counts a call that failed before the upstream's response began.
    pub(super) fn record_failure(&self, failure: Failure) -> Failure {
        self.route.record_stream(self.upstream_index, Some(failure.code()), self.began);
        self.record_end(Err(failure.status()));
        failure
    }

    fn record_end(&self, result: Result<(), &Status>) {
        if let Some(record) = &self.record {
            record.record_end(result);
        }
    }

    /// Counts the response once it has ended.
    pub(super) fn observe(self, answer: Result<RawResponse>) -> Result<RawResponse> {
        let mut answer = answer.map_err(|failure| self.record_failure(failure))?;
        answer.on_end(move |result| {
            self.route.record_stream(self.upstream_index, result.err().map(Status::code), self.began);
            self.record_end(result);
        });
        Ok(answer)
    }

    /// Counts a call with this many attached streams once, when all of them have ended.
    pub(super) fn into_attached(self, streams: usize) -> AttachedWatch {
        let watch = AttachedWatch { watch: self, open: Mutex::new(Open { streams, worst: Worst::Well }) };
        if streams == 0 {
            watch.record(Worst::Well);
        }
        watch
    }
}

/// Counts a call by the worst outcome of its attached streams. A stream that is dropped without an end, such as when
/// the gateway stops, counts as cancelled.
pub(super) struct AttachedWatch {
    watch: Watch,
    open: Mutex<Open>,
}

struct Open {
    /// Streams that have not ended.
    streams: usize,
    /// The worst outcome of those that have ended.
    worst: Worst,
}

/// The outcome of a call with attached streams, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worst {
    Well,
    CallerGone,
    /// The call was invalid, or its caller cancelled it.
    Failed(Code),
    /// The upstream failed.
    Fault(Code),
}

impl Worst {
    fn from_end(ended: &Result<StreamEnd>) -> Self {
        match ended {
            Ok(StreamEnd::ByCaller | StreamEnd::ByServer) => Self::Well,
            Ok(StreamEnd::CallerGone) => Self::CallerGone,
            Err(failure) if is_fault(failure.code()) => Self::Fault(failure.code()),
            Err(failure) => Self::Failed(failure.code()),
        }
    }

    fn or_worse(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::CallerGone => 1,
            Self::Failed(_) => 2,
            Self::Fault(_) => 3,
        }
    }
}

impl AttachedWatch {
    /// Counts the outcome of a stream. No protocol reports its failure to the caller.
    pub(super) fn on_stream_end(&self, target: &str, ended: &Result<StreamEnd>) {
        static RATE: LogRate = LogRate::new();
        if let Err(failure) = ended
            && let Some(suppressed) = RATE.allow()
        {
            let (upstream, failure) =
                (self.watch.route.upstream_name(self.watch.upstream_index), failure.status());
            tracing::warn!(target: "polyrpc_gateway", method = target, upstream, %failure, suppressed, "a stream failed");
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.streams = open.streams.saturating_sub(1);
        open.worst = open.worst.or_worse(Worst::from_end(ended));
        if open.streams == 0 {
            self.record(open.worst);
        }
    }

    fn record(&self, worst: Worst) {
        let watch = &self.watch;
        let code = match worst {
            Worst::Well => None,
            Worst::CallerGone => return,
            Worst::Failed(code) | Worst::Fault(code) => Some(code),
        };
        watch.route.record_stream(watch.upstream_index, code, watch.began);
        match code.map(|code| Status::new(code, "a stream failed")) {
            None => watch.record_end(Ok(())),
            Some(status) => watch.record_end(Err(&status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_an_upstream_is_worse_than_every_other_end() {
        let failed = |code| Err(Status::new(code, "").into());
        let ends = [
            Ok(StreamEnd::ByCaller),
            Ok(StreamEnd::CallerGone),
            failed(Code::InvalidArgument),
            failed(Code::Unknown),
        ];
        let ends = ends.each_ref().map(Worst::from_end);
        for (n, end) in ends.into_iter().enumerate() {
            assert!(
                ends[..n].iter().all(|better| better.or_worse(end) == end && end.or_worse(*better) == end),
                "{end:?}"
            );
        }
        assert_eq!(Worst::from_end(&Ok(StreamEnd::ByServer)), Worst::Well);
    }
}
