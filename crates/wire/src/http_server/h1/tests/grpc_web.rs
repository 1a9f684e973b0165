use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc_core::session::NotFound;
use polyrpc_core::testing::{assert_any_split, assert_survives_damage};
use polyrpc_core::{Code, Compression, Format, Head, Metadata, StreamId};

use super::*;
use crate::http::Cors;

const WEB: &str = "application/grpc-web+proto";
const TEXT: &str = "application/grpc-web-text";

fn request(content_type: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /example.EchoService/Echo HTTP/1.1\r\nHost: h\r\nContent-Type: {content_type}\r\n{fields}\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn build_frame(flag: u8, body: &[u8]) -> Vec<u8> {
    [&[flag][..], &(body.len() as u32).to_be_bytes(), body].concat()
}

/// Returns the head and the frames of a chunked response, and whether nothing follows.
fn response(bytes: &[u8]) -> (String, Vec<(u8, Vec<u8>)>) {
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut body = match head.contains("transfer-encoding: chunked") {
        true => unchunk(&bytes[end..]),
        false => bytes[end..].to_vec(),
    };
    if head.contains("grpc-web-text") {
        let mut decoder = crate::grpc::base64::Decoder::default();
        body = decoder.push(&body).expect("base64").bytes.to_vec();
    }
    let (mut frames, mut rest) = (Vec::new(), &body[..]);
    while let Some((&[flag, a, b, c, d], behind)) = rest.split_first_chunk::<5>() {
        let (frame, behind) = behind.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        frames.push((flag, frame.to_vec()));
        rest = behind;
    }
    assert!(rest.is_empty());
    (head, frames)
}

fn unchunk(bytes: &[u8]) -> Vec<u8> {
    let mut inbox = BytesMut::from(bytes);
    let body = crate::http::h1::chunked::Chunked::default().read(&mut inbox, 1 << 20, 1 << 10);
    assert!(inbox.is_empty(), "nothing follows");
    body.expect("chunks").expect("all of them").to_vec()
}

fn echo(call: &Call<'_>) -> Reply {
    Reply::message(call.head.format, call.body.clone())
}

#[test]
fn call_is_answered_with_trailers_in_the_body() {
    let mut connection = TestConnection::new();
    let fields = "grpc-timeout: 7S\r\nX-Key: value\r\nData-Bin: q6s\r\n";
    connection.send(request(WEB, fields, &build_frame(0, b"hello")));
    let (call, ticket) = connection.call().expect("a call");
    assert_eq!((call.service, call.method), ("example.EchoService", "Echo"));
    assert_eq!((call.head.format, &call.body[..]), (Format::Protobuf, &b"hello"[..]));
    assert_eq!(call.timeout, Some(std::time::Duration::from_secs(7)));
    assert_eq!(call.head.metadata.get("x-key"), Some("value"));
    assert_eq!(call.head.metadata.bytes("data-bin").unwrap()[..], [0xab, 0xab]);
    let mut reply = echo(&call);
    reply.head.metadata.insert("Before", "b");
    reply.trailers.insert("behind-bin", &[1][..]);
    connection.reply(ticket, reply);
    let (head, frames) = response(&connection.out.take());
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\ncontent-type: application/grpc-web+proto\r\nbefore: b\r\n"),
        "{head}"
    );
    assert_eq!(frames, [(0, b"hello".to_vec()), (0x80, b"grpc-status:0\r\nbehind-bin:AQ\r\n".to_vec())]);
}

#[test]
fn text_request_gets_a_text_response() {
    let mut connection = TestConnection::new();
    let message = build_frame(0, b"hello");
    // Each part is padded separately, as `doc/PROTOCOL-WEB.md` allows.
    let text = [STANDARD.encode(&message[..4]), STANDARD.encode(&message[4..])].concat();
    connection.send(request(TEXT, "", text.as_bytes()));
    let (call, ticket) = connection.open().expect("an opened call");
    assert_eq!(call.method, "Echo");
    assert_eq!(connection.parts(), ["StreamId(0): hello", "StreamId(0) ended"]);
    connection.reply(ticket, Reply::message(Format::Protobuf, Bytes::from_static(b"hello")));
    let (head, frames) = response(&connection.out.take());
    assert!(head.contains("content-type: application/grpc-web-text+proto\r\n"), "{head}");
    assert_eq!(frames, [(0, b"hello".to_vec()), (0x80, b"grpc-status:0\r\n".to_vec())]);
}

