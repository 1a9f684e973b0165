//! Results for tests: every field is filled, and some texts are hostile.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use polyrpc_bench_report::model::{
    Arrivals, Better, Build, Case, CaseNoise, Cell, Chart, Counts, Document, Entry, ErrorCount, Figure, Key,
    Latencies, Latency, Load, LoopKind, Machine, Measure, Metadata, NamedLatency, Outcome, Pair, Peer,
    Process, Published, RatioRow, Resources, Run, Second, Step, Subject, Suite, Table, Target,
    ThresholdResult, Verdict, Versus, Window,
};
use polyrpc_bench_report::statistics::noise::{Noise, Probe};
use polyrpc_bench_report::statistics::{Random, Round, compare};

/// Markup that must stay text.
pub(crate) const NASTY: &str = "<img src=x onerror=alert(1)><script>alert(1)</script>\"'&\u{202e}";

/// An open loop of 60 s at 2,000 calls a second, whose server stalled for two seconds.
pub(crate) fn run() -> Run {
    let mut random = Random::new(42);
    let mut sample = |slow: f64| {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for _ in 0..116_000 {
            let tail = if random.uniform() < slow { 20.0 } else { 1.0 };
            histogram.record((180e3 + 60e3 * tail * -(1.0 - random.uniform()).ln()) as u64).unwrap();
        }
        histogram
    };
    let service = sample(0.003);
    let mut response = sample(0.01);
    (0..4000_u64).for_each(|n| response.record(2_000_000_000 - n * 500_000).unwrap());
    let lag = {
        let mut histogram = Histogram::new(3).unwrap();
        (0..120_000_u64).for_each(|n| histogram.record(4_000 + n % 977 * 30).unwrap());
        histogram
    };
    let mut all = response.clone();
    all.record_n(5_000_000_000, 12).unwrap();
    Run {
        metadata: metadata(),
        target: Target {
            url: "grpc://127.0.0.1:50051".to_owned(),
            method: format!("helloworld.Greeter/SayHello {NASTY}"),
            format: Some("protobuf".to_owned()),
            request_bytes: Some(581),
            reply_bytes: Some(581),
        },
        load: load(),
        duration_s: 60.0,
        calls_per_second: 1999.8,
        counts: Counts { planned: Some(120_012), succeeded: 120_000, failed: 10, unanswered: 2, blocked: 3 },
        errors: vec![
            ErrorCount { error: format!("unavailable: {NASTY}"), count: 7 },
            ErrorCount { error: "deadline exceeded".to_owned(), count: 3 },
        ],
        latency: Latencies {
            response: Latency::new(response.clone()),
            all: Some(Latency::new(all)),
            service: Some(Latency::new(service.clone())),
            lag: Some(Latency::new(lag)),
            methods: vec![NamedLatency { name: NASTY.to_owned(), latency: Latency::new(response) }],
            phases: vec![NamedLatency { name: "queue".to_owned(), latency: Latency::new(service) }],
        },
        series: (0..60).map(second).collect(),
        steps: [2e3, 5e3, 10e3, 20e3, 40e3].into_iter().map(step).collect(),
        resources: Resources {
            client: Process {
                pid: Some(41),
                cpu_s: Some(0.31),
                max_rss_bytes: Some(23 << 20),
                unknown: None,
            },
            server: Process {
                unknown: Some("the server is on another machine".to_owned()),
                ..Process::default()
            },
        },
        thresholds: vec![
            threshold("p50 < 1.00 ms", Some("231 µs"), true, None),
            threshold("p99 < 5.00 ms", Some("1.71 s"), false, None),
            threshold("p99.999 < 1.00 s", None, false, Some("fewer than 10 calls lie beyond it")),
        ],
        warnings: vec!["client and server share 2 cores: trust ratios, not absolute figures".to_owned()],
        verdict: Verdict {
            outcome: Outcome::ServerSaturated,
            reasons: vec![format!("3 calls waited because too many were in flight {NASTY}")],
        },
    }
}

fn threshold(threshold: &str, value: Option<&str>, is_met: bool, reason: Option<&str>) -> ThresholdResult {
    let [value, reason] = [value, reason].map(|text| text.map(str::to_owned));
    ThresholdResult { threshold: threshold.to_owned(), value, is_met, reason }
}

fn metadata() -> Metadata {
    Metadata {
        started_s: 1_772_366_405.5,
        command: format!(
            "polyrpc bench grpc://127.0.0.1:50051 helloworld.Greeter/SayHello '{NASTY}' --rate 2k"
        ),
        build: Build {
            name: "polyrpc".to_owned(),
            version: "0.1.0".to_owned(),
            commit: Some("0123abcd".to_owned()),
        },
        machine: Machine {
            cpu: Some("Example CPU @ 2.90GHz".to_owned()),
            cores: 2,
            system: Some("Linux 6.1.0".to_owned()),
            is_virtual: Some(true),
            governor: Some("performance".to_owned()),
            load_average: Some("0.10 0.20 0.30".to_owned()),
        },
        versions: BTreeMap::from([("grpc-go".to_owned(), "1.85".to_owned())]),
        seed: Some(7),
    }
}

