//! The system's clock jumps by an hour, forwards and back, while calls are made: `libfaketime` lies to the process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use polyrpc::client::{CircuitBreaker, HealthCheck};
use polyrpc::discovery::{Instance, List};
use polyrpc::server::Limits;
use polyrpc::{Client, Code, Server};

use crate::common::{soon, until};

/// Where Debian and Ubuntu install the library for programs with threads.
const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];

/// Environment variable with the file that tells the process how far its clock is off.
const OFFSET: &str = "FAKETIME_TIMESTAMP_FILE";

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn clock_that_jumps_by_an_hour_fails_no_call_and_ends_no_timeout_early() {
    let Some(library) = LIBRARIES.into_iter().find(|library| Path::new(library).exists()) else {
        // Set by `./dev test` where it has installed it.
        assert!(std::env::var_os("POLYRPC_WANTS_FAKETIME").is_none(), "libfaketime is missing");
        return eprintln!("skipped: libfaketime is not installed");
    };
    let file = std::env::temp_dir().join(format!("polyrpc-clock-{}", std::process::id()));
    set(&file, 0);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resources::clock::child_process_lives_through_jumps_of_its_clock", "--nocapture"])
        .env("LD_PRELOAD", library)
        .env(OFFSET, &file)
        .env("FAKETIME_NO_CACHE", "1")
        // As when an operator, or a time server, sets the clock: only the wall clock changes.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .output()
        .unwrap();
    let _ = std::fs::remove_file(&file);
    assert!(child.status.success(), "{}{}", child.stdout.escape_ascii(), child.stderr.escape_ascii());
}

/// Sets how many seconds the clock is off. Replaced as a whole, since it is read all the time.
fn set(file: &Path, seconds: i64) {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// Does something only in the process that the test above starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process_lives_through_jumps_of_its_clock() {
    let Some(file) = std::env::var_os(OFFSET).map(PathBuf::from) else { return };
    let servers = [serve().await, serve().await];
    let client = Client::builder("rpcx://both")
        .discover(List::new(servers.each_ref().map(|server| Instance::tcp(server.address().to_string()))))
        .circuit_breaker(CircuitBreaker::consecutive(3, Duration::from_secs(60)))
        .health_check(HealthCheck::heartbeat().interval(Duration::from_millis(50)).always())
        .timeout(PATIENCE)
        .build()
        .unwrap();
    let mut expected = SystemTime::now();
    let mut at = Instant::now();
    for jump in [3600_i64, -3600, 0] {
        // The clock jumps while these are in flight.
        let calls: Vec<_> = (0..32).map(|_| tokio::spawn(rest(client.clone()))).collect();
        let impatient = tokio::spawn(give_up(client.clone()));
        rest(client.clone()).await;
        set(&file, jump);
        check_jump(expected, at, jump);
        for call in calls {
            soon(call).await.unwrap();
        }
        soon(impatient).await.unwrap();
        rest(client.clone()).await;
        (expected, at) = (SystemTime::now(), Instant::now());
        if jump > 0 {
            expected -= HOUR;
        } else if jump < 0 {
            expected += HOUR;
        }
    }
    // A check of a busy machine may have been late, but none is lost for the hour that never was.
    until(|| client.endpoints().iter().all(|endpoint| endpoint.available)).await;
    for server in servers {
        // No connection was closed as idle.
        assert!(server.connection_count() > 0);
        soon(server.shutdown(Duration::from_secs(1))).await;
    }
}

async fn serve() -> polyrpc::server::ServerHandle {
    let limits = Limits { idle_timeout: Some(Duration::from_secs(600)), ..Limits::default() };
    let server = Server::new().limits(limits).function("rest", async |milliseconds: u64| {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        milliseconds
    });
    server.bind("127.0.0.1:0").await.unwrap().start()
}

/// A call that takes 200 ms of its deadline, neither less nor much more.
async fn rest(client: Client) {
    let begun = Instant::now();
    let rested = client.call::<u64>("rest", &200_u64).await.unwrap();
    assert_eq!(rested, 200);
    assert!((Duration::from_millis(200)..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// A call that ends at its deadline, not before.
async fn give_up(client: Client) {
    let begun = Instant::now();
    // Half of it is for connecting, even if the machine stalls.
    let request = polyrpc::client::Request::new(60_000_u64).with_timeout(Duration::from_secs(2));
    let signature = polyrpc::client::StubMethod::plain("", "rest");
    let ended = client.invoke::<polyrpc::codec::Serde, u64, u64>(&signature, request).await;
    assert_eq!(ended.unwrap_err().code(), Code::DeadlineExceeded);
    assert!((Duration::from_secs(2)..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// The wall clock has jumped, and the monotonic one has not: otherwise the test would show nothing.
fn check_jump(expected: SystemTime, at: Instant, jump: i64) {
    let passed = at.elapsed();
    assert!(passed < Duration::from_secs(60), "{passed:?}");
    let off = match SystemTime::now().duration_since(expected + passed) {
        Ok(ahead) => ahead.as_secs_f64(),
        Err(behind) => -behind.duration().as_secs_f64(),
    };
    assert!((off - jump as f64).abs() < 30.0, "the clock is off by {off} s, not by {jump} s");
}

/// Deadline of a call: far above what it takes on a busy machine, far below an hour.
const PATIENCE: Duration = Duration::from_secs(30);
