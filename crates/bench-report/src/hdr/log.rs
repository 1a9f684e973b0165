//! HDR logs: a line for each interval, as HdrHistogram's log readers and its plotter take them.

use std::fmt::{self, Write};

use hdrhistogram::Histogram;

use super::encode;

/// One line of a log.
#[derive(Debug)]
pub struct LogEntry<'h> {
    /// Name of the histogram, for example `response`. Commas and spaces become `_`.
    pub tag: &'h str,
    /// Start of the interval in seconds from the start of the run.
    pub start_s: f64,
    /// Length of the interval in seconds.
    pub length_s: f64,
    /// Samples in nanoseconds.
    pub histogram: &'h Histogram<u64>,
}

/// Writes a log of version 1.3. `started_s` is the start of the run in seconds since 1970; maxima are in milliseconds, as the log
/// readers expect of samples in nanoseconds.
///
/// # Errors
///
/// Those of `writer`.
pub fn write_log(
    writer: &mut impl Write,
    comment: &str,
    started_s: f64,
    entries: &[LogEntry<'_>],
) -> fmt::Result {
    for line in comment.lines() {
        writeln!(writer, "#[{line}]")?;
    }
    writeln!(writer, "#[Histogram log format version 1.3]")?;
    writeln!(writer, "#[StartTime: {started_s:.3} (seconds since epoch)]")?;
    writeln!(
        writer,
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
    )?;
    for entry in entries {
        let tag = entry.tag.replace([',', ' ', '\n', '\r'], "_");
        let max_ms = entry.histogram.max() as f64 / 1e6;
        let (start, length) = (entry.start_s, entry.length_s);
        writeln!(writer, "Tag={tag},{start:.3},{length:.3},{max_ms:.3},{}", encode(entry.histogram))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry as ReadEntry};

    use super::*;

    #[test]
    fn log_reader_of_the_reference_implementation_reads_it() {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=100).for_each(|n| histogram.record(n * 1_000_000).unwrap());
        let mut log = String::new();
        let entry = LogEntry { tag: "response, all", start_s: 0.0, length_s: 10.5, histogram: &histogram };
        write_log(&mut log, "polyrpc bench\nsecond line", 1_700_000_000.25, &[entry]).unwrap();
        let read: Vec<_> = IntervalLogIterator::new(log.as_bytes()).collect::<Result<_, _>>().unwrap();
        let intervals: Vec<_> = read
            .iter()
            .filter_map(|entry| match entry {
                ReadEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(intervals.len(), 1, "{log}");
        assert_eq!(intervals[0].tag().map(|tag| tag.as_str()), Some("response__all"));
        assert_eq!(intervals[0].duration().as_secs_f64(), 10.5);
        assert!((intervals[0].max() - 100.0).abs() < 0.2);
        assert_eq!(super::super::decode(intervals[0].encoded_histogram()).unwrap(), histogram);
        assert!(read.iter().any(|entry| matches!(entry, ReadEntry::StartTime(_))));
    }
}
