//! A value means the same over every protocol that carries JSON, or is rejected with the same text.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use polyrpc::server::{Listen, ServerHandle};
use polyrpc::{Context, Format, Json, Protocol, Result, Server};
use polyrpc_core::{Call, Outbox};
use polyrpc_wire::http::h2::hpack::encode_stateless;
use polyrpc_wire::http::h2::{Connection, Event};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Socket, Wire, serve, soon};
use crate::values::test::values::{Color, Mirror, MirrorServer, Values};

/// Echoes the request, and records it.
#[derive(Clone, Default)]
struct RecordingEcho(Arc<Mutex<Option<Values>>>);

impl Mirror for RecordingEcho {
    async fn echo(&self, _: &mut Context, request: Values) -> Result<Values> {
        *self.0.lock().unwrap() = Some(request.clone());
        Ok(request)
    }
}

impl RecordingEcho {
    fn server(&self) -> Server {
        Server::new().service(MirrorServer::new(self.clone()))
    }
}

const SERVICE: &str = "test.values.Mirror";

/// An entry point for JSON to a method.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// `POST /Service/Method`, with these fields.
    Http1(&'static str),
    Http2,
    /// A `google.api.http` rule.
    Rule,
    JsonRpc,
    /// rpcx's gateway.
    Gateway,
    /// A client's session.
    Session(Protocol, Format),
}

const WAYS: [Way; 12] = [
    Way::Http1("Content-Type: application/json\r\n"),
    Way::Http1("Content-Type: application/proto-json\r\n"),
    Way::Http1("Content-Type: application/json\r\nAccept: application/json;dialect=proto3\r\n"),
    Way::Http2,
    Way::Rule,
    Way::JsonRpc,
    Way::Gateway,
    Way::Session(Protocol::BaiduStd, Format::Json(Json::Brpc)),
    Way::Session(Protocol::BaiduStd, Format::Json(Json::Proto3)),
    Way::Session(Protocol::Rpcx, Format::Json(Json::Go)),
    Way::Session(Protocol::Grpc, Format::Json(Json::Proto3)),
    Way::Session(Protocol::NetRpc, Format::Json(Json::Go)),
];

impl Way {
    /// Go's codecs, used by Go programs.
    fn is_go_encoding(self) -> bool {
        let sessions = [Protocol::Rpcx, Protocol::NetRpc];
        match self {
            Self::JsonRpc | Self::Gateway => true,
            Self::Session(protocol, _) => sessions.contains(&protocol),
            _ => false,
        }
    }

    /// Those that read ProtoJSON.
    fn is_canonical(self) -> bool {
        match self {
            Self::Rule => true,
            Self::Http1(fields) => fields.contains("proto"),
            Self::Session(_, format) => format == Format::Json(Json::Proto3),
            Self::Http2 | Self::JsonRpc | Self::Gateway => false,
        }
    }

    /// Calls with this message; the failure's HTTP status, if it has one, and text.
    async fn call(self, server: &ServerHandle, json: &str) -> Result<(), (Option<u16>, String)> {
        let http = |status: u16, body: String| match status {
            200 => Ok(()),
            _ => Err((Some(status), body)),
        };
        let mut socket = Socket::connect(server).await;
        match self {
            Self::Http1(fields) => {
                let (status, body) = socket.http(&post(&format!("/{SERVICE}/Echo"), fields, json)).await;
                http(status, body)
            }
            Self::Rule => {
                let (status, body) =
                    socket.http(&post("/v1/echo", "Content-Type: application/json\r\n", json)).await;
                http(status, body)
            }
            Self::Http2 => {
                let (status, body) = http2(socket, &format!("/{SERVICE}/Echo"), json).await;
                http(status, body)
            }
            Self::JsonRpc => {
                let request =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{SERVICE}.Echo","params":{json}}}"#);
                let fields = "Content-Type: application/json-rpc\r\n";
                let (_, body) = socket.http(&post("/jsonrpc", fields, &request)).await;
                if body.contains("\"result\"") { Ok(()) } else { Err((None, body)) }
            }
            Self::Gateway => {
                let fields = format!(
                    "X-RPCX-ServicePath: {SERVICE}\r\nX-RPCX-ServiceMethod: Echo\r\nX-RPCX-SerializeType: 1\r\n"
                );
                socket.send(post("/", &fields, json).as_bytes()).await;
                let head = socket.up_to("\r\n\r\n").await;
                match head.lines().find_map(|line| line.strip_prefix("X-RPCX-ErrorMessage: ")) {
                    None => Ok(()),
                    Some(text) => Err((None, text.to_owned())),
                }
            }
            Self::Session(protocol, format) => {
                let mut wire = Wire::new(socket, protocol);
                let body = Bytes::copy_from_slice(json.as_bytes());
                wire.send(1, &Call::new(SERVICE, "Echo", format, body)).await;
                let reply = wire.reply().await.expect("an answer").1;
                reply.result.map(drop).map_err(|status| (None, status.message().to_owned()))
            }
        }
    }
}

fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

async fn http2(socket: Socket, path: &str, json: &str) -> (u16, String) {
    let mut stream = socket.stream;
    let (mut connection, mut inbox, mut out) =
        (Connection::<()>::client(Default::default()), BytesMut::new(), Outbox::new());
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "me"),
        ("content-type", "application/json"),
    ];
    let mut block = Vec::new();
    encode_stateless(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), &mut block);
    let id = connection.open(&block, false, &mut out);
    connection.data(id, b"", Bytes::copy_from_slice(json.as_bytes()), true, &mut out);
    let (mut status, mut body) = (0, Vec::new());
    loop {
        let event = connection.next_event(&mut inbox, &mut out).expect("HTTP/2");
        soon(stream.write_all(&out.take())).await.unwrap();
        let ended = match event {
            Some(Event::Headers { fields, end, .. }) => {
                let text = fields.get(b":status").expect("a status");
                status = std::str::from_utf8(text).unwrap().parse().unwrap();
                end
            }
            Some(Event::Whole { fields, body: whole, .. }) => {
                let text = fields.get(b":status").expect("a status");
                status = std::str::from_utf8(text).unwrap().parse().unwrap();
                body.extend_from_slice(&whole);
                true
            }
            Some(Event::Data { bytes, end, .. }) => {
                body.extend_from_slice(&bytes);
                end
            }
            Some(_) => false,
            None => {
                assert_ne!(soon(stream.read_buf(&mut inbox)).await.unwrap(), 0, "the connection goes on");
                false
            }
        };
        if ended {
            return (status, String::from_utf8(body).unwrap());
        }
    }
}

