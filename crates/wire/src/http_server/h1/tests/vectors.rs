//! Requests and responses captured from brpc and rpcx.

use polyrpc_core::session::NotFound;
use polyrpc_core::testing::{assert_any_split, assert_bytes, assert_survives_damage, hex};
use polyrpc_core::{Format, Json};
use serde_json::Value;

use super::*;
use crate::http::mapping::answer::not_found_in_rpcx;

fn file(path: &str) -> Vec<u8> {
    let path = format!("{}/vectors/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the frames of a captured conversation, whose file is a list or has one under `vectors`.
fn frames(path: &str) -> Vec<Bytes> {
    let file: Value = serde_json::from_slice(&file(path)).expect("JSON");
    let list = file.as_array().or_else(|| file["vectors"].as_array()).expect("a list").clone();
    list.iter().map(|frame| hex(frame["hex"].as_str().expect("hexadecimal digits"))).collect()
}

/// The echo service of the captured brpc server, implemented on the bytes of its messages.
fn echo_service(call: &Call<'_>, ticket: &Ticket) -> Reply {
    let json = Format::Json(Json::Brpc);
    match (call.service, call.method, call.head.format, &call.body[..]) {
        ("EchoService" | "example.EchoService", "Echo", format, body) => match body {
            br#"{"message":"fail-code"}"# => {
                Reply::failure(Status::internal("custom error").with_number(54321))
            }
            b"" => Reply::failure(Status::invalid_argument(
                "example.EchoRequest needs to be created from a non-empty json, it has required fields.",
            )),
            b"{}" => Reply::failure(Status::invalid_argument(
                "Fail to parse http json body as example.EchoRequest: Missing required field: \
                 example.EchoRequest.message",
            )),
            br#"message: "pt""# => Reply::message(format, Bytes::from_static(b"message: \"pt\"\n")),
            _ => Reply::message(format, call.body.clone()),
        },
        ("EchoService", ..) => Reply::failure(ticket.not_found_failure(call, NotFound::Method)),
        _ => Reply {
            head: polyrpc_core::Head { format: json, ..Default::default() },
            ..Reply::failure(ticket.not_found_failure(call, NotFound::Service))
        },
    }
}

#[test]
fn responses_equal_those_of_brpc() {
    let service = "/example.EchoService/Echo";
    for (name, request) in [
        ("post_json", post("/EchoService/Echo", "application/json", r#"{"message":"hi json"}"#)),
        ("post_json_failed", post(service, "application/json", r#"{"message":"fail-code"}"#)),
        ("post_json_missing_required", post(service, "application/json", "{}")),
        ("post_proto_text", post(service, "application/proto-text", r#"message: "pt""#)),
        ("post_default_ct", post(service, "application/x-www-form-urlencoded", r#"{"message":"hi"}"#)),
        ("get_health", get("/health")),
        ("get_version", get("/version")),
        ("get_EchoService_Nope", get("/EchoService/Nope")),
        ("get_nosuch", get("/nosuch")),
        ("get_pb_required", get("/EchoService/Echo")),
    ] {
        let got = TestConnection::lenient().send(&request).serve_with_ticket(echo_service);
        assert_bytes(got, file(&format!("http/{name}.txt")));
        assert_any_split(lenient, request.as_bytes());
        assert_any_split(server, request.as_bytes());
    }
}

#[test]
fn responses_to_the_brpc_client_equal_those_of_brpc() {
    for name in ["http_json", "http_proto"] {
        let frames = frames(&format!("http/{name}.json"));
        let mut connection = TestConnection::new();
        let (call, ticket) = connection.send(&frames[0]).call().expect("a call");
        assert_eq!((call.service, call.method), ("example.EchoService", "Echo"));
        assert_eq!(call.head.metadata.get("log-id"), Some("9"));
        let reply = echo_service(&call, &ticket);
        connection.reply(ticket, reply);
        assert_bytes(connection.out.take(), &frames[1]);
        assert_any_split(server, &frames[0]);
        assert_survives_damage(server, &frames[0], config().limits.message);
    }
}

#[test]
fn path_without_a_method_has_no_method() {
    let response =
        Response::parse(&TestConnection::new().send(bare("/EchoService")).serve_with_ticket(echo_service));
    assert_eq!((response.status, response.field("x-bd-error-code")), (404, Some("1002")));
    assert_eq!(
        response.text(),
        r#"{"code":12,"message":"Missing method name for service=EchoService","details":[]}"#
    );
}

#[test]
fn rejected_credential_is_answered_as_by_brpc_and_closes_the_connection() {
    let config = ServerConfig {
        trust_connection: true,
        lenient: true,
        json: Some(Json::BrpcLenient),
        ..(*config()).clone()
    };
    let mut connection = TestConnection { server: Server::new(Arc::new(config)), ..TestConnection::new() };
    let (_, ticket) = connection.send(get("/EchoService/Echo")).call().expect("a call");
    assert!(connection.server.reject(ticket, Status::unauthenticated(""), &mut connection.out));
    assert!(connection.server.is_finished());
    let want = String::from_utf8(file("http/auth_missing.txt")).expect("text");
    assert_eq!(connection.output().replace("Connection: close\r\n", ""), want);
}

#[test]
fn http_and_baidu_std_can_alternate_on_one_connection() {
    let cases: Value = serde_json::from_slice(&file("baidu_std/malformed.json")).expect("JSON");
    let cases = cases["cases"].as_array().expect("a list");
    let case = cases.iter().find(|case| case["name"] == "http_then_prpc").expect("the case");
    let sent = hex(case["vectors"][0]["hex"].as_str().expect("digits"));
    let received = hex(case["vectors"][1]["hex"].as_str().expect("digits"));
    let (mut server, mut inbox, mut out) = (switching(), BytesMut::from(&sent[..]), Outbox::new());
    let event = server.next_event(&mut inbox, &mut out).expect("no violation");
    assert!(matches!(event, Some(ServerEvent::Foreign)));
    assert!(inbox.starts_with(b"PRPC"), "the foreign bytes are untouched");
    let answered = out.take();
    assert_bytes(&answered, &received[..answered.len()]);
    assert_any_split(switching, &sent);
    assert_any_split(super::server, &sent);
}

/// The service of the captured rpcx server.
fn arith(call: &Call<'_>) -> Reply {
    let mut reply = Reply::message(call.head.format, Bytes::from_static(br#"{"C":56}"#));
    match (call.service, call.method) {
        ("Arith", "Mul") => reply,
        ("Arith", "Meta") => {
            let value = call.head.metadata.bytes("k1").expect("k1").clone();
            reply.head.metadata.insert("echo", value);
            reply
        }
        ("Arith", "Error") => Reply::failure(Status::unknown("boom")),
        ("Arith", _) => Reply::failure(not_found_in_rpcx(call, NotFound::Method)),
        _ => Reply::failure(not_found_in_rpcx(call, NotFound::Service)),
    }
}

#[test]
fn gateway_responses_equal_those_of_rpcx() {
    for name in ["gateway_ok", "gateway_path", "gateway_error", "gateway_auth_ok", "gateway_auth_bad"] {
        let frames = frames(&format!("rpcx/{name}.json"));
        let mut connection = TestConnection::new();
        let (call, ticket) = connection.send(&frames[0]).call().expect("a call");
        match name {
            "gateway_auth_bad" => {
                assert!(!connection.server.reject(
                    ticket,
                    Status::unauthenticated("invalid token"),
                    &mut connection.out
                ));
            }
            _ => _ = connection.reply(ticket, arith(&call)),
        }
        let (got, want) = (Response::parse(&connection.out.take()), Response::parse(&frames[1]));
        assert_eq!((got.status, got.text()), (want.status, want.text()), "{name}");
        for (field, value) in want.fields.iter().filter(|(field, _)| field.starts_with("x-rpcx-")) {
            assert_eq!(got.field(field), Some(value.as_str()), "{name}: {field}");
        }
        assert_eq!(
            (got.field("connection"), connection.server.is_finished()),
            (Some("close"), true),
            "{name}"
        );
        assert_any_split(server, &frames[0]);
        assert_survives_damage(server, &frames[0], config().limits.message);
    }
}

#[test]
fn json_rpc_responses_equal_those_of_rpcx() {
    for name in ["ok", "error", "nomethod", "badmethod", "notify", "parse"] {
        let frames = frames(&format!("rpcx/jsonrpc2_{name}.json"));
        let got = answer(&frames[0], arith);
        let want = Response::parse(&frames[1]);
        assert_eq!((got.status, got.body.is_empty()), (want.status, want.body.is_empty()), "{name}");
        assert_any_split(server, &frames[0]);
        assert_survives_damage(server, &frames[0], config().limits.message);
        if want.body.is_empty() {
            continue;
        }
        let got: Value = serde_json::from_slice(&got.body).expect("JSON");
        let want: Value = serde_json::from_slice(&want.body).expect("JSON");
        assert_eq!(got["jsonrpc"], "2.0");
        assert_eq!(got["id"], want["id"], "{name}");
        assert_eq!(got.get("result"), want.get("result"), "{name}");
        assert_eq!(got["error"]["code"], want["error"]["code"], "{name}");
        if !["badmethod", "parse"].contains(&name) {
            assert_eq!(got["error"]["message"], want["error"]["message"], "{name}");
        }
    }
}

#[test]
fn connect_switches_the_connection_to_rpcx() {
    let frames = frames("rpcx/http.json");
    let sent = [&frames[0][..], &frames[1]].concat();
    let (mut server, mut inbox, mut out) = (server(), BytesMut::from(&sent[..]), Outbox::new());
    let event = server.next_event(&mut inbox, &mut out).expect("no violation");
    assert!(matches!(event, Some(ServerEvent::Connect)));
    assert_bytes(inbox, &frames[1]);
    assert_bytes(out.take(), &frames[2]);
}

#[test]
fn only_connect_is_allowed_on_the_rpcx_path() {
    let frames = frames("rpcx/http_connect_wrong_method.json");
    let got = answer(&frames[0], arith);
    let want = Response::parse(&frames[1]);
    assert_eq!((got.status, got.text()), (want.status, want.text()));
}
