//! The report: the machine, and the figures with their spread.

use std::fs;
use std::process::Command;
use std::thread;

use serde::Serialize;

use crate::case::{MeasuredCase, MeasuredQuiet};
use crate::measure;
use crate::rounds::{Series, Spread};
use crate::subject::Subject;

/// Conditions of the measurement. Unavailable values are "unknown".
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) version: &'static str,
    pub(crate) commit: String,
    pub(crate) rustc: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) virtual_machine: bool,
    pub(crate) governor: String,
    pub(crate) kernel: String,
    pub(crate) congestion_control: String,
    /// Load of the machine before the measurement.
    pub(crate) load_average: String,
    /// Cost of one clock reading; every call takes one.
    pub(crate) clock_reading_ns: u128,
}

impl Machine {
    /// This machine, now.
    pub(crate) fn current() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu_line = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        Self {
            date: output_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            version: env!("CARGO_PKG_VERSION"),
            commit: output_of("git", &["describe", "--always", "--dirty"]),
            rustc: output_of("rustc", &["--version"]),
            cpu: cpu_line("model name").unwrap_or_else(unknown),
            cores: thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: cpu_line("flags").is_some_and(|flags| flags.contains(" hypervisor")),
            governor: content_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            kernel: content_of("/proc/sys/kernel/osrelease"),
            congestion_control: content_of("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_average: content_of("/proc/loadavg"),
            clock_reading_ns: measure::clock_reading().as_nanos(),
        }
    }

    /// Other load on the machine makes every figure doubtful.
    fn is_busy(&self) -> bool {
        let last_minute = self.load_average.split(' ').next().and_then(|load| load.parse::<f64>().ok());
        last_minute.is_some_and(|load| load > 0.5)
    }
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => unknown(),
    }
}

fn content_of(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned())
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Prints the conditions of the measurement.
pub(crate) fn print_conditions(machine: &Machine, command: &[String], method: &str) {
    let virtually = if machine.virtual_machine { ", a virtual machine" } else { "" };
    println!("date      {}", machine.date);
    println!("command   {}", command.join(" "));
    println!("versions  polyrpc {} ({}), {}", machine.version, machine.commit, machine.rustc);
    println!("machine   {}, {} cores{virtually}, governor {}", machine.cpu, machine.cores, machine.governor);
    println!("system    Linux {}, {}", machine.kernel, machine.congestion_control);
    println!("method    {method}");
    println!("clock     {} ns a reading, one a call or a batch of replies", machine.clock_reading_ns);
    println!("load      {}", machine.load_average);
    if machine.is_busy() {
        println!(
            "warning   others are at work on this machine: believe no figure, and CPU time before rates"
        );
    }
    if machine.cores < 4 {
        println!("warning   client and server share few cores: only ratios and CPU time say anything");
    }
}

pub(crate) fn print_calls(cases: &[MeasuredCase]) {
    println!();
    println!(
        "{:<30} {:<8} {:>34} {:>8} {:>8} {:>15} {:>22} {:>20}",
        "closed loop", "", "calls/s", "p50 µs", "p99 µs", "CPU µs c+s", "sum", "of the floor"
    );
    for measured in cases {
        for series in &measured.series {
            print_series(measured, series);
        }
    }
}

fn print_series(measured: &MeasuredCase, series: &Series) {
    let median = |spread: Option<Spread>| spread.map_or_else(dash, |spread| format!("{:.1}", spread.median));
    let p50 = median(series.spread(|outcome| outcome.p50_us));
    let p99 = median(series.spread(|outcome| outcome.p99_us));
    let client = series.spread(|outcome| outcome.client_cpu_us);
    let server = series.spread(|outcome| outcome.server_cpu_us);
    let cpu = client.zip(server).map(|(client, server)| format!("{:.2}+{:.2}", client.median, server.median));
    println!(
        "{:<30} {:<8} {:>34} {:>8} {:>8} {:>15} {:>22} {:>20}",
        measured.case.name,
        name_of(series.subject),
        with_spread(series.spread(|outcome| outcome.calls_per_second), 0),
        p50,
        p99,
        cpu.unwrap_or_else(dash),
        with_spread(series.spread(|outcome| outcome.cpu_us()), 2),
        with_spread(ratio(measured, series), 2),
    );
    for error in series.error_messages() {
        println!("  {error}");
    }
}

/// Ratio of a subject's rate to the floor's in the same rounds; none for the floor itself.
fn ratio(measured: &MeasuredCase, series: &Series) -> Option<Spread> {
    let floor = measured.series(Subject::Floor)?;
    if series.subject == Subject::Floor { None } else { series.ratio_to(floor) }
}

pub(crate) fn print_memory(quiet_cases: &[MeasuredQuiet]) {
    println!();
    println!("{:<30} {:<8} {:>34}", "open connections", "", "KiB resident each, on the server");
    for measured in quiet_cases {
        for (subject, kib) in &measured.kib {
            let kib = kib.as_ref().map_or_else(String::clone, |kib| format!("{kib:.2}"));
            println!("{:<30} {:<8} {kib:>34}", measured.case.name, name_of(*subject));
        }
    }
}

/// The median and, in brackets, minimum and maximum.
pub(crate) fn with_spread(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(dash, |Spread { median, min, max }| {
        format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
    })
}

fn name_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Floor => "floor",
        Subject::Polyrpc => "polyrpc",
    }
}

/// Placeholder of a missing figure.
pub(crate) fn dash() -> String {
    "-".to_owned()
}
