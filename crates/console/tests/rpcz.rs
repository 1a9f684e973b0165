//! Recorded calls: their phases, their trees across protocols, searches, exports.

mod common;

use std::time::Duration;

use common::{get, page, send, wait_until};
use polyrpc::layers::Metrics;
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Context, Server, Status, propagation};
use polyrpc_console::{Admin, AdminHandle, Console, Role};
use serde_json::Value;
use tokio::sync::Mutex;

/// The settings are those of the process.
static ALONE: Mutex<()> = Mutex::const_new(());

const WRITE: &str = "Authorization: Bearer a-token-for-writing\r\n";

fn admin(console: &Console) -> AdminHandle {
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, "a-token-for-writing");
    admin.anonymous(Role::Read).writable().start(console).unwrap()
}

async fn serve(server: Server, console: &Console) -> ServerHandle {
    let running = server.count_calls(&Metrics::new()).bind("127.0.0.1:0").await.unwrap().start();
    console.observe(&running);
    running
}

/// A client whose calls are recorded.
fn client(protocol: &str, server: &ServerHandle, console: &Console) -> Client {
    let metrics = Metrics::new();
    console.observe_metrics(&metrics);
    Client::builder(&format!("{protocol}://{}", server.address())).layer(metrics).build().unwrap()
}

fn spans(admin: &AdminHandle, search: &str) -> Vec<Value> {
    let found = page(admin, &format!("/rpcz?format=json&{search}")).json();
    found["data"]["spans"].as_array().unwrap().clone()
}

/// Returns the names of the threads that consoles of this process have.
fn console_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.starts_with("polyrpc-")).collect()
}

