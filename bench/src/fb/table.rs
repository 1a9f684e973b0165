//! The results in the form of the proposal: one column per size.

use super::{Allocations, Case, Messages, Side};
use crate::report::dash;
use crate::rounds::Spread;
use crate::run::Outcome;

pub(super) fn print(callers: usize, cases: &[&Case]) {
    if cases.is_empty() {
        return;
    }
    println!();
    println!("{callers} caller{} on one connection", if callers == 1 { "" } else { "s" });
    row("bytes of the string", cases, |case| case.size.to_string());
    for messages in Messages::ALL {
        let figure = |case: &Case| {
            let rate = median(case, Side::Of(messages), |outcome| outcome.calls_per_second);
            rate.map_or_else(dash, |rate| format!("{:.1}k", rate / 1e3))
        };
        row(&format!("calls/s, {}", messages.as_str()), cases, figure);
    }
    let flatbuffers = Side::Of(Messages::Flatbuffers);
    row("more calls/s with flatbuffers", cases, |case| {
        percent(case, flatbuffers, |outcome| outcome.calls_per_second, 1.0)
    });
    for side in Side::ALL {
        let figure =
            |case: &Case| median(case, side, Outcome::cpu_us).map_or_else(dash, |cpu| format!("{cpu:.2}"));
        row(&format!("CPU µs/call, {}", side.as_str()), cases, figure);
    }
    for messages in Messages::ALL {
        let figure = |case: &Case| case.cost_alone(messages).map_or_else(dash, |cpu| format!("{cpu:.2}"));
        row(&format!("  {} alone", messages.as_str()), cases, figure);
    }
    row("less CPU with flatbuffers", cases, |case| percent(case, flatbuffers, Outcome::cpu_us, -1.0));
    row("less CPU without any RPC", cases, |case| percent(case, Side::Floor, Outcome::cpu_us, -1.0));
}

pub(super) fn print_allocations(allocations: &[Allocations]) {
    if allocations.is_empty() {
        return;
    }
    println!();
    println!("{:<12} {:>7} {:>20} {:>20}", "allocations", "bytes", "a call, both sides", "reading a request");
    for Allocations { messages, size, a_call, reading } in allocations {
        println!("{:<12} {size:>7} {a_call:>20.2} {reading:>20.2}", messages.as_str());
    }
}

fn row(name: &str, cases: &[&Case], figure: impl Fn(&Case) -> String) {
    let cells: Vec<_> = cases.iter().map(|case| format!("{:>8}", figure(case))).collect();
    println!("{name:<30} {}", cells.join(" "));
}

fn median(case: &Case, side: Side, figure: impl Fn(&Outcome) -> f64) -> Option<f64> {
    Some(case.series(side)?.spread(figure)?.median)
}

/// Difference of a side from protobuf in percent, in the direction of `sign`.
fn percent(case: &Case, side: Side, figure: impl Fn(&Outcome) -> f64, sign: f64) -> String {
    let ratio = case.to_protobuf(side, figure);
    ratio.map_or_else(dash, |Spread { median, .. }| format!("{:.1}%", sign * (median - 1.0) * 100.0))
}