#[test]
fn failure_is_sent_in_the_body_trailers() {
    let mut connection = TestConnection::new();
    let out = connection
        .send(request(WEB, "", &build_frame(0, b"")))
        .serve(|_| Reply::failure(Status::not_found("n\u{f6}t here\n").with_details(&b"details"[..])));
    let (head, frames) = response(&out);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
    let want = "grpc-status:5\r\ngrpc-message:n%C3%B6t here%0A\r\ngrpc-status-details-bin:ZGV0YWlscw\r\n";
    assert_eq!(frames, [(0x80, want.as_bytes().to_vec())]);
}

#[test]
fn unknown_method_is_answered_with_grpc_texts() {
    let mut connection = TestConnection::new();
    connection.send(request(WEB, "", &build_frame(0, b"")));
    let (call, ticket) = connection.call().expect("a call");
    let status = ticket.not_found_failure(&call, NotFound::Service);
    assert_eq!(status.message(), "unknown service example.EchoService");
}

#[test]
fn message_that_cannot_be_decompressed_is_internal_as_in_grpc() {
    let mut connection = TestConnection::new();
    connection.send(request(WEB, "", &build_frame(0, b"")));
    let (_, ticket) = connection.call().expect("a call");
    let status = ticket.decompression_failure(Status::invalid_argument("no gzip")).expect("it is answered");
    assert_eq!(status.code(), Code::Internal);
}

#[test]
fn response_of_several_messages_is_sent_incrementally() {
    let mut connection = TestConnection::new();
    connection.send(request(WEB, "", &build_frame(0, b"")));
    let (_, ticket) = connection.call().expect("a call");
    let stream = ticket.stream().expect("it may stream");
    connection.server.start_response(stream, Head::default(), &mut connection.out);
    let mut whole = connection.out.take();
    assert!(whole.ends_with(b"transfer-encoding: chunked\r\n\r\n"));
    for message in [&b"one"[..], b"", b"three"] {
        connection.server.send_message(stream, Bytes::copy_from_slice(message), &mut connection.out);
        whole.extend(connection.out.take());
    }
    connection.server.finish(
        ticket,
        Err(Status::new(Code::Aborted, "enough")),
        Metadata::new(),
        &mut connection.out,
    );
    whole.extend(connection.out.take());
    let (_, frames) = response(&whole);
    let end = b"grpc-status:10\r\ngrpc-message:enough\r\n".to_vec();
    assert_eq!(frames, [(0, b"one".to_vec()), (0, vec![]), (0, b"three".to_vec()), (0x80, end)]);
}

#[test]
fn calls_are_answered_one_at_a_time() {
    let mut connection = TestConnection::new();
    let plain = "POST /EchoService/Echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
    connection.send(plain).send(request(WEB, "", &build_frame(0, b"1"))).send(plain);
    let (call, ticket) = connection.call().expect("the first");
    assert!(connection.call().is_none(), "gRPC-Web waits for pending responses");
    assert!(connection.server.blocks_input());
    connection.reply(ticket, echo(&call));
    connection.out.take();
    let (call, ticket) = connection.call().expect("the second");
    assert!(connection.call().is_none(), "nothing else while it is answered");
    assert!(connection.server.blocks_input());
    connection.reply(ticket, echo(&call));
    let (_, frames) = response(&connection.out.take());
    assert_eq!(frames.len(), 2);
    assert!(connection.call().is_some());
}

