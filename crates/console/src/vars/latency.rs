use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::family::Sealed;
use super::histogram::{Counts, Histogram};
use super::registry::{self, Variable};
use super::sharded::Sharded;
use super::value::{Kind, Reading, Value};
use super::windows::DEFAULT_SECONDS;

/// Records durations and their number: bvar's `LatencyRecorder`. Under the name `payment` it is listed as
/// `payment_latency` (the average of the last ten seconds, in microseconds), `payment_latency_50`, `_80`, `_90`, `_99`,
/// `_999`, `_9999`, `payment_max_latency`, `payment_qps` and `payment_count`. Clones share their counts.
#[derive(Clone, Default)]
pub struct Latency(Arc<Recorder>);

#[derive(Default)]
struct Recorder {
    shards: Sharded<Histogram>,
    /// The counts at the last seconds, the latest first.
    past: Mutex<VecDeque<(Instant, Counts)>>,
}

impl Latency {
    /// Creates a recorder that is listed under this name.
    pub fn new(name: &str) -> Self {
        let latency = Self::default();
        registry::list(name, &latency.0);
        latency
    }

    /// Records a duration.
    #[inline]
    pub fn record(&self, took: Duration) {
        self.0.shards.current().record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.0.now().total()
    }

    /// Returns a quantile of all durations: 0.99 for the slowest of a hundred. Accurate to an eighth.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.0.now().quantile(quantile))
    }
}

impl Recorder {
    fn now(&self) -> Counts {
        Counts::sum(self.shards.iter())
    }
}

impl Variable for Recorder {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        let now = self.now();
        let (recent, seconds) = {
            let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            match past.back() {
                Some((then, counts)) => (now.since(counts), then.elapsed().as_secs_f64().max(1.0)),
                None => (Counts::default(), 1.0),
            }
        };
        let mut add = |end: &str, kind, value: u64| {
            readings.push(Reading::new(format!("{name}_{end}"), kind, Value::from(value)));
        };
        add("count", Kind::Counter, now.total());
        add("latency", Kind::Gauge, recent.average());
        for (end, share) in [
            ("latency_50", 0.5),
            ("latency_80", 0.8),
            ("latency_90", 0.9),
            ("latency_99", 0.99),
            ("latency_999", 0.999),
            ("latency_9999", 0.9999),
        ] {
            add(end, Kind::Gauge, recent.quantile(share));
        }
        add("max_latency", Kind::Gauge, recent.longest());
        add("qps", Kind::Gauge, (recent.total() as f64 / seconds).round() as u64);
    }

    fn sample(&self) {
        let counts = self.now();
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        past.push_front((Instant::now(), counts));
        past.truncate(DEFAULT_SECONDS);
    }
}

impl Sealed for Latency {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        self.0.read(name, readings);
    }

    fn sample(&self) {
        self.0.sample();
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency").field("count", &self.count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_values_forget_what_is_old() {
        let latency = Latency::default();
        latency.record(Duration::from_secs(1));
        latency.0.sample();
        latency.record(Duration::from_micros(100));
        let mut readings = Vec::new();
        latency.0.read("x", &mut readings);
        let value = |name: &str| {
            let reading = readings.iter().find(|reading| reading.name == name).unwrap();
            reading.value.number().unwrap()
        };
        assert_eq!((value("x_count"), value("x_qps"), value("x_latency")), (2.0, 1.0, 100.0));
        assert!((88.0..113.0).contains(&value("x_latency_9999")));
        assert!((88.0..113.0).contains(&value("x_max_latency")));
        assert!(latency.quantile(1.0) > Duration::from_millis(800));
    }
}
