//! What a load does, on standard error while it runs.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use polyrpc_load::{Plan, RunLength, Second};

use crate::terminal::{self, ShortDuration, format_count};

/// A progress bar if standard error is a terminal, or a line for each second.
pub(super) struct Progress {
    bar: ProgressBar,
    live: bool,
    /// Counts calls, not time.
    counts: bool,
    calls: u64,
}

impl Progress {
    pub(super) fn new(plan: &Plan, live: bool) -> Self {
        let (length, counts) = match plan.length {
            RunLength::Calls(calls) => (calls, true),
            RunLength::Time(duration) => (duration.as_secs(), false),
        };
        let bar = if live { ProgressBar::hidden() } else { ProgressBar::new(length) };
        let style = ProgressStyle::with_template("{bar:40.cyan} {msg}").expect("a valid template");
        let bar = bar.with_style(style.progress_chars("━╸─")).with_message("warming up");
        bar.tick();
        Self { bar, live, counts, calls: 0 }
    }

    pub(super) fn show(&mut self, second: &Second) {
        self.calls += second.succeeded + second.failed;
        if self.live {
            terminal::print_error(line(second));
        }
        self.bar.set_position(if self.counts { self.calls } else { second.second + 1 });
        self.bar.set_message(format!("{} calls, {}", format_count(self.calls), line(second)));
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(second: &Second) -> String {
    let [p50, p90, p99, _] = second.quantiles.map(|nanos| ShortDuration(Duration::from_nanos(nanos)));
    let mut line = format!(
        "{:>4} s  {:>9}/s  p50 {p50:>7}  p90 {p90:>7}  p99 {p99:>7}  max {:>7}  in flight {}",
        second.second + 1,
        format_count(second.succeeded),
        ShortDuration(Duration::from_nanos(second.max)),
        format_count(second.in_flight),
    );
    if second.failed > 0 {
        line += &format!("  errors {}", format_count(second.failed));
    }
    if second.lag_max > LATE {
        line += &format!("  sent up to {} late", ShortDuration(Duration::from_nanos(second.lag_max)));
    }
    line
}

/// Delay of the generator from which it is shown, in nanoseconds.
const LATE: u64 = 1_000_000;
