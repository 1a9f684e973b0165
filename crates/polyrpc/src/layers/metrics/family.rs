//! Metrics of a page, before they are encoded.

use std::borrow::Cow;
#[cfg(feature = "metrics")]
use std::collections::{HashMap, HashSet};

use super::histogram::Counts;

/// The samples of one name.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: Cow<'static, str>,
    pub(super) help: Cow<'static, str>,
    pub(super) kind: Kind,
    pub(super) samples: Vec<Sample>,
}

/// Type of a metric. The numbers are those of Prometheus' protobuf format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Counter = 0,
    Gauge = 1,
    Summary = 2,
    Histogram = 4,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
        }
    }
}

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: Value,
}

pub(super) type Labels = Vec<(Cow<'static, str>, Cow<'static, str>)>;

#[derive(Debug)]
pub(super) enum Value {
    Number(f64),
    /// Counts of the buckets, and the sum of the values, in seconds or the unit of the name.
    Histogram(Counts, f64),
    /// Quantiles, the sum of all values and their number.
    Summary(Vec<(&'static str, f64)>, f64, u64),
}

impl Family {
    pub(super) fn new(
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { name: name.into(), help: help.into(), kind, samples: Vec::new() }
    }

    pub(super) fn gauge(name: impl Into<Cow<'static, str>>, help: &'static str, value: f64) -> Self {
        Self::new(name, Kind::Gauge, help).with(Labels::new(), Value::Number(value))
    }

    pub(super) fn counter(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::new(name, Kind::Counter, help).with(Labels::new(), Value::Number(value))
    }

    pub(super) fn with(mut self, labels: Labels, value: Value) -> Self {
        self.add(labels, value);
        self
    }

    pub(super) fn add(&mut self, labels: Labels, value: Value) {
        self.samples.push(Sample { labels, value });
    }

    /// Adds the samples of another family of this name, except those whose labels are known.
    #[cfg(feature = "metrics")]
    fn join(&mut self, other: Self) {
        if self.kind != other.kind {
            return;
        }
        let known: HashSet<_> = self.samples.iter().map(|sample| sample.labels.clone()).collect();
        self.samples.extend(other.samples.into_iter().filter(|sample| !known.contains(&sample.labels)));
    }
}

/// Adds families, so that each name is there once: a format of Prometheus describes a metric only once.
#[cfg(feature = "metrics")]
pub(super) fn join(all: &mut Vec<Family>, more: Vec<Family>) {
    let indices: HashMap<_, _> =
        all.iter().enumerate().map(|(index, family)| (family.name.clone(), index)).collect();
    for family in more {
        match indices.get(&family.name) {
            None => all.push(family),
            Some(index) => all[*index].join(family),
        }
    }
}