#[test]
fn response_over_http_1_0_ends_with_the_connection() {
    let mut connection = TestConnection::new();
    let request = request(WEB, "Connection: keep-alive\r\n", &build_frame(0, b"hi"));
    let request = String::from_utf8(request).unwrap();
    let out = connection.send(request.replace("HTTP/1.1", "HTTP/1.0")).serve(echo);
    let (head, frames) = response(&out);
    assert!(head.contains("Connection: close\r\n") && !head.contains("chunked"), "{head}");
    assert_eq!(frames.len(), 2);
    assert!(connection.server.is_finished());
}

#[test]
fn closing_connection_finishes_after_its_response() {
    let mut connection = TestConnection::new();
    connection.send(request(WEB, "Connection: close\r\n", &build_frame(0, b"")));
    let (call, ticket) = connection.call().expect("a call");
    assert!(connection.call().is_none() && !connection.server.is_finished());
    connection.reply(ticket, echo(&call));
    assert!(connection.server.is_finished());
    assert!(response(&connection.out.take()).0.contains("Connection: close\r\n"));
}

#[test]
fn messages_are_compressed_as_negotiated() {
    let mut connection = TestConnection::new();
    let text = vec![b'a'; 5000];
    let zipped = polyrpc_payload::compress::compress(Compression::Gzip, &text).unwrap();
    let fields = "grpc-encoding: gzip\r\ngrpc-accept-encoding: gzip\r\n";
    connection.send(request(WEB, fields, &build_frame(1, &zipped)));
    let (call, ticket) = connection.call().expect("a call");
    assert_eq!((call.head.compression, &call.body[..]), (Compression::Gzip, &zipped[..]));
    let head = Head { compression: Compression::Gzip, ..Head::default() };
    connection.reply(ticket, Reply::new(Ok(text.into()), head));
    let (head, frames) = response(&connection.out.take());
    assert!(head.contains("grpc-encoding: gzip\r\n"));
    assert!(frames[0].0 == 1 && frames[0].1.len() < 200);
}

#[test]
fn malformed_call_fails_and_the_connection_stays_open() {
    for (content_type, body, code) in [
        (WEB, build_frame(2, b""), Code::Internal),
        (WEB, build_frame(0, b"hello")[..7].to_vec(), Code::Internal),
        (WEB, build_frame(0, &[0; 70_000])[..100].to_vec(), Code::ResourceExhausted),
        (TEXT, b"no base64!".to_vec(), Code::Internal),
    ] {
        let mut connection = TestConnection::new();
        connection.send(request(content_type, "", &body));
        connection.open().expect("it is opened all the same");
        assert_eq!(connection.parts(), ["StreamId(0) cancelled"]);
        let (_, frames) = response(&connection.out.take());
        assert!(frames[0].1.starts_with(format!("grpc-status:{}\r\n", code as u8).as_bytes()));
        connection.send(request(WEB, "", &build_frame(0, b"")));
        assert!(connection.call().is_some());
    }
}

#[test]
fn request_that_is_not_grpc_web_is_rejected() {
    let mut connection = TestConnection::new();
    connection.send(request("application/grpc-web+thrift", "", b""));
    assert!(connection.call().is_none());
    let output = connection.output();
    assert!(output.starts_with("HTTP/1.1 415 ") && output.contains("text/plain"), "{output}");
    connection.out.take();
    connection
        .send(format!("DELETE /S/M HTTP/1.1\r\nHost: a\r\nContent-Type: {WEB}\r\nContent-Length: 0\r\n\r\n"));
    assert!(connection.call().is_none());
    let output = connection.output();
    assert!(output.starts_with("HTTP/1.1 405 ") && output.contains("text/plain"), "{output}");
    connection.out.take();
    connection.send(request(WEB, "grpc-timeout: soon\r\n", b""));
    assert!(connection.call().is_none());
    let (_, frames) = response(&connection.out.take());
    assert_eq!(frames[0].1, b"grpc-status:13\r\ngrpc-message:malformed grpc-timeout\r\n");
}

#[test]
fn any_split_yields_the_same_and_damage_never_panics() {
    let text = STANDARD.encode(build_frame(0, b"hello"));
    for bytes in [
        request(WEB, "", &build_frame(0, b"hello")),
        request(TEXT, "", text.as_bytes()),
        request(WEB, "", &[build_frame(0, b"one"), build_frame(0, b"two")].concat()),
    ] {
        assert_any_split(server, &bytes);
        assert_survives_damage(server, &bytes, 64 << 10);
    }
}

