use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyrpc_core::Status;
use tokio::time::{sleep, timeout};

use super::{Instance, InstanceStream};
use crate::Error;
use crate::error::ClientResult as Result;

/// Source of servers that must be polled.
pub(super) trait PollSource: Send + 'static {
    /// Timeout of a poll.
    const POLL_TIMEOUT: Duration = Duration::from_secs(10);

    /// Polls once.
    fn query(&mut self) -> impl Future<Output = Result<PollResult>> + Send;

    /// Returns the pause after this number of consecutive failures.
    fn pause(&self, failures: u32) -> Duration {
        jitter(FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE))
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct PollResult {
    /// All servers; `None` if they are unchanged.
    pub(super) instances: Option<Vec<Instance>>,
    /// Pause before the next poll.
    pub(super) again: Duration,
    /// Warning about a result that is usable nevertheless.
    pub(super) warning: Option<Error>,
}

/// Polls repeatedly, and returns the changed sets, after an error also an unchanged one.
pub(super) fn sets(source: impl PollSource) -> InstanceStream {
    let polled = PollingWatch {
        source,
        wait: Duration::ZERO,
        failures: 0,
        last_set: None,
        last_warning: None,
        warning: None,
    };
    let sets = stream::unfold(polled, |mut polled| async move {
        let item = polled.next().await;
        Some((item, polled))
    });
    sets.boxed()
}

struct PollingWatch<S> {
    source: S,
    /// Pause before the next poll.
    wait: Duration,
    /// Number of consecutive failures.
    failures: u32,
    /// Last returned set.
    last_set: Option<Vec<Instance>>,
    /// Text of the last warning: the same one is not returned twice in a row.
    last_warning: Option<String>,
    /// Warning to return next.
    warning: Option<Error>,
}

impl<S: PollSource> PollingWatch<S> {
    async fn next(&mut self) -> Result<Vec<Instance>> {
        loop {
            if let Some(warning) = self.warning.take() {
                return Err(warning);
            }
            sleep(self.wait).await;
            if let Some(instances) = self.query().await {
                return Ok(instances);
            }
        }
    }

    /// Polls once. Returns the servers, if they have changed or the source has recovered.
    async fn query(&mut self) -> Option<Vec<Instance>> {
        let answer = match timeout(S::POLL_TIMEOUT, self.source.query()).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(Status::deadline_exceeded(format!("no answer within {:?}", S::POLL_TIMEOUT)).into())
            }
        };
        match answer {
            Ok(PollResult { instances, again, warning }) => {
                // Otherwise listeners would never learn that the trouble is over.
                let has_recovered = self.failures > 0 || self.last_warning.is_some() && warning.is_none();
                (self.failures, self.wait) = (0, again);
                self.record_warning(warning);
                match instances {
                    Some(found) if has_recovered || self.last_set.as_ref() != Some(&found) => {
                        self.last_set = Some(found.clone());
                        Some(found)
                    }
                    None if has_recovered => self.last_set.clone(),
                    _ => None,
                }
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.wait = self.source.pause(self.failures);
                self.record_warning(Some(error));
                None
            }
        }
    }

    fn record_warning(&mut self, warning: Option<Error>) {
        let text = warning.as_ref().map(ToString::to_string);
        self.warning = warning.filter(|_| self.last_warning != text);
        self.last_warning = text;
    }
}

/// Adds a jitter of a tenth, so that not all clients poll a registry at the same time.
pub(crate) fn jitter(time: Duration) -> Duration {
    // Without a source of randomness there is no jitter, which only affects the load of the registry.
    let random = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
    time.mul_f64(0.9 + 0.2 * random)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::time::Instant;

    use super::*;

    struct Script(VecDeque<Result<PollResult, &'static str>>);

    impl PollSource for Script {
        async fn query(&mut self) -> Result<PollResult> {
            match self.0.pop_front() {
                Some(Ok(answer)) => Ok(answer),
                Some(Err(text)) => Err(Status::unavailable(text).into()),
                None => std::future::pending().await,
            }
        }
    }

    fn answer(names: &[&str], warning: Option<&'static str>) -> Result<PollResult, &'static str> {
        Ok(PollResult {
            instances: Some(names.iter().map(|name| Instance::tcp(*name)).collect()),
            again: Duration::from_secs(5),
            warning: warning.map(|text| Status::invalid_argument(text).into()),
        })
    }

    async fn next_text(sets: &mut InstanceStream) -> String {
        match sets.next().await.unwrap() {
            Ok(set) => set.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Err(error) => error.message().to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_changes_are_yielded_and_each_error_once() {
        let script = [
            Err("down"),
            Err("down"),
            Err("still down"),
            answer(&["a:1"], Some("line 2")),
            answer(&["a:1"], Some("line 2")),
            answer(&["a:1"], None),
            Err("down"),
            answer(&["a:1"], None),
            answer(&["b:1"], None),
        ];
        let mut sets = sets(Script(script.into()));
        for expected in ["down", "still down", "tcp@a:1", "line 2", "tcp@a:1", "down", "tcp@a:1", "tcp@b:1"] {
            assert_eq!(next_text(&mut sets).await, expected);
        }
        // The script has ended: the source no longer answers.
        assert_eq!(next_text(&mut sets).await, "no answer within 10s");
    }

    #[tokio::test(start_paused = true)]
    async fn unchanged_set_is_yielded_again_after_an_error() {
        let unchanged = || answer(&[], None).map(|answer| PollResult { instances: None, ..answer });
        let script = [
            answer(&["a:1"], None),
            unchanged(),
            Err("down"),
            unchanged(),
            unchanged(),
            answer(&["a:1"], Some("line 2")),
            answer(&["a:1"], None),
            answer(&["b:1"], None),
        ];
        let mut sets = sets(Script(script.into()));
        for expected in ["tcp@a:1", "down", "tcp@a:1", "line 2", "tcp@a:1", "tcp@b:1"] {
            assert_eq!(next_text(&mut sets).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn poll_backoff_grows_up_to_a_limit() {
        let began = Instant::now();
        let names = ["1", "2", "3", "4", "5", "6", "7", "8"];
        let mut sets = sets(Script(names.iter().map(|name| Err(*name)).collect()));
        let mut before = Duration::ZERO;
        let mut pauses = Vec::new();
        for name in names {
            assert_eq!(next_text(&mut sets).await, name);
            pauses.push((began.elapsed() - before).as_secs_f64());
            before = began.elapsed();
        }
        let expected = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0];
        for (pause, expected) in pauses.iter().zip(expected) {
            assert!((expected * 0.9 - 0.01..=expected * 1.1 + 0.01).contains(pause), "{pauses:?}");
        }
    }
}
