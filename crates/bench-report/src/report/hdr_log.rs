//! The histograms of a run as an HDR log.

use crate::hdr::{LogEntry, write_log};
use crate::model::Run;

/// All histograms of a run, one line each, for the tools of HdrHistogram. Tags are `response`, `all`, `service`, `lag`,
/// `method:NAME` and `phase:NAME`; samples are in nanoseconds.
pub fn hdr_log(run: &Run) -> String {
    let latency = &run.latency;
    let mut tagged = vec![("response".to_owned(), &latency.response)];
    let optional = [("all", &latency.all), ("service", &latency.service), ("lag", &latency.lag)];
    tagged
        .extend(optional.into_iter().filter_map(|(tag, latency)| Some((tag.to_owned(), latency.as_ref()?))));
    tagged.extend(latency.methods.iter().map(|method| (format!("method:{}", method.name), &method.latency)));
    tagged.extend(latency.phases.iter().map(|phase| (format!("phase:{}", phase.name), &phase.latency)));
    let entries: Vec<_> = tagged
        .iter()
        .map(|(tag, latency)| LogEntry {
            tag,
            start_s: 0.0,
            length_s: run.duration_s,
            histogram: latency.histogram(),
        })
        .collect();
    let mut log = String::new();
    let comment = format!("Values in nanoseconds, maxima in milliseconds\n{}", run.metadata.command);
    write_log(&mut log, &comment, run.metadata.started_s, &entries)
        .expect("writing to a string does not fail");
    log
}