// -- cross-origin requests

fn talk_with(cors: Cors) -> TestConnection {
    let config = ServerConfig { cors, ..(*config()).clone() };
    TestConnection { server: Server::new(config.into()), ..TestConnection::new() }
}

const PREFLIGHT: &str = "OPTIONS /example.EchoService/Echo HTTP/1.1\r\nHost: a\r\nOrigin: https://page\r\n\
    Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type,x-grpc-web\r\n\r\n";

#[test]
fn allowed_origin_can_call() {
    for cors in [Cors::Any, Cors::Origins(vec!["https://page".to_owned()])] {
        let mut connection = talk_with(cors);
        assert!(connection.send(PREFLIGHT).call().is_none());
        let leave = connection.output();
        assert!(leave.starts_with("HTTP/1.1 204 "), "{leave}");
        for field in [
            "access-control-allow-origin: https://page",
            "access-control-allow-methods: POST, GET, PUT, PATCH, DELETE",
            "access-control-allow-headers: content-type,x-grpc-web",
            "access-control-max-age: 7200",
            "vary: origin",
        ] {
            assert!(leave.contains(&format!("{field}\r\n")), "{field} in {leave}");
        }
        let out = connection.send(request(WEB, "Origin: https://page\r\n", &build_frame(0, b""))).serve(echo);
        let (head, _) = response(&out);
        assert!(head.contains("access-control-allow-origin: https://page\r\n"));
        assert!(head.contains(
            "access-control-expose-headers: grpc-status, grpc-message, grpc-status-details-bin\r\n"
        ));
    }
}

#[test]
fn unlisted_origin_cannot_call() {
    for cors in [Cors::None, Cors::Origins(vec!["https://other".to_owned()])] {
        let mut connection = talk_with(cors);
        assert!(connection.send(PREFLIGHT).call().is_none());
        assert!(!connection.output().contains("access-control"));
        connection.send(request(WEB, "Origin: https://page\r\n", &build_frame(0, b"")));
        assert!(connection.call().is_none());
        let response = connection.output();
        assert!(response.starts_with("HTTP/1.1 403 ") && !response.contains("access-control"), "{response}");
    }
}

impl TestConnection {
    /// Returns the next call, if it is a streaming one.
    fn open(&mut self) -> Option<(Call<'static>, Ticket)> {
        match self.server.next_event(&mut self.inbox, &mut self.out).expect("no violation") {
            Some(ServerEvent::Open(call, ticket, _)) => Some((into_owned_call(call), ticket)),
            _ => None,
        }
    }

    /// Returns further events of calls, as text.
    fn parts(&mut self) -> Vec<String> {
        let mut parts = Vec::new();
        while let Some(event) = self.server.next_event(&mut self.inbox, &mut self.out).expect("no violation")
        {
            parts.push(match event {
                ServerEvent::Message(id, message) => format!("{id:?}: {}", message.body.escape_ascii()),
                ServerEvent::End(id) => format!("{id:?} ended"),
                ServerEvent::Cancelled(StreamId(id)) => format!("StreamId({id}) cancelled"),
                _ => "something else".to_owned(),
            });
        }
        parts
    }
}

/// The message limit of the tests' server is 64 KiB.
#[test]
fn message_up_to_the_limit_is_accepted_in_any_framing() {
    let longest = build_frame(0, &vec![b'm'; 64 << 10]);
    for (content_type, body) in [(WEB, longest.clone()), (TEXT, STANDARD.encode(&longest).into_bytes())] {
        let mut connection = TestConnection::new();
        connection.send(request(content_type, "", &body));
        let event = connection.server.next_event(&mut connection.inbox, &mut connection.out).unwrap();
        assert!(matches!(event, Some(ServerEvent::Call(..) | ServerEvent::Open(..))), "{content_type}");
    }
    let mut connection = TestConnection::new();
    connection.send(request(WEB, "", &build_frame(0, &vec![b'm'; (64 << 10) + 1])));
    while connection.server.next_event(&mut connection.inbox, &mut connection.out).unwrap().is_some() {}
    let (_, frames) = response(&connection.out.take());
    let trailers = String::from_utf8(frames[0].1.clone()).unwrap();
    assert!(trailers.contains("grpc-status:8\r\n"), "{trailers}");
}

