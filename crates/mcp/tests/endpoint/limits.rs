//! Bounds of memory, time and number.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::{USUAL, everything, send, serve};

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
    // A request whose body does not come takes the only place.
    let mut slow = TcpStream::connect(address.to_string()).unwrap();
    let fields = USUAL.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    slow.write_all(
        format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Length: 9\r\n{fields}\r\n").as_bytes(),
    )
    .unwrap();
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
