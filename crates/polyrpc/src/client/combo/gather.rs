//! Completion and result of a call to several clients.

use std::fmt;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_core::{Code, Fault, Format, Retry, Scope, Status};

use super::sub::Merge;
use crate::call::Response;
use crate::codec::Body;

/// Number of parts that must end before the whole call ends.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct CompletionBounds {
    /// Number of failures that fail the call: brpc's `fail_limit`.
    pub(in crate::client) fail: Option<usize>,
    /// Number of successes that are enough: brpc's `success_limit`.
    pub(in crate::client) success: Option<usize>,
}

impl CompletionBounds {
    /// Returns the bounds for this number of parts, failures first (brpc `parallel_channel.cpp`: `success_limit` counts
    /// only if `fail_limit` is not set).
    fn resolve(self, parts: usize) -> (usize, usize) {
        match (self.fail, self.success) {
            (Some(fail), _) => (fail.clamp(1, parts), parts),
            (None, Some(success)) => (parts, success.clamp(1, parts)),
            (None, None) => (parts, parts),
        }
    }
}

/// Outcome of a part.
pub(in crate::client) struct PartOutcome<O> {
    /// Identity of the part.
    pub(in crate::client) of: O,
    /// Reply of the part; `None` if it turned out to be unnecessary.
    pub(in crate::client) result: Option<Result<Response<Body>, Status>>,
}

/// Runs all parts of a call concurrently and merges their replies in the order of arrival. When the result is decided,
/// the other parts are cancelled. `named` names the client of a part.
///
/// # Cancel safety
///
/// Dropping the future cancels all parts in flight.
pub(in crate::client) async fn gather<O, N: fmt::Display>(
    parts: impl IntoIterator<Item = impl Future<Output = PartOutcome<O>>>,
    bounds: CompletionBounds,
    merge: impl Fn(&mut Option<Response<Body>>, Response<Body>, &O) -> Merge,
    named: impl Fn(&O) -> N,
) -> Result<Response<Body>, Status> {
    let mut parts: FuturesUnordered<_> = parts.into_iter().collect();
    let count = parts.len();
    let (fail, success) = bounds.resolve(count.max(1));
    let mut failures = PartFailures { named, of: count, failed: Vec::new(), answered: false };
    let (mut whole, mut successes, mut format) = (None, 0, Format::default());
    while let Some(PartOutcome { of, result }) = parts.next().await {
        let merged = match result {
            Some(Ok(part)) => {
                format = part.message.format;
                failures.answered = true;
                merge(&mut whole, part, &of)
            }
            Some(Err(status)) => Merge::Fail(status),
            None => {
                failures.of -= 1;
                continue;
            }
        };
        match merged {
            Merge::Merged => successes += 1,
            Merge::Fail(status) => failures.failed.push((of, status)),
            Merge::FailAll(status) => return Err(status.with_retry(Retry::Never)),
        }
        if failures.failed.len() >= fail {
            return Err(failures.into_status());
        }
        if successes >= success {
            break;
        }
    }
    match whole {
        Some(whole) => Ok(whole),
        None if successes > 0 => Ok(Response::new(Body::new(format, Bytes::new()))),
        None => Err(failures.into_status()),
    }
}

/// The parts that failed.
struct PartFailures<O, F> {
    named: F,
    /// Number of parts.
    of: usize,
    failed: Vec<(O, Status)>,
    /// Whether the server replied to this part, even if the merger rejected the reply.
    answered: bool,
}

impl<O, N: fmt::Display, F: Fn(&O) -> N> PartFailures<O, F> {
    /// Returns the failure of the call: what the failures have in common, or brpc's `ETOOMANYFAILS`.
    #[cold]
    fn into_status(mut self) -> Status {
        if self.of == 1
            && self.failed.len() == 1
            && let Some((_, only)) = self.failed.pop()
        {
            return only;
        }
        let text = self.text();
        let (retry, scope) = (self.retry(), self.scope());
        let mut failed = self.failed.iter().map(|(_, status)| status);
        let Some(first) = failed.next() else {
            return Status::unavailable("no server is left that could answer").with_retry(Retry::Elsewhere);
        };
        let is_common =
            failed.all(|status| status.code() == first.code() && status.number() == first.number());
        let status = match (is_common, first.number()) {
            (true, Some(number)) => {
                Status::new(first.code(), text).with_number(number).with_fault(first.fault())
            }
            (true, None) => Status::new(first.code(), text).with_fault(first.fault()),
            (false, _) => Status::new(Code::Unknown, text).with_number(ETOOMANYFAILS).with_fault(Fault::Peer),
        };
        status.with_retry(retry).with_scope(scope)
    }

