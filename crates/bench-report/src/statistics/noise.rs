//! Whether the machine was quiet enough for a judgement.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::median::median;

/// What a probe of the machine showed: a fixed piece of work of about 1 ms, repeated around or during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Number of repetitions.
    pub loops: u64,
    /// Median duration in nanoseconds.
    pub median_ns: f64,
    /// 95th percentile of the duration in nanoseconds.
    pub p95_ns: f64,
    /// Share of the CPU time that the hypervisor gave to others meanwhile, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
}

/// How much can be concluded from a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// Differences are the subjects'.
    Quiet,
    /// Figures are kept, but no winner is named.
    Noisy,
    /// The round is to be repeated.
    Unusable,
}

impl Probe {
    /// Summary of the durations of the loops in nanoseconds. `None` with fewer than 20, which have no 95th percentile.
    pub fn from_loops(durations_ns: &[f64], steal: Option<f64>) -> Option<Self> {
        if durations_ns.len() < MIN_LOOPS {
            return None;
        }
        let median_ns = median(durations_ns)?;
        let mut sorted = durations_ns.to_vec();
        sorted.sort_by(f64::total_cmp);
        let p95_ns = sorted[(sorted.len() * 95).div_ceil(100) - 1];
        Some(Self { loops: sorted.len() as u64, median_ns, p95_ns, steal })
    }

    /// By how much the 95th percentile exceeds the median: 0.05 for 5 %. Medians alone hide noise: a loop that is usually
    /// exact and at times waits for a time slice has a perfect median.
    pub fn excess(&self) -> f64 {
        if self.median_ns > 0.0 { self.p95_ns / self.median_ns - 1.0 } else { f64::INFINITY }
    }

    /// The judgement.
    pub fn noise(&self) -> Noise {
        let share = self.excess().max(self.steal.unwrap_or(0.0));
        match share {
            _ if share <= NOISY => Noise::Quiet,
            _ if share <= UNUSABLE => Noise::Noisy,
            _ => Noise::Unusable,
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a loop of {:.2} ms took {:.1} % longer at its p95",
            self.median_ns / 1e6,
            self.excess() * 100.0
        )?;
        match self.steal {
            Some(steal) if steal > 0.0 => write!(f, ", {:.1} % of the CPU time was stolen", steal * 100.0),
            _ => Ok(()),
        }
    }
}

/// Share from which no winner is named.
const NOISY: f64 = 0.05;
/// Share from which a round is repeated.
const UNUSABLE: f64 = 0.20;
const MIN_LOOPS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(slow: usize, factor: f64, steal: Option<f64>) -> Noise {
        let durations: Vec<_> = (0..100).map(|n| if n < slow { 1e6 * factor } else { 1e6 }).collect();
        Probe::from_loops(&durations, steal).unwrap().noise()
    }

    #[test]
    fn slow_loops_in_the_tail_make_a_machine_noisy() {
        assert_eq!(probe(0, 1.0, None), Noise::Quiet);
        assert_eq!(probe(5, 3.0, None), Noise::Quiet);
        assert_eq!(probe(6, 1.04, None), Noise::Quiet);
        assert_eq!(probe(6, 1.10, None), Noise::Noisy);
        assert_eq!(probe(6, 3.0, None), Noise::Unusable);
    }

    #[test]
    fn stolen_time_counts_even_if_loops_are_even() {
        assert_eq!(probe(0, 1.0, Some(0.1)), Noise::Noisy);
        assert_eq!(probe(0, 1.0, Some(0.3)), Noise::Unusable);
    }

    #[test]
    fn too_few_loops_yield_no_probe() {
        assert_eq!(Probe::from_loops(&[1e6; 19], None), None);
        assert!(Probe::from_loops(&[1e6; 20], None).is_some());
        assert_eq!(Probe::from_loops(&[0.0; 20], None).unwrap().noise(), Noise::Unusable);
    }
}
