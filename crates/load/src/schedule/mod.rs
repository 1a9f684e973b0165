//! Planned times of calls: a function of the seed and the index of a call, fixed before the run, so that no event
//! during the run changes it.

mod profile;
pub(crate) mod random;
mod rate;

use std::fmt;
use std::time::Duration;

pub use self::profile::{Profile, Stages};
pub use self::rate::Rate;

pub(crate) use self::profile::duration;
use self::random::{Stream, random_unit};

/// Distribution of the times between calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrivals {
    /// Equal intervals.
    #[default]
    Constant,
    /// Exponentially distributed intervals: calls of many independent users.
    Poisson,
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
        })
    }
}

/// Planned calls of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Rate over time.
    pub profile: Profile,
    /// Distribution of the intervals.
    pub arrivals: Arrivals,
    /// Seed of the random intervals.
    pub seed: u64,
    /// Calls are planned before this time.
    pub duration: Option<Duration>,
    /// At most this number of calls is planned.
    pub total: Option<u64>,
}

impl Schedule {
    /// A schedule at the initial rate, for the warm-up.
    pub(crate) fn warmup(&self, duration: Duration) -> Self {
        let initial = Rate::from_f64(self.profile.initial_rate());
        let total = initial.is_err().then_some(0);
        let rate = initial.unwrap_or(Rate::ONE);
        Self { profile: Profile::Constant(rate), duration: Some(duration), total, ..self.clone() }
    }

    /// Time of the call behind the last of `calls`, in nanoseconds.
    pub(crate) fn end_of(&self, calls: u64) -> Option<u64> {
        match &self.profile {
            Profile::Constant(rate) => Some(rate.time_of(calls)),
            Profile::Stages(stages) => {
                let end = u64::try_from(stages.duration().as_nanos()).unwrap_or(u64::MAX);
                Some(stages.time_of(calls as f64).unwrap_or(end))
            }
        }
    }

    /// Every `threads`-th call, from number `thread`.
    pub(crate) fn part(&self, thread: usize, threads: usize) -> Part {
        let end = self.duration.map(|duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        Part {
            schedule: self.clone(),
            end: end.unwrap_or(u64::MAX),
            next: thread as u64,
            step: threads as u64,
            walked: 0,
            arrived: 0.0,
        }
    }
}

/// Planned calls of one thread, in the order of time.
#[derive(Debug)]
pub(crate) struct Part {
    schedule: Schedule,
    end: u64,
    /// Index of the next call.
    next: u64,
    step: u64,
    /// Number of intervals added to `arrived`.
    walked: u64,
    /// Sum of random intervals whose mean is 1.
    arrived: f64,
}

/// A planned call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// Number of the call in the whole schedule.
    pub(crate) index: u64,
    /// Time since the start, in nanoseconds.
    pub(crate) at: u64,
}

impl Part {
    fn time_of(&mut self, index: u64) -> Option<u64> {
        match (self.schedule.arrivals, &self.schedule.profile) {
            (Arrivals::Constant, Profile::Constant(rate)) => Some(rate.time_of(index)),
            (Arrivals::Constant, profile) => profile.time_of(index as f64),
            (Arrivals::Poisson, _) => {
                while self.walked <= index {
                    self.arrived -= random_unit(self.schedule.seed, Stream::Arrivals, self.walked).ln();
                    self.walked += 1;
                }
                self.schedule.profile.time_of(self.arrived)
            }
        }
    }
}

impl Iterator for Part {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let index = self.next;
        if self.schedule.total.is_some_and(|total| index >= total) {
            return None;
        }
        let at = self.time_of(index)?;
        self.next = index.checked_add(self.step)?;
        (at < self.end).then_some(Due { index, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(profile: &str, arrivals: Arrivals) -> Schedule {
        let profile = match profile.contains(':') {
            true => Profile::Stages(profile.parse().unwrap()),
            false => Profile::Constant(profile.parse().unwrap()),
        };
        Schedule { profile, arrivals, seed: 7, duration: Some(Duration::from_secs(2)), total: None }
    }

    #[test]
    fn parts_of_threads_make_up_the_whole_schedule() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            for profile in ["1k", "0:0,1s:1k,2s:500"] {
                let schedule = schedule(profile, arrivals);
                let whole: Vec<_> = schedule.part(0, 1).collect();
                let mut parts: Vec<_> = (0..3).flat_map(|thread| schedule.part(thread, 3)).collect();
                parts.sort_by_key(|due| due.index);
                assert_eq!(whole, parts, "{profile} {arrivals}");
                assert!(whole.is_sorted_by_key(|due| due.at) && whole.len() > 1000, "{profile} {arrivals}");
            }
        }
    }

    #[test]
    fn poisson_intervals_are_exponential() {
        let schedule = Schedule { total: Some(10_000), duration: None, ..schedule("1k", Arrivals::Poisson) };
        let times: Vec<_> = schedule.part(0, 1).map(|due| due.at).collect();
        let mut gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        gaps.sort_by(f64::total_cmp);
        let count = gaps.len() as f64;
        let distance =
            |(rank, gap): (usize, &f64)| ((rank as f64 + 0.5) / count - (1.0 - (-gap).exp())).abs();
        let largest = gaps.iter().enumerate().map(distance).fold(0.0, f64::max);
        // The 1 % point of the Kolmogorov-Smirnov distribution.
        assert!(largest < 1.63 / count.sqrt(), "{largest}");
    }

    #[test]
    fn schedule_depends_on_the_seed_alone() {
        let first = schedule("1k", Arrivals::Poisson);
        let again: Vec<_> = first.part(0, 1).collect();
        assert_eq!(first.part(0, 1).collect::<Vec<_>>(), again);
        let other = Schedule { seed: 8, ..first };
        assert_ne!(other.part(0, 1).collect::<Vec<_>>(), again);
    }
}
