//! A second server where the first takes its time.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use polyrpc_core::{Call, Reply, Status};
use tokio::time::sleep;

use super::call_attempt::CallAttempt;
use super::retry_loop::{ChosenEndpoint, RetryLoop, RoutingOptions};
use super::{Channel, now};
use crate::client::failure::{failure, is_retryable};

/// Makes a call; if it is not answered for a while, makes it on a second server too. The first success counts, and a
/// failure only when nothing else is under way.
///
/// # Cancel safety
///
/// Dropping the future cancels whatever is under way.
pub(super) async fn call_with_backup(
    channel: &Channel,
    call: Call<'_>,
    terms: RoutingOptions,
) -> Result<Option<Reply>, Status> {
    let shared = &channel.shared;
    let mut course = RetryLoop::new(channel, &call, terms);
    let deadline = course.deadline();
    let fly = |course: &mut RetryLoop<'_>, chosen: ChosenEndpoint| {
        course.start_attempt(&chosen.guard);
        let time_left = |deadline: Instant| deadline.saturating_duration_since(now());
        let call = Call { timeout: deadline.map(time_left), ..call.clone() };
        run_attempt(chosen, call, deadline, shared.settings.resends_unprocessed)
    };

    let first = course.next_endpoint(&call.body).await?;
    let mut flights: FuturesUnordered<_> = [fly(&mut course, first)].into_iter().collect();
    let patience = shared.settings.backup.delay(|share| shared.latencies.slowest(share));
    let mut patience = pin!(sleep(patience));
    let mut is_patient = true;
    // How the call ends unless another attempt succeeds.
    let mut settled = None;
    loop {
        let landed = tokio::select! {
            biased;
            Some(landed) = flights.next() => landed,
            () = &mut patience, if is_patient => {
                is_patient = false;
                if let Some(second) = course.choose_backup(&call.body) {
                    flights.push(fly(&mut course, second));
                }
                continue;
            }
        };
        let Some(status) = failure(&landed.ended).cloned() else {
            shared.latencies.record(landed.latency);
            return landed.ended;
        };
        if !landed.has_left {
            course.record_unreachable(&landed.chosen.guard, &status);
        }
        if !is_retryable(&status, terms.idempotent) {
            settled.get_or_insert_with(|| landed.ended.clone());
        }
        // While another is under way there is nothing to pay for.
        if !flights.is_empty() {
            continue;
        }
        if let Some(settled) = settled {
            return settled;
        }
        let goes_on = match landed.has_left {
            true => course.may_retry(&status, &landed.chosen.guard),
            false => course.may_skip_endpoint(&landed.chosen, status).is_ok(),
        };
        if !goes_on {
            return landed.ended;
        }
        let next = course.next_endpoint(&call.body).await?;
        flights.push(fly(&mut course, next));
    }
}

/// How an attempt ended.
struct FinishedAttempt {
    chosen: ChosenEndpoint,
    /// A connection took the call.
    has_left: bool,
    latency: Duration,
    ended: Result<Option<Reply>, Status>,
}

/// One attempt.
async fn run_attempt(
    chosen: ChosenEndpoint,
    call: Call<'_>,
    deadline: Option<Instant>,
    keep: bool,
) -> FinishedAttempt {
    let visit = &chosen.guard;
    let pool = visit.endpoint().pool().clone();
    let mut attempt = CallAttempt::with_deadline(&pool, call, deadline, keep);
    let ended = attempt.call().await;
    let has_left = attempt.has_left();
    if has_left {
        visit.finish(failure(&ended));
    }
    FinishedAttempt { latency: visit.latency(), has_left, ended, chosen }
}
