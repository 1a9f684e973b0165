use std::collections::HashSet;
use std::time::Duration;

use polyrpc_core::Status;
use tokio::time::Instant;

use super::TARGET;
use crate::discovery::Instance;

/// Log events about a registry and its entries. No call fails because of them, so they would go unnoticed otherwise.
/// The rate is limited: a registry that fails continuously must not fill the log.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// Last message about the registry, and its time.
    last: Option<(String, Instant)>,
    /// Whether a failure of the registry was logged, but not its recovery.
    is_lost: bool,
    /// Entries that were already logged.
    named: HashSet<String>,
}

/// Minimum time between two messages about a registry.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two identical messages.
const REPEAT_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Number of entries of a set that are logged by name.
const MAX_NAMED: usize = 10;
/// Number of entries that are remembered; beyond it, some are logged again.
const MAX_REMEMBERED: usize = 10_000;

impl Warnings {
    /// Logs that a registry failed, or holds malformed data.
    #[cold]
    pub(super) fn warn_registry(&mut self, name: &str, status: &Status) {
        if self.is_due(status.message()) {
            tracing::warn!(target: TARGET, client = name, error = %status, "registry failed; the last known servers stay in use");
            self.last = Some((status.message().to_owned(), Instant::now()));
            self.is_lost = true;
        }
    }

    /// Logs that the registry answers again.
    pub(super) fn log_recovery(&mut self, name: &str, instances: usize) {
        if std::mem::take(&mut self.is_lost) {
            tracing::info!(target: TARGET, client = name, instances, "registry recovered");
        }
    }

    fn is_due(&self, message: &str) -> bool {
        self.last.as_ref().is_none_or(|(last, when)| {
            when.elapsed() >= if last == message { REPEAT_LOG_INTERVAL } else { MIN_LOG_INTERVAL }
        })
    }

    /// Logs the entries of a set that cannot be called.
    pub(super) fn warn_unusable(&mut self, name: &str, unusable: &[(Instance, Status)]) {
        if self.named.len() > MAX_REMEMBERED {
            self.named.clear();
        }
        let updates = unusable.iter().filter(|(instance, _)| self.named.insert(instance.to_string()));
        let updates: Vec<_> = updates.collect();
        for (instance, status) in updates.iter().take(MAX_NAMED) {
            tracing::warn!(target: TARGET, client = name, %instance, error = status.message(), "registry entry ignored");
        }
        if let Some(more @ 1..) = updates.len().checked_sub(MAX_NAMED) {
            tracing::warn!(target: TARGET, client = name, more, "further registry entries ignored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn equal_warnings_are_logged_once_a_minute_and_others_once_a_second() {
        let mut warnings = Warnings::default();
        let mut logged = 0;
        for tenth in 0..650 {
            let message = if tenth < 620 { "down" } else { "nonsense" };
            logged += usize::from(warnings.is_due(message));
            warnings.warn_registry("x", &Status::unavailable(message));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        // At the start, after a minute, and when the message changes.
        assert_eq!(logged, 3);
    }

    #[test]
    fn unusable_instance_is_logged_once() {
        let mut warnings = Warnings::default();
        let bad = |n: usize| (Instance::tcp(format!("bad-{n}")), Status::invalid_argument("no port"));
        for _ in 0..3 {
            warnings.warn_unusable("x", &[bad(1), bad(2), bad(1)]);
        }
        assert_eq!(warnings.named.len(), 2);
        for set in 0..4 {
            warnings.warn_unusable("x", &(0..9_000).map(|n| bad(set * 9_000 + n)).collect::<Vec<_>>());
        }
        assert!(warnings.named.len() <= MAX_REMEMBERED + 9_000);
    }
}