fn load() -> Load {
    Load {
        kind: LoopKind::Open,
        rate: Some(2000.0),
        arrivals: Some(Arrivals::Poisson),
        callers: Some(1),
        connections: Some(4),
        description: "2,000 calls/s, Poisson arrivals, 4 connections".to_owned(),
        warmup_s: 3.0,
    }
}

fn second(at: u32) -> Second {
    let stalls = (30..32).contains(&at);
    let wave = u64::from(at % 7) * 9_000;
    Second {
        start_s: at.into(),
        length_s: 1.0,
        succeeded: if stalls { 40 } else { 2000 + u64::from(at % 5) },
        failed: if at == 31 { 10 } else { 0 },
        sent: Some(2000 + u64::from(at % 3)),
        in_flight: Some(if stalls { 1900 } else { 3 }),
        p50_ns: Some(if stalls { 900_000_000 } else { 220_000 + wave }),
        p90_ns: Some(if stalls { 1_500_000_000 } else { 350_000 + wave }),
        p99_ns: Some(if stalls { 1_900_000_000 } else { 800_000 + 3 * wave }),
        p999_ns: Some(if stalls { 1_990_000_000 } else { 1_600_000 + 3 * wave }),
        max_ns: Some(if stalls { 2_000_000_000 } else { 2_100_000 + 20 * wave }),
        lag_max_ns: Some(90_000),
    }
}

fn step(rate: f64) -> Step {
    let slow = if rate > 30e3 { 40.0 } else { 1.0 };
    Step {
        planned_rate: rate,
        rate: rate.min(33e3),
        p50_ns: (200e3 * slow) as u64,
        p99_ns: ((900e3 + rate * 60.0) * slow) as u64,
        is_met: rate < 30e3,
    }
}

/// Ten rounds in which B makes 8 % more calls, and nothing else is shown.
pub(crate) fn versus() -> Versus {
    let mut random = Random::new(3);
    let mut figure = |name: &str, unit: &str, better: Better, base: f64, factor: f64, spread: f64| {
        let mut value = |factor: f64| base * factor * (1.0 + spread * (random.uniform() - 0.5));
        let rounds: Vec<_> = (0..10)
            .map(|_| Round {
                a: [value(1.0), value(1.0)],
                b: [value(factor), value(factor)],
                noise: Noise::Quiet,
            })
            .collect();
        let comparison = compare(&rounds, 0.95);
        Figure { name: name.to_owned(), unit: unit.to_owned(), better, rounds, comparison }
    };
    let figures = vec![
        figure("rate", "calls/s", Better::Higher, 93_000.0, 1.08, 0.03),
        figure("p50", "ns", Better::Lower, 230e3, 1.0, 0.02),
        figure("p99", "ns", Better::Lower, 1.9e6, 1.02, 0.3),
        figure("server CPU per call", "ns", Better::Lower, 9_100.0, 1.12, 0.03),
    ];
    let subject = |name: &str, port: u16| Subject {
        name: name.to_owned(),
        target: Target {
            url: format!("grpc://127.0.0.1:{port}"),
            method: "helloworld.Greeter/SayHello".to_owned(),
            ..run().target
        },
        failed: 1,
        succeeded: 1_000_000,
    };
    Versus {
        metadata: metadata(),
        load: load(),
        window_s: 5.0,
        a: subject(&format!("old build {NASTY}"), 1),
        b: subject("new build", 2),
        figures,
        probes: vec![Probe { loops: 1000, median_ns: 1.01e6, p95_ns: 1.04e6, steal: Some(0.004) }],
        repeated: 1,
        warnings: vec!["client and server share 2 cores".to_owned()],
        verdict: Verdict {
            outcome: Outcome::Completed,
            reasons: vec!["A differs from itself by 1 %".to_owned()],
        },
    }
}

