//! Whether a measurement is valid, and what limited it.

use std::fmt;
use std::time::Duration;

use crate::engine::record::Counts;

/// Validity of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The calls were made as planned.
    Valid,
    /// Valid: the server could not keep up with the planned rate. The achieved rate is the result.
    ServerSaturated {
        /// Calls that waited because the maximum number of calls was in flight.
        blocked: u64,
        /// Share of the planned calls that ended within the measurement.
        attained: f64,
    },
    /// Invalid: the generator sent calls later than planned although it could have sent them. The times say more about
    /// the generator than about the server.
    GeneratorSaturated {
        /// 99th percentile of the delay for which the generator is responsible.
        lag_p99: Duration,
        /// Greatest such delay.
        lag_max: Duration,
        /// Share of the calls that were delayed by more than [`LATE`].
        late: f64,
    },
    /// Invalid: a process that made a part of the calls was lost, and its calls are missing.
    WorkerLost {
        /// Which, and why.
        workers: Vec<String>,
    },
    /// Invalid: nothing was measured.
    NothingMeasured,
}

/// Delay from which a call counts as late.
pub const LATE: Duration = Duration::from_millis(1);
/// Greatest share of late calls in a valid run.
const MAX_LATE: f64 = 0.01;
/// Share of the planned calls that a server ends in time if it keeps up.
const KEEPS_UP: f64 = 0.95;

impl Verdict {
    /// Whether the results can be used.
    pub fn is_valid(&self) -> bool {
        matches!(self, Self::Valid | Self::ServerSaturated { .. })
    }

    /// Its name in results: `completed`, `server_saturated`, `generator_saturated`, `worker_lost` or `inconsistent`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Valid => "completed",
            Self::ServerSaturated { .. } => "server_saturated",
            Self::GeneratorSaturated { .. } => "generator_saturated",
            Self::WorkerLost { .. } => "worker_lost",
            Self::NothingMeasured => "inconsistent",
        }
    }

    /// Verdict on an open loop.
    pub(crate) fn for_open_loop(counts: &Counts, own_lag: &hdrhistogram::Histogram<u64>) -> Self {
        if counts.planned == 0 {
            return Self::NothingMeasured;
        }
        let beyond = own_lag.count_between(LATE.as_nanos() as u64, u64::MAX);
        let late = beyond as f64 / own_lag.len().max(1) as f64;
        if late > MAX_LATE {
            return Self::GeneratorSaturated {
                lag_p99: Duration::from_nanos(own_lag.value_at_quantile(0.99)),
                lag_max: Duration::from_nanos(own_lag.max()),
                late,
            };
        }
        let attained = counts.ended_in_window as f64 / counts.planned as f64;
        match counts.blocked > 0 || attained < KEEPS_UP {
            true => Self::ServerSaturated { blocked: counts.blocked, attained },
            false => Self::Valid,
        }
    }

    /// Verdict on a closed loop, whose callers plan nothing.
    pub(crate) fn for_closed_loop(counts: &Counts) -> Self {
        match counts.sent {
            0 => Self::NothingMeasured,
            _ => Self::Valid,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("valid"),
            Self::ServerSaturated { blocked: 0, attained } => {
                write!(
                    f,
                    "valid; the server is saturated: it ended {:.1} % of the calls in time",
                    attained * 100.0
                )
            }
            Self::ServerSaturated { blocked, attained } => write!(
                f,
                "valid; the server is saturated: {blocked} calls waited because too many were in flight, {:.1} % of \
                 the planned calls ended in time",
                attained * 100.0
            ),
            Self::GeneratorSaturated { lag_p99, lag_max, late } => write!(
                f,
                "INVALID: the generator is saturated: it sent {:.1} % of the calls more than {LATE:?} late (p99 \
                 {lag_p99:.1?}, longest {lag_max:.1?})",
                late * 100.0
            ),
            Self::WorkerLost { workers } => {
                write!(f, "INVALID: calls are missing, since a worker was lost: {}", workers.join("; "))
            }
            Self::NothingMeasured => f.write_str("INVALID: no call was measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::histogram;

    fn verdict(calls: u64, late: u64, counts: Counts) -> Verdict {
        let mut lag = histogram();
        lag.record_n(10_000, calls - late).unwrap();
        lag.record_n(50_000_000, late).unwrap();
        Verdict::for_open_loop(&Counts { planned: calls, sent: calls, ..counts }, &lag)
    }

    #[test]
    fn late_sends_of_the_generator_invalidate_the_run() {
        let ended = Counts { ended_in_window: 1000, ..Counts::default() };
        assert_eq!(verdict(1000, 10, ended), Verdict::Valid);
        let invalid = verdict(1000, 11, ended);
        assert!(
            !invalid.is_valid() && invalid.to_string().starts_with("INVALID: the generator"),
            "{invalid}"
        );
    }

    #[test]
    fn saturated_server_is_a_valid_result() {
        let slow = verdict(1000, 0, Counts { ended_in_window: 500, ..Counts::default() });
        let full = verdict(1000, 0, Counts { ended_in_window: 1000, blocked: 7, ..Counts::default() });
        for verdict in [slow, full] {
            assert!(
                verdict.is_valid() && verdict.to_string().contains("the server is saturated"),
                "{verdict}"
            );
        }
        assert!(!Verdict::for_closed_loop(&Counts::default()).is_valid());
    }
}