fn phases(span: &Value) -> Vec<&str> {
    span["phases"].as_array().unwrap().iter().map(|phase| phase["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn phases_of_both_sides_are_recorded_with_notes() {
    let _alone = ALONE.lock().await;
    let console = Console::new();
    let work = |n: i64| async move {
        propagation::note(format_args!("asked for {n}"));
        tokio::time::sleep(Duration::from_millis(30)).await;
        n + 1
    };
    let server = serve(Server::new().function("rpcz_work", work), &console).await;
    let admin = admin(&console);
    for protocol in ["grpc", "rpcx", "baidu-std", "http"] {
        let client = client(protocol, &server, &console);
        assert_eq!(client.call::<i64>("rpcz_work", &1).await.unwrap(), 2);
        let search = format!("method=rpcz_work&protocol={protocol}");
        wait_until(|| spans(&admin, &search).len() == 2).await;
        let found = spans(&admin, &search);
        let side = |side: &str| found.iter().find(|span| span["side"] == side).unwrap();
        let (caller, callee) = (side("client"), side("server"));
        assert_eq!(phases(caller), ["connect", "round trip"], "{caller}");
        assert_eq!(phases(callee), ["decode", "handle", "encode"], "{callee}");
        assert!(callee["phases"][1]["took"].as_u64().unwrap() >= 30_000, "{callee}");
        assert!(caller["took"].as_u64() >= callee["took"].as_u64(), "{found:?}");
        assert_eq!((&callee["trace"], &callee["parent"]), (&caller["trace"], &caller["span"]), "{found:?}");
        assert_eq!(caller["peer"], server.address().to_string());
        assert_eq!(callee["notes"][0]["text"], "asked for 1");
        let text = get(admin.address(), &format!("/rpcz?trace={}", caller["trace"].as_str().unwrap())).body;
        assert!(text.contains("us: asked for 1\n") && text.contains("round trip "), "{text}");
    }
}

/// Calls the next server from a handler.
fn relay(name: &str, next: Client, to: &'static str) -> Server {
    let handle = move |n: i64| {
        let next = next.clone();
        async move { next.call::<i64>(to, &(n + 1)).await.map_err(Status::from) }
    };
    Server::new().function(name, handle)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn call_across_four_protocols_is_one_tree() {
    let _alone = ALONE.lock().await;
    let console = Console::new();
    let last = serve(Server::new().function("hop_http", |n: i64| async move { n }), &console).await;
    let third = relay("hop_baidu", client("http", &last, &console), "hop_http");
    let third = serve(third, &console).await;
    let second = serve(relay("hop_rpcx", client("baidu-std", &third, &console), "hop_baidu"), &console).await;
    let first = serve(relay("hop_grpc", client("rpcx", &second, &console), "hop_rpcx"), &console).await;
    let admin = admin(&console);
    assert_eq!(client("grpc", &first, &console).call::<i64>("hop_grpc", &1).await.unwrap(), 4);
    wait_until(|| spans(&admin, "method=hop_").len() == 8).await;
    let id = spans(&admin, "method=hop_grpc")[0]["trace"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 32);
    let tree = page(&admin, &format!("/rpcz?trace={id}&format=json")).json()["data"].clone();
    let shown: Vec<_> = tree["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| {
            (
                span["depth"].as_u64().unwrap(),
                span["side"].as_str().unwrap(),
                span["protocol"].as_str().unwrap(),
            )
        })
        .collect();
    let hops = ["grpc", "rpcx", "baidu_std", "http"];
    let want: Vec<_> = (0..8)
        .map(|depth| (depth, ["client", "server"][depth as usize % 2], hops[depth as usize / 2]))
        .collect();
    assert_eq!(shown, want, "{tree}");
    assert!(tree["spans"].as_array().unwrap().iter().all(|span| span["critical"] == true), "{tree}");
    // The half that brpc knows names the same trace.
    let half = page(&admin, &format!("/rpcz?trace={}", &id[16..])).body;
    assert_eq!(half.matches("[OK]").count(), 8, "{half}");
    let html =
        send(admin.address(), "GET", &format!("/rpcz?trace={id}"), "User-Agent: Mozilla/5.0\r\n", "").body;
    assert_eq!(html.matches("<svg class=waterfall").count(), 8, "{html}");

    let otlp = page(&admin, &format!("/rpcz?trace={id}&format=otlp")).json();
    let exported = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(exported.len(), 8);
    assert!(
        exported
            .iter()
            .all(|span| span["traceId"] == id.as_str() && span["spanId"].as_str().unwrap().len() == 16)
    );
    let roots = exported.iter().filter(|span| span["parentSpanId"] == "").count();
    assert_eq!(roots, 1, "{otlp}");
    let chrome = page(&admin, &format!("/rpcz?trace={id}&format=chrome")).json();
    let events = chrome["traceEvents"].as_array().unwrap();
    assert!(events.len() >= 8 * 3 && events.iter().all(|event| event["ph"] == "X"), "{chrome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn traces_of_brpc_are_continued() {
    let _alone = ALONE.lock().await;
    let console = Console::new();
    let told = |cx: Context| async move {
        let id = |name| cx.metadata().get(name).map(str::to_owned);
        (id("x-bd-trace-id"), id("tracestate"), id("traceparent"))
    };
    let last = serve(Server::new().function("brpc_last", told), &console).await;
    let next = client("baidu-std", &last, &console);
    let handle = move || {
        let next = next.clone();
        async move {
            type Told = (Option<String>, Option<String>, Option<String>);
            next.call::<Told>("brpc_last", &()).await.map_err(Status::from)
        }
    };
    let first = serve(Server::new().function("brpc_first", handle), &console).await;
    let admin = admin(&console);
    // A client that is not observed here, with the ids that brpc's would send.
    let caller = Client::new(&format!("baidu-std://{}", first.address())).unwrap();
    let request = polyrpc::client::Request::new(())
        .with_metadata("x-bd-trace-id", "1469370164498137089")
        .with_metadata("x-bd-span-id", "77");
    type Told = (Option<String>, Option<String>, Option<String>);
    let told: Told = caller.call_with("brpc_first", request).await.unwrap().message;
    assert_eq!(told.0.as_deref(), Some("1469370164498137089"));
    assert!(told.2.unwrap().starts_with("00-0000000000000000146"), "{:?}", told.0);
    wait_until(|| spans(&admin, "method=brpc_").len() == 3).await;
    let trace = format!("{:x}", 1_469_370_164_498_137_089_u64);
    let tree = page(&admin, &format!("/rpcz?trace={trace}&format=json")).json();
    let found = tree["data"]["spans"].as_array().unwrap();
    assert_eq!((found.len(), found[0]["parent"].as_str()), (3, Some("000000000000004d")), "{tree}");

    // A trace that only consoles record is not sampled for others.
    let _: Told = client("baidu-std", &last, &console).call("brpc_last", &()).await.unwrap();
    let told: Told = client("rpcx", &last, &console).call("brpc_last", &()).await.unwrap();
    assert_eq!(told.1.as_deref(), Some("polyrpc=1"));
    assert!(!told.2.unwrap().ends_with("-01"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn slow_and_failed_calls_are_kept_without_being_chosen() {
    let _alone = ALONE.lock().await;
    let console = Console::new();
    let server = Server::new()
        .function("kept_fail", || async {
            Err::<(), _>(Status::not_found("nothing here").with_number(54321))
        })
        .function("kept_slow", || tokio::time::sleep(Duration::from_millis(1_100)))
        .function("kept_fast", || async {});
    let server = serve(server, &console).await;
    let admin = admin(&console);
    let set = |flag: &str, value: &str| {
        send(admin.address(), "GET", &format!("/flags/{flag}?setvalue={value}"), WRITE, "").status
    };
    // Far more than a quick call takes on a busy machine.
    assert_eq!((set("rpcz_samples_per_second", "0"), set("rpcz_slow_second", "1")), (200, 200));
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    for name in ["kept_fail", "kept_slow", "kept_fast"] {
        let _: Result<(), _> = client.call(name, &()).await;
    }
    wait_until(|| spans(&admin, "method=kept_").len() == 2).await;
    let failed = spans(&admin, "failed&method=kept_");
    assert_eq!((failed.len(), &failed[0]["name"]), (1, &Value::from("kept_fail")));
    assert_eq!((failed[0]["failure"]["code"].as_str(), phases(&failed[0]).len()), (Some("not found"), 0));
    assert!(failed[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{failed:?}");
    assert_eq!(spans(&admin, "method=kept_&error_code=not_found").len(), 1);
    assert_eq!(spans(&admin, "method=kept_&min_latency=1000000")[0]["name"], "kept_slow");
    assert_eq!(spans(&admin, "method=kept_&time=2020/01/01-00:00:00").len(), 0);
    assert_eq!(get(admin.address(), "/rpcz?time=yesterday").status, 400);
    let line = get(admin.address(), "/rpcz?method=kept_fail").body;
    assert!(
        line.contains(" S trace=") && line.contains(" log_id=0 kept_fail(") && line.contains("[not found"),
        "{line}"
    );
    assert_eq!((set("rpcz_samples_per_second", "1000"), set("rpcz_slow_second", "0.5")), (200, 200));
    // Sampling resumes with the next call, on every thread.
    let _: () = client.call("kept_fast", &()).await.unwrap();
    wait_until(|| spans(&admin, "method=kept_fast").len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn recording_is_switched_by_callers_with_the_role_write() {
    let _alone = ALONE.lock().await;
    let console = Console::new();
    let server = serve(Server::new().function("switched", || async {}), &console).await;
    let admin = admin(&console);
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    for refused in ["/rpcz/enable", "/rpcz/disable"] {
        assert_eq!(get(admin.address(), refused).status, 403);
        assert_eq!(send(admin.address(), "POST", refused, "", "").status, 403);
    }
    assert_eq!(send(admin.address(), "GET", "/rpcz/disable", WRITE, "").body, "rpcz is disabled\n");
    let _: () = client.call("switched", &()).await.unwrap();
    assert!(get(admin.address(), "/rpcz").body.starts_with("rpcz is not enabled yet."));
    assert_eq!(send(admin.address(), "POST", "/rpcz/enable", WRITE, "").status, 200);
    let _: () = client.call("switched", &()).await.unwrap();
    wait_until(|| !spans(&admin, "method=switched").is_empty()).await;
    assert_eq!(spans(&admin, "method=switched").len(), 1);
    assert_eq!(get(admin.address(), "/rpcz/other").status, 403);
    for wrong in ["xyz", "", "%2B1", "123456789012345678901234567890123"] {
        assert_eq!(get(admin.address(), &format!("/rpcz?trace={wrong}")).status, 400, "{wrong}");
    }
    assert_eq!(get(admin.address(), "/rpcz?trace=1").status, 404);
    // Without a console nothing is recorded.
    drop((admin, console));
    let console = Console::new();
    let admin = self::admin(&console);
    let before = spans(&admin, "method=switched").len();
    drop((admin, console));
    // Its threads hold the console's state until they end.
    wait_until(|| console_threads().is_empty()).await;
    let _: () = client.call("switched", &()).await.unwrap();
    let console = Console::new();
    let admin = self::admin(&console);
    assert_eq!(spans(&admin, "method=switched").len(), before);
}
