use clap::{Args, ValueEnum};
use polyrpc::client::balance::Policy;
use polyrpc::client::{self, FailMode};

/// Choice among several servers, and handling of failures.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Several servers (rpcx+etcd://, rpcx+list://…)")]
pub(crate) struct MultiServerOptions {
    /// How to choose among servers: random, rr, wrr, wr, least, p2c, la, c_murmurhash, ConsistentHash and so on, with
    /// parameters as in p2c:choices=3; 'closest:latitude=52.5 longitude=13.4' picks the nearest server; servers must
    /// publish their position
    #[arg(long, value_name = "NAME")]
    balance: Option<Policy>,
    /// What to do if a call fails [default: failover]
    #[arg(long, value_enum, value_name = "MODE")]
    fail_mode: Option<Mode>,
    /// Number of retries of a call [default: 3]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// The method is idempotent: retry calls even if the server may have executed them
    #[arg(long)]
    idempotent: bool,
    /// Call only servers of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

/// rpcx's fail modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Fail at once
    Failfast,
    /// Retry on the same server
    Failtry,
    /// Retry on another server
    Failover,
    /// Also call a second server if the first is slow
    Failbackup,
}

impl MultiServerOptions {
    /// The first option that is given.
    pub(super) fn given_option(&self) -> Option<&'static str> {
        let Self { balance, fail_mode, retries, idempotent, group } = self;
        let options = [
            (balance.is_some(), "--balance"),
            (fail_mode.is_some(), "--fail-mode"),
            (retries.is_some(), "--retries"),
            (*idempotent, "--idempotent"),
            (group.is_some(), "--group"),
        ];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    /// The first option that is given and needs several servers to choose from.
    pub(super) fn choice_option(&self) -> Option<&'static str> {
        let options = [(self.balance.is_some(), "--balance"), (self.group.is_some(), "--group")];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    pub(super) fn apply(&self, mut builder: client::Builder) -> client::Builder {
        if let Some(policy) = &self.balance {
            builder = builder.balance(policy.clone());
        }
        if let Some(mode) = self.fail_mode {
            builder = builder.fail_mode(mode.into());
        }
        if let Some(retries) = self.retries {
            builder = builder.retries(retries);
        }
        if let Some(group) = &self.group {
            builder = builder.group(group);
        }
        if self.idempotent { builder.idempotent() } else { builder }
    }
}

impl From<Mode> for FailMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Failfast => Self::Failfast,
            Mode::Failtry => Self::Failtry,
            Mode::Failover => Self::Failover,
            Mode::Failbackup => Self::Failbackup,
        }
    }
}
