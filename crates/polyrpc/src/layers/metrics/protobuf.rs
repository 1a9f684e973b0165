//! Prometheus' protobuf format, which supports native histograms: messages of `io.prometheus.client.MetricFamily`, each
//! with a length prefix (<https://github.com/prometheus/client_model/blob/master/io/prometheus/client/metrics.proto>).

use super::family::{Family, Sample, Value};
use super::histogram::{Counts, PARTS};

/// Content type of the format.
pub(super) const TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Returns whether a client with this `Accept` header understands the format.
pub(super) fn is_accepted(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next() == Some("application/vnd.google.protobuf")
            && parts.any(|part| part == "proto=io.prometheus.client.MetricFamily")
            && !range.contains("encoding=text")
            && !range.contains("encoding=compact-text")
    })
}

/// Encodes families.
pub(super) fn page(families: &[Family]) -> Vec<u8> {
    let mut page = Vec::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let mut message = Message::default();
        message.bytes(1, family.name.as_bytes());
        message.bytes(2, family.help.as_bytes());
        message.number(3, family.kind as u64);
        for sample in &family.samples {
            message.message(4, metric(family, sample));
        }
        varint(&mut page, message.0.len() as u64);
        page.extend(message.0);
    }
    page
}

fn metric(family: &Family, sample: &Sample) -> Message {
    let mut metric = Message::default();
    for (name, value) in &sample.labels {
        let mut label = Message::default();
        label.bytes(1, name.as_bytes());
        label.bytes(2, value.as_bytes());
        metric.message(1, label);
    }
    let mut value = Message::default();
    let field = match &sample.value {
        Value::Number(number) => {
            value.double(1, *number);
            // Gauge (2) or Counter (3).
            if family.kind == super::family::Kind::Counter { 3 } else { 2 }
        }
        Value::Summary(quantiles, sum, count) => {
            value.number(1, *count);
            value.double(2, *sum);
            for (quantile, at) in quantiles {
                let mut entry = Message::default();
                entry.double(1, quantile.parse().unwrap_or(f64::NAN));
                entry.double(2, *at);
                value.message(3, entry);
            }
            4
        }
        Value::Histogram(counts, sum) => {
            histogram(&mut value, counts, *sum);
            7
        }
    };
    metric.message(field, value);
    metric
}

/// Encodes a native histogram: buckets that are not empty, as spans of neighbours and the differences between them.
fn histogram(value: &mut Message, counts: &Counts, sum: f64) {
    value.number(1, counts.total());
    value.double(2, sum);
    // The schema: each power of two has 2^schema buckets.
    value.number(5, zigzag(i64::from(PARTS.ilog2())));
    // The threshold below which values count as zero; none do.
    value.double(6, 0.0);
    value.number(7, 0);
    let (mut next, mut before) = (0, 0);
    let (mut spans, mut deltas) = (Vec::<(i32, u64)>::new(), Vec::new());
    for (index, count) in counts.native_buckets() {
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            _ => spans.push((index - next, 1)),
        }
        next = index + 1;
        deltas.push(count as i64 - before);
        before = count as i64;
    }
    if spans.is_empty() {
        // Distinguishes an empty native histogram from one that is not native.
        spans.push((0, 0));
    }
    for (offset, length) in spans {
        let mut span = Message::default();
        span.number(1, zigzag(i64::from(offset)));
        span.number(2, length);
        value.message(12, span);
    }
    let mut packed = Vec::new();
    deltas.into_iter().for_each(|delta| varint(&mut packed, zigzag(delta)));
    value.bytes(13, &packed);
}

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: u64) {
        varint(&mut self.0, field << 3);
        varint(&mut self.0, value);
    }

    fn double(&mut self, field: u64, value: f64) {
        varint(&mut self.0, field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        varint(&mut self.0, field << 3 | 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u64, message: Self) {
        self.bytes(field, &message.0);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}
