//! Names and values made of markup, control characters and characters that change the direction of text; and many of them.

mod common;

use std::time::{Duration, Instant};

use common::{OWN_SCRIPT, get, observed, send};
use polyrpc::client::Request;
use polyrpc::layers::Metrics;
use polyrpc::{Client, Server, propagation};
use polyrpc_console::settings::Setting;
use polyrpc_console::{Admin, Console, Role};

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
    let (console, server) = observed(server).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_methods_and_connections_are_shown_in_time() {
    let mut server = Server::new();
    for n in 0..5_000 {
        server = server.function(&format!("method_{n}"), |text: String| async move { text });
    }
    let (console, server) = observed(server).await;
    let mut sockets = Vec::new();
    for _ in 0..500 {
        sockets.push(tokio::net::TcpStream::connect(server.address().to_string()).await.unwrap());
    }
    common::until(|| server.connections() == 500).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    for target in ["/status", "/vars", "/connections", "/ids", "/list"] {
        let began = Instant::now();
        let answer = get(admin.address(), target);
        assert_eq!(answer.status, 200);
        // The tests share two processors with a build without optimisation.
        assert!(began.elapsed() < Duration::from_secs(2), "{target}: {:?}", began.elapsed());
    }
    let shown = get(admin.address(), "/connections").body.matches("127.0.0.1:").count();
    assert_eq!(shown, 500);
    assert!(get(admin.address(), "/status").body.contains("\nmethod_4999 (string) returns (string)\n"));
}
