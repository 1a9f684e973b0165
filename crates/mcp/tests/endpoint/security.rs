//! Web pages and credentials.

use polyrpc::Status;
use polyrpc::server::Listen;
use serde_json::json;

use crate::{USUAL, everything, listen, send, serve};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn web_pages_of_other_origins_are_refused() {
    let running = serve(everything().origins(["https://app.example"])).await;
    let address = running.server.address().to_string();
    let own = format!("http://{address}");
    let rebound = "http://evil.example:80";
    for (fields, status) in [
        (&[][..], 200),
        (&[("Origin", own.as_str())], 200),
        (&[("Origin", "https://app.example")], 200),
        (&[("Origin", "http://evil.example")], 403),
        (&[("Origin", "null")], 403),
        (&[("Sec-Fetch-Site", "cross-site")], 403),
        // A name that resolves to this machine: the page is of the same origin, for a browser. The listener itself refuses
        // such names on loopback.
        (&[("Origin", rebound), ("Host", "evil.example:80")], 421),
    ] {
        let all: Vec<_> = USUAL.iter().chain(fields).copied().collect();
        let answer = send(running.server.address(), "POST", "/mcp", &all, PING);
        assert_eq!(answer.status, status, "{fields:?} {answer:?}");
        let allowed = fields.iter().any(|(_, value)| *value == "https://app.example");
        assert_eq!(answer.field("access-control-allow-origin").is_some(), allowed, "{fields:?}");
    }
    let preflight =
        send(running.server.address(), "OPTIONS", "/mcp", &[("Origin", "https://app.example")], "");
    assert_eq!(preflight.field("access-control-allow-methods"), Some("POST"), "{preflight:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_without_json_is_refused() {
    let running = serve(everything()).await;
    for (fields, status) in [
        (&[("Content-Type", "text/plain")][..], 415),
        (&[], 415),
        (&[("Content-Type", "application/json"), ("Accept", "text/html")], 406),
        (&[("Content-Type", "application/json")], 200),
    ] {
        let answer = send(running.server.address(), "POST", "/mcp", fields, PING);
        assert_eq!(answer.status, status, "{fields:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_of_the_request_is_that_of_the_call() {
    let guarded = Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(b"Bearer right") => Ok(()),
        _ => Err(Status::unauthenticated("who are you?")),
    });
    let running = listen(everything(), guarded).await;
    let params = json!({ "name": "add", "arguments": { "arg1": 1, "arg2": 2 } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    for credential in [None, Some("Bearer wrong")] {
        let fields: Vec<_> = credential.map(|credential| ("Authorization", credential)).into_iter().collect();
        assert_eq!(running.post(&fields, &message).status, 401, "{credential:?}");
    }
    let result = running.post(&[("Authorization", "Bearer right")], &message).result();
    assert_eq!(result["content"][0]["text"], "3", "{result}");
}
