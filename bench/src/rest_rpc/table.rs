//! The results in the form of rest_rpc's benchmark: one row per size or number of callers.

use super::{BenchProtocol, Case};
use crate::report::{dash, with_spread};
use crate::run::Outcome;

pub(super) fn print(cases: &[Case]) {
    print_table("one caller", "bytes", cases, |case| {
        (case.callers == 1).then(|| format!("{}K", case.size >> 10))
    });
    for size in [1 << 10, 64 << 10] {
        let title = format!("many callers, {}K", size >> 10);
        print_table(&title, "callers", cases, |case| {
            (case.callers > 1 && case.size == size).then(|| case.callers.to_string())
        });
    }
}

/// Prints the cases that have a `label` here.
fn print_table(title: &str, first: &str, cases: &[Case], label: impl Fn(&Case) -> Option<String>) {
    let rows: Vec<_> = cases.iter().filter_map(|case| Some((label(case)?, case))).collect();
    if rows.is_empty() {
        return;
    }
    println!();
    println!("{title}");
    let titles = BenchProtocol::ALL.map(|spoken| format!("{:>16}", spoken.as_str())).join(" ");
    println!("{first:<8} {:<13} {titles}   rest-rpc over baidu-std, v0.11 over baidu-std", "");
    for (label, case) in rows {
        let rate = |spoken| figure(case, spoken, |outcome| outcome.calls_per_second, 0);
        println!("{label:<8} {:<13} {}", "calls/s", BenchProtocol::ALL.map(rate).join(" "));
        let cpu = |spoken| figure(case, spoken, Outcome::cpu_us, 2);
        let ratios = BenchProtocol::JUDGED.map(|spoken| with_spread(case.ratio(spoken), 2)).join(", ");
        println!("{:<8} {:<13} {}   {ratios}", "", "CPU µs/call", BenchProtocol::ALL.map(cpu).join(" "));
        for error in case.series.iter().flat_map(|series| series.error_messages()) {
            println!("  {error}");
        }
    }
}

fn figure(case: &Case, spoken: BenchProtocol, figure: impl Fn(&Outcome) -> f64, digits: usize) -> String {
    let median = case.series(spoken).and_then(|series| series.spread(figure)).map(|spread| spread.median);
    let text = median.map_or_else(dash, |median| format!("{median:.digits$}"));
    format!("{text:>16}")
}
