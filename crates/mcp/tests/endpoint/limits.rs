//! Bounds of memory, time and number.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use polyrpc::Address;
use serde_json::json;

use crate::{Running, USUAL, everything, send, serve};

#[tokio::test(flavor = "multi_thread")]
async fn long_request_and_long_result_are_refused() {
    let running = serve(everything().max_request(1_000).max_result(1_000)).await;
    let long = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "x": "x".repeat(1_000) } });
    assert_eq!(running.post(&[], &long).status, 413);
    let result = running.call("long", json!({ "arg1": 2_000 })).result();
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("longer than 1000 bytes"), "{result}");
    assert_eq!(running.call("long", json!({ "arg1": 500 })).result()["isError"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_takes_too_long_fails() {
    let running = serve(everything().timeout(Duration::from_millis(200))).await;
    let began = Instant::now();
    let result = running.call("wait", json!({ "arg1": "" })).result();
    assert_eq!(result["isError"], true, "{result}");
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_allowed_are_refused_until_others_end() {
    let running = serve(everything().max_requests(1)).await;
    let address = running.server.address().clone();
    // A call that does not end takes the only permit.
    let wait =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{"arg1":"x"}}}"#;
    let slow = begin(&address, wait, wait.len());
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let until = |status: u16| {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = send(&address, "POST", "/mcp", &USUAL, ping);
            if answer.status == status {
                return answer;
            }
            assert!(Instant::now() < end, "{answer:?}");
        }
    };
    assert_eq!(until(503).field("retry-after"), Some("1"));
    drop(slow);
    until(200);
}

/// Sends a request that announces a body of this length.
fn begin(address: &Address, body: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address.to_string()).unwrap();
    let fields = USUAL.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    let head = format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{fields}\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_their_bodies_take_no_permit_and_end() {
    let running = serve(everything().max_requests(1)).await;
    let address = running.server.address().clone();
    let mut slow: Vec<_> = (0..3).map(|_| begin(&address, "{", 9)).collect();
    wait_until_received(&running).await;
    assert_eq!(running.request("ping", json!({})).status, 200);
    for stream in &mut slow {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
    }
}

/// Waits until the server has read what was sent before.
async fn wait_until_received(running: &Running) {
    let end = Instant::now() + Duration::from_secs(60);
    while running.server.info().connections.iter().filter(|connection| connection.received > 0).count() < 3 {
        assert!(Instant::now() < end, "the server does not read");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_answers_503_before_it_is_started() {
    let mcp = polyrpc_mcp::Mcp::builder(["add"]).build().unwrap();
    let server = polyrpc::Server::new().function("add", |a: i64, b: i64| async move { a + b });
    let server = mcp.serve(server).bind("127.0.0.1:0").await.unwrap().start();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(send(server.address(), "POST", "/mcp", &USUAL, ping).status, 503);
    mcp.start(&server).unwrap();
    assert_eq!(send(server.address(), "POST", "/mcp", &USUAL, ping).status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_pattern_or_path_is_an_error() {
    let error = |builder: polyrpc_mcp::Builder| builder.build().unwrap_err().to_string();
    assert_eq!(error(polyrpc_mcp::Mcp::builder(["a b"])), "`a b` is not a pattern of methods");
    assert_eq!(error(everything().path("a/b")), "`a/b` is not one segment of a path");
    let mcp = polyrpc_mcp::Mcp::builder(["sub"]).build().unwrap();
    let server = polyrpc::Server::new().function("add", |a: i64, b: i64| async move { a + b });
    let server = mcp.serve(server).bind("127.0.0.1:0").await.unwrap().start();
    assert_eq!(mcp.start(&server).unwrap_err().to_string(), "no method matches `sub`");
}
