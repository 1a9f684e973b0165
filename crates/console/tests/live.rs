//! Pages that stay up to date by server-sent events.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{get, observe, send, services, wait_until};
use polyrpc::Client;
use polyrpc_console::{Admin, AdminHandle, Role};

/// Follows a page; returns its events.
struct Follower(BufReader<TcpStream>);

impl Follower {
    fn ask(admin: &AdminHandle, target: &str) -> Self {
        let mut stream = TcpStream::connect(admin.address().to_string()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request =
            format!("GET /console/live?path={target} HTTP/1.1\r\nHost: {}\r\n\r\n", admin.address());
        stream.write_all(request.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// Follows a page that can be followed.
    fn start(admin: &AdminHandle, target: &str) -> Self {
        let mut follower = Self::ask(admin, target);
        assert!(follower.line().starts_with("HTTP/1.1 200 "));
        follower
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the events have ended");
        line
    }

    /// Returns the next part of the page.
    fn part(&mut self) -> String {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                return serde_json::from_str(data.trim_end()).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn page_is_sent_again_when_it_has_changed() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let mut follower = Follower::start(&admin, "%2Fstatus");
    let part = follower.part();
    assert!(
        part.contains("add (int64, int64) returns (int64)")
            && !part.contains("<html")
            && !part.contains("<script"),
        "{part}"
    );
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    for _ in 0..41 {
        let _: i64 = client.call("add", &(1, 2)).await.unwrap();
    }
    while !follower.part().contains(">41<") {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_pages_that_are_read_are_followed() {
    let (console, server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    for target in [
        "",
        "/flags",
        "/flags/x?setvalue=1",
        "/rpcz/disable",
        "/console/live",
        "/etc/passwd",
        "//evil.example/status",
    ] {
        let target = target.replace('/', "%2F").replace('?', "%3F").replace('=', "%3D");
        let answer = get(admin.address(), &format!("/console/live?path={target}"));
        assert_eq!(answer.status, 404, "{target}: {answer:?}");
    }
    // Not on the port of the services, and not for strangers.
    assert_eq!(get(server.address(), "/console/live?path=/status").status, 404);
    let guarded = Admin::on("127.0.0.1:0").token(Role::Read, "a-token-for-reading").start(&console).unwrap();
    assert_eq!(get(guarded.address(), "/console/live?path=/status").status, 401);
    let foreign = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n";
    assert_eq!(send(admin.address(), "GET", "/console/live?path=/status", foreign, "").status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn few_pages_are_followed_at_a_time() {
    let (console, _server) = observe(services()).await;
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let followers: Vec<_> = (0..8).map(|_| Follower::start(&admin, "/status")).collect();
    let one_more = || get(admin.address(), "/console/live?path=%2Fflags").status;
    assert_eq!(one_more(), 404);
    let refused = get(admin.address(), "/console/live?path=%2Fstatus");
    assert_eq!(refused.status, 503, "{refused:?}");
    drop(followers);
    // The ends of the connections are noticed, and make room.
    wait_until(|| Follower::ask(&admin, "/status").line().starts_with("HTTP/1.1 200 ")).await;
}
