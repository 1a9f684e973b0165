//! The table of results.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::attacks::Attack;
use crate::measure::{Calls, p99};
use crate::profile::{BUDGET, Profile};
use crate::thresholds::{
    MAX_ABOVE_BUDGET, MAX_ADMIN_LATENCY, MAX_MEMORY_GROWTH, MAX_P99_RATIO, MAX_STOLEN_SHARE,
    MIN_BASELINE_P99, SHORT_MAX_P99,
};

/// Outcome of one attack.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) row: &'static str,
    pub(crate) does: &'static str,
    /// Bytes sent by the attackers.
    pub(crate) sent: u64,
    pub(crate) connections: usize,
    /// Peak of the resident bytes during the attack.
    pub(crate) peak: usize,
    /// Growth of the resident bytes from before to after.
    pub(crate) remains: usize,
    /// Lifetime of the attackers' connections.
    pub(crate) end: String,
    /// Answered calls of the well-behaved clients.
    pub(crate) calls: usize,
    pub(crate) lost: usize,
    /// The p99 of the client whose p99 grew most.
    pub(crate) p99: Duration,
    pub(crate) ratio: f64,
    pub(crate) slowest: String,
    /// The calls of the well-behaved clients; in JSON only their numbers and their p99.
    #[serde(rename = "clients", serialize_with = "summarize")]
    pub(crate) latencies: BTreeMap<&'static str, Calls>,
    /// The longest time in which the admin listener answered a request.
    pub(crate) admin: Duration,
    /// Duration of the attack.
    pub(crate) seconds: f64,
    /// Cores used by the server meanwhile.
    pub(crate) cpu: f64,
    /// Share of one core that the hypervisor took meanwhile.
    pub(crate) stolen: f64,
    /// The p99 is one of the failures.
    #[serde(skip)]
    pub(crate) late: bool,
    pub(crate) notes: Vec<String>,
    pub(crate) failures: Vec<String>,
}

impl Row {
    pub(crate) fn new(attack: &Attack) -> Self {
        Self {
            name: attack.name,
            row: attack.row,
            does: attack.does,
            sent: 0,
            connections: 0,
            peak: 0,
            remains: 0,
            end: String::new(),
            calls: 0,
            lost: 0,
            p99: Duration::ZERO,
            ratio: 0.0,
            slowest: String::new(),
            latencies: BTreeMap::new(),
            admin: Duration::ZERO,
            seconds: 0.0,
            cpu: 0.0,
            stolen: 0.0,
            late: false,
            notes: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn fails_by_p99_alone(&self) -> bool {
        self.late && self.failures.len() == 1
    }

    /// Whether the hypervisor took so much CPU time that a p99 says nothing about the server.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.stolen > MAX_STOLEN_SHARE
    }
}

/// Writes how many calls of each client were answered and lost, and their p99.
fn summarize<S: Serializer>(
    latencies: &BTreeMap<&'static str, Calls>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Summary {
        calls: usize,
        lost: usize,
        p99: Duration,
    }
    let summary = |calls: &Calls| {
        let Calls { latencies, lost, .. } = calls;
        Summary { calls: latencies.len(), lost: *lost, p99: p99(latencies) }
    };
    serializer.collect_map(latencies.iter().map(|(name, calls)| (name, summary(calls))))
}

/// Prints the list of attacks.
pub(crate) fn list(attacks: &[&Attack]) {
    for attack in attacks {
        println!("{:<5} {:<34} {}", attack.row, attack.name, attack.does);
    }
}

pub(crate) fn head(profile: Profile) {
    println!(
        "{:<5} {:<34} {:>9} {:>6} {:>7} {:>7} {:>9} {:>6} {:>5} {:>8} {:>6} {:>8} {:>5} {:>6}  verdict",
        "row",
        "attack",
        "sent KiB",
        "conns",
        "RSS MiB",
        "+ after",
        "ended",
        "calls",
        "lost",
        "p99 ms",
        "ratio",
        "admin ms",
        "CPU",
        "took s",
    );
    if profile.is_short() {
        println!(
            "(short form: shorter time-outs, smaller attacks, one server for several attacks; a p99 up to {} ms is no failure)",
            SHORT_MAX_P99.as_millis()
        );
    }
}

pub(crate) fn row(row: &Row) {
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let end = if row.end.starts_with("held") { "held" } else { &row.end };
    println!(
        "{:<5} {:<34} {:>9} {:>6} {:>7.0} {:>7.0} {:>9} {:>6} {:>5} {:>8.1} {:>6.2} {:>8.1} {:>5.2} {:>6.1}  {}",
        row.row,
        row.name,
        row.sent >> 10,
        row.connections,
        mib(row.peak),
        mib(row.remains),
        end,
        row.calls,
        row.lost,
        row.p99.as_secs_f64() * 1e3,
        row.ratio,
        row.admin.as_secs_f64() * 1e3,
        row.cpu,
        row.seconds,
        if row.failures.is_empty() { "ok" } else { "FAIL" },
    );
    if row.end.starts_with("held") {
        println!("{:>40} {}", "", row.end);
    }
    for note in &row.notes {
        println!("{:>40} {note}", "");
    }
    for failure in &row.failures {
        println!("{:>40} FAIL: {failure}", "");
    }
}

pub(crate) fn foot(rows: &[Row]) {
    println!();
    println!(
        "ok: no call of a well-behaved client is lost; p99 ≤ {MAX_P99_RATIO} × its baseline, which counts as {} ms at least",
        MIN_BASELINE_P99.as_millis()
    );
    println!(
        "    (of each client with 300 calls or more, and of all together; a late row is measured thrice, and compared with\n     the same calls while a process that only reads is attacked; a measurement during which the hypervisor took more\n     than {} % of a core is repeated);",
        MAX_STOLEN_SHARE * 100.0
    );
    println!("    the admin listener answers each request within {} ms;", MAX_ADMIN_LATENCY.as_millis());
    println!(
        "    resident memory ≤ {} MiB (a budget of {} MiB and {} MiB) and back to {} MiB above the start;",
        (BUDGET + MAX_ABOVE_BUDGET) >> 20,
        BUDGET >> 20,
        MAX_ABOVE_BUDGET >> 20,
        MAX_MEMORY_GROWTH >> 20
    );
    println!(
        "    the attackers' connections or streams ended within the limit that is documented, or held under one."
    );
    let failed: Vec<_> = rows.iter().filter(|row| !row.failures.is_empty()).map(|row| row.name).collect();
    println!();
    println!("{} attacks, {} failed", rows.len(), failed.len());
    if !failed.is_empty() {
        println!("failed: {}", failed.join(" "));
    }
}