/// Six rounds of A and B, of which B makes 20 % fewer calls; C is missing, and so is a load.
pub(crate) fn suite() -> Suite {
    let key =
        |pair: &str, case: &str| Key { pair: pair.to_owned(), case: case.to_owned(), measure: Measure::Rate };
    let published =
        [Some(Published::Between(50e3, 52_631.0)), Some(Published::Between(41_667.0, 44_333.0)), None];
    let ratio = |name: &str, of: &str, to: &str, published| RatioRow {
        name: name.to_owned(),
        of: key(of, "one"),
        to: key(to, "one"),
        published: Some(published),
    };
    let case = |id: &str, name: &str, missing: Option<&str>| Case {
        id: id.to_owned(),
        name: name.to_owned(),
        load: "1 caller, a connection each".to_owned(),
        missing: missing.map(str::to_owned),
    };
    let pair = |id: &str, name: &str, reference: Option<&str>| Pair {
        id: id.to_owned(),
        name: name.to_owned(),
        client: if id == "c" { "absent" } else { "other" }.to_owned(),
        server: if id == "c" { "absent" } else { "other" }.to_owned(),
        reference: reference.map(str::to_owned),
    };
    let peer = |name: &str, missing: Option<&str>| Peer {
        name: name.to_owned(),
        description: format!("a program {NASTY}"),
        missing: missing.map(str::to_owned),
        commands: vec!["./server --port={port}".to_owned()],
    };
    let latency = || Some(run().latency.response);
    let cell = |pair: &str, speed: f64, is_control: bool| Cell {
        case: "one".to_owned(),
        pair: pair.to_owned(),
        is_control,
        windows: (0..6).map(|round| window(round, speed)).collect(),
        latency: if is_control { None } else { latency() },
        missing: None,
        failure: (pair == "d").then(|| format!("the server exited {NASTY}")),
        is_wrong: false,
        commands: vec!["server".to_owned(), "client".to_owned()],
    };
    let chart = |id: &str, case: &str| Chart {
        id: id.to_owned(),
        title: format!("Rates {NASTY}"),
        measure: Some(Measure::Rate),
        pairs: ["a", "b", "c"].map(str::to_owned).into(),
        cases: vec![case.to_owned()],
    };
    Suite {
        metadata: metadata(),
        name: "small".to_owned(),
        title: format!("A and B {NASTY}"),
        document: "a test".to_owned(),
        variant: "published".to_owned(),
        rounds: 6,
        window_s: 3.0,
        warmup_s: 1.0,
        defects: vec!["times are whole seconds, cut off".to_owned()],
        deviations: vec!["one machine".to_owned()],
        peers: vec![peer("other", None), peer("absent", Some("it is in no registry"))],
        pairs: vec![
            pair("a", "A → A", None),
            pair("b", "B → B", Some("a")),
            pair("c", "C → C", Some("a")),
            pair("d", "D → D", Some("a")),
        ],
        cases: vec![
            case("one", "1 caller", None),
            case("two", "2 callers, two machines", Some("it needs a second machine")),
        ],
        cells: vec![
            cell("a", 1.0, false),
            cell("a", 1.0, true),
            cell("b", 1.0 / 1.2, false),
            cell("d", 1.0, false),
            Cell {
                case: "one".to_owned(),
                pair: "c".to_owned(),
                missing: Some("absent: it is in no registry".to_owned()),
                ..Cell::default()
            },
        ],
        noise: vec![CaseNoise {
            case: "one".to_owned(),
            round: 0,
            probe: Probe { loops: 100, median_ns: 1e6, p95_ns: 1.02e6, steal: Some(0.001) },
        }],
        repeated: 1,
        tables: vec![Table {
            id: "rates".to_owned(),
            title: format!("Rates {NASTY}"),
            columns: ["A", "B", "C"].map(str::to_owned).into(),
            rows: vec!["1 caller".to_owned()],
            entries: ["a", "b", "c"]
                .into_iter()
                .zip(published)
                .map(|(pair, published)| Entry {
                    key: key(pair, "one"),
                    published,
                    beside: (pair == "a").then(|| "b".to_owned()),
                })
                .collect(),
            ratios: vec![
                ratio("A / B", "a", "b", Published::Between(1.128, 1.263)),
                ratio("B / A", "b", "a", Published::Exact(1.3)),
                ratio("A / C", "a", "c", Published::Exact(1.3)),
            ],
            note: Some(format!("a note {NASTY}")),
        }],
        charts: vec![chart("rates", "one"), chart("far", "two")],
        warnings: vec!["clients and servers share 2 cores".to_owned()],
        verdict: Verdict { outcome: Outcome::Completed, reasons: vec![format!("d: {NASTY}")] },
    }
}

fn window(round: u64, speed: f64) -> Window {
    let rate = speed * (100e3 + [-1e3, 1e3, 0.0, 500.0, -500.0, 0.0][round as usize]);
    Window {
        round,
        rate,
        succeeded: (rate * 3.0) as u64,
        failed: round,
        mean_ns: 1e9 / rate,
        min_ns: 5_000,
        max_ns: 900_000,
        quantiles_ns: BTreeMap::from([("p50".to_owned(), 9_000), ("p99".to_owned(), 20_000)]),
        client_cpu_ns: Some(4e3),
        server_cpu_ns: Some(5e3),
        client_rss_bytes: Some(20 << 20),
        server_rss_bytes: Some(30 << 20),
        allocated_bytes: Some(733.0),
        allocations: Some(13.0),
        invalid: (round == 9).then(|| "it contradicts itself".to_owned()),
    }
}

/// One of each kind.
pub(crate) fn documents() -> [Document; 3] {
    [Document::Run(Box::new(run())), Document::Versus(Box::new(versus())), Document::Suite(Box::new(suite()))]
}