/// Messages that every entry point reads alike, and the result.
fn equivalent_values() -> Vec<(&'static str, Values)> {
    let with = |change: fn(&mut Values)| {
        let mut values = Values::default();
        change(&mut values);
        values
    };
    vec![
        ("{}", Values::default()),
        (r#"{"A":7,"B":-8}"#, with(|it| (it.A, it.B) = (7, -8))),
        (r#"{"A":9223372036854775807}"#, with(|it| it.A = i64::MAX)),
        // Both names of a field.
        (r#"{"response_size":5}"#, with(|it| it.response_size = 5)),
        (r#"{"responseSize":5}"#, with(|it| it.response_size = 5)),
        (r#"{"numbers":[1,2,3]}"#, with(|it| it.numbers = vec![1, 2, 3])),
        (r#"{"scores":{"ann":1}}"#, with(|it| it.scores.extend([("ann".into(), 1)]))),
        (r#"{"inner":{"responseSize":1}}"#, with(|it| it.inner.get_or_insert_default().response_size = 1)),
        (r#"{"color":1}"#, with(|it| it.color = Color::RED.into())),
        (r#"{"color":"RED"}"#, with(|it| it.color = Color::RED.into())),
        (r#"{"raw":"AAE="}"#, with(|it| it.raw = vec![0, 1])),
        (
            r#"{"ratio":1.5,"flag":true,"text":"ü"}"#,
            with(|it| {
                (it.ratio, it.flag, it.text) = (1.5, true, "ü".into());
            }),
        ),
        (r#"{"text":null,"A":null}"#, Values::default()),
        // Both forms of a well-known message.
        (r#"{"at":"1970-01-01T00:00:05Z"}"#, with(|it| it.at.get_or_insert_default().seconds = 5)),
        (r#"{"at":{"seconds":5}}"#, with(|it| it.at.get_or_insert_default().seconds = 5)),
        (r#"{"boxed":3}"#, with(|it| it.boxed.get_or_insert_default().value = 3)),
        (r#"{"boxed":{"value":3}}"#, with(|it| it.boxed.get_or_insert_default().value = 3)),
        // What there is no field for.
        (r#"{"nobody":{"x":[1]},"A":1}"#, with(|it| it.A = 1)),
    ]
}

/// Messages that every entry point rejects, and why.
const REFUSED: [(&str, &str); 15] = [
    (r#"{"A":"x","B":2}"#, "A: expected int64, found string"),
    (r#"{"A":true}"#, "A: expected int64, found bool"),
    (r#"{"A":1.5}"#, "A: expected int64, found 1.5"),
    (r#"{"A":9223372036854775808}"#, "A: expected int64, found 9223372036854775808"),
    (r#"{"response_size":2147483648}"#, "response_size: expected int32, found 2147483648"),
    (r#"{"responseSize":"x"}"#, "response_size: expected int32, found string"),
    (r#"{"numbers":[1,"x"]}"#, "numbers[1]: expected int32, found string"),
    (r#"{"numbers":1}"#, "numbers: expected array, found number"),
    (r#"{"inner":{"inner":{"A":[]}}}"#, "inner.inner.A: expected int64, found array"),
    (r#"{"inner":[]}"#, "inner: expected object, found array"),
    (r#"{"color":true}"#, "color: expected enum test.values.Color, found bool"),
    (r#"{"raw":"?"}"#, "raw: expected bytes in base64, found another string"),
    (r#"{"text":1}"#, "text: expected string, found number"),
    (r#"{"flag":"true"}"#, "flag: expected bool, found string"),
    (r#"{"at":5}"#, "at: expected google.protobuf.Timestamp, found number"),
];

/// Messages that some read and others reject: by which entry point, with what result, and the peer's source.
const EXCEPTIONS: [(&str, &str, &str); 3] = [
    // Go's `encoding/json` accepts no string for a number (`json: cannot unmarshal string into Go struct field`);
    // ProtoJSON must (protobuf.dev, "JSON Options"), and brpc does (`json2pb/json_to_pb.cpp`).
    (r#"{"A":"7"}"#, "Go's", "A: expected int64, found string"),
    // Go accepts only an integer written as one; protojson accepts 1.0 and 1e3.
    (r#"{"A":1e3}"#, "Go's", "A: expected int64, found 1e3"),
    // protojson skips an unknown enum name as it skips unknown fields (`DiscardUnknown`).
    (r#"{"color":"PUCE"}"#, "not canonical", "color: expected enum test.values.Color, found "),
];

#[tokio::test]
async fn every_json_entry_point_accepts_the_same_values() {
    let seen = RecordingEcho::default();
    let server = serve(seen.server()).await;
    for (json, want) in equivalent_values() {
        for way in WAYS {
            *seen.0.lock().unwrap() = None;
            way.call(&server, json).await.unwrap_or_else(|failure| panic!("{way:?} {json}: {failure:?}"));
            assert_eq!(seen.0.lock().unwrap().take().as_ref(), Some(&want), "{way:?} {json}");
        }
    }
}

#[tokio::test]
async fn every_json_entry_point_rejects_the_same_values_with_the_same_text() {
    let seen = RecordingEcho::default();
    let server = serve(seen.server()).await;
    for (json, want) in REFUSED {
        for way in WAYS {
            refuses(way, &server, json, want).await;
        }
    }
    assert!(seen.0.lock().unwrap().is_none(), "the handler saw none of them");
    for (json, by, want) in EXCEPTIONS {
        for way in WAYS {
            let is_refused = if by == "Go's" { way.is_go_encoding() } else { !way.is_canonical() };
            match is_refused {
                true => refuses(way, &server, json, want).await,
                false => way.call(&server, json).await.unwrap_or_else(|it| panic!("{way:?} {json}: {it:?}")),
            }
        }
    }
}

async fn refuses(way: Way, server: &ServerHandle, json: &str, want: &str) {
    let (status, text) = way.call(server, json).await.expect_err(&format!("{way:?} {json}"));
    // In a string within JSON, quotation marks are escaped; there are none here.
    assert!(text.contains(want), "{way:?} {json}: {text}");
    if let Some(status) = status {
        assert_eq!(status, 400, "{way:?} {json}");
        let failure = text.starts_with(r#"{"code":3,"message":"#) && text.ends_with(r#","details":[]}"#);
        assert!(failure, "{way:?} {json}: {text}");
    }
}

#[tokio::test]
async fn unknown_fields_are_counted() {
    let server = serve(RecordingEcho::default().server()).await;
    for way in WAYS {
        let before = server.info().unknown_fields;
        way.call(&server, r#"{"nobody":1,"inner":{"noone":[{}]},"A":1}"#)
            .await
            .expect("the field is skipped");
        assert_eq!(server.info().unknown_fields - before, 2, "{way:?}");
    }
}

/// The response to a request with these headers: the status, the head and the body.
async fn answered(server: &ServerHandle, path: &str, fields: &str, body: &str) -> (u16, String, String) {
    let mut socket = Socket::connect(server).await;
    socket.send(post(path, &format!("Connection: close\r\n{fields}"), body).as_bytes()).await;
    let response = String::from_utf8(socket.rest().await).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn response_dialect_is_that_of_the_listener_or_the_request() {
    const BRPC: &str = r#""A":7,"response_size":5"#;
    const PROTO3: &str = r#""A":"7","responseSize":5"#;
    let mut bound = RecordingEcho::default().server().bind("127.0.0.1:0").await.unwrap();
    bound = bound.and(Listen::on("127.0.0.1:0").json(Json::Proto3)).await.unwrap();
    let addresses: Vec<_> = bound.addresses().into_iter().cloned().collect();
    let _running = bound.start();
    let (path, json) = (format!("/{SERVICE}/Echo"), r#"{"A":7,"responseSize":5}"#);
    for (listener, path, accept, want, content_type) in [
        (0, &path[..], "", BRPC, "application/json"),
        (0, &path[..], "*/*", BRPC, "application/json"),
        (0, &path[..], "application/json;dialect=proto3", PROTO3, "application/json"),
        (0, &path[..], "application/proto-json", PROTO3, "application/proto-json"),
        (1, &path[..], "", PROTO3, "application/json"),
        (1, &path[..], "application/json; dialect=brpc", BRPC, "application/json"),
        (0, "/v1/echo", "", PROTO3, "application/json"),
        (0, "/v1/echo", "application/json;dialect=brpc", BRPC, "application/json"),
    ] {
        let accept = if accept.is_empty() { String::new() } else { format!("Accept: {accept}\r\n") };
        let fields = format!("Content-Type: application/json\r\n{accept}");
        let mut socket =
            Socket { stream: tokio::net::TcpStream::connect(addresses[listener].to_string()).await.unwrap() };
        socket.send(post(path, &fields, json).as_bytes()).await;
        let head = socket.up_to("\r\n\r\n").await;
        assert!(head.contains(&format!("Content-Type: {content_type}\r\n")), "{listener} {accept}{head}");
        let mut body = vec![0; want.len() + 1];
        soon(socket.stream.read_exact(&mut body)).await.unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), format!("{{{want}"), "{listener} {path} {accept}");
    }
}

#[tokio::test]
async fn failures_are_json_and_responses_are_never_forms() {
    let listen = Listen::on("127.0.0.1:0").lenient_http();
    let lenient = RecordingEcho::default().server().bind(listen).await.unwrap().start();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let (status, head, body) = answered(&lenient, &format!("/{SERVICE}/Echo"), form, r#"{"A":1}"#).await;
    assert_eq!((status, body.contains(r#""A":1"#)), (200, true), "{head}");
    assert!(head.contains("Content-Type: application/json"), "{head}");

    let guarded = Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(b"secret") => Ok(()),
        _ => Err(polyrpc::Status::unauthenticated("who?")),
    });
    let server = RecordingEcho::default().server().bind(guarded).await.unwrap().start();
    let json = "Content-Type: application/json\r\n";
    let known = "Content-Type: application/json\r\nAuthorization: secret\r\n";
    for (path, fields, want, code) in [
        (&format!("/{SERVICE}/Echo")[..], json, 401, 16),
        ("/v1/echo", json, 401, 16),
        ("/No/Such", known, 404, 12),
        (&format!("/{SERVICE}/Echo"), form, 415, 3),
        (
            &format!("/{SERVICE}/Echo"),
            "Authorization: secret\r\nAccept: application/json;dialect=x\r\n",
            406,
            3,
        ),
    ] {
        let (status, head, body) = answered(&server, path, fields, "{}").await;
        assert_eq!(status, want, "{path} {fields}: {head}");
        assert!(body.starts_with(&format!(r#"{{"code":{code},"message":""#)), "{path}: {body}");
        assert!(body.ends_with(r#","details":[]}"#), "{path}: {body}");
        assert!(head.contains("Content-Type: application/json"), "{path}: {head}");
        assert_eq!(head.contains("WWW-Authenticate: "), want == 401, "{path}: {head}");
    }
}

#[tokio::test]
async fn listener_can_read_as_leniently_as_brpc() {
    let seen = RecordingEcho::default();
    let listen = Listen::on("127.0.0.1:0").json(Json::BrpcLenient);
    let server = seen.server().bind(listen).await.unwrap().start();
    let ways = [WAYS[0], Way::Session(Protocol::BaiduStd, Format::Json(Json::Brpc))];
    for way in ways {
        way.call(&server, r#"{"A":"x","B":2,"responseSize":5}"#).await.expect("brpc drops what does not fit");
        let want = Values { B: 2, ..Values::default() };
        assert_eq!(seen.0.lock().unwrap().take(), Some(want), "{way:?}");
    }
    let (status, head, body) =
        answered(&server, &format!("/{SERVICE}/Echo"), "Content-Type: application/json\r\n", "{").await;
    assert_eq!((status, head.contains("Content-Type: text/plain")), (400, true));
    assert!(body.starts_with(&format!("[{}][E1003]", server.address())), "{body}");
}

#[tokio::test]
async fn serde_function_rejects_with_the_text_of_serde() {
    let server = serve(Server::new().function("double", |n: i64| async move { n * 2 })).await;
    let (status, _, body) = answered(&server, "/double", "Content-Type: application/json\r\n", "\"x\"").await;
    assert_eq!(status, 400);
    assert!(body.contains(r#"invalid type: string \"x\", expected i64"#), "{body}");
}

#[tokio::test]
async fn go_json_rejects_a_non_finite_number_in_a_response() {
    let server = RecordingEcho::default().server();
    let server = serve(server.function("ratio", |of: f64| async move { of / 0.0 })).await;
    for (text, word) in [("NaN", "NaN"), ("Infinity", "+Inf"), ("-Infinity", "-Inf")] {
        // The handler echoes the request, in which these names are accepted, as in ProtoJSON.
        let json = format!(r#"{{"ratio":"{text}"}}"#);
        for way in WAYS {
            let answer = way.call(&server, &json).await;
            match way.is_go_encoding() {
                true => {
                    let (_, text) = answer.expect_err("Go's encoder refuses it");
                    assert!(text.contains(&format!("json: unsupported value: {word}")), "{way:?}: {text}");
                }
                false => answer.unwrap_or_else(|failure| panic!("{way:?}: {failure:?}")),
            }
        }
    }
    // A plain value.
    for (number, word) in [("0", "NaN"), ("1", "+Inf"), ("-1", "-Inf")] {
        let want = format!("json: unsupported value: {word}");
        let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ratio","params":[{number}]}}"#);
        let fields = "Content-Type: application/json-rpc\r\n";
        let (_, _, body) = answered(&server, "/jsonrpc", fields, &request).await;
        assert!(body.contains("\"error\"") && body.contains(&want), "{body}");
        for protocol in [Protocol::Rpcx, Protocol::NetRpc] {
            let mut wire = Wire::new(Socket::connect(&server).await, protocol);
            let body = Bytes::copy_from_slice(number.as_bytes());
            wire.send(1, &Call::new("", "ratio", Format::Json(Json::Go), body)).await;
            let result = wire.reply().await.expect("an answer").1.result;
            let text = result.expect_err("Go's encoder refuses it");
            assert!(text.message().contains(&want), "{protocol:?}: {text:?}");
        }
    }
}
