//! Every page in every form, and what they show.

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{OWN_SCRIPT, get, observe, page, send, services, wait_until};
use flate2::read::GzDecoder;
use polyrpc::layers::Metrics;
use polyrpc::{Client, Protocol, Server};
use polyrpc_console::settings::Setting;
use polyrpc_console::vars::{Counter, Family, Gauge, Latency, Max, PerSecond, Window};
use polyrpc_console::{Admin, Console, Role};

const WRITE: &str = "a-token-for-writing";

const PAGES: [&str; 18] = [
    "/",
    "/index",
    "/status",
    "/vars",
    "/connections",
    "/channels",
    "/rpcz",
    "/flags",
    "/list",
    "/protobufs",
    "/threads",
    "/memory",
    "/vlog",
    "/ids",
    "/version",
    "/health",
    "/metrics",
    "/brpc_metrics",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_page_answers_in_every_form() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let client = Client::new(&format!("grpc://{}", server.address())).unwrap();
    let _: i64 = client.call("add", &(1, 2)).await.unwrap();
    // These are for programs, in one form.
    let plain = ["/list", "/version", "/health", "/metrics", "/brpc_metrics"];
    for target in PAGES {
        let text = page(&admin, target);
        assert!(!text.body.is_empty() && !text.body.contains("<html"), "{target}: {text:?}");
        assert!(!text.body.chars().any(|letter| letter.is_control() && letter != '\n'), "{target}");
        if plain.contains(&target) {
            continue;
        }
        let json = page(&admin, &format!("{target}?format=json"));
        assert_eq!(json.field("content-type"), Some("application/json"));
        assert_eq!(
            (json.json()["version"].as_u64(), json.json()["data"].is_object()),
            (Some(1), true),
            "{json:?}"
        );
        let fields = "User-Agent: Mozilla/5.0\r\nAccept: text/html\r\n";
        let html = send(admin.address(), "GET", target, fields, "");
        assert!(html.body.starts_with("<!doctype html><html lang=en>"), "{target}: {html:?}");
        assert!(html.body.trim_end().ends_with("</html>"), "{target}");
        // A strict policy would block any other script.
        assert_eq!(html.body.matches("<script").count(), html.body.matches(OWN_SCRIPT).count(), "{target}");
        assert!(!html.body.contains(" style=") && !html.body.contains(" onclick"), "{target}");
        assert_eq!(html.body.matches("<table").count(), html.body.matches("</table>").count(), "{target}");
        // By curl it is text again.
        let curl = send(admin.address(), "GET", target, "User-Agent: curl/8.5.0\r\nAccept: */*\r\n", "");
        assert_eq!(curl.field("content-type"), Some("text/plain"));
    }
    assert_eq!(page(&admin, "/console/style.css").field("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(
        page(&admin, "/console/live.js").field("content-type"),
        Some("text/javascript; charset=utf-8")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn status_has_the_calls_of_every_protocol() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    for protocol in [Protocol::BaiduStd, Protocol::Rpcx, Protocol::Grpc, Protocol::Http, Protocol::NetRpc] {
        let client =
            Client::new(&format!("{}://{}", protocol.as_str().replace('_', "-"), server.address())).unwrap();
        for _ in 0..4 {
            let sum: i64 = client.call("add", &(1, 2)).await.unwrap();
            assert_eq!(sum, 3);
        }
        client.call::<()>("fail", "x").await.unwrap_err();
    }
    let method = |name: &str| {
        let status = page(&admin, "/status?format=json").json();
        let methods = status["data"]["servers"][0]["services"][0]["methods"].clone();
        methods.as_array().unwrap().iter().find(|method| method["name"] == name).unwrap().clone()
    };
    // A call may be counted a little after its client has the reply.
    wait_until(|| method("fail")["error"] == 5 && method("add")["count"] == 20).await;
    let add = method("add");
    assert_eq!((add["count"].as_u64(), add["error"].as_u64()), (Some(20), Some(0)), "{add}");
    assert_eq!(add["protocols"].as_array().unwrap().len(), 5, "{add}");
    assert!(add["latency_50"].as_u64() <= add["latency_99"].as_u64(), "{add}");
    assert!(add["latency_99"].as_u64() <= add["max_latency"].as_u64(), "{add}");
    let fail = method("fail");
    assert_eq!((fail["count"].as_u64(), fail["error"].as_u64()), (Some(0), Some(5)), "{fail}");
    assert_eq!(fail["protocols"][0]["failures"][0][0], "not found", "{fail}");
    wait_until(|| page(&admin, "/vars/rpc_server_*_add_count").body.ends_with("_add_count : 20\n")).await;
    // The rate covers recent calls only, and not those before the first sample: it needs a new call.
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while method("add")["qps"].as_f64().unwrap() <= 0.0 {
        assert!(Instant::now() < end, "no call is recent");
        for _ in 0..20 {
            let _: i64 = client.call("add", &(1, 2)).await.unwrap();
        }
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(method("add")["qps"].as_f64().unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn variables_have_series_which_are_sampled_each_second() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    for _ in 0..7 {
        let _: i64 = client.call("add", &(1, 2)).await.unwrap();
    }
    let port = server.address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let target = format!("/vars/rpc_server_{port}_add_count?series");
    let last = || {
        let answer = get(admin.address(), &target);
        let data = (answer.status == 200).then(|| answer.json()["data"].clone())?;
        let points = data.as_array().unwrap().clone();
        assert_eq!(points.len(), 174);
        assert!(points.iter().enumerate().all(|(at, point)| point[0] == at), "{points:?}");
        points[173][1].as_f64()
    };
    wait_until(|| last() == Some(7.0)).await;
    assert_eq!(get(admin.address(), "/vars/no_such_variable?series").status, 404);
    assert_eq!(get(admin.address(), "/vars/no_such_variable").status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn variables_of_the_program_are_listed_while_they_exist() {
    let console = Console::new();
    console.observe_metrics(&Metrics::new());
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let counter = Counter::new("pages.test Orders");
    let rate = PerSecond::new("pages_test_rate", &counter);
    let window = Window::new("pages_test_window", &counter, 5);
    let max = Max::new("pages_test_max");
    let gauge = Gauge::from_fn("pages_test_gauge", || 2.5);
    let latency = Latency::new("pages_test_work");
    let family = Family::<Counter, 1>::new("pages_test_zones", ["zone"]);
    max.record(9);
    latency.record(Duration::from_millis(2));
    family.with(["no\"rth\n"]).add(3);
    let read = |name: &str| get(admin.address(), &format!("/vars/{name}")).body;
    // It counts on while samples are taken.
    wait_until(|| {
        counter.add(1);
        rate.value() > 0.0 && window.value() > 0
    })
    .await;
    assert!(read("pages_test_orders").starts_with("pages_test_orders : "));
    assert_eq!(
        (read("pages_test_max"), read("pages_test_gauge")),
        ("pages_test_max : 9\n".into(), "pages_test_gauge : 2.5\n".into())
    );
    assert_eq!(read("pages_test_work_count"), "pages_test_work_count : 1\n");
    assert_eq!(read("pages_test_zones"), "pages_test_zones{zone=\"no\\\"rth\\n\"} : 3\n");
    let metrics = page(&admin, "/metrics").body;
    assert!(metrics.contains("# TYPE pages_test_work_count counter\npages_test_work_count 1\n"), "{metrics}");
    assert!(metrics.contains("pages_test_zones{zone=\"no\\\"rth\\n\"} 3\n"), "{metrics}");
    drop((max, gauge, family));
    for gone in ["pages_test_max", "pages_test_gauge", "pages_test_zones"] {
        assert_eq!(get(admin.address(), &format!("/vars/{gone}")).status, 404, "{gone}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn settings_are_listed_with_their_defaults() {
    let (console, _server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let setting = Setting::define("pages_test_limit", 5_u64, "How many at most").register();
    setting.set(6);
    let text = page(&admin, "/flags/pages_test*;max_body_size").body;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "Name | Value | Description | Defined At");
    assert!(lines[2].starts_with("max_body_size | 67108864 | "), "{text}");
    assert!(lines[3].starts_with("pages_test_limit (R) | 6 (default:5) | How many at most | "), "{text}");
    assert!(lines[3].ends_with("tests/pages.rs"), "{text}");
    assert_eq!(get(admin.address(), "/flags/no_such_setting").status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pages_on_the_port_leave_the_methods_alone() {
    let status = |text: String| async move { text + "!" };
    let (console, server) =
        observe(services().function("status", status).function("vars/add", |n: i64| async move { n + 1 }))
            .await;
    let client = Client::new(&format!("http://{}", server.address())).unwrap();
    assert_eq!(client.call::<String>("status", "mine").await.unwrap(), "mine!");
    assert_eq!(client.call::<i64>("vars/add", &1).await.unwrap(), 2);
    assert_eq!(get(server.address(), "/vars/pid").status, 200);
    // The function of that name comes first, and is not called by GET.
    assert_eq!(get(server.address(), "/status").status, 405);
    assert_eq!(get(server.address(), "/nothing").status, 404);
    drop(console);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn channels_have_the_servers_of_clients_while_they_are_observed() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client =
        Client::builder(&format!("rpcx+list://{},{gone}", server.address())).retries(3).build().unwrap();
    let shown = console.observe_client("a<b>\"c", &client);
    for _ in 0..20 {
        let sum: i64 = client.call("add", &(1, 2)).await.unwrap();
        assert_eq!(sum, 3);
    }
    let channels = page(&admin, "/channels?format=json").json()["data"]["clients"].clone();
    assert_eq!(
        (channels[0]["name"].as_str(), channels[0]["protocol"].as_str()),
        (Some("a<b>\"c"), Some("rpcx"))
    );
    let servers = channels[0]["servers"].as_array().unwrap();
    let row = |address: &str| servers.iter().find(|row| row["address"] == format!("tcp@{address}")).unwrap();
    let (here, away) = (row(&server.address().to_string()), row(&gone.to_string()));
    assert_eq!(
        (here["available"].as_bool(), here["attempts"].as_u64()),
        (Some(true), Some(20)),
        "{channels}"
    );
    assert_eq!(away["available"], false, "{channels}");
    let text = page(&admin, "/channels").body;
    assert!(text.contains(&format!("tcp@{} available calls=20 failed=0 ", server.address())), "{text}");
    let html = send(admin.address(), "GET", "/channels", "User-Agent: Mozilla/5.0\r\n", "").body;
    assert!(html.contains("a&lt;b&gt;&quot;c by rpcx: 2 servers"), "{html}");
    drop(shown);
    assert!(!page(&admin, "/channels").body.contains("a<b>"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn several_servers_are_distinguished() {
    let console = Console::new();
    let metrics = Metrics::new();
    let mut running = Vec::new();
    for version in ["one", "two"] {
        let server = Server::new().version(version).function("add", |a: i64, b: i64| async move { a + b });
        let server = server.metrics(&metrics).bind("127.0.0.1:0").await.unwrap().start();
        console.observe(&server);
        running.push(server);
    }
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let status = page(&admin, "/status").body;
    for server in &running {
        assert!(status.contains(&format!("# {}\n", server.address())), "{status}");
    }
    // Shared metrics are on the page once.
    let page_of_metrics = page(&admin, "/metrics").body;
    assert_eq!(page_of_metrics.matches("# TYPE polyrpc_build_info gauge").count(), 1);
    let gone = running.remove(0);
    gone.shutdown(Duration::ZERO).await;
    wait_until(|| !page(&admin, "/status").body.contains("version: one")).await;
    assert!(page(&admin, "/status").body.contains("version: two"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn metrics_of_several_servers_are_added() {
    let (console, mut running) = (Console::new(), Vec::new());
    for _ in 0..2 {
        let server = services().count_calls(&Metrics::new()).bind("127.0.0.1:0").await.unwrap().start();
        console.observe(&server);
        let client = server.client(Protocol::Rpcx).unwrap();
        assert_eq!(client.call::<i64>("add", &(1, 2)).await.unwrap(), 3);
        running.push((server, client));
    }
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let text = page(&admin, "/metrics").body;
    for line in [
        "polyrpc_connections 2\n",
        "polyrpc_calls_started_total{side=\"server\",protocol=\"rpcx\",service=\"\",method=\"add\"} 2\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert_eq!(text.matches("# TYPE polyrpc_connections gauge\n").count(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_of_a_stopped_server_are_not_those_of_the_next_one() {
    let console = Console::new();
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let list = |target: &str, name: &str| {
        page(&admin, target).json()["data"][name].as_array().expect("a list").clone()
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let server = services().bind("127.0.0.1:0").await.unwrap().start();
        console.observe(&server);
        let _open = std::net::TcpStream::connect(server.address().to_string()).unwrap();
        let connections = || list("/connections?format=json", "connections");
        wait_until(|| connections().len() == 1).await;
        ids.push(connections()[0]["id"].as_u64().unwrap());
        server.shutdown(Duration::ZERO).await;
        wait_until(|| list("/status?format=json", "servers").is_empty()).await;
    }
    // A button of an old page would close a connection of the new server.
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn list_of_few_variables_has_plots_with_the_values_behind_them() {
    let (console, _server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let _gauge = Gauge::from_fn("pages_test_plot", || 2.5);
    let browser = "User-Agent: Mozilla/5.0\r\n";
    let html = |target: &str| send(admin.address(), "GET", target, browser, "").body;
    wait_until(|| html("/vars/pages_test_plot").matches("<svg class=plot").count() == 4).await;
    let single = html("/vars/pages_test_plot");
    assert!(single.contains("pages_test_plot in the last 24 hours: largest "), "{single}");
    assert_eq!(single.matches("<details>").count(), 4);
    assert!(
        single.contains("<th scope=row>59 s</th>") && single.contains("<th scope=row>29 d</th>"),
        "{single}"
    );
    let two = html("/vars/pages_test_plot;process_uptime");
    assert_eq!((two.matches("<svg class=plot").count(), two.matches("<details>").count()), (8, 0));
    assert_eq!(html("/vars").matches("<svg class=plot").count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn long_pages_are_compressed_unless_they_have_a_token() {
    let (console, _server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, WRITE).anonymous(Role::Read).writable();
    let admin = admin.start(&console).unwrap();
    let fields = "User-Agent: Mozilla/5.0\r\nAccept-Encoding: gzip, deflate, br\r\n";
    let ask = |target: &str, fields: &str| {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{fields}\r\n",
            admin.address()
        );
        let mut stream = std::net::TcpStream::connect(admin.address().to_string()).unwrap();
        let mut answer = Vec::new();
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
        (head, answer[end + 4..].to_vec())
    };
    let (head, packed) = ask("/flags", fields);
    assert!(
        head.contains("content-encoding: gzip")
            && head.contains(&format!("content-length: {}", packed.len()))
    );
    let mut unpacked = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).unwrap();
    assert!(unpacked.starts_with("<!doctype html>") && unpacked.len() > 2 * packed.len(), "{unpacked}");
    let (head, plain) = ask("/flags", "User-Agent: Mozilla/5.0\r\n");
    assert!(!head.contains("content-encoding") && plain.starts_with(b"<!doctype html>"), "{head}");
    // Its length would tell about the token.
    let writer = format!("{fields}Authorization: Bearer {WRITE}\r\n");
    let (head, plain) = ask("/flags", &writer);
    let plain = String::from_utf8(plain).unwrap();
    assert!(!head.contains("content-encoding") && plain.contains("name=token"), "{head}");
    assert!(ask("/status", &writer).0.contains("content-encoding: gzip"));
}

/// A page is checked by promtool, if that is installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn promtool_accepts_the_metrics() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let client = Client::new(&format!("grpc://{}", server.address())).unwrap();
    let _: i64 = client.call("add", &(1, 2)).await.unwrap();
    let _counter = Counter::new("pages_test_promtool");
    let family = Family::<Counter, 1>::new("pages_test_promtool_zones", ["zone"]);
    family.with(["<b>\"\\\n"]).add(1);
    for target in ["/metrics", "/brpc_metrics"] {
        let text = page(&admin, target).body;
        let promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut promtool) = promtool else {
            assert!(std::env::var_os("POLYRPC_WANTS_PROMTOOL").is_none(), "promtool is not installed");
            eprintln!("SKIPPED: promtool is not installed (Debian: prometheus)");
            return;
        };
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        // 1 is what cannot be parsed; 3 are names that Prometheus' guide advises against, as those of brpc.
        let findings = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 3)), "{target}: {findings}\n{text}");
    }
}
