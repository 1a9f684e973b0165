//! JSON-RPC 2.0 over HTTP.

use polyrpc_core::{Credential, Format};
use serde_json::{Value, json};

use super::*;

fn request(body: &str) -> String {
    post("/jsonrpc", "application/json", body)
}

fn answer_json(body: &str) -> Value {
    let response = answer(request(body), echo);
    assert_eq!((response.status, response.field("content-type")), (200, Some("application/json")));
    serde_json::from_slice(&response.body).expect("JSON")
}

const CALL: &str = r#"{"jsonrpc":"2.0","method":"A.B.C","params":{"x":1},"id":1}"#;

#[test]
fn json_rpc_is_detected_by_header_content_type_or_path() {
    let field = format!(
        "POST /any HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\nContent-Length: {}\r\n\r\n{CALL}",
        CALL.len()
    );
    for request in [
        field,
        post("/any", "application/json-rpc", CALL),
        post("/any", "application/jsonrequest; charset=utf-8", CALL),
        post("/", "application/json; charset=utf-8", CALL),
        post("/jsonrpc", "application/json", CALL),
    ] {
        let (call, _) = TestConnection::new().send(request).call().expect("a call");
        assert_eq!((call.service, call.method, &call.body[..]), ("A.B", "C", &br#"{"x":1}"#[..]));
        assert!(!call.head.positional && !call.oneway);
    }
    for request in [
        post("/any", "application/json", CALL),
        post("/jsonrpc", "application/json", r#"{"method":"A.B"}"#),
        post("/jsonrpc", "application/proto", CALL),
    ] {
        let (call, _) = TestConnection::new().send(request).call().expect("a call");
        assert_ne!((call.service, call.method), ("A.B", "C"), "brpc's mapping");
    }
    assert_eq!(refuse(post("/jsonrpc", "text/plain", CALL)).0.status, 415);
}

#[test]
fn params_and_ids_are_passed_on_unchanged() {
    for (params, positional) in
        [(r#"[1, 2.50, "]"]"#, true), (r#"{"a" : [ ]}"#, false), ("7", false), ("null", false)]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"f","params":{params},"id":"a\u0031"}}"#);
        let mut connection = TestConnection::new();
        let (call, ticket) = connection.send(request(&body)).call().expect("a call");
        let want = if params == "null" { "" } else { params };
        assert_eq!((call.service, call.method, &call.body[..]), ("", "f", want.as_bytes()));
        assert_eq!(call.head.positional, positional);
        connection.reply(ticket, Reply::message(call.head.format, Bytes::from_static(b"1.50")));
        assert!(connection.output().ends_with(r#"{"jsonrpc":"2.0","result":1.50,"id":"a\u0031"}"#));
    }
    assert_eq!(
        answer_json(r#"{"jsonrpc":"2.0","method":"f","id":null}"#),
        json!({"jsonrpc":"2.0","result":null,"id":null})
    );
}

#[test]
fn invalid_request_is_rejected_with_its_code() {
    for (body, code, id) in [
        (r#"{"jsonrpc":"2.0""#, -32700, json!(null)),
        (r#"{"jsonrpc":"2.0"} x"#, -32700, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32601, json!(1)),
        (r#"{"jsonrpc":"2.0","method":1,"id":"x"}"#, -32700, json!("x")),
        (r#"{"jsonrpc":"2.0","method":"f","id":[]}"#, -32700, json!(null)),
        (r#"{"jsonrpc":"2.0","method":"f","id":true}"#, -32700, json!(null)),
    ] {
        let got = answer_json(body);
        assert_eq!((&got["error"]["code"], &got["id"]), (&json!(code), &id), "{body}");
        assert!(got.get("result").is_none());
    }
    assert_eq!(answer_json(r#"["jsonrpc"]"#)[0]["error"]["code"], -32600);
    let empty = post("/", "application/json-rpc", " [ ] ");
    let got: Value = serde_json::from_slice(&refuse(empty).0.body).expect("JSON");
    assert_eq!((&got["error"]["code"], &got["id"]), (&json!(-32600), &json!(null)));
}

#[test]
fn batch_is_answered_in_one_array_after_its_last_reply() {
    let body = r#"[ {"jsonrpc":"2.0","method":"a","id":1}, {"jsonrpc":"2.0","method":"n"}, 5,
        {"jsonrpc":"2.0","method":"b","params":[1],"id":"2"} ]"#;
    let mut connection = TestConnection::new();
    let calls = connection.send(request(body)).calls();
    let told: Vec<_> = calls.iter().map(|(call, _)| (call.method, call.oneway)).collect();
    assert_eq!(told, [("a", false), ("n", true), ("b", false)]);
    for (call, ticket) in calls.into_iter().rev() {
        assert!(connection.out.is_empty());
        connection.reply(ticket, Reply::message(call.head.format, format!("\"{}\"", call.method).into()));
    }
    let response = Response::parse(&connection.out.take());
    let got: Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!((got.as_array().map(Vec::len), &got[0]["error"]["code"]), (Some(3), &json!(-32600)));
    assert_eq!((&got[1]["result"], &got[1]["id"]), (&json!("b"), &json!("2")));
    assert_eq!((&got[2]["result"], &got[2]["id"]), (&json!("a"), &json!(1)));
}

#[test]
fn notifications_are_answered_at_once_with_an_empty_body() {
    for body in [
        r#"{"jsonrpc":"2.0","method":"n"}"#,
        r#"[{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","method":"n"}]"#,
    ] {
        let mut connection = TestConnection::new();
        let calls = connection.send(request(body)).calls();
        assert!(calls.iter().all(|(call, _)| call.oneway));
        assert_eq!(connection.output(), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        for (call, ticket) in calls {
            connection.reply(ticket, echo(&call));
        }
        assert!(connection.out.is_empty(), "a notification gets no reply");
    }
}

#[test]
fn batch_is_limited_and_dispatched_as_fast_as_it_is_answered() {
    let batch = |n: usize| format!("[{}]", vec![r#"{"jsonrpc":"2.0","method":"f","id":1}"#; n].join(","));
    let mut connection = TestConnection::new();
    let mut calls = connection.send(request(&batch(200))).calls();
    assert_eq!(calls.len(), 64);
    let mut answered = 0;
    while let Some((call, ticket)) = calls.pop() {
        connection.reply(ticket, echo(&call));
        answered += 1;
        calls.extend(connection.calls());
    }
    assert_eq!(answered, 200);
    let got: Value = serde_json::from_slice(&Response::parse(&connection.out.take()).body).expect("JSON");
    assert_eq!(got.as_array().map(Vec::len), Some(200));

    let got: Value = serde_json::from_slice(&refuse(request(&batch(1025))).0.body).expect("JSON");
    assert_eq!(got["error"]["code"], -32600);
}

#[test]
fn failures_have_codes_and_the_application_number_in_data() {
    for (body, status, code, data) in [
        (CALL, Status::unimplemented("x"), -32603, json!(null)),
        (r#"{"jsonrpc":"2.0","method":"f","id":1}"#, Status::unimplemented("x"), -32601, json!(null)),
        (CALL, Status::invalid_argument("x"), -32603, json!(null)),
        (r#"{"jsonrpc":"2.0","method":"A.f","id":1}"#, Status::invalid_argument("x"), -32602, json!(null)),
        (
            r#"{"jsonrpc":"2.0","method":"A.f","params":null,"id":1}"#,
            Status::invalid_argument("x"),
            -32602,
            json!(null),
        ),
        (CALL, Status::internal("x").with_number(54321), -32603, json!(54321)),
    ] {
        let response = answer(request(body), failing(status));
        let got: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(got["error"], json!({"code": code, "message": "x", "data": data}));
    }
    let response =
        answer(request(CALL), |_| Reply::message(Format::Protobuf, Bytes::from_static(b"\x08\x01")));
    let got: Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(got["error"]["code"], -32603);
}

#[test]
fn failure_texts_are_escaped() {
    let response = answer(request(CALL), failing(Status::unknown("\"a\"\n\u{1}空")));
    let got: Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(got["error"]["message"], "\"a\"\n\u{1}空");
}

#[test]
fn metadata_round_trips_in_the_rpcx_header() {
    let text = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\nX-RPCX-Meta: k=v&__ServerTimeout=5\r\nAuthorization: t\r\nContent-Length: {}\r\n\r\n{CALL}",
        CALL.len()
    );
    let mut connection = TestConnection::new();
    let (call, ticket) = connection.send(text).call().expect("a call");
    assert_eq!(
        (call.head.metadata.get("k"), call.timeout.map(|left| left.as_millis())),
        (Some("v"), Some(5))
    );
    assert_eq!(call.credential, Credential::Call(Some(Bytes::from_static(b"t"))));
    let mut reply = echo(&call);
    reply.head.metadata.insert("back", "1 2");
    connection.reply(ticket, reply);
    assert_eq!(Response::parse(&connection.out.take()).field("x-rpcx-meta"), Some("back=1+2"));
}

#[test]
fn compressed_message_is_rejected() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxy";
    assert_eq!(refuse(text).0.status, 415);
}
