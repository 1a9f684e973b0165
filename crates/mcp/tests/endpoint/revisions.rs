//! What differs between revisions of the protocol.

use serde_json::{Value, json};

use crate::{Running, everything, send, serve};

fn initialize(version: &str) -> Value {
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params })
}

#[tokio::test(flavor = "multi_thread")]
async fn client_and_server_agree_on_a_revision() {
    let running = serve(everything().name("calculator", "7").instructions("Adds.")).await;
    for (wanted, agreed) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("odd", "2025-11-25"),
    ] {
        let answer = running.post(&[], &initialize(wanted));
        let result = answer.result();
        assert_eq!(result["protocolVersion"], agreed, "{wanted}");
        assert_eq!(result["serverInfo"], json!({ "name": "calculator", "version": "7" }));
        assert_eq!((&result["instructions"], answer.json()["id"].as_str()), (&json!("Adds."), Some("first")));
        assert!(result["capabilities"]["tools"].is_object());
        assert_eq!(answer.field("mcp-session-id"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_conversation_of_each_revision_with_a_handshake_works() {
    let running = serve(everything()).await;
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        running.post(&[], &initialize(version)).result();
        let field = [("MCP-Protocol-Version", version)];
        // The oldest had no field.
        let fields = if version == "2025-03-26" { &[][..] } else { &field };
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let answer = running.post(fields, &initialized);
        assert_eq!((answer.status, answer.body.as_str()), (202, ""), "{version}");
        let request = |method: &str, params: Value| {
            running.post(fields, &json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": params }))
        };
        assert_eq!(request("ping", json!({})).result(), json!({}));
        let tool = request("tools/list", json!({})).result()["tools"][1].clone();
        assert_eq!(tool["name"], "add");
        assert_eq!(tool["outputSchema"].is_object(), version != "2025-03-26", "{version}");
        let called =
            request("tools/call", json!({ "name": "add", "arguments": { "arg1": 1, "arg2": 2 } })).result();
        assert_eq!(called["content"][0]["text"], "3");
        assert_eq!(called["structuredContent"].is_object(), version != "2025-03-26", "{version}");
        let unknown = request("resources/list", json!({}));
        assert_eq!((unknown.status, unknown.code()), (200, -32601));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_answered_by_the_oldest_revision_only() {
    let running = serve(everything()).await;
    let call = |id: u32| {
        let params = json!({ "name": "add", "arguments": { "arg1": id, "arg2": 1 } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/progress" });
    let batch = json!([call(1), note, call(2), { "jsonrpc": "2.0", "id": 3, "method": "odd" }, 7]);
    for fields in [&[][..], &[("MCP-Protocol-Version", "2025-03-26")]] {
        let answer = running.post(fields, &batch).json();
        let answers = answer.as_array().unwrap();
        assert_eq!(answers.len(), 4, "{answer}");
        assert_eq!(answers[0]["result"]["content"][0]["text"], "2");
        assert_eq!(answers[1]["result"]["content"][0]["text"], "3");
        assert_eq!(answers[2]["error"]["code"], -32601);
        assert_eq!((&answers[3]["error"]["code"], &answers[3]["id"]), (&json!(-32600), &Value::Null));
    }
    let answer = running.post(&[], &json!([note, note]));
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    for (fields, batch) in [
        (&[("MCP-Protocol-Version", "2025-06-18")][..], batch),
        (&[], json!([])),
        (&[], json!(vec![note; 33])),
    ] {
        let answer = running.post(fields, &batch);
        assert_eq!((answer.status, answer.code()), (400, -32600), "{answer:?}");
    }
    let part = running.post(&[], &json!([initialize("2025-03-26")])).json();
    assert_eq!(part[0]["error"]["code"], -32600, "{part}");
}

/// A request of the newest revision, with the fields that repeat its parts.
fn send_modern(running: &Running, method: &str, params: Value, fields: &[(&str, &str)]) -> crate::Answer {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    running.post(fields, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

const VERSION: (&str, &str) = ("MCP-Protocol-Version", "2026-07-28");

#[tokio::test(flavor = "multi_thread")]
async fn request_of_the_newest_revision_stands_alone() {
    let running = serve(everything()).await;
    let discovered =
        send_modern(&running, "server/discover", json!({}), &[VERSION, ("Mcp-Method", "server/discover")])
            .result();
    assert_eq!(
        discovered["supportedVersions"],
        json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"])
    );
    assert_eq!(discovered["resultType"], "complete");
    assert_eq!(discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "polyrpc");
    let fields = [VERSION, ("Mcp-Method", "tools/list")];
    let list = send_modern(&running, "tools/list", json!({}), &fields).result();
    assert!(
        list["ttlMs"].is_u64() && list["cacheScope"] == "private" && list["resultType"] == "complete",
        "{list}"
    );
    let params = json!({ "name": "add", "arguments": { "arg1": 1, "arg2": 2 } });
    for name in ["add", "=?base64?YWRk?="] {
        let fields = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", name)];
        let called = send_modern(&running, "tools/call", params.clone(), &fields).result();
        assert_eq!(
            (&called["structuredContent"]["result"], &called["resultType"]),
            (&json!(3), &json!("complete"))
        );
    }
    let fields = [VERSION, ("Mcp-Method", "resources/list")];
    let unknown = send_modern(&running, "resources/list", json!({}), &fields);
    assert_eq!((unknown.status, unknown.code()), (404, -32601));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_the_newest_revision_must_fit_the_message() {
    let running = serve(everything()).await;
    let params = json!({ "name": "add", "arguments": { "arg1": 1, "arg2": 2 } });
    for fields in [
        &[][..],
        &[VERSION],
        &[VERSION, ("Mcp-Method", "tools/call")],
        &[VERSION, ("Mcp-Method", "tools/list"), ("Mcp-Name", "add")],
        &[VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", "fail")],
        &[("MCP-Protocol-Version", "2025-06-18"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "add")],
    ] {
        let answer = send_modern(&running, "tools/call", params.clone(), fields);
        assert_eq!((answer.status, answer.code()), (400, -32020), "{fields:?} {answer:?}");
    }
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(running.post(&[VERSION], &message).code(), -32020, "without the version in the message");
    let answer = running.post(&[("MCP-Protocol-Version", "1900-01-01")], &message);
    assert_eq!((answer.status, answer.code()), (400, -32022));
    assert_eq!(answer.json()["error"]["data"]["requested"], "1900-01-01");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_and_delete_are_rejected_since_there_are_no_sessions() {
    let running = serve(everything()).await;
    for method in ["GET", "DELETE", "PUT"] {
        let answer = send(running.server.address(), method, "/mcp", &[("Accept", "text/event-stream")], "");
        assert_eq!((answer.status, answer.field("allow")), (405, Some("POST, OPTIONS")), "{method}");
    }
    assert_eq!(send(running.server.address(), "GET", "/mcp/more", &[], "").status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_message_is_an_error_of_json_rpc() {
    let running = serve(everything()).await;
    for (body, code) in [("{", -32700), ("", -32700), ("7", -32600), ("{\"id\":1}", -32600), ("[1", -32700)] {
        let answer = send(running.server.address(), "POST", "/mcp", &crate::USUAL, body);
        assert_eq!((answer.status, answer.code()), (400, code), "{body}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(send(running.server.address(), "POST", "/mcp", &crate::USUAL, &deep).status, 400);
}
