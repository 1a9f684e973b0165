//! Common parts of all watches: backoff after failures, and a limited rate of sets.

use std::collections::HashSet;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Instance, InstanceStream};
use tokio::time::{Instant, sleep_until};

/// Source of the instances in a registry.
pub(crate) trait WatchSource: Send + 'static {
    /// Returns the current instances. After the first call it waits until they may have changed. After a failure it
    /// starts from the beginning.
    fn next(&mut self) -> impl Future<Output = Result<Vec<Instance>, Status>> + Send;

    /// Returns the reason why some of the current entries could not be read, if any.
    fn warning(&mut self) -> Option<Status> {
        None
    }
}

/// Stream of the sets that a watch finds.
pub(crate) fn sets(source: impl WatchSource) -> InstanceStream {
    let watch = Watch { source, known: None, warning: UnreadableEntry::None, pause: None, not_before: None };
    stream::unfold(watch, |mut watch| async move {
        let item = watch.next().await;
        Some((item, watch))
    })
    .boxed()
}

struct Watch<S> {
    source: S,
    /// Last returned set, unless it was a failure.
    known: Option<Vec<Instance>>,
    warning: UnreadableEntry,
    /// Pause after the last failure, if nothing has succeeded since.
    pause: Option<Duration>,
    not_before: Option<Instant>,
}

/// Warning about malformed entries of the last set: it is returned after the set, and once.
enum UnreadableEntry {
    None,
    Due(Status),
    Reported(Status),
}

impl<S: WatchSource> Watch<S> {
    async fn next(&mut self) -> Result<Vec<Instance>> {
        loop {
            if let UnreadableEntry::Due(status) = &self.warning {
                let status = status.clone();
                self.warning = UnreadableEntry::Reported(status.clone());
                return Err(status.into());
            }
            if let Some(not_before) = self.not_before {
                sleep_until(not_before).await;
            }
            match self.source.next().await {
                Ok(found) => {
                    self.pause_for(None, MIN_POLL_INTERVAL);
                    self.update_warning();
                    let found = sort_and_deduplicate(found);
                    if self.known.as_ref() != Some(&found) {
                        self.known = Some(found.clone());
                        return Ok(found);
                    }
                }
                Err(status) => {
                    let pause = self.pause.map_or(INITIAL_BACKOFF, |pause| (pause * 2).min(MAX_BACKOFF));
                    self.pause_for(Some(pause), jitter(pause));
                    self.known = None;
                    return Err(status.into());
                }
            }
        }
    }

    fn update_warning(&mut self) {
        self.warning = match (self.source.warning(), &self.warning) {
            (None, _) => UnreadableEntry::None,
            (Some(now), UnreadableEntry::Reported(reported)) if now.message() == reported.message() => {
                UnreadableEntry::Reported(now)
            }
            (Some(now), _) => UnreadableEntry::Due(now),
        };
    }

    fn pause_for(&mut self, pause: Option<Duration>, wait: Duration) {
        self.pause = pause;
        self.not_before = Some(Instant::now() + wait);
    }
}

/// Sorts the instances and removes duplicates, so that the order does not depend on the registry. The same address with
/// two tags is two servers, as in brpc (`ServerNode`).
fn sort_and_deduplicate(mut found: Vec<Instance>) -> Vec<Instance> {
    let mut seen = HashSet::with_capacity(found.len());
    found.retain(|instance| {
        let tag = instance.attributes.tag().map(str::to_owned);
        seen.insert((instance.network, instance.address.clone(), tag))
    });
    found.sort_by(|one, other| {
        (one.network, &one.address, one.attributes.tag()).cmp(&(
            other.network,
            &other.address,
            other.attributes.tag(),
        ))
    });
    found
}

/// Adds a jitter of a fifth, so that watches that failed together do not retry together.
fn jitter(pause: Duration) -> Duration {
    // Each state of the standard hasher starts with keys of its own, which is random enough here.
    let chance = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
    pause.mul_f64(0.8 + 0.4 * chance)
}

/// Minimum time between two polls, however busy the registry: twenty sets a second are enough.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Pause after the first failure, as in brpc (`consul_naming_service.cpp`); it doubles after each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// The watch must be back, with one failure more, within 5 s of the registry: its servers have registered again by
/// then.
const MAX_BACKOFF: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Script(VecDeque<Result<Vec<&'static str>, Status>>);

    /// Sets with their warnings.
    struct WarningSource(VecDeque<(&'static str, Option<&'static str>)>, Option<Status>);

    impl WatchSource for WarningSource {
        async fn next(&mut self) -> Result<Vec<Instance>, Status> {
            let Some((found, warning)) = self.0.pop_front() else {
                return std::future::pending().await;
            };
            self.1 = warning.map(Status::invalid_argument);
            Ok(vec![found.parse()?])
        }

        fn warning(&mut self) -> Option<Status> {
            self.1.take()
        }
    }

    impl WatchSource for Script {
        async fn next(&mut self) -> Result<Vec<Instance>, Status> {
            match self.0.pop_front() {
                Some(found) => Ok(found?.into_iter().map(|text| text.parse().unwrap()).collect()),
                None => std::future::pending().await,
            }
        }
    }

    fn down() -> Result<Vec<&'static str>, Status> {
        Err(Status::unavailable("down"))
    }

    #[tokio::test(start_paused = true)]
    async fn unchanged_set_is_yielded_once() {
        let script =
            Script([Ok(vec!["a:1", "b:1"]), Ok(vec!["b:1", "a:1", "a:1"]), Ok(vec![])].into_iter().collect());
        let mut sets = sets(script);
        assert_eq!(sets.next().await.unwrap().unwrap().len(), 2);
        assert_eq!(sets.next().await.unwrap().unwrap().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn unreadable_entry_is_reported_once_after_the_set() {
        let script = [
            ("a:1", Some("x")),
            ("a:1", Some("x")),
            ("b:1", Some("x")),
            ("b:1", Some("y")),
            ("b:1", None),
            ("b:1", Some("y")),
        ];
        let mut sets = sets(WarningSource(script.into(), None));
        let mut reported = Vec::new();
        for _ in 0..5 {
            reported.push(match sets.next().await.unwrap() {
                Ok(set) => set[0].address.clone(),
                Err(error) => error.message().to_owned(),
            });
        }
        assert_eq!(reported, ["a:1", "x", "b:1", "y", "y"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_recovery_yields_the_set_again() {
        let script =
            [Ok(vec!["a:1"]), down(), down(), down(), down(), down(), down(), Ok(vec!["a:1"]), down()];
        let mut sets = sets(Script(script.into_iter().collect()));
        assert!(sets.next().await.unwrap().is_ok());
        let mut waited = Vec::new();
        for _ in 0..6 {
            let start = Instant::now();
            assert!(sets.next().await.unwrap().is_err());
            waited.push(start.elapsed());
        }
        let longest = MAX_BACKOFF.mul_f64(1.3);
        assert!(waited.windows(2).take(2).all(|pair| pair[0] < pair[1]), "{waited:?}");
        assert!(waited.iter().all(|waited| *waited < longest), "{waited:?}");
        assert!(sets.next().await.unwrap().is_ok());
        assert!(sets.next().await.unwrap().is_err());
    }
}
