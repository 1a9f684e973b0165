//! Verbs and paths of `google.api.http`.

use polyrpc_core::{Compression, Credential, Format, Json};
use polyrpc_payload::compress;
use polyrpc_payload::schema::testing::pool;

use super::*;
use crate::http::rule::Routes;

const BOOKS: &str = r#"
    syntax = "proto3";
    import "google/protobuf/descriptor.proto";
    message HttpRule { string get = 2; string post = 4; string body = 7; }
    extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
    message Book { string name = 1; bool deep = 2; }
    service Books {
      rpc Get(Book) returns (Book) { option (http) = { get: "/v1/books/{name}" }; }
      rpc List(Book) returns (Book) { option idempotency_level = NO_SIDE_EFFECTS; }
      rpc Create(Book) returns (Book) { option (http) = { post: "/v1/books" body: "*" }; }
    }
"#;

/// Returns the routes of `BOOKS`.
pub(super) fn routes() -> Routes {
    let pool = pool(BOOKS);
    let mut routes = Routes::default();
    for method in pool.service("Books").unwrap().methods() {
        routes.add("Books", method).unwrap();
    }
    routes
}

fn connection() -> TestConnection {
    let config = ServerConfig { routes: routes(), ..(*config()).clone() };
    TestConnection { server: Server::new(Arc::new(config)), ..TestConnection::new() }
}

#[test]
fn path_of_an_http_rule_calls_its_method() {
    let mut connection = connection();
    let (call, _) = connection
        .send("GET /v1/books/a%2Fb?deep=true HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\n\r\n")
        .call()
        .unwrap();
    assert_eq!((call.service, call.method, call.head.format), ("Books", "Get", Format::Json(Json::Proto3)));
    assert_eq!(&call.body[..], br#"{"deep":true,"name":"a/b"}"#);
    assert!(matches!(&call.credential, Credential::Call(Some(token)) if &token[..] == b"me"));
}

#[test]
fn compressed_body_of_a_rule_is_decompressed_by_the_session() {
    let body = compress::compress(Compression::Gzip, br#"{"name":"n"}"#).unwrap();
    let head = format!(
        "POST /v1/books HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = connection();
    let (call, _) = connection.send([head.as_bytes(), &body].concat()).call().unwrap();
    assert_eq!((call.method, &call.body[..]), ("Create", &br#"{"name":"n"}"#[..]));
}

#[test]
fn long_body_of_a_rule_is_left_to_the_server() {
    let json = format!(r#"{{"name":"{}"}}"#, "n".repeat(300 << 10));
    let zipped = compress::compress(Compression::Gzip, json.as_bytes()).unwrap();
    for (field, compression, body) in [
        ("Content-Encoding: gzip\r\n", Compression::Gzip, &zipped[..]),
        ("", Compression::None, json.as_bytes()),
    ] {
        let length = body.len();
        let head = format!("POST /v1/books HTTP/1.1\r\nHost: a\r\n{field}Content-Length: {length}\r\n\r\n");
        let limits = Limits { message: 1 << 20, decompressed: 1 << 20, ..Limits::default() };
        let config = ServerConfig { routes: routes(), limits, ..(*config()).clone() };
        let mut connection =
            TestConnection { server: Server::new(Arc::new(config)), ..TestConnection::new() };
        let (call, ticket) = connection.send([head.as_bytes(), body].concat()).call().unwrap();
        assert_eq!((call.method, call.head.compression), ("Create", compression));
        assert!(call.body == body);
        let convert = ticket.body_conversion().expect("the body is long");
        assert!(convert(json.clone().into()).unwrap() == json);
        let convert = ticket.body_conversion().expect("the body is long");
        let status = convert("[]".into()).unwrap_err();
        assert!(status.message().starts_with("the body is not a JSON object"), "{}", status.message());
    }
}

#[test]
fn invalid_request_is_answered_and_the_connection_stays_open() {
    let mut connection = connection();
    for (request, status, body) in [
        (
            "DELETE /v1/books/1 HTTP/1.1\r\nHost: a\r\n\r\n",
            "405 Method Not Allowed",
            r#"{"code":12,"message":"this path needs another HTTP method","details":[]}"#,
        ),
        (
            "GET /v1/books/1?deep=no HTTP/1.1\r\nHost: a\r\n\r\n",
            "400 Bad Request",
            r#"{"code":3,"message":"`deep` is true or false, not `no`","details":[]}"#,
        ),
        (
            "POST /v1/books HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
            "400 Bad Request",
            r#""details":[]}"#,
        ),
    ] {
        assert!(connection.send(request).call().is_none());
        let response = connection.output();
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}\r\n")) && response.ends_with(body),
            "{response}"
        );
    }
    assert!(connection.send("GET /v1/books/1 HTTP/1.1\r\nHost: a\r\n\r\n").call().is_some());
}

#[test]
fn paths_without_a_rule_are_unaffected() {
    let mut connection = connection();
    assert!(connection.send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n").call().is_none());
    assert!(connection.output().ends_with("\r\n\r\nOK"));
    let (call, _) =
        connection.send("POST /Books/Get HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}").call().unwrap();
    assert_eq!((call.service, call.method, call.head.format), ("Books", "Get", Format::Json(Json::Brpc)));
}
