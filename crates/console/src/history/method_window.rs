use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc::layers::MethodStats;

use super::Period;

/// Past counts of a method, to compute the changes since.
#[derive(Debug, Default)]
pub(super) struct MethodWindow {
    /// Every other second, the latest first; `None` before the first call. Seconds without calls share their counts.
    seconds: VecDeque<(Instant, Option<Arc<MethodStats>>)>,
    minute: Option<Arc<MethodStats>>,
    hour: Option<Arc<MethodStats>>,
    day: Option<Arc<MethodStats>>,
}

/// How many samples are kept, and the time between them: recent values cover eight to ten seconds (bvar's
/// `bvar_dump_interval` is ten). A sample of a busy method takes 3 KiB.
const WINDOW: usize = 5;
const MIN_INTERVAL: Duration = Duration::from_millis(1_500);

impl MethodWindow {
    pub(super) fn record(
        &mut self,
        counts: Option<&MethodStats>,
        now: Instant,
        completed: &[Period],
    ) -> Vec<(Period, MethodStats)> {
        let counts = counts.map(|counts| match self.seconds.front() {
            Some((_, Some(last))) if is_unchanged(last, counts) => last.clone(),
            _ => Arc::new(counts.clone()),
        });
        if self.seconds.is_empty() {
            // Counts from before the console existed belong to no period.
            (self.minute, self.hour, self.day) = (counts.clone(), counts.clone(), counts.clone());
        }
        if self.seconds.front().is_none_or(|(last, _)| now.saturating_duration_since(*last) >= MIN_INTERVAL) {
            self.seconds.push_front((now, counts.clone()));
            self.seconds.truncate(WINDOW);
        }
        let Some(counts) = counts else { return Vec::new() };
        let mut during = Vec::new();
        for period in completed {
            let start = match period {
                Period::Minute => &mut self.minute,
                Period::Hour => &mut self.hour,
                Period::Day => &mut self.day,
            };
            let counted =
                start.as_ref().map_or_else(|| MethodStats::clone(&counts), |start| counts.since(start));
            *start = Some(counts.clone());
            during.push((*period, counted));
        }
        during
    }

    pub(super) fn recent_counts(&self, counts: &MethodStats, now: Instant) -> Option<(MethodStats, f64)> {
        let (then, earlier) = self.seconds.back()?;
        let seconds = now.saturating_duration_since(*then).as_secs_f64();
        let recent = earlier.as_ref().map_or_else(|| counts.clone(), |earlier| counts.since(earlier));
        Some((recent, seconds.max(1.0)))
    }
}

fn is_unchanged(then: &MethodStats, now: &MethodStats) -> bool {
    (then.started, then.succeeded, then.failed) == (now.started, now.succeeded, now.failed)
}
