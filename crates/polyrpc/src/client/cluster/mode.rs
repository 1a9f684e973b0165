use std::time::Duration;

/// What a client does when a call fails, in rpcx's terms.
///
/// In every mode a call is retried only if its failure allows it ([`Retry`](crate::Retry)): always if the server
/// certainly did not process it, otherwise only if the call is marked
/// [idempotent](crate::client::CallOptions::idempotent). A call is never retried after it was cancelled, past its
/// deadline, or if the application rejected it; nor more often than the
/// [budget](crate::client::RetryBudget) allows. Unreachable servers do not count against the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FailMode {
    /// Returns the failure at once.
    Failfast,
    /// Retries on the same server, after a pause.
    Failtry,
    /// Retries on another server; on a server that was tried already only if there is no other, after a pause.
    #[default]
    Failover,
    /// As `Failover`; in addition, a call without a reply
    /// [for a while](crate::client::Builder::backup_after) is also sent to a second server. The
    /// first success is the reply, and the other attempt is cancelled. A call may thus be executed twice, whether it is
    /// marked idempotent or not. Streaming calls are sent to one server only.
    Failbackup,
}

/// Delay before a backup request is sent to a second server.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) enum Backup {
    /// Fixed delay. The default is rpcx's usual 10 ms.
    After(Duration),
    /// Quantile of the recent latencies.
    Quantile(f64),
}

impl Default for Backup {
    fn default() -> Self {
        Self::After(DEFAULT_DELAY)
    }
}

impl Backup {
    /// Returns the current delay; `slowest` returns a quantile of the recent latencies.
    pub(super) fn delay(self, slowest: impl FnOnce(f64) -> Option<Duration>) -> Duration {
        match self {
            Self::After(delay) => delay,
            Self::Quantile(quantile) => slowest(quantile).unwrap_or(DEFAULT_DELAY).max(MIN_DELAY),
        }
    }
}

/// rpcx `client/client.go`, `DefaultOption.BackupLatency`.
const DEFAULT_DELAY: Duration = Duration::from_millis(10);

/// Resolution of tokio's timers.
const MIN_DELAY: Duration = Duration::from_millis(1);
