//! Histograms of latencies.

use hdrhistogram::Histogram;
use serde::de::{Deserializer, Error as _};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::hdr;
use crate::statistics::{QuantileEstimate, quantile_estimate};

/// Latencies in nanoseconds, as an HDR histogram. Its JSON form has a summary for readers without such a library; the histogram is
/// what counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    histogram: Histogram<u64>,
}

/// Latencies of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Of successful calls, from the planned time to the end; in a closed loop from the start.
    pub response: Latency,
    /// The same of all calls. Failed and unanswered ones count as long as they are known to have lasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Latency>,
    /// From the time when a call was written to its end, which hides waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Latency>,
    /// From the planned time of a call to the time when it was written: the load generator's own delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Latency>,
    /// Responses of each method of a mix. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "deserialize_bounded")]
    pub methods: Vec<NamedLatency>,
    /// Phases of calls, as the server or the client reports them. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "deserialize_bounded")]
    pub phases: Vec<NamedLatency>,
}

/// Latencies of one method or phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedLatency {
    /// Its name.
    pub name: String,
    /// Its latencies.
    pub latency: Latency,
}

impl Latency {
    /// The quantiles that reports list.
    pub const QUANTILES: [f64; 8] = [0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];

    /// Wraps a histogram of nanoseconds, with at most 3 significant digits.
    pub fn new(histogram: Histogram<u64>) -> Self {
        Self { histogram }
    }

    /// The histogram.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Value and 95 % interval of a quantile; `None` with fewer than 10 samples beyond it.
    pub fn quantile(&self, quantile: f64) -> Option<QuantileEstimate> {
        quantile_estimate(&self.histogram, quantile, 0.95)
    }

    /// Those of [`Self::QUANTILES`] that have enough samples.
    pub fn quantiles(&self) -> impl Iterator<Item = QuantileEstimate> {
        Self::QUANTILES.into_iter().filter_map(|quantile| self.quantile(quantile))
    }
}

/// The JSON form.
#[derive(Serialize, Deserialize)]
struct LatencyJson {
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mean_ns: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quantiles_ns: Vec<QuantileEstimate>,
    /// The histogram in the compressed V2 encoding as base64.
    hdr: String,
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let histogram = &self.histogram;
        let has_any = !histogram.is_empty();
        let encoded = LatencyJson {
            count: histogram.len(),
            min_ns: has_any.then(|| histogram.min()),
            mean_ns: has_any.then(|| histogram.mean()),
            max_ns: has_any.then(|| histogram.max()),
            quantiles_ns: self.quantiles().collect(),
            hdr: hdr::encode(histogram),
        };
        encoded.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = LatencyJson::deserialize(deserializer)?;
        let histogram = hdr::decode(&encoded.hdr).map_err(D::Error::custom)?;
        if histogram.len() != encoded.count {
            let text = format!("the HDR histogram has {} samples, not {}", histogram.len(), encoded.count);
            return Err(D::Error::custom(text));
        }
        Ok(Self { histogram })
    }
}

/// A histogram takes much more memory than its encoding, so that a small file could fill it.
fn deserialize_bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NamedLatency>, D::Error> {
    struct BucketsVisitor;

    impl<'de> serde::de::Visitor<'de> for BucketsVisitor {
        type Value = Vec<NamedLatency>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "at most {MAX_NAMED} histograms")
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut latencies = Vec::new();
            while let Some(latency) = all.next_element()? {
                if latencies.len() == MAX_NAMED {
                    return Err(A::Error::custom(format_args!("there are more than {MAX_NAMED} histograms")));
                }
                latencies.push(latency);
            }
            Ok(latencies)
        }
    }

    deserializer.deserialize_seq(BucketsVisitor)
}

const MAX_NAMED: usize = 100;
