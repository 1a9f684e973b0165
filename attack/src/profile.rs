//! Limits of the server under attack, and durations of the measurements.

use std::time::Duration;

use clap::ValueEnum;
use polyrpc::server::Limits;

/// Form of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Default timeouts, every attack against a fresh server.
    Full,
    /// Shorter timeouts and smaller attacks, all against one server.
    Short,
    /// The limits of a server behind a gateway: default timeouts, and room for what the gateway's callers do not read. It
    /// neither ends nor refuses what the gateway should.
    Upstream,
}

/// Memory budget of the server under attack.
pub(crate) const BUDGET: usize = 256 << 20;

impl Profile {
    pub(crate) fn is_short(self) -> bool {
        self == Self::Short
    }

    /// The first in a full run, the second in a short one.
    pub(crate) fn pick<T>(self, full: T, short: T) -> T {
        if self.is_short() { short } else { full }
    }

    pub(crate) fn limits(self) -> Limits {
        let defaults = Limits { memory: BUDGET, memory_per_peer: BUDGET * 3 / 4, ..Limits::default() };
        match self {
            Self::Full => defaults,
            Self::Upstream => {
                let memory = 4 * BUDGET;
                Limits { memory, memory_per_peer: memory, unsent_per_connection: BUDGET, ..Limits::default() }
            }
            Self::Short => Limits {
                first_byte_timeout: Duration::from_secs(2),
                header_timeout: Duration::from_secs(1),
                message_timeout: Duration::from_millis(2_500),
                write_timeout: Duration::from_millis(1_500),
                ..defaults
            },
        }
    }

    /// Duration of the measurement without an attack.
    pub(crate) fn baseline(self) -> Duration {
        self.pick(Duration::from_secs(3), Duration::from_secs(2))
    }

    /// Minimum duration of the measurement during an attack.
    pub(crate) fn window(self) -> Duration {
        self.pick(Duration::from_secs(5), Duration::from_millis(800))
    }

    /// How long to wait for the server to close what it must close within a limit; `None` if that takes too long, and
    /// the limit is reported instead. With some slack: the server checks its clocks periodically, and the machine has
    /// other work.
    pub(crate) fn wait_limit(self, limit: Duration) -> Option<Duration> {
        let wait_limit = limit + limit / 4 + Duration::from_secs(1);
        (wait_limit <= self.pick(Duration::from_secs(40), Duration::from_secs(6))).then_some(wait_limit)
    }

    /// Time until the memory must have been released.
    pub(crate) fn recovery(self) -> Duration {
        self.pick(Duration::from_secs(20), Duration::from_secs(15))
    }
}
