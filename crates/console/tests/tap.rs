//! Live calls.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{get, observe, page, send, services};
use polyrpc::Client;
use polyrpc::server::ServerHandle;
use polyrpc_console::{Admin, AdminHandle, Role};
use tokio::sync::Mutex;

/// Lets one test run at a time: a tap shows the calls of all servers of the process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A response that is read line by line.
struct Lines(BufReader<TcpStream>);

impl Lines {
    /// Sends a request, and reads until the first line of the body.
    fn open(admin: &AdminHandle, target: &str) -> Self {
        let mut stream = TcpStream::connect(admin.address().to_string()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!("GET {target} HTTP/1.0\r\nHost: {}\r\n\r\n", admin.address());
        stream.write_all(request.as_bytes()).unwrap();
        let mut lines = Self(BufReader::new(stream));
        assert!(lines.next().starts_with("HTTP/1."));
        while !lines.next().is_empty() {}
        lines
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the response has ended");
        line.trim_end().to_owned()
    }
}

fn client(server: &ServerHandle, protocol: &str) -> Client {
    Client::new(&format!("{protocol}://{}", server.address())).unwrap()
}

async fn fail(client: &Client) {
    let failed: Result<(), _> = client.call("fail", &"x").await;
    failed.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_shown_as_they_end() {
    let _alone = ALONE.lock().await;
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    // No call before the tap: the server ends a call a little after its client has the reply.
    let rpcx = client(&server, "rpcx");
    let mut lines = Lines::open(&admin, "/tap?seconds=60&count=2&side=server&method=add;fail&protocol=rpcx");
    assert!(lines.next().starts_with("# Calls as they end"));
    // Neither the protocol nor the method of these is wanted.
    let _: i64 = client(&server, "grpc").call("add", &(1, 2)).await.unwrap();
    let _: i64 = rpcx.call("add", &(1, 2)).await.unwrap();
    let line = lines.next();
    assert!(line.contains(" S rpcx 127.0.0.1:") && line.ends_with(" [OK]"), "{line}");
    assert!(line.contains(" add("), "{line}");
    fail(&rpcx).await;
    // Texts of failures may contain values.
    let line = lines.next();
    assert!(line.ends_with(" [not found: ***]"), "{line}");
    assert_eq!(lines.next(), "# 2 calls, 0 more were dropped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_json_have_a_version() {
    let _alone = ALONE.lock().await;
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").anonymous(Role::Call).start(&console).unwrap();
    let target = "/tap?format=json&seconds=60&count=1&status=failed&side=server&values&peer=127.0.0.1";
    let mut lines = Lines::open(&admin, target);
    let json = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap();
    let head = json(lines.next());
    assert_eq!((head["version"].as_u64(), head["page"].as_str()), (Some(1), Some("tap")));
    let rpcx = client(&server, "rpcx");
    let _: i64 = rpcx.call("add", &(1, 2)).await.unwrap();
    fail(&rpcx).await;
    let call = json(lines.next());
    assert_eq!((call["name"].as_str(), call["side"].as_str()), (Some("fail"), Some("server")), "{call}");
    assert_eq!(call["message"].as_str(), Some("nothing"), "{call}");
    assert_eq!(json(lines.next())["calls"].as_u64(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_needs_no_script_and_follows_with_one() {
    let _alone = ALONE.lock().await;
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let browser = "User-Agent: Mozilla/5.0\r\n";
    let form = send(admin.address(), "GET", "/tap", browser, "").body;
    assert!(form.contains("<form method=get action=/tap") && form.contains("data-live"), "{form}");
    let rpcx = client(&server, "rpcx");
    let calls = tokio::spawn(async move {
        loop {
            let _: i64 = rpcx.call("add", &(1, 2)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let address = admin.address().clone();
    let ask = move || send(&address, "GET", "/tap?method=add&seconds=20&count=3", browser, "").body;
    let html = tokio::task::spawn_blocking(ask).await.unwrap();
    assert_eq!(html.matches("<th scope=row>add</th>").count(), 3, "{html}");
    let mut events = Lines::open(&admin, "/console/live?path=%2Ftap%3Fmethod%3Dadd");
    while !events.next().contains("<th scope=row>add</th>") {}
    calls.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_and_taps_are_bounded() {
    let _alone = ALONE.lock().await;
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let mut quiet = Lines::open(&admin, "/tap?seconds=1&side=server&method=fail");
    quiet.next();
    assert_eq!(quiet.next(), "# 0 calls, 0 more were dropped", "it ends by itself");
    let mut lines = Lines::open(&admin, "/tap?seconds=60&count=15&rate=5&side=server&method=add");
    lines.next();
    let rpcx = client(&server, "rpcx");
    let began = Instant::now();
    let calls = tokio::spawn(async move {
        loop {
            let _: i64 = rpcx.call("add", &(1, 2)).await.unwrap();
        }
    });
    let mut shown = 0;
    let tail = loop {
        match lines.next() {
            tail if tail.starts_with("# ") => break tail,
            _ => shown += 1,
        }
    };
    calls.abort();
    // They are of three seconds at least, of which the second is a whole one.
    assert_eq!(shown, 15);
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert!(!tail.contains(" 0 more"), "{tail}");
    for (target, status) in [
        ("/tap?seconds=0", 400),
        ("/tap?seconds=301", 400),
        ("/tap?rate=101", 400),
        ("/tap?min_latency=x", 400),
        ("/tap?side=x", 400),
        ("/tap?status=not_fond", 400),
        ("/tap?values", 403),
        ("/tap/x", 404),
    ] {
        assert_eq!(get(admin.address(), target).status, status, "{target}");
    }
    assert_eq!(send(admin.address(), "POST", "/tap", "", "").status, 405);
    assert_eq!(get(server.address(), "/tap").status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_are_shown_as_escapes() {
    let _alone = ALONE.lock().await;
    const NASTY: &str = "<script>alert(1)</script>\u{202e}\u{1b}[2J\r\nx: y";
    let server = services().function(NASTY, || async {});
    let (console, server) = observe(server).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    for (form, is_html) in [("", false), ("&format=html", true), ("&format=json", false)] {
        let address = admin.address().clone();
        let target = format!("/tap?seconds=20&count=1&side=server&method=*alert*{form}");
        let asked = tokio::task::spawn_blocking(move || get(&address, &target));
        let rpcx = client(&server, "rpcx");
        let calls = async {
            loop {
                let _: () = rpcx.call(NASTY, &()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let answer = tokio::select! {
            answer = asked => answer.unwrap(),
            () = calls => unreachable!(),
        };
        assert!(answer.body.contains("alert"), "{answer:?}");
        assert!(!answer.body.contains('\u{1b}') && !answer.body.contains("\nx: y"), "{answer:?}");
        assert!(!is_html || !answer.body.contains("<script>alert"), "{answer:?}");
    }
    let _ = page(&admin, "/status");
}
