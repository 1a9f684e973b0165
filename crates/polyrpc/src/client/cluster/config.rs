use std::time::Duration;

use super::breaker::CircuitBreaker;
use super::health::HealthCheck;
use super::mode::{Backup, FailMode};
use super::recovery::RecoveryPolicy;
use super::retry_budget::RetryBudget;
use crate::client::balance::{LoadBalancer, P2c};
use crate::client::connection::Backoff;
use crate::discovery::Discover;

/// User's configuration of a channel before it is created.
#[derive(Default)]
pub(in crate::client) struct ChannelConfig {
    pub(in crate::client) discover: Option<Box<dyn Discover>>,
    pub(in crate::client) balance: Option<Box<dyn LoadBalancer>>,
    pub(in crate::client) fail_mode: FailMode,
    pub(in crate::client) retries: Option<u32>,
    pub(in crate::client) budget: RetryBudget,
    pub(in crate::client) backoff: Option<Backoff>,
    pub(in crate::client) backup: Backup,
    pub(in crate::client) group: Option<String>,
    pub(in crate::client) accepts_empty_sets: bool,
    pub(in crate::client) fails_with_registry: bool,
    pub(in crate::client) breaker: Option<CircuitBreaker>,
    pub(in crate::client) health: Option<HealthCheck>,
    pub(in crate::client) recovery: Option<RecoveryPolicy>,
}

/// Settings of a channel.
#[derive(Debug)]
pub(super) struct ChannelSettings {
    pub(super) balance: Box<dyn LoadBalancer>,
    pub(super) fail_mode: FailMode,
    /// Number of times that a call may be retried.
    pub(super) retries: u32,
    pub(super) budget: RetryBudget,
    /// Pause before a server is tried again.
    pub(super) backoff: Backoff,
    pub(super) backup: Backup,
    pub(super) group: Option<String>,
    pub(super) accepts_empty_sets: bool,
    /// A call does not wait for a registry that has failed.
    pub(super) fails_with_registry: bool,
    pub(super) health: HealthCheck,
    /// Whether a server may report that it did not process a call.
    pub(super) resends_unprocessed: bool,
}

impl ChannelConfig {
    pub(super) fn settings(self, resends_unprocessed: bool) -> ChannelSettings {
        ChannelSettings {
            resends_unprocessed,
            balance: self.balance.unwrap_or_else(|| Box::new(P2c::new())),
            fail_mode: self.fail_mode,
            retries: self.retries.unwrap_or(RETRIES),
            budget: self.budget,
            backoff: self.backoff.unwrap_or(BACKOFF),
            backup: self.backup,
            group: self.group,
            accepts_empty_sets: self.accepts_empty_sets,
            fails_with_registry: self.fails_with_registry,
            health: self.health.unwrap_or_default(),
        }
    }
}

/// Default of rpcx and brpc (rpcx `client/client.go`, `DefaultOption.Retries`; brpc `channel.cpp`, `max_retry`).
const RETRIES: u32 = 3;

/// Short, since a call is waiting.
const BACKOFF: Backoff =
    Backoff { initial: Duration::from_millis(10), max: Duration::from_secs(1), factor: 2.0 };
