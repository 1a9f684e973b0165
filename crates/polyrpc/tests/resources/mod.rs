//! Processes with a clock that jumps, few descriptors, and little memory.

mod clock;
mod descriptors;
mod memory;

use std::path::Path;
use std::time::Duration;

/// Processor time that a process has used so far.
fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).unwrap();
    // The name, in parentheses, may contain blanks. User and system time are the 14th and 15th field.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}
