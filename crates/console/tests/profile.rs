//! CPU profiles of a process whose handler is busy.

mod common;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Answer, observe, page, send, services};
use polyrpc::contention::Mutex;
use polyrpc::{Client, Result};
use polyrpc_console::{Admin, AdminHandle, Role};

const READ: &str = "a-token-for-reading";
const PROFILE: &str = "a-token-for-profiling";

/// What the handler does; its name is looked for.
#[inline(never)]
fn grind_the_coffee(until: Instant) -> u64 {
    let mut sum = 0_u64;
    while Instant::now() < until {
        for number in 0..10_000 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

#[polyrpc::service]
trait Roastery {
    #[rpc(blocking)]
    async fn roast(&self, millis: u64) -> Result<u64>;
}

struct Roaster;

impl Roastery for Roaster {
    async fn roast(&self, millis: u64) -> Result<u64> {
        Ok(roast_the_beans(Instant::now() + Duration::from_millis(millis)))
    }
}

/// Whether the profile with the method that blocks is made.
static IS_PROFILED: AtomicBool = AtomicBool::new(false);

/// What the method that blocks does.
#[inline(never)]
fn roast_the_beans(until: Instant) -> u64 {
    let mut sum = 0_u64;
    while Instant::now() < until && !IS_PROFILED.load(Ordering::Relaxed) {
        for number in 0..10_000 {
            sum = black_box(sum.wrapping_mul(33).wrapping_add(number));
        }
    }
    sum
}

/// Line of the lock for which handlers wait.
const LOCKED: u32 = line!() + 4;

#[inline(never)]
fn stand_in_line(counter: &Mutex<u64>) -> u64 {
    let mut counter = counter.lock().unwrap();
    grind_the_coffee(Instant::now() + Duration::from_millis(3));
    *counter += 1;
    *counter
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn ask(admin: &AdminHandle, target: &str, fields: &str) -> Answer {
    send(admin.address(), "GET", target, &(bearer(PROFILE) + fields), "")
}

/// There is one profiler in a process: one test has it all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_handler_is_named() {
    let counter = Arc::new(Mutex::new(0_u64));
    let server = services()
        .function("Shop/Grind", |millis: u64| async move {
            grind_the_coffee(Instant::now() + Duration::from_millis(millis))
        })
        .function("Shop/Queue", move || {
            let counter = counter.clone();
            async move { stand_in_line(&counter) }
        })
        .service(RoasteryServer::new(Roaster));
    let (console, server) = observe(server).await;
    let admin = Admin::on("127.0.0.1:0").token(Role::Read, READ).token(Role::Profile, PROFILE);
    let admin = admin.start(&console).unwrap();
    for target in ["/hotspots/cpu?seconds=1", "/pprof/profile?seconds=1", "/debug/pprof/profile", "/hotspots"]
    {
        assert_eq!(send(admin.address(), "GET", target, &bearer(READ), "").status, 403, "{target}");
        assert_eq!(send(server.address(), "GET", target, "", "").status, 403, "{target}");
        let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
        assert_eq!(ask(&admin, target, link).status, 403, "a link of another page starts nothing");
    }
    let address = server.address().to_string();
    let client = Client::new(&format!("rpcx://{address}")).unwrap();
    let calls = tokio::spawn(async move {
        loop {
            let _: u64 = client.call("Shop/Grind", &20_u64).await.unwrap();
        }
    });
    let walk = move || {
        text_and_json_name_the_function_and_the_method(&admin);
        graph_names_the_function(&admin);
        method_that_blocks_is_named(&admin, &address);
        go_reads_the_profile(&admin);
        wrong_requests_are_refused(&admin);
        waits_name_the_lock_and_the_method(&admin, &address);
        assert_eq!(send(admin.address(), "GET", "/status", &bearer(READ), "").status, 200);
        admin
    };
    let admin = tokio::task::spawn_blocking(walk).await.unwrap();
    calls.abort();
    drop(admin);
    let open = Admin::on("127.0.0.1:0").anonymous(Role::Profile).start(&console).unwrap();
    assert!(page(&open, "/hotspots/cpu?view=1").body.contains("grind_the_coffee"));
}

fn text_and_json_name_the_function_and_the_method(admin: &AdminHandle) {
    // The second joins the first.
    let both = std::thread::scope(|scope| {
        let sample = |seconds: u64| move || ask(admin, &format!("/hotspots/cpu?seconds={seconds}"), "");
        let first = scope.spawn(sample(4));
        std::thread::sleep(Duration::from_secs(1));
        let second = scope.spawn(sample(60));
        [first.join().unwrap(), second.join().unwrap()]
    });
    for text in &both {
        assert_eq!(text.status, 200, "{text:?}");
        assert!(text.body.starts_with("profile: 1\n"), "{text:?}");
        let top = text.body.split("cum%\n").nth(1).unwrap();
        assert!(top.lines().take(12).any(|line| line.contains("grind_the_coffee")), "{text:?}");
        assert!(
            text.body.lines().any(|line| line.starts_with("method:") && line.ends_with(" Shop/Grind")),
            "{text:?}"
        );
    }
    let json = ask(admin, "/hotspots/cpu?view=1&format=json", "").json();
    let profile = &json["data"]["profile"];
    assert_eq!(profile["methods"][0]["name"], "Shop/Grind", "{json}");
    assert!(profile["methods"][0]["share"].as_f64().is_some_and(|share| share > 0.5), "{json}");
    let labelled = profile["methods"][0]["weight"].as_u64().unwrap();
    let samples = profile["samples"].as_u64().unwrap();
    let functions = profile["functions"].as_array().unwrap();
    let is_wanted =
        |row: &&serde_json::Value| row["name"].as_str().is_some_and(|name| name.contains("grind_the_coffee"));
    let total = functions.iter().filter(is_wanted).filter_map(|row| row["total"].as_u64()).max().unwrap();
    assert!(samples >= 10 && total * 2 > samples, "{total} of {samples}");
    // Every sample of the function is one of the method, but for a poll that was under way; its label is in no stack.
    assert!(labelled + 2 >= total && labelled <= samples, "{labelled} of {samples}, {total} of the function");
    assert!(!json.to_string().contains("digit_"), "{json}");
    let by_method = ask(admin, "/hotspots/cpu?view=1&display_type=collapsed&by=method", "");
    let is_within = |line: &str| line.contains(";Shop/Grind;") && line.contains(";profile::grind_the_coffee");
    assert!(by_method.body.lines().any(is_within), "{by_method:?}");
    let folded = ask(admin, "/hotspots/cpu?view=1&display_type=collapsed", "");
    assert!(folded.body.lines().any(|line| line.contains(";profile::grind_the_coffee")), "{folded:?}");
}

fn graph_names_the_function(admin: &AdminHandle) {
    let browser = "User-Agent: Mozilla/5.0\r\n";
    let form = ask(admin, "/hotspots/cpu", browser);
    assert!(form.body.contains("<button>Profile</button>") && !form.body.contains("<svg"), "{form:?}");
    let graph = ask(admin, "/hotspots/cpu?seconds=1", browser).body;
    let svg = graph.split("<svg").nth(1).unwrap().split("</svg>").next().unwrap();
    let rect = svg.split("<g>").find(|rect| rect.contains("<title>profile::grind_the_coffee ")).expect(svg);
    let width: f64 = rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    assert!(width > 400.0, "{rect}");
    let grouped = ask(admin, "/hotspots/cpu?view=2&by=method", browser).body;
    assert!(grouped.contains("<title>Shop/Grind ") && grouped.contains("<title>profile::grind"), "{grouped}");
    let chosen = ask(admin, "/hotspots/cpu?view=2&method=Shop%2FGrind", browser).body;
    assert!(chosen.contains("Handlers of <code>Shop/Grind</code>"), "{chosen}");
    assert!(chosen.contains("<title>profile::grind_the_coffee "), "{chosen}");
    let compared = ask(admin, "/hotspots/cpu?view=2&base=1", browser).body;
    assert!(compared.contains("Compared with profile 1") && compared.contains("; before: "), "{compared}");
    assert!(compared.contains("class=f-same"), "{compared}");
    let focused = ask(admin, "/hotspots/cpu?view=2&focus=profile%3A%3Agrind_the_coffee", browser).body;
    assert!(focused.contains("What <code>profile::grind_the_coffee</code> calls"), "{focused}");
}

/// The call has begun before the profile, and lasts for all of it.
fn method_that_blocks_is_named(admin: &AdminHandle, address: &str) {
    let client = polyrpc::blocking::Client::new(&format!("rpcx://{address}")).unwrap();
    let call = std::thread::spawn(move || -> u64 { client.call("Roastery/Roast", &9_000_u64).unwrap() });
    let end = Instant::now() + Duration::from_secs(60);
    while !ask(admin, "/tasks", "").body.contains("Roast") {
        assert!(Instant::now() < end, "the call does not begin");
    }
    let folded = ask(admin, "/hotspots/cpu?seconds=1&display_type=collapsed&by=method", "").body;
    let blocking: Vec<_> = folded.lines().filter(|line| line.contains("profile::roast_the_beans")).collect();
    assert!(!blocking.is_empty(), "{folded}");
    for line in blocking {
        assert!(line.contains(";Roastery/Roast;"), "{line}");
    }
    IS_PROFILED.store(true, Ordering::Relaxed);
    call.join().unwrap();
}

fn go_reads_the_profile(admin: &AdminHandle) {
    go_reads(admin, "/pprof/profile?view=1", "-top", &["Type: cpu", "grind_the_coffee"]);
    go_reads(admin, "/pprof/profile?view=1", "-tags", &["method: Total", "Shop/Grind"]);
}

/// Has Go's tool write a report of a profile, and looks for words in it.
fn go_reads(admin: &AdminHandle, target: &str, report: &str, wanted: &[&str]) {
    let address = admin.address().to_string();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    let fields = bearer(PROFILE);
    let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    let mut answer = Vec::new();
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{target}: {}", String::from_utf8_lossy(&answer));
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("profile-{}.pb", std::process::id()));
    std::fs::write(&file, &answer[body..]).unwrap();
    let output = Command::new("go").args(["tool", "pprof", report]).arg(&file).output();
    let _ = std::fs::remove_file(&file);
    let Ok(output) = output else {
        eprintln!("SKIPPED: go is not installed, which reads profiles");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(wanted.iter().all(|wanted| text.contains(wanted)), "{text}");
}

/// Two threads of the server call the handler, which holds a lock while it works.
fn waits_name_the_lock_and_the_method(admin: &AdminHandle, address: &str) {
    let lock = format!("lock at tests/profile.rs:{LOCKED}");
    let (address, is_over) = (address.to_owned(), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (address, is_over) = (address.clone(), is_over.clone());
            std::thread::spawn(move || {
                let client = polyrpc::blocking::Client::new(&format!("rpcx://{address}")).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let _: u64 = client.call("Shop/Queue", &()).unwrap();
                }
            })
        })
        .collect();
    let text = ask(admin, "/hotspots/contention?seconds=2", "");
    assert_eq!(text.status, 200, "{text:?}");
    let id = text.body.strip_prefix("profile: ").and_then(|rest| rest.lines().next()).expect(&text.body);
    let has =
        |start: &str, end: &str| text.body.lines().any(|line| line.starts_with(start) && line.ends_with(end));
    assert!(has("waits: ", "") && has("method:", " Shop/Queue") && has("", &lock), "{text:?}");
    // The table of locations, too.
    assert!(has(" ", &format!("tests/profile.rs:{LOCKED}")), "{text:?}");
    let json = ask(admin, &format!("/hotspots/contention?view={id}&format=json"), "").json();
    assert_eq!(json["data"]["profile"]["functions"][0]["name"], *lock, "{json}");
    let folded = ask(admin, &format!("/hotspots/contention?view={id}&display_type=collapsed"), "").body;
    let ends = format!(";profile::stand_in_line;{lock} ");
    assert!(folded.lines().any(|line| line.contains(&ends)), "{folded}");
    assert!(!folded.contains("polyrpc::contention::") && !folded.contains("backtrace::trace"), "{folded}");
    // It is no profile of the CPU.
    assert_eq!(ask(admin, &format!("/hotspots/cpu?view={id}"), "").status, 404);
    go_reads(admin, &format!("/pprof/contention?view={id}"), "-top", &["Type: delay", "stand_in_line"]);
    go_reads(admin, &format!("/debug/pprof/mutex?view={id}"), "-tags", &["method: Total", "Shop/Queue"]);
    let html = ask(admin, &format!("/hotspots/contention?view={id}"), "User-Agent: Mozilla/5.0\r\n").body;
    assert!(html.contains("<title>profile::stand_in_line ") && html.contains(" ns, "), "{html}");
    is_over.store(true, Ordering::Relaxed);
    callers.into_iter().for_each(|caller| caller.join().unwrap());
}

fn wrong_requests_are_refused(admin: &AdminHandle) {
    for (target, status) in [
        ("/hotspots/cpu?seconds=0", 400),
        ("/hotspots/cpu?seconds=61", 400),
        ("/hotspots/cpu?hz=1000", 400),
        ("/hotspots/cpu?view=x", 400),
        ("/hotspots/cpu?view=1&by=thread", 400),
        ("/hotspots/cpu?view=99", 404),
        ("/hotspots/cpu?view=1&base=99", 404),
        ("/hotspots/cpu?view=1&display_type=exe", 400),
        ("/hotspots/growth", 404),
        ("/hotspots/heap?seconds=5", 400),
        ("/hotspots/heap?by=method", 400),
        ("/hotspots/heap?method=Shop/Grind", 400),
        ("/hotspots/cpu/x", 404),
        ("/debug/pprof/goroutine", 404),
    ] {
        assert_eq!(ask(admin, target, "").status, status, "{target}");
    }
}
