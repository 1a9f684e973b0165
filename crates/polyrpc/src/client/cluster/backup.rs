//! Backup requests: a call is also sent to a second server if the first one is slow.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_core::{Call, Reply, Status};
use tokio::time::sleep;

use super::Channel;
use super::call_attempt::CallAttempt;
use super::retry_loop::{ChosenEndpoint, RetryLoop, RoutingOptions};
use crate::client::retryable::{failure, is_retryable};
use crate::runtime::now;

/// Makes a call; if there is no reply after a delay, sends it to a second server too. The first success counts, a
/// failure only if no other attempt is in flight.
///
/// # Cancel safety
///
/// Dropping the future cancels all attempts in flight.
pub(super) async fn call_with_backup(
    channel: &Channel,
    call: Call<'_>,
    routing: RoutingOptions,
) -> Result<Option<Reply>, Status> {
    let shared = &channel.shared;
    let mut retry_loop = RetryLoop::new(channel, &call, routing);
    let deadline = retry_loop.deadline();
    let start_attempt = |retry_loop: &mut RetryLoop<'_>, chosen: ChosenEndpoint| {
        retry_loop.start_attempt(&chosen.guard);
        let time_left = |deadline: Instant| deadline.saturating_duration_since(now());
        let call = Call { timeout: deadline.map(time_left), ..call.clone() };
        run_attempt(chosen, call, deadline, shared.settings.resends_unprocessed)
    };

    let first = retry_loop.next_endpoint(&call.body).await?;
    let mut attempts: FuturesUnordered<_> = [start_attempt(&mut retry_loop, first)].into_iter().collect();
    let delay = shared.settings.backup.delay(|quantile| shared.latencies.quantile(quantile));
    let mut delay = pin!(sleep(delay));
    let mut is_patient = true;
    // Result of the call unless another attempt succeeds.
    let mut final_result = None;
    loop {
        let finished = tokio::select! {
            biased;
            Some(finished) = attempts.next() => finished,
            () = &mut delay, if is_patient => {
                is_patient = false;
                if let Some(second) = retry_loop.choose_backup(&call.body) {
                    attempts.push(start_attempt(&mut retry_loop, second));
                }
                continue;
            }
        };
        let Some(status) = failure(&finished.ended).cloned() else {
            shared.latencies.record(finished.latency);
            return finished.ended;
        };
        if !finished.has_left {
            retry_loop.record_unreachable(&finished.chosen.guard, &status);
        }
        if !is_retryable(&status, routing.idempotent) {
            final_result.get_or_insert_with(|| finished.ended.clone());
        }
        // No retry is needed while another attempt is in flight.
        if !attempts.is_empty() {
            continue;
        }
        if let Some(final_result) = final_result {
            return final_result;
        }
        let goes_on = match finished.has_left {
            true => retry_loop.may_retry(&status, &finished.chosen.guard),
            false => retry_loop.may_skip_endpoint(&finished.chosen, status).is_ok(),
        };
        if !goes_on {
            return finished.ended;
        }
        let next = retry_loop.next_endpoint(&call.body).await?;
        attempts.push(start_attempt(&mut retry_loop, next));
    }
}

/// Outcome of an attempt.
struct FinishedAttempt {
    chosen: ChosenEndpoint,
    /// Whether a connection has taken the call.
    has_left: bool,
    latency: Duration,
    ended: Result<Option<Reply>, Status>,
}

/// Runs one attempt.
async fn run_attempt(
    chosen: ChosenEndpoint,
    call: Call<'_>,
    deadline: Option<Instant>,
    keep: bool,
) -> FinishedAttempt {
    let guard = &chosen.guard;
    let pool = guard.endpoint().pool().clone();
    let mut attempt = CallAttempt::with_deadline(&pool, call, deadline, keep);
    let ended = attempt.call().await;
    let has_left = attempt.has_left();
    if has_left {
        guard.finish(failure(&ended));
    }
    FinishedAttempt { latency: guard.latency(), has_left, ended, chosen }
}