    /// Describes which parts failed and how; abbreviated if there are many.
    fn text(&self) -> String {
        let mut text = format!("{} of {} failed", self.failed.len(), self.of);
        for (number, (whose, status)) in self.failed.iter().take(MAX_LISTED_FAILURES).enumerate() {
            let separator = if number == 0 { ": " } else { "; " };
            text.push_str(separator);
            text.push_str(&format!("{}: {status}", (self.named)(whose)));
        }
        if self.failed.len() > MAX_LISTED_FAILURES {
            text.push_str("; …");
        }
        text
    }

    /// Whether the whole call may be retried: only if no part was processed.
    fn retry(&self) -> Retry {
        let mut retries = self.failed.iter().map(|(_, status)| status.retry());
        if retries.clone().any(|retry| retry == Retry::Never) {
            Retry::Never
        } else if self.all_failed() && retries.all(|retry| retry == Retry::Elsewhere) {
            Retry::Elsewhere
        } else {
            Retry::IfIdempotent
        }
    }

    /// The whole call counts as unreachable only if every part is.
    fn scope(&self) -> Scope {
        let all_connections = self.failed.iter().all(|(_, status)| status.scope() == Scope::Connection);
        if self.all_failed() && all_connections { Scope::Connection } else { Scope::Call }
    }

    fn all_failed(&self) -> bool {
        self.failed.len() == self.of && !self.answered
    }
}

/// brpc `errno.proto`.
const ETOOMANYFAILS: i32 = 1005;

/// Maximum number of failures that are described.
const MAX_LISTED_FAILURES: usize = 8;

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;
    use crate::client::combo::sub::keep_first;

    fn parts(ends: &[Result<&'static str, Status>]) -> Vec<Ready<PartOutcome<usize>>> {
        let parts = ends.iter().cloned().enumerate().map(|(of, end)| {
            let result = Some(end.map(|text| Response::new(Body::new(Default::default(), text))));
            ready(PartOutcome { of, result })
        });
        parts.collect()
    }

    async fn whole(
        ends: &[Result<&'static str, Status>],
        bounds: CompletionBounds,
    ) -> Result<String, Status> {
        let response = gather(parts(ends), bounds, keep_first, |of| *of).await?;
        Ok(String::from_utf8(response.message.bytes.to_vec()).unwrap())
    }

    fn gone_status() -> Status {
        Status::unavailable("gone").with_retry(Retry::Elsewhere).with_scope(Scope::Connection)
    }

    #[test]
    fn limits_equal_those_of_brpc() {
        let bounds = |fail, success| CompletionBounds { fail, success }.resolve(3);
        assert_eq!(bounds(None, None), (3, 3));
        assert_eq!(bounds(Some(0), None), (1, 3));
        assert_eq!(bounds(Some(9), Some(1)), (3, 3));
        assert_eq!(bounds(None, Some(2)), (3, 2));
        assert_eq!(bounds(None, Some(0)), (3, 1));
    }

    #[tokio::test]
    async fn failures_below_the_limit_are_ignored() {
        let ends = [Err(gone_status()), Ok("a"), Err(gone_status())];
        assert_eq!(whole(&ends, CompletionBounds::default()).await.unwrap(), "a");
        let bounds = CompletionBounds { fail: Some(2), success: None };
        assert_eq!(whole(&ends, bounds).await.unwrap_err().code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn different_failures_are_summarized_in_one_status() {
        let status = whole(&[Err(gone_status()), Err(Status::not_found("x"))], CompletionBounds::default())
            .await
            .unwrap_err();
        assert_eq!((status.number(), status.retry()), (Some(1005), Retry::Never));
        assert_eq!(status.message(), "2 of 2 failed: 0: unavailable: gone; 1: not found: x");
    }

    #[tokio::test]
    async fn partially_executed_call_is_retryable_only_if_idempotent() {
        let fail_fast = CompletionBounds { fail: Some(1), success: None };
        let status = whole(&[Err(gone_status()), Ok("a")], fail_fast).await.unwrap_err();
        assert_eq!((status.retry(), status.scope()), (Retry::IfIdempotent, Scope::Call));
        let status =
            whole(&[Err(gone_status()), Err(gone_status())], CompletionBounds::default()).await.unwrap_err();
        assert_eq!((status.retry(), status.scope()), (Retry::Elsewhere, Scope::Connection));
    }

    #[tokio::test]
    async fn failure_of_the_only_sub_call_is_returned_unchanged() {
        assert_eq!(
            whole(&[Err(gone_status())], CompletionBounds::default()).await.unwrap_err(),
            gone_status()
        );
    }
}
