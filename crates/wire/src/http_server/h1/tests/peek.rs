//! Data from the head of a request that is available before its body.

use polyrpc_core::Credential;
use polyrpc_core::session::{NotFound, Verdict};

use super::http_rules::routes;
use super::*;
use crate::http::mapping::request::Request;
use crate::http::mapping::request_kind::{self, Names, RequestKind};
use crate::http_server::request::H1Request;

/// Requests whose head names the call, each with its body.
const NAMED: [(&str, &str); 8] = [
    ("POST /Echo/Say HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\nContent-Type: application/json\r\n", "{}"),
    ("POST /Echo/Say/more HTTP/1.1\r\nHost: a\r\nContent-Type: application/proto\r\n", "x"),
    ("POST /Echo HTTP/1.1\r\nHost: a\r\n", "{}"),
    ("POST /v1/books HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\nContent-Type: application/json\r\n", "{}"),
    (
        "POST /x HTTP/1.1\r\nHost: a\r\nX-RPCX-ServicePath: Arith\r\nX-RPCX-ServiceMethod: Mul\r\n\
         X-RPCX-SerializeType: 1\r\nX-RPCX-Meta: __AUTH=me&a=b\r\n",
        "{}",
    ),
    (
        "POST /Arith HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\nX-RPCX-ServiceMethod: Mul\r\n\
         X-RPCX-SerializeType: 3\r\nX-RPCX-Meta: __AUTH=you\r\n",
        "{}",
    ),
    ("GET /v1/books/1 HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\n", ""),
    ("POST /jsonrpc/Say HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n", "{}"),
];

const UNNAMED: [(&str, &str); 3] = [
    (
        "POST /jsonrpc HTTP/1.1\r\nHost: a\r\nAuthorization: me\r\nContent-Type: application/json\r\n",
        r#"{"jsonrpc":"2.0","method":"Echo.Say","id":1}"#,
    ),
    (
        "POST /any HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\nX-RPCX-Meta: __AUTH=me\r\n",
        r#"{"method":"Echo.Say","id":1}"#,
    ),
    ("POST /a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json-rpc\r\n", r#"{"method":"f","id":1}"#),
];

/// Requests that are answered regardless of their body.
const ANSWERED: [(&str, u16); 5] = [
    ("OPTIONS /Echo/Say HTTP/1.1\r\nHost: a\r\n", 204),
    ("POST /_rpcx_ HTTP/1.1\r\nHost: a\r\n", 405),
    ("POST /Echo/Say HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\n", 415),
    ("PUT /v1/books HTTP/1.1\r\nHost: a\r\n", 405),
    ("POST /Echo HTTP/1.1\r\nHost: a\r\nX-RPCX-ServiceMethod: Mul\r\n", 200),
];

fn request(head: &str) -> Request {
    H1Request::parse(&Bytes::from(format!("{head}\r\n")), 1 << 20).expect("a request").inner
}

fn config() -> ServerConfig {
    ServerConfig { routes: routes(), ..(*super::config()).clone() }
}

/// Returns the result of parsing the complete request: names and credential of its call.
fn read(head: &str, body: &str) -> ((String, String), Credential) {
    let mut names = Names::default();
    let body = Bytes::copy_from_slice(body.as_bytes());
    match RequestKind::read(&config(), request(head), body, &mut names) {
        RequestKind::Call(call, _) => (to_owned_names(&names), call.credential),
        _ => panic!("{head} calls"),
    }
}

fn to_owned_names(names: &Names) -> (String, String) {
    let (service, method) = names.parts();
    (service.to_owned(), method.to_owned())
}

#[test]
fn head_yields_the_names_and_the_credential() {
    for (head, body) in NAMED {
        let mut names = Names::default();
        let peeked = request_kind::peek(&config(), &request(head), &mut names);
        assert!(peeked.named && peeked.answer.is_none(), "{head}");
        assert_eq!((to_owned_names(&names), peeked.credential), read(head, body), "{head}");
    }
}

#[test]
fn json_rpc_head_yields_the_credential_only() {
    for (head, body) in UNNAMED {
        let peeked = request_kind::peek(&config(), &request(head), &mut Names::default());
        assert!(!peeked.named && peeked.answer.is_none(), "{head}");
        assert_eq!(peeked.credential, read(head, body).1, "{head}");
    }
}

#[test]
fn request_without_a_call_is_answered_from_its_head() {
    for (head, http) in ANSWERED {
        let peeked = request_kind::peek(&config(), &request(head), &mut Names::default());
        let mut out = Vec::new();
        peeked.answer.unwrap_or_else(|| panic!("{head}")).write(&config(), &mut out);
        assert!(out.starts_with(format!("HTTP/1.1 {http} ").as_bytes()), "{head} {}", out.escape_ascii());
    }
}

#[test]
fn rejected_head_is_answered_in_the_form_of_its_request() {
    let answer = |head, verdict| {
        let mut out = Vec::new();
        let answer = request_kind::refuse(&config(), &request(head), verdict).expect("it is refused");
        let body = answer.write(&config(), &mut out);
        String::from_utf8([&out[..], b"\r\n", &body].concat()).unwrap()
    };
    let missing = answer("POST /Echo/Say/x HTTP/1.1\r\nHost: a\r\n", Verdict::Missing(NotFound::Service));
    assert!(
        missing.contains(" 404 ") && missing.contains("Fail to find method on `/Echo/Say/x'"),
        "{missing}"
    );
    let gateway =
        "POST /Arith HTTP/1.1\r\nHost: a\r\nX-RPCX-ServiceMethod: Mul\r\nX-RPCX-SerializeType: 3\r\n";
    let missing = answer(gateway, Verdict::Missing(NotFound::Method));
    assert!(missing.contains("X-RPCX-ErrorMessage: rpcx: can't find method Mul"), "{missing}");
    let denied = answer(gateway, Verdict::Unauthenticated(Status::unauthenticated("who?")));
    assert!(denied.contains(" 401 ") && denied.contains("X-RPCX-ErrorMessage: who?"), "{denied}");
    let busy = answer(
        "GET /v1/books/1 HTTP/1.1\r\nHost: a\r\n",
        Verdict::Refused(Status::resource_exhausted("full")),
    );
    assert!(busy.contains(" 429 ") && busy.contains("\"full\""), "{busy}");
    let busy = answer(
        "POST / HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\n",
        Verdict::Refused(Status::resource_exhausted("full")),
    );
    assert!(busy.contains(r#""message":"full","data":null},"id":null"#), "{busy}");
    let accepted = request_kind::refuse(&config(), &request(gateway), Verdict::Accepted);
    assert!(accepted.is_none());
}
