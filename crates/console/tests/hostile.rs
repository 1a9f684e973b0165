//! Names and values made of markup, control characters and characters that change the direction of text; and many of them.

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{OWN_SCRIPT, get, observe, send};
use polyrpc::client::Request;
use polyrpc::layers::Metrics;
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::{Client, Server, propagation};
use polyrpc_console::settings::Setting;
use polyrpc_console::{Admin, Console, Role};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpSocket;

const NASTY: &str = "<script>alert(1)</script>\"'&\u{202e}\u{1b}[2J\r\nx: y";

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const PAGES: [&str; 17] = [
    "/",
    "/status",
    "/vars",
    "/connections",
    "/channels",
    "/rpcz",
    "/try",
    "/flags",
    "/protobufs",
    "/threads",
    "/memory",
    "/ids",
    "/tasks",
    "/hotspots/cpu",
    "/fleet",
    "/vlog",
    "/nothing",
];

fn assert_harmless(target: &str, body: &str, is_html: bool) {
    assert!(!body.chars().any(|letter| letter.is_control() && letter != '\n'), "{target}: {body}");
    assert!(!body.contains('\u{202e}'), "{target}: {body}");
    if is_html {
        let body = body.replace(OWN_SCRIPT, "");
        assert!(!body.contains("<script") && !body.contains("alert(1)<"), "{target}: {body}");
    } else {
        assert!(!body.lines().any(|line| line == "x: y"), "{target}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_of_a_name_is_obeyed() {
    let server = Server::new().version(NASTY).function(NASTY, |text: String| async move { text });
    let (console, server) = observe(server).await;
    let _setting = Setting::define(NASTY, 1_u64, NASTY).register();
    let metrics = Metrics::new();
    console.observe_metrics(&metrics);
    let client =
        Client::builder(&format!("rpcx://{}", server.address())).layer(metrics.clone()).build().unwrap();
    let _: Result<String, _> = client.call(NASTY, "x").await;
    let traced = Server::new().function("traced", || async { propagation::note(format_args!("{NASTY}")) });
    let traced = traced.count_calls(&metrics).bind("127.0.0.1:0").await.unwrap().start();
    console.observe(&traced);
    let baggage = Request::new(()).with_metadata("traceparent", TRACE).with_metadata("x-request-id", NASTY);
    let _: Result<polyrpc::client::Response<()>, _> =
        Client::new(&format!("rpcx://{}", traced.address())).unwrap().call_with("traced", baggage).await;
    let admin = Admin::on("127.0.0.1:0").anonymous(Role::Call).start(&console).unwrap();
    let parameters =
        "?filter=%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AE%1b&sort=%3Cscript%3E&page=99999999999999999999";
    for page in PAGES {
        for target in [
            page.to_owned(),
            format!("{page}{parameters}"),
            format!("{page}/%3Cscript%3Ealert(1)%3C%2fscript%3E"),
        ] {
            let text = get(admin.address(), &target);
            assert_harmless(&target, &text.body, false);
            let html = send(admin.address(), "GET", &target, "User-Agent: Mozilla/5.0\r\n", "");
            assert!(html.body.starts_with("<!doctype html>"), "{target}: {html:?}");
            assert_harmless(&target, &html.body, true);
            let json = get(
                admin.address(),
                &format!("{target}{}format=json", if target.contains('?') { "&" } else { "?" }),
            );
            assert!(json.json().is_object(), "{target}");
            for answer in [text, html, json] {
                assert!(!answer.head.to_lowercase().contains("\nx: y"), "{target}: {answer:?}");
            }
        }
    }
    assert!(get(admin.address(), "/status").body.contains("\\u{202e}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_path_leads_to_a_file() {
    let admin = Admin::on("127.0.0.1:0").start(&Console::new()).unwrap();
    for target in [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/console/../../../etc/passwd",
        "/console/%2fetc%2fpasswd",
        "/dir/etc/passwd",
        "/threads/../../etc/passwd",
        "/protobufs//etc/passwd",
        "/vars/%00",
    ] {
        let answer = get(admin.address(), target);
        assert!(!answer.body.contains("root:"), "{target}: {answer:?}");
        assert!(matches!(answer.status, 200 | 400 | 404), "{target}: {answer:?}");
    }
}

const METHODS: usize = 5_000;
const CONNECTIONS: usize = 10_000;

/// Files that a process may have open besides its connections. A server near its limit, which follows from that of open files,
/// closes those that are silent.
const OTHER_FILES: u64 = 6_000;

/// Raises the limit of open files of this process, and returns how many connections it may have, up to the wanted number.
fn allow_connections() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let wanted = CONNECTIONS as u64 + OTHER_FILES;
    let raised = limits.maximum.map_or(wanted, |most| most.min(wanted));
    if limits.current.is_some_and(|current| current < raised) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limits }).unwrap();
    }
    let allowed = usize::try_from(raised.saturating_sub(OTHER_FILES)).unwrap();
    if allowed < CONNECTIONS {
        eprintln!("SKIPPED: {CONNECTIONS} connections; {allowed} are tried, since no more files may be open");
    }
    allowed
}