/// Returns a request with a chunked body.
fn chunk(body: &[u8]) -> Vec<u8> {
    let head = "POST /example.EchoService/Echo HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc-web+proto\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let mut bytes = head.as_bytes().to_vec();
    for chunk in body.chunks(5000) {
        bytes.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    [&bytes[..], b"0\r\n\r\n"].concat()
}

/// Sends `bytes` in pieces; returns the lengths of received messages and the result. The handler consumes each message
/// at once.
fn upload(connection: &mut TestConnection, bytes: &[u8], takes: bool) -> Vec<String> {
    let mut told = Vec::new();
    for piece in bytes.chunks(8 << 10) {
        connection.send(piece);
        while let Some(event) =
            connection.server.next_event(&mut connection.inbox, &mut connection.out).expect("no violation")
        {
            match event {
                ServerEvent::Head(_, stream) => {
                    connection.server.apply_verdict(stream, Verdict::Accepted, &mut connection.out);
                }
                ServerEvent::Message(id, message) => {
                    told.push(message.body.len().to_string());
                    if takes {
                        connection.server.record_consumed(id, message.body.len(), &mut connection.out);
                    }
                }
                ServerEvent::End(_) => told.push("end".into()),
                ServerEvent::Cancelled(_) => told.push("cancelled".into()),
                ServerEvent::Open(..) => told.push("open".into()),
                _ => told.push("something else".into()),
            }
        }
        assert!(connection.server.buffered() <= 100 << 10, "no more is held than a message may have");
    }
    told
}

#[test]
fn limit_applies_to_each_message_not_the_body() {
    let body: Vec<u8> = (0..10).flat_map(|_| build_frame(0, &[b'm'; 40 << 10])).collect();
    for bytes in [request(WEB, "", &body), chunk(&body)] {
        let mut connection = TestConnection::new();
        let told = upload(&mut connection, &bytes, true);
        assert_eq!((told.len(), &told[0][..], &told[11][..]), (12, "open", "end"), "{told:?}");
        assert!(told[1..11].iter().all(|length| length == "40960"));
        assert!(connection.inbox.is_empty());
    }
}

#[test]
fn long_body_is_read_only_as_the_handler_consumes_it() {
    let body: Vec<u8> = (0..10).flat_map(|_| build_frame(0, &[b'm'; 40 << 10])).collect();
    for bytes in [request(WEB, "", &body), chunk(&body)] {
        let mut connection = TestConnection::new();
        assert_eq!(upload(&mut connection, &bytes, false), ["open", "40960", "40960"]);
        assert!(connection.server.blocks_input());
        connection.server.record_consumed(StreamId(0), 80 << 10, &mut connection.out);
        let mut more = 0;
        while let Some(event) =
            connection.server.next_event(&mut connection.inbox, &mut connection.out).expect("no violation")
        {
            assert!(matches!(event, ServerEvent::Message(..)), "{event:?}");
            more += 1;
        }
        assert_eq!(more, 2, "as much as was taken");
        assert!(connection.server.blocks_input());
    }
}

#[test]
fn oversized_message_in_a_long_body_is_answered_with_grpc_texts() {
    let body = [build_frame(0, b"short"), build_frame(0, &vec![b'm'; 150 << 10])].concat();
    for bytes in [request(WEB, "", &body), chunk(&body)] {
        let mut connection = TestConnection::new();
        assert_eq!(upload(&mut connection, &bytes, true), ["open", "5", "cancelled"]);
        let (head, frames) = response(&connection.out.take());
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(frames[0].1.starts_with(b"grpc-status:8\r\n"));
        // The rest of the input was discarded.
        assert!(connection.inbox.is_empty());
    }
}
