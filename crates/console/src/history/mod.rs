//! Samples of the console's thread: the history of every variable, and the recent counts of every method.

mod connection_rates;
mod method_window;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use polyrpc::layers::MethodStats;

pub(crate) use self::connection_rates::ConnectionRates;

use self::connection_rates::ConnectionHistory;
use self::method_window::MethodWindow;
use crate::trend::Trend;

/// Samples of the past.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Boxed, since a third of a map is empty.
    trends: HashMap<String, Box<Trend>>,
    methods: HashMap<MethodKey, MethodWindow>,
    pub(crate) connections: ConnectionHistory,
    ticks: u64,
}

/// A method of an observed server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct MethodKey {
    pub(crate) server: u64,
    pub(crate) service: String,
    pub(crate) method: String,
}

/// Maximum number of variables with a history. Further ones are shown without one.
const MAX_VARIABLES: usize = 16_384;

/// A period that a second may complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Period {
    Minute,
    Hour,
    Day,
}

impl History {
    /// Starts a second. Returns the periods that it completes.
    pub(crate) fn tick(&mut self) -> Vec<Period> {
        self.ticks += 1;
        let periods = [(60, Period::Minute), (3_600, Period::Hour), (86_400, Period::Day)];
        let completed = periods.into_iter().filter(|(seconds, _)| self.ticks.is_multiple_of(*seconds));
        completed.map(|(_, period)| period).collect()
    }

    /// Records the counts of a method; `None` if it was not called yet. Returns the counts of a completed period.
    pub(crate) fn record_method(
        &mut self,
        key: MethodKey,
        counts: Option<&MethodStats>,
        now: Instant,
        completed: &[Period],
    ) -> Vec<(Period, MethodStats)> {
        self.methods.entry(key).or_default().record(counts, now, completed)
    }

    /// Returns the recent counts of a method, and the number of seconds that they cover; `None` if it was never
    /// sampled.
    pub(crate) fn recent_counts(
        &self,
        key: &MethodKey,
        counts: &MethodStats,
        now: Instant,
    ) -> Option<(MethodStats, f64)> {
        self.methods.get(key)?.recent_counts(counts, now)
    }

    /// Records the value of a variable.
    pub(crate) fn record(&mut self, name: &str, value: f64) {
        if let Some(trend) = self.trends.get_mut(name) {
            trend.push(value);
        } else if self.trends.len() < MAX_VARIABLES {
            self.trends.entry(name.to_owned()).or_default().push(value);
        }
    }

    /// Replaces the value of a completed period.
    pub(crate) fn replace(&mut self, name: &str, period: Period, value: f64) {
        if let Some(trend) = self.trends.get_mut(name) {
            match period {
                Period::Minute => trend.replace_minute(value),
                Period::Hour => trend.replace_hour(value),
                Period::Day => trend.replace_day(value),
            }
        }
    }

    /// Returns the history of a variable.
    pub(crate) fn trend(&self, name: &str) -> Option<&Trend> {
        self.trends.get(name).map(Box::as_ref)
    }

    /// Drops the history of variables and methods that no longer exist.
    pub(crate) fn retain(&mut self, names: &HashSet<String>, servers: &[u64]) {
        self.trends.retain(|name, _| names.contains(name));
        self.methods.retain(|key, _| servers.contains(&key.server));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_are_gone_are_forgotten() {
        let mut history = History::default();
        history.record("kept", 1.0);
        history.record("gone", 1.0);
        history.retain(&HashSet::from(["kept".to_owned()]), &[]);
        assert!(history.trend("kept").is_some() && history.trend("gone").is_none());
    }

    #[test]
    fn periods_complete_together() {
        let mut history = History::default();
        let completed: Vec<_> = (0..86_400).map(|_| history.tick()).collect();
        assert_eq!(completed[58], []);
        assert_eq!(completed[59], [Period::Minute]);
        assert_eq!(completed[3599], [Period::Minute, Period::Hour]);
        assert_eq!(completed[86_399], [Period::Minute, Period::Hour, Period::Day]);
    }
}
