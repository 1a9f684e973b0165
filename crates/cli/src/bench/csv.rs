//! Each second of a run as comma-separated values.

use std::fmt::Write;

use polyrpc_load::Outcome;

/// A header, and a line for each second. Times are in microseconds.
pub(super) fn seconds(outcome: &Outcome) -> String {
    let mut text =
        "second,sent,succeeded,failed,in_flight,p50_us,p90_us,p99_us,p99.9_us,max_us,lag_max_us\n".to_owned();
    for second in &outcome.seconds {
        let [p50, p90, p99, p99_9] = second.quantiles.map(|nanos| nanos as f64 / 1e3);
        let (max, lag_max) = (second.max as f64 / 1e3, second.lag_max as f64 / 1e3);
        let counts = [second.second, second.sent, second.succeeded, second.failed, second.in_flight];
        let [number, sent, succeeded, failed, in_flight] = counts;
        writeln!(
            text,
            "{number},{sent},{succeeded},{failed},{in_flight},{p50},{p90},{p99},{p99_9},{max},{lag_max}"
        )
        .expect("a string takes any text");
    }
    text
}
