//! The printed table: a row per combination, with calls, failed calls and the slowest call for each fault.

use super::callers::CallResults;

pub(super) fn head(faults: &[&str]) {
    print!("{:<28}", "combination");
    for fault in faults {
        print!("  {:>30}", format!("{fault}: calls failed slowest ms"));
    }
    println!();
}

pub(super) fn row(combination: &str, faults: &[CallResults]) {
    print!("{combination:<28}");
    for made in faults {
        print!("  {:>15} {:>6} {:>7.0}", made.calls, made.failures.len(), made.slowest.as_secs_f64() * 1e3);
    }
    println!();
    for made in faults {
        if let Some(failure) = made.failures.first() {
            println!("{:>28}  FAIL: {failure}", "");
        }
    }
}

pub(super) fn foot(failed: &[String]) {
    match failed {
        [] => println!("\nok: no idempotent call failed"),
        failed => println!("\nfailed calls: {}", failed.join(", ")),
    }
}
