//! The program's own metrics, by the facade `metrics`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ::metrics::{Counter, Gauge, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};

use super::family::{self, Family, Kind, Labels, Value};
use super::histogram::WideHistogram;

/// See [`Metrics::recorder`](super::Metrics::recorder).
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Own>);

#[derive(Default)]
struct Own {
    families: RwLock<Families>,
    /// Number of metrics that were rejected.
    refused: AtomicU64,
}

#[derive(Default)]
struct Families {
    by_name: BTreeMap<String, Series>,
    help: HashMap<String, String>,
    /// Registered metrics, by their original names and labels.
    known: HashMap<(Kind, Key), Instrument>,
}

struct Series {
    kind: Kind,
    all: BTreeMap<Labels, Instrument>,
}

#[derive(Clone)]
enum Instrument {
    /// A counter, or the bits of a gauge.
    Number(Arc<AtomicU64>),
    Histogram(Arc<RecordedHistogram>),
}

impl Instrument {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Histogram => Self::Histogram(Arc::default()),
            _ => Self::Number(Arc::default()),
        }
    }

    fn value(&self, kind: Kind) -> Value {
        match self {
            Self::Number(number) => Value::Number(match kind {
                Kind::Counter => number.load(Ordering::Relaxed) as f64,
                _ => f64::from_bits(number.load(Ordering::Relaxed)),
            }),
            Self::Histogram(measured) => Value::Histogram(
                measured.buckets.counts(),
                f64::from_bits(measured.sum.load(Ordering::Relaxed)),
            ),
        }
    }
}

/// Values of a histogram of the program.
#[derive(Debug, Default)]
struct RecordedHistogram {
    buckets: WideHistogram,
    /// The bits of the sum.
    sum: AtomicU64,
}

impl HistogramFn for RecordedHistogram {
    fn record(&self, value: f64) {
        self.buckets.record(value);
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

const MAX_SERIES: usize = 10_000;

impl Recorder {
    pub(super) fn families(&self) -> Vec<Family> {
        let families = self.0.families.read().unwrap_or_else(PoisonError::into_inner);
        let exported = families.by_name.iter().map(|(name, series)| {
            let help = families.help.get(name).cloned().unwrap_or_default();
            let mut family = Family::new(name.clone(), series.kind, help);
            for (labels, instrument) in &series.all {
                family.add(labels.clone(), instrument.value(series.kind));
            }
            family
        });
        exported.collect()
    }

    fn describe(&self, name: &KeyName, description: &SharedString) {
        let mut families = self.0.families.write().unwrap_or_else(PoisonError::into_inner);
        if families.help.len() < MAX_SERIES {
            families.help.insert(sanitize(name.as_str(), ':'), description.to_string());
        }
    }

    /// Returns the instrument of this key; `None` if it is rejected.
    fn register(&self, kind: Kind, key: &Key) -> Option<Instrument> {
        let known = (kind, key.clone());
        if let Some(instrument) =
            self.0.families.read().unwrap_or_else(PoisonError::into_inner).known.get(&known)
        {
            return Some(instrument.clone());
        }
        let mut families = self.0.families.write().unwrap_or_else(PoisonError::into_inner);
        let instrument = families.add(kind, key);
        match &instrument {
            Some(instrument) => drop(families.known.insert(known, instrument.clone())),
            None => self.refuse(key),
        }
        instrument
    }

    #[cold]
    fn refuse(&self, key: &Key) {
        if self.0.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            let name = key.name();
            tracing::warn!(
                name,
                "metric ignored: there are {MAX_SERIES}, or its name belongs to another kind or to this library"
            );
        }
    }
}

impl Families {
    fn add(&mut self, kind: Kind, key: &Key) -> Option<Instrument> {
        let name = sanitize(key.name(), ':');
        if self.known.len() >= MAX_SERIES || name.starts_with("polyrpc_") || name.starts_with("process_") {
            return None;
        }
        let series = self.by_name.entry(name).or_insert_with(|| Series { kind, all: BTreeMap::new() });
        if series.kind != kind {
            return None;
        }
        let instrument = series.all.entry(labels(key)).or_insert_with(|| Instrument::new(kind));
        Some(instrument.clone())
    }
}

/// Returns the labels of a series, each name once, in order.
fn labels(key: &Key) -> Labels {
    let labels = key.labels().map(|label| {
        let name = match sanitize(label.key(), '_') {
            // They have a meaning of their own.
            name if matches!(&*name, "le" | "quantile") => format!("exported_{name}"),
            name => name,
        };
        (Cow::Owned(name), Cow::Owned(label.value().to_owned()))
    });
    let mut labels: family::Labels = labels.collect();
    labels.sort();
    labels.dedup_by(|one, other| one.0 == other.0);
    labels
}

/// Returns a name with only letters, digits, `_` and `also`, and no digit in front.
fn sanitize(name: &str, also: char) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        if text.is_empty() && letter.is_ascii_digit() {
            text.push('_');
        }
        text.push(if letter.is_ascii_alphanumeric() || letter == also { letter } else { '_' });
    }
    if text.is_empty() { "_".to_owned() } else { text }
}

impl ::metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.register(Kind::Counter, key) {
            Some(Instrument::Number(number)) => Counter::from_arc(number),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.register(Kind::Gauge, key) {
            Some(Instrument::Number(number)) => Gauge::from_arc(number),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> ::metrics::Histogram {
        match self.register(Kind::Histogram, key) {
            Some(Instrument::Histogram(measured)) => ::metrics::Histogram::from_arc(measured),
            _ => ::metrics::Histogram::noop(),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}
