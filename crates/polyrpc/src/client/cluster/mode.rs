use std::time::Duration;

/// What a client does when a call fails, in rpcx's words.
///
/// Whatever it is, a call is sent again only if its failure says that it may be ([`Retry`](crate::Retry)): always if
/// the server surely did not begin it, and otherwise if the call is marked
/// [idempotent](crate::client::Options::idempotent). It is never sent again after it was cancelled, past its deadline,
/// or because the application said no; nor more often than the [budget](crate::client::cluster::budget::Budget) allows, which does not
/// count servers that could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailMode {
    /// Tells the failure at once.
    Failfast,
    /// Tries the same server again, after a pause.
    Failtry,
    /// Tries another server; one that was tried only if there is no other, after a pause.
    #[default]
    Failover,
    /// As `Failover`; besides, a call that is not answered [for a while](Backup) is sent to a second server too. The
    /// first success is the answer, and the other call is cancelled. So a call may be executed twice, whether it is
    /// marked idempotent or not. Calls with several messages in a direction are sent to one server only.
    Failbackup,
}

/// How long an answer is waited for before a second server is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Backup {
    /// So long. rpcx's usual 10 ms are the default.
    After(Duration),
    /// As long as this share of recent calls took: `0.95` asks a second server for the slowest twentieth. It is at
    /// least a millisecond, and 10 ms until enough calls have been answered.
    Percentile(f64),
}

impl Default for Backup {
    fn default() -> Self {
        Self::After(USUAL)
    }
}

impl Backup {
    /// How long to wait now; `slowest` tells how long this share of recent calls took.
    pub(super) fn delay(self, slowest: impl FnOnce(f64) -> Option<Duration>) -> Duration {
        match self {
            Self::After(delay) => delay,
            Self::Percentile(share) => slowest(share).unwrap_or(USUAL).max(LEAST),
        }
    }
}

/// rpcx `client/client.go`, `DefaultOption.BackupLatency`.
const USUAL: Duration = Duration::from_millis(10);

/// Less is no delay to a timer of tokio.
const LEAST: Duration = Duration::from_millis(1);
