//! `polyrpc bench worker` and `bench --workers`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::authority::Authority;
use crate::running::{Ran, Server, TempDir, polyrpc};

/// Workers that may call a server, and the files of their coordinator.
struct Workers {
    workers: Vec<Server>,
    dir: TempDir,
    /// Options for each coordinator.
    tls: bool,
}

impl Workers {
    fn start(count: usize, server: &Server, more: &[&str]) -> Self {
        Self::start_with(count, server, more, false)
    }

    fn start_with(count: usize, server: &Server, more: &[&str], tls: bool) -> Self {
        let mut workers = Self { workers: Vec::new(), dir: TempDir::new(), tls };
        fs::write(workers.file("token"), TOKEN).unwrap();
        if tls {
            let authority = Authority::new("authority");
            let issued = authority.issue(&["127.0.0.1"]);
            fs::write(workers.file("ca"), authority.pem()).unwrap();
            fs::write(workers.file("worker"), issued.certificate + &issued.key).unwrap();
        }
        for _ in 0..count {
            workers.add(server, more);
        }
        workers
    }

    fn add(&mut self, server: &Server, more: &[&str]) {
        let (token, certificate) = (self.file("token"), self.file("worker"));
        let mut arguments = vec!["bench", "worker", "--listen", "127.0.0.1:0", "--token-file", &token];
        arguments.extend(["--allow", server.address()]);
        if self.tls {
            arguments.extend(["--tls-cert", &certificate]);
        }
        arguments.extend(more);
        self.workers.push(Server::start(arguments, "worker on "));
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn addresses(&self) -> String {
        let address = |worker: &Server| worker.output().trim().strip_prefix("worker on ").unwrap().to_owned();
        self.workers.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Arguments of a coordinator.
    fn arguments(&self, url: &str, more: &[&str]) -> Vec<String> {
        let (token, ca) = (self.file("token"), self.file("ca"));
        let mut arguments = vec!["bench", url, "add", "[1,2]", "--warmup", "50ms", "--workers"];
        let addresses = self.addresses();
        arguments.extend([&addresses, "--worker-token-file", &token]);
        if self.tls {
            arguments.extend(["--worker-cacert", &ca]);
        }
        arguments.iter().chain(more).map(|text| (*text).to_owned()).collect()
    }

    fn bench(&self, url: &str, more: &[&str]) -> Ran {
        polyrpc(self.arguments(url, more))
    }

    /// Starts a coordinator, and waits until it has reported a second with calls.
    fn bench_of_a_minute(&self, url: &str, more: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrpc"));
        let more = [&["--rate", "200", "--duration", "60s", "--live", "--json", "-"], more].concat();
        command.args(self.arguments(url, &more)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains("1 s  "), "{said}");
        // On a busy machine there may be none in the first.
        while said.lines().all(|line| line.contains("  0/s  ")) {
            assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
        }
        (child, stderr)
    }
}

const TOKEN: &str = "0123456789abcdef\n";

/// The figures of a load that was made as planned, if the machine did not delay it.
fn figures(ran: &Ran) -> Value {
    let figures = ran.json_of_failure();
    let is_delayed = figures["verdict"]["outcome"] == "generator_saturated";
    assert_eq!(ran.code, if is_delayed { 3 } else { 0 }, "{ran:?}");
    figures
}

#[test]
fn workers_make_every_call_of_one_schedule() {
    let server = Server::serve([]);
    let workers = Workers::start(2, &server, &[]);
    for (scheme, load) in [
        ("rpcx", &["--rate", "1k", "-n", "500"][..]),
        ("rest-rpc", &["--rate", "1k", "-n", "500", "--arrivals", "poisson", "--threads", "2"]),
        ("rpcx", &["--stages", "0:0,500ms:2k", "--expect", "3"]),
    ] {
        let figures = figures(&workers.bench(&server.url(scheme), &[load, &["--json", "-"]].concat()));
        let counts = &figures["counts"];
        assert!(counts["planned"].as_u64().unwrap().abs_diff(500) <= 1, "{figures}");
        assert_eq!(counts["succeeded"], counts["planned"], "{figures}");
        assert_eq!(figures["latency"]["response"]["count"], counts["planned"], "{figures}");
        let ended = figures["series"].as_array().unwrap().iter().map(|it| it["succeeded"].as_u64().unwrap());
        assert_eq!(ended.sum::<u64>(), counts["planned"].as_u64().unwrap(), "{figures}");
        let description = figures["load"]["description"].as_str().unwrap();
        assert!(description.ends_with(", 2 workers"), "{description}");
        assert!(figures["resources"]["client"]["cpu_s"].as_f64().unwrap() > 0.0, "{figures}");
    }
}

#[test]
fn lost_worker_makes_the_measurement_invalid() {
    let server = Server::serve([]);
    let mut workers = Workers::start(2, &server, &[]);
    let lost = workers.addresses().split(',').next().unwrap().to_owned();
    let (coordinator, _stderr) = workers.bench_of_a_minute(&server.url("rpcx"), &[]);
    drop(workers.workers.remove(0));
    let ran = Ran::from(coordinator.wait_with_output().unwrap());
    let figures = ran.json_of_failure();
    assert_eq!((ran.code, &figures["verdict"]["outcome"]), (3, &"worker_lost".into()), "{figures}");
    let reason = figures["verdict"]["reasons"][0].as_str().unwrap();
    assert!(reason.contains(&format!("a worker was lost: {lost}: ")), "{reason}");
    // The other worker was ended, and what it measured is kept.
    assert!(figures["counts"]["succeeded"].as_u64().unwrap() > 0, "{figures}");
    assert!(figures["duration_s"].as_f64().unwrap() < 50.0, "{figures}");
    assert!(!figures["series"].as_array().unwrap().is_empty(), "{figures}");
}

#[test]
fn worker_of_a_dead_coordinator_takes_the_next_one() {
    let server = Server::serve([]);
    let workers = Workers::start(1, &server, &[]);
    let url = server.url("rpcx");
    let (mut coordinator, _stderr) = workers.bench_of_a_minute(&url, &[]);
    let busy = workers.bench(&url, &["--rate", "100", "-n", "10"]);
    assert!(busy.code == 1 && busy.stderr.contains("is busy with another load"), "{busy:?}");
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let ran = workers.bench(&url, &["--rate", "100", "-n", "10", "--json", "-"]);
        if !ran.stderr.contains("busy") {
            assert_eq!(figures(&ran)["counts"]["succeeded"], 10, "{ran:?}");
            return;
        }
        assert!(Instant::now() < deadline, "{ran:?}");
    }
}

#[test]
fn interrupted_coordinator_ends_its_workers_and_keeps_what_they_measured() {
    let server = Server::serve([]);
    let workers = Workers::start(2, &server, &[]);
    let (coordinator, _stderr) = workers.bench_of_a_minute(&server.url("rpcx"), &[]);
    let interrupted = Command::new("kill").args(["-INT", &coordinator.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let ran = Ran::from(coordinator.wait_with_output().unwrap());
    let figures = figures(&ran);
    if ran.code == 0 {
        assert_eq!(figures["verdict"]["outcome"], "interrupted", "{figures}");
    }
    assert!(figures["counts"]["succeeded"].as_u64().unwrap() > 0, "{figures}");
}

#[test]
fn worker_rejects_strangers_and_loads_beyond_its_bounds() {
    let server = Server::serve([]);
    let workers =
        Workers::start(1, &server, &["--max-rate", "1k", "--max-duration", "30s", "--max-connections", "4"]);
    let url = server.url("rpcx");
    let rejected = |url: &str, more: &[&str], reason: &str| {
        let ran = workers.bench(url, more);
        assert!(ran.code == 1 && ran.stderr.contains(reason), "{more:?}: {ran:?}");
    };
    rejected(&url, &["--rate", "2k"], "2000/s is above this worker's --max-rate of 1000/s");
    rejected(&url, &["--rate", "10", "--duration", "1m"], "--max-duration of 30s");
    rejected(&url, &["--rate", "10", "--connections", "9"], "--max-connections of 4");
    let other = Server::serve([]);
    let reason = format!("{} is not among the servers that this worker may call", other.address());
    rejected(&other.url("rpcx"), &["--rate", "10"], &reason);
    rejected(&format!("rpcx+list://{}", server.address()), &["--rate", "10"], "finds none by `list`");
    rejected(&url, &["--callers", "5"], "workers make calls at a --rate");
    rejected(&url, &["--rate", "10", "--retries", "2"], "--retries is for calls of this process");

    let stranger = workers.file("stranger");
    fs::write(&stranger, "fedcba9876543210").unwrap();
    let token = ["--rate", "10", "--worker-token-file", &stranger];
    let arguments = workers.arguments(&url, &[]);
    let without_token =
        arguments.iter().map(String::as_str).take_while(|text| *text != "--worker-token-file");
    let ran = polyrpc(without_token.chain(token));
    assert!(ran.code == 1 && ran.stderr.contains("invalid credential"), "{ran:?}");
}

#[test]
fn worker_listens_in_plaintext_only_on_loopback() {
    let server = Server::serve([]);
    let workers = Workers::start_with(1, &server, &[], true);
    let url = server.url("rpcx");
    assert_eq!(
        figures(&workers.bench(&url, &["--rate", "100", "-n", "10", "--json", "-"]))["counts"]["succeeded"],
        10
    );
    let plaintext = Workers { workers: Vec::new(), dir: TempDir::new(), tls: false };
    fs::write(plaintext.file("token"), TOKEN).unwrap();
    let (addresses, token) = (workers.addresses(), plaintext.file("token"));
    let ran = polyrpc([
        "bench",
        &url,
        "add",
        "[1,2]",
        "--rate",
        "100",
        "--workers",
        &addresses,
        "--worker-token-file",
        &token,
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");

    let allowed = ["--allow", server.address()];
    let listen = |address: &str, token: &str| {
        polyrpc(["bench", "worker", "--listen", address, "--token-file", token].iter().chain(&allowed))
    };
    let open = listen("0.0.0.0:0", &token);
    assert!(open.code == 1 && open.stderr.contains("a token is not sent in plaintext"), "{open:?}");
    fs::write(&token, "short").unwrap();
    let short = listen("127.0.0.1:0", &token);
    assert!(short.code == 1 && short.stderr.contains("fewer than 16 characters"), "{short:?}");
}
