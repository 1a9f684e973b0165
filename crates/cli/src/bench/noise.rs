//! How quiet this machine is: a fixed piece of work, repeated on every core.

use std::fs;
use std::hint::black_box;
use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use polyrpc_bench_report::statistics::noise::Probe;

/// Probes the machine before and after a measurement.
pub(super) struct NoiseProbe {
    /// Steps of the work that take about 1 ms when nothing disturbs.
    steps: u64,
}

/// A probe whose first half, before the measurement, is done.
pub(super) struct StartedProbe {
    durations_ns: Vec<f64>,
    cpu: Option<CpuTime>,
}

impl NoiseProbe {
    /// Finds out how much work takes 1 ms.
    pub(super) fn calibrate() -> Self {
        let mut steps = 1_000;
        // The shortest of twenty: interference only makes it longer.
        let shortest = |steps| (0..20).map(|_| work(steps)).min().unwrap_or_default();
        while shortest(steps) < LOOP {
            steps *= 2;
        }
        Self { steps: (steps as f64 * LOOP.as_secs_f64() / shortest(steps).as_secs_f64()) as u64 }
    }

    /// Probes before a measurement, for 50 ms.
    pub(super) fn begin(&self) -> StartedProbe {
        let cpu = CpuTime::now();
        StartedProbe { durations_ns: self.on_every_core(), cpu }
    }

    /// Probes after the measurement, for 50 ms, and evaluates both halves.
    pub(super) fn finish(&self, mut started: StartedProbe) -> Option<Probe> {
        started.durations_ns.extend(self.on_every_core());
        let steal = started.cpu.zip(CpuTime::now()).and_then(|(before, now)| now.steal_since(before));
        Probe::from_loops(&started.durations_ns, steal)
    }

    fn on_every_core(&self) -> Vec<f64> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            let measure = || (0..LOOPS).map(|_| work(self.steps).as_nanos() as f64).collect::<Vec<_>>();
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(measure)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
        })
    }
}

fn work(steps: u64) -> Duration {
    let start = Instant::now();
    let mut state = 1_u64;
    for step in 0..steps {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step));
    }
    black_box(state);
    start.elapsed()
}

/// CPU time of the whole machine, in ticks.
struct CpuTime {
    all: u64,
    steal: u64,
}

impl CpuTime {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
        let fields: Vec<u64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
        Some(Self { all: fields.iter().sum(), steal: *fields.get(7)? })
    }

    fn steal_since(&self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.steal.saturating_sub(before.steal) as f64 / all as f64)
    }
}

const LOOP: Duration = Duration::from_millis(1);
/// On each core.
const LOOPS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_measures_loops_of_about_a_millisecond() {
        let probe = NoiseProbe::calibrate();
        let probe = probe.finish(probe.begin()).unwrap();
        assert!(probe.loops >= 100 && probe.median_ns > 2e5, "{probe}");
    }

    #[test]
    fn steal_is_a_share_of_all_time() {
        let before = CpuTime::parse("cpu  10 0 10 70 0 0 0 10 0 0\ncpu0 1").unwrap();
        let after = CpuTime::parse("cpu  20 0 20 130 0 0 0 30 0 0\n").unwrap();
        assert_eq!(after.steal_since(before), Some(0.2));
        assert!(CpuTime::parse("intr 1").is_none());
    }
}