/// The variable that tells the next test the server's address and the number of connections.
const HELD: &str = "POLYRPC_HELD_CONNECTIONS";

/// Opens connections, and holds them until its standard input ends: the process that another test starts, since a process may not
/// have the files of both ends.
#[tokio::test]
#[ignore = "many_methods_and_connections_are_shown_in_time runs it in a process of its own"]
async fn connections_are_held() {
    let Ok(wanted) = std::env::var(HELD) else { return };
    let (address, count) = wanted.split_once(' ').unwrap();
    let (address, count): (SocketAddr, usize) = (address.parse().unwrap(), count.parse().unwrap());
    allow_connections();
    let mut held = Vec::new();
    for n in 0..count {
        // From four addresses: a server grants one peer half of its connections.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1 + (n % 4) as u8], 0).into()).unwrap();
        held.push(socket.connect(address).await.unwrap());
    }
    let _ = std::io::stdin().read(&mut [0]);
    drop(held);
}

/// Waits until a server has this many connections.
async fn wait_for_connections(server: &ServerHandle, count: usize) {
    let end = Instant::now() + Duration::from_secs(120);
    while server.connection_count() < count {
        assert!(Instant::now() < end, "{} of {count} connections", server.connection_count());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const BROWSER: &str = "User-Agent: Mozilla/5.0\r\n";

/// Time within which a page has to come.
const LONGEST: Duration = Duration::from_secs(4);

/// Rows of a page of connections.
const ROWS: usize = 1024;

/// The tests share two processors with a build without optimisation; `./dev bench console` has the limits of a release.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_methods_and_connections_are_shown_in_time() {
    let connections = allow_connections();
    let many = 2 * connections;
    let patient = Duration::from_secs(3600);
    let limits = Limits {
        connections: many,
        connections_per_peer: many,
        first_byte_timeout: patient,
        idle_timeout: Some(patient),
        ..Limits::default()
    };
    let mut server = Server::new().limits(limits);
    for n in 0..METHODS {
        server = server.function(&format!("method_{n}"), |text: String| async move { text });
    }
    let (console, server) = observe(server).await;
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["connections_are_held", "--exact", "--ignored"]);
    holder
        .env(HELD, format!("{} {connections}", server.address()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut holder = holder.spawn().unwrap();
    wait_for_connections(&server, connections).await;
    let admin = Admin::on("127.0.0.1:0").anonymous(Role::Call).start(&console).unwrap();
    let html = |target: &str| send(admin.address(), "GET", target, BROWSER, "");
    for target in [
        "/",
        "/status",
        "/vars",
        "/metrics",
        "/connections",
        "/connections?sort=received&page=9",
        "/ids",
        "/list",
        "/protobufs",
        "/tasks",
        "/try",
    ] {
        for fields in ["", BROWSER] {
            let mut quickest = Duration::MAX;
            // Again if it takes long: the machine may have stalled.
            for _ in 0..4 {
                let began = Instant::now();
                let answer = send(admin.address(), "GET", target, fields, "");
                let took = began.elapsed();
                assert_eq!(answer.status, 200);
                println!("{target} {} bytes in {took:?}", answer.body.len());
                quickest = quickest.min(took);
                if quickest < LONGEST {
                    break;
                }
            }
            assert!(quickest < LONGEST, "{target}: {quickest:?}");
        }
    }
    let rows = |target: &str| get(admin.address(), target).body.matches("127.0.0.").count();
    let last = connections / ROWS;
    assert_eq!(rows("/connections"), ROWS.min(connections));
    assert_eq!(rows(&format!("/connections?page={last}")), connections - last * ROWS);
    assert_eq!(rows("/connections?givemeall"), connections);
    assert!(get(admin.address(), "/status").body.contains("\nmethod_4999 (string) returns (string)\n"));
    // It is too long to be sent each second.
    assert_eq!(get(admin.address(), "/console/live?path=/status").status, 204);
    // A page has a part of the variables, and of the connections, with links to the others; text has all.
    assert!(get(admin.address(), "/vars").body.contains("_method_4999_qps : 0\n"));
    let variables = html("/vars").body;
    assert!(variables.contains("<caption>The first 1000 of ") && !variables.contains("_method_4999_qps"));
    assert!(html("/vars?filter=method_4999").body.contains("_method_4999_qps"));
    if last > 0 {
        let first = html("/connections?sort=sent").body;
        assert!(
            first.contains("?page=1&amp;filter=&amp;sort=sent\">Next</a>")
                && !first.contains(">Previous</a>")
        );
        assert!(html(&format!("/connections?page={last}")).body.contains(">Previous</a>"));
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}
