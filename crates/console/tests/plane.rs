//! The admin listener: where it listens, who may do what, and that the observed servers do not hold it up.

mod common;
mod roles;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{exchange, get, observe, page, send, services, wait_until};
use polyrpc::layers::Metrics;
use polyrpc::server::Limits;
use polyrpc::{Address, Client, Server};
use polyrpc_console::settings::Setting;
use polyrpc_console::{Admin, AdminHandle, Console, Role};

const READ: &str = "a-token-for-reading";
const CALL: &str = "a-token-for-calling";
const PROFILE: &str = "a-token-for-profiling";
const WRITE: &str = "a-token-for-writing";

fn admin_with_tokens() -> Admin {
    Admin::on("127.0.0.1:0")
        .token(Role::Read, READ)
        .token(Role::Call, CALL)
        .token(Role::Profile, PROFILE)
        .token(Role::Write, WRITE)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn status(admin: &AdminHandle, method: &str, target: &str, fields: &str, body: &str) -> u16 {
    send(admin.address(), method, target, fields, body).status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn local_callers_read_pages_without_a_credential() {
    let (console, _server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let answer = page(&admin, "/status");
    assert!(answer.body.contains("[example.EchoService]"), "{answer:?}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With `no-referrer` browsers send our own forms with `Origin: null`.
        ("referrer-policy", "same-origin"),
        ("content-type", "text/plain"),
    ] {
        assert_eq!(answer.field(name), Some(value), "{answer:?}");
    }
    let policy = answer.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    for (target, data) in [("/health", "OK"), ("/livez", "OK")] {
        let json = page(&admin, &format!("{target}?format=json")).json();
        assert_eq!((json["version"].as_u64(), json["data"].as_str()), (Some(1), Some(data)), "{target}");
    }
    let version = page(&admin, "/version?format=json").json();
    assert!(version["data"].as_str().unwrap().starts_with("polyrpc/"), "{version}");
    // Everything but the body.
    let head = send(admin.address(), "HEAD", "/status", "", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(status(&admin, "GET", "/nothing", "", ""), 404);
    assert_eq!(status(&admin, "POST", "/status", "", ""), 405);
    assert_eq!(status(&admin, "DELETE", "/status", "", ""), 405);
    // None of the server's methods is here.
    assert_eq!(status(&admin, "POST", "/add", "Content-Type: application/json\r\n", "[1,2]"), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unix_socket_answers_too() {
    let (console, _server) = observe(services()).await;
    let path = std::env::temp_dir().join(format!("polyrpc-console-{}.sock", std::process::id()));
    let admin = Admin::on(format!("unix:{}", path.display())).start(&console).unwrap();
    let request = "GET /version HTTP/1.1\r\nHost: whatever\r\nConnection: close\r\n\r\n";
    assert!(exchange(UnixStream::connect(&path).unwrap(), request).body.starts_with("polyrpc/"));
    drop(admin);
    let _ = std::fs::remove_file(path);
}

#[test]
fn other_addresses_need_a_credential() {
    let console = Console::new();
    let error = Admin::on("0.0.0.0:0").start(&console).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("give it a token or client certificates"), "{error}");
    let admin = Admin::on("0.0.0.0:0").token(Role::Read, READ).start(&console).unwrap();
    let port = admin.address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let address: Address = format!("127.0.0.1:{port}").parse().unwrap();
    assert_eq!(get(&address, "/status").status, 401);
    assert_eq!(send(&address, "GET", "/status", &bearer(READ), "").status, 200);
    // Anonymous callers have no role, whatever was said, unless they are local.
    let taken = Admin::on(admin.address().to_string()).token(Role::Read, READ).start(&console).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn a_process_without_servers_has_pages() {
    let console = Console::new();
    console.observe_metrics(&Metrics::new());
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    assert_eq!(page(&admin, "/health").body, "OK");
    assert!(page(&admin, "/metrics").body.contains("process_resident_memory_bytes"));
    assert!(page(&admin, "/vars/pid").body.contains(&std::process::id().to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connection_is_closed_by_its_page() {
    let (console, server) = observe(services()).await;
    let admin = admin_with_tokens().writable().start(&console).unwrap();
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    let _: i64 = client.call("add", &(1, 2)).await.unwrap();
    let listed = || send(admin.address(), "GET", "/connections?format=json", &bearer(READ), "").json();
    // A call may be counted a little after its client has the reply.
    wait_until(|| listed()["data"]["connections"][0]["calls"] == 1).await;
    let connections = listed();
    let [connection] = &connections["data"]["connections"].as_array().unwrap()[..] else {
        panic!("{connections}")
    };
    assert_eq!((connection["protocol"].as_str(), connection["calls"].as_u64()), (Some("rpcx"), Some(1)));
    let target = format!("/sockets/{}", connection["id"]);
    let answer = send(admin.address(), "GET", &target, &bearer(READ), "");
    assert!(answer.body.contains("protocol: rpcx\n"), "{answer:?}");
    assert_eq!(status(&admin, "POST", &target, &bearer(WRITE), "action=close"), 303);
    wait_until(|| server.connection_count() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn browsers_are_kept_from_what_their_users_do_not_mean() {
    let (console, server) = observe(services()).await;
    let setting = Setting::define("plane_browser", 1_u64, "for a test").register();
    let admin = admin_with_tokens().anonymous(Role::Read).hosts(["admin.example"]).writable();
    let admin = admin.start(&console).unwrap();
    let port = admin.address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let own = format!("http://{}", admin.address());
    // Names that resolve to this listener without being its own.
    for (host, want) in [
        ("evil.example", 421),
        (&*format!("evil.example:{port}"), 421),
        ("127.0.0.1.evil.example", 421),
        (&*format!("localhost:{port}"), 200),
        ("admin.example", 200),
        (&*format!("[::1]:{port}"), 200),
    ] {
        assert_eq!(status(&admin, "GET", "/status", &format!("Host: {host}\r\n"), ""), want, "{host}");
    }
    for (fields, want) in [
        ("Origin: http://evil.example\r\n".to_owned(), 403),
        ("Origin: null\r\n".to_owned(), 403),
        (format!("Origin: {own}\r\n"), 200),
        (format!("Origin: https://{}\r\n", admin.address()), 403),
        ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: same-site\r\n".to_owned(), 403),
        ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n".to_owned(), 200),
        ("Sec-Fetch-Site: same-origin\r\n".to_owned(), 200),
    ] {
        assert_eq!(status(&admin, "GET", "/status", &fields, ""), want, "{fields}");
    }
    // By GET only with a bearer token, and without any sign of a browser.
    let change = "/flags/plane_browser?setvalue=2";
    // `ann`, and the token for writing.
    let basic = "Authorization: Basic YW5uOmEtdG9rZW4tZm9yLXdyaXRpbmc=\r\n";
    for fields in [
        basic.to_owned(),
        bearer(WRITE) + "Cookie: a=b\r\n",
        bearer(WRITE) + "Sec-Fetch-Site: none\r\n",
        bearer(WRITE) + &format!("Origin: {own}\r\n"),
    ] {
        assert_eq!(status(&admin, "GET", change, &fields, ""), 403, "{fields}");
    }
    assert_eq!(setting.get(), 1);
    assert_eq!(status(&admin, "GET", change, &bearer(WRITE), ""), 200);
    assert_eq!(setting.get(), 2);
    // Nobody but callers with the role undoes it, on either port, and a browser only by a form.
    let changes =
        send(admin.address(), "GET", "/flags?format=json", "", "").json()["data"]["changes"].clone();
    let change = changes.as_array().unwrap().iter().find(|change| change["name"] == "plane_browser").unwrap();
    let undo = format!("/flags?undo={}", change["id"]);
    assert_eq!((status(&admin, "GET", &undo, "", ""), status(&admin, "GET", &undo, basic, "")), (403, 403));
    assert_eq!((send(server.address(), "GET", &undo, "", "").status, setting.get()), (403, 2));
    // Nobody who may not change anything sees the token of forms, on either port.
    for address in [admin.address(), server.address()] {
        let page = send(address, "GET", "/flags", "User-Agent: Mozilla/5.0\r\n", "").body;
        assert!(page.contains("plane_browser") && !page.contains("name=token"), "{page}");
    }
    // A form of the page has the token of the process.
    let browser =
        format!("{basic}Origin: {own}\r\nSec-Fetch-Site: same-origin\r\nUser-Agent: Mozilla/5.0\r\n");
    let form = send(admin.address(), "GET", "/flags", &browser, "").body;
    let token = form.split("name=token value=\"").nth(1).unwrap().split('"').next().unwrap();
    let post = |body: &str| status(&admin, "POST", "/flags/plane_browser", &browser, body);
    assert_eq!((post("setvalue=3"), post("setvalue=3&token=x"), setting.get()), (403, 403, 2));
    assert_eq!((post(&format!("setvalue=3&token={token}")), setting.get()), (303, 3));
    let foreign = browser.replace(&own, "http://evil.example");
    let stolen =
        status(&admin, "POST", "/flags/plane_browser", &foreign, &format!("setvalue=4&token={token}"));
    assert_eq!((stolen, setting.get()), (403, 3));
    // The change has its author.
    let changes =
        send(admin.address(), "GET", "/flags?format=json", "", "").json()["data"]["changes"].clone();
    let author = changes.as_array().unwrap().iter().find(|change| change["name"] == "plane_browser").unwrap();
    assert!(author["author"].as_str().unwrap().starts_with("ann from 127.0.0.1:"), "{author}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn wrong_credentials_are_answered_late() {
    let console = Console::new();
    let admin = admin_with_tokens().start(&console).unwrap();
    let began = Instant::now();
    let answer = send(admin.address(), "GET", "/status", &bearer("wrong-wrong-wrong"), "");
    assert_eq!((answer.status, answer.field("www-authenticate").is_some()), (401, true));
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
}

#[test]
fn connection_ends_with_the_answer_to_a_missing_or_wrong_credential() {
    let admin = admin_with_tokens().start(&Console::new()).unwrap();
    let connect = || {
        let stream = std::net::TcpStream::connect(admin.address().to_string()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    for fields in [String::new(), bearer("wrong-wrong-wrong")] {
        let request = format!("GET /status HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        let answer = exchange(connect(), &request);
        assert_eq!((answer.status, answer.field("connection")), (401, Some("close")), "{answer:?}");
    }
    // HTTP/2: GET, http, the path, the authority.
    let block = b"\x82\x86\x44\x07/status\x41\x09localhost";
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x16\x01\x05\0\0\0\x01";
    let mut stream = connect();
    stream.write_all(&[&preface[..], block].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let (mut kinds, mut rest) = (Vec::new(), &answer[..]);
    while let Some((head, payload)) = rest.split_first_chunk::<9>() {
        kinds.push(head[3]);
        rest = &payload[usize::from(head[1]) << 8 | usize::from(head[2])..];
    }
    assert!(kinds.contains(&1) && kinds.contains(&7), "HEADERS and GOAWAY: {kinds:?}");
}

/// The listener grants an address 32 connections.
#[test]
fn connections_without_a_credential_make_room_for_those_with_one() {
    let admin = admin_with_tokens().start(&Console::new()).unwrap();
    let begin = |target: &str, fields: &str| {
        let mut stream = std::net::TcpStream::connect(admin.address().to_string()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        ask(&mut stream, target, fields);
        stream
    };
    let mut operator = begin("/status", &bearer(READ));
    let _others: Vec<_> = (0..100).map(|_| begin("/health", "")).collect();
    ask(&mut operator, "/status", &bearer(READ));
    let _another = begin("/status", &bearer(READ));
}

/// Sends a request on a connection that stays open, which must succeed.
fn ask(stream: &mut std::net::TcpStream, target: &str, fields: &str) {
    let request = format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn forms_are_bounded() {
    let admin = admin_with_tokens().start(&Console::new()).unwrap();
    let long = "x".repeat(70 << 10);
    let answer = send(admin.address(), "POST", "/flags/x", &bearer(WRITE), &long);
    assert_eq!(answer.status, 413);
}

/// Forms that do not come hold the listener's connections only if their senders have a credential, and then not for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn forms_that_never_end_are_answered() {
    let admin = admin_with_tokens().start(&Console::new()).unwrap();
    let begin = |fields: &str| {
        let mut stream = std::net::TcpStream::connect(admin.address().to_string()).unwrap();
        let head = format!(
            "POST /flags/x HTTP/1.1\r\nHost: {}\r\nContent-Length: 60000\r\n{fields}\r\nx",
            admin.address()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status).into_owned()
    };
    assert_eq!(begin(""), "HTTP/1.1 401");
    assert_eq!(begin(&bearer(WRITE)), "HTTP/1.1 408");
}

/// The observed server's only thread is blocked, its limits are reached: the pages are not of its concern.
#[test]
fn busy_server_does_not_hold_up_the_admin_listener() {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let stopped = std::sync::Arc::new(Mutex::new(stopped));
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let blocked = move || {
                let stopped = stopped.clone();
                async move {
                    let _ = stopped.lock().unwrap().recv();
                }
            };
            let limits = Limits { connections: 1, connections_per_peer: 1, ..Limits::default() };
            let server = Server::new().function("block", blocked).limits(limits).metrics(&Metrics::new());
            let running = server.bind("127.0.0.1:0").await.unwrap().start();
            let console = Console::new();
            console.observe(&running);
            let client = Client::new(&format!("baidu-std://{}", running.address())).unwrap();
            ready.send((console, running.address().clone())).unwrap();
            let _ = client.call::<()>("block", &()).await;
        });
    });
    let (console, address) = is_ready.recv().unwrap();
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let in_flight = || {
        page(&admin, "/status?format=json").json()["data"]["servers"][0]["services"][0]["methods"][0]["concurrency"]
            == 1
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !in_flight() {
        assert!(Instant::now() < end, "the call does not start");
    }
    for target in ["/status", "/connections", "/health", "/metrics", "/vars", "/threads"] {
        let began = Instant::now();
        page(&admin, target);
        // A page that waits for the blocked server is not answered before the end of the test.
        assert!(began.elapsed() < Duration::from_secs(20), "{target}: {:?}", began.elapsed());
    }
    assert_eq!(
        page(&admin, "/status?format=json").json()["data"]["servers"][0]["address"],
        address.to_string()
    );
    drop(stop);
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_for_pages_are_not_counted_as_calls() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let before = server.info().calls;
    for _ in 0..3 {
        page(&admin, "/status");
        assert_eq!(get(server.address(), "/status").status, 200);
    }
    let metrics = server.monitor().metrics().unwrap().methods();
    assert!(metrics.is_empty(), "{metrics:?}");
    assert_eq!(server.info().calls.failed, before.failed);
    // Nor does the admin listener appear among the server's connections.
    wait_until(|| server.connection_count() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn readiness_follows_the_servers_and_liveness_the_process() {
    let (console, server) = observe(services().lame_duck(Duration::from_millis(300))).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let ready = || get(admin.address(), "/readyz").status;
    assert_eq!((ready(), get(admin.address(), "/health/nobody").status), (200, 404));
    let stopping = tokio::spawn(server.shutdown(Duration::from_secs(1)));
    wait_until(|| ready() == 503).await;
    assert_eq!(page(&admin, "/livez").body, "OK");
    stopping.await.unwrap();
    // It is gone, and the process is not ready without it.
    assert_eq!(ready(), 503);
    assert_eq!(page(&admin, "/livez").body, "OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dropped_handle_stops_listening() {
    let admin = Admin::on("127.0.0.1:0").start(&Console::new()).unwrap();
    let address = admin.address().to_string();
    drop(admin);
    wait_until(|| std::net::TcpStream::connect(&address).is_err()).await;
}

/// A peer with as many incomplete requests as it likes leaves room for the probes of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_requests_of_a_peer_do_not_keep_the_probes_of_another_out() {
    let (console, _server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let address: std::net::SocketAddr = admin.address().to_string().parse().unwrap();
    let mut open = Vec::new();
    for _ in 0..100 {
        // Those beyond the peer's share are refused.
        if let Ok(mut stream) = std::net::TcpStream::connect(address) {
            let _ = stream.write_all(b"GET /st");
            open.push(stream);
        }
    }
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut probe = socket.connect(address).await.unwrap();
    let answer = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let request = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        probe.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("OK"), "{answer}");
    drop(open);
}
