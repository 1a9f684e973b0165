use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How a call ended, as a limiter counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleOutcome {
    Succeeded,
    Failed,
}

/// Admits one sample per tenth of a millisecond, without a lock.
#[derive(Debug)]
pub(super) struct SampleGate {
    began: Instant,
    /// When the last sample was admitted, in nanoseconds since one before the start; 0: none yet.
    last: AtomicU64,
}

impl SampleGate {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, last: AtomicU64::new(0) }
    }

    pub(super) fn should_sample(&self, now: Instant) -> bool {
        let now = nanoseconds(now.saturating_duration_since(self.began)).saturating_add(1);
        let last = self.last.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= nanoseconds(SAMPLE_INTERVAL);
        due && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The durations of the calls in a window of time. The constants are brpc's (`policy/auto_concurrency_limiter.cpp`,
/// `policy/timeout_concurrency_limiter.cpp`).
#[derive(Debug, Default)]
pub(super) struct Window {
    began: Option<Instant>,
    succeeded: u32,
    failed: u32,
    time_of_succeeded: Duration,
    time_of_failed: Duration,
}

/// Summary of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowSummary {
    /// Average duration of a call in whole microseconds, with failed calls as a surcharge on those that succeeded.
    /// `None` if none has succeeded.
    pub(super) average: Option<f64>,
    /// Duration of the window.
    pub(super) took: Duration,
}

/// State of a window after a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum WindowProgress {
    /// It continues.
    Open,
    /// It had too few samples in its time: they are discarded, and it restarts.
    Discarded,
    /// It is full, and restarts.
    Full(WindowSummary),
}

impl Window {
    pub(super) fn add(&mut self, outcome: SampleOutcome, latency: Duration, now: Instant) -> WindowProgress {
        let began = *self.began.get_or_insert(now);
        match outcome {
            SampleOutcome::Succeeded => {
                self.succeeded += 1;
                self.time_of_succeeded += latency;
            }
            SampleOutcome::Failed => {
                self.failed += 1;
                self.time_of_failed += latency;
            }
        }
        let took = now.saturating_duration_since(began);
        let samples = self.succeeded + self.failed;
        if took < MAX_WINDOW && samples < MAX_SAMPLES {
            return WindowProgress::Open;
        }
        let progress = match samples < MIN_SAMPLES {
            true => WindowProgress::Discarded,
            false => WindowProgress::Full(WindowSummary { average: self.average(), took }),
        };
        self.restart(now);
        progress
    }

    /// Discards its samples.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self { began: Some(now), ..Self::default() };
    }

    fn average(&self) -> Option<f64> {
        let all = (self.time_of_failed + self.time_of_succeeded).as_nanos() as f64 / 1e3;
        (self.succeeded > 0).then(|| (all / f64::from(self.succeeded)).ceil())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const SAMPLE_INTERVAL: Duration = Duration::from_micros(100);
const MAX_WINDOW: Duration = Duration::from_secs(1);
const MAX_SAMPLES: u32 = 200;
const MIN_SAMPLES: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    /// Adds this many samples, one per millisecond.
    fn add(
        window: &mut Window,
        now: &mut Instant,
        outcome: SampleOutcome,
        latency: u64,
        times: u32,
    ) -> WindowProgress {
        let mut progress = WindowProgress::Open;
        for _ in 0..times {
            *now += TICK;
            progress = window.add(outcome, Duration::from_micros(latency), *now);
        }
        progress
    }

    #[test]
    fn window_is_full_after_200_samples_or_a_second_with_100() {
        let (mut window, mut now) = (Window::default(), Instant::now());
        assert_eq!(add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 199), WindowProgress::Open);
        let full = WindowProgress::Full(WindowSummary { average: Some(10.0), took: TICK * 199 });
        assert_eq!(add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 1), full);

        assert_eq!(add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 99), WindowProgress::Open);
        now += MAX_WINDOW;
        let WindowProgress::Full(measured) = add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 1)
        else {
            panic!("100 samples in more than a second are enough");
        };
        assert!(measured.took > MAX_WINDOW);
    }

    #[test]
    fn window_with_few_samples_is_discarded() {
        let (mut window, mut now) = (Window::default(), Instant::now());
        add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 98);
        now += MAX_WINDOW;
        assert_eq!(add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 1), WindowProgress::Discarded);
        assert_eq!(add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 199), WindowProgress::Open);
    }

    #[test]
    fn failures_raise_the_average_latency() {
        let (mut window, mut now) = (Window::default(), Instant::now());
        add(&mut window, &mut now, SampleOutcome::Failed, 30, 50);
        let WindowProgress::Full(measured) = add(&mut window, &mut now, SampleOutcome::Succeeded, 10, 150)
        else {
            panic!("200 samples are enough");
        };
        assert_eq!(measured.average, Some(20.0));
        let WindowProgress::Full(measured) = add(&mut window, &mut now, SampleOutcome::Failed, 30, 200)
        else {
            panic!("200 samples are enough");
        };
        assert_eq!(measured.average, None);
    }

    #[test]
    fn one_call_per_interval_is_sampled() {
        let now = Instant::now();
        let gate = SampleGate::new(now);
        let passed = |after| gate.should_sample(now + Duration::from_micros(after));
        assert!(passed(0) && !passed(0) && !passed(99));
        assert!(passed(100) && !passed(199) && passed(200));
    }
}
