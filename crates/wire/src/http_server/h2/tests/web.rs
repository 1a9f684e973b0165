//! gRPC-Web over HTTP/2.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc_core::testing::{assert_any_split, assert_survives_damage};

use super::browser::{Browser, Field};
use super::*;
use crate::http::{Cors, h2};

fn echo(server: &mut Server, ticket: Ticket, body: Bytes, out: &mut Outbox) {
    server.reply(ticket, Reply::message(Format::Protobuf, body), out);
}

fn allowing(cors: Cors) -> Browser {
    Browser::new(ServerConfig { cors, ..ServerConfig::default() })
}

const ECHO: &str = "/example.EchoService/Echo";
const WEB: Field<'_> = ("content-type", "application/grpc-web+proto");
const TEXT: Field<'_> = ("content-type", "application/grpc-web-text");
const HELLO: &[u8] = b"\0\0\0\0\x05hello";
const OK: &[u8] = b"\x80\0\0\0\x0fgrpc-status:0\r\n";

#[test]
fn call_is_answered_with_trailers_in_the_data() {
    let mut browser = allowing(Cors::None);
    browser.ask("POST", ECHO, &[WEB], &[HELLO]);
    browser.serve(echo);
    let (head, data) = browser.answer();
    assert_eq!(head, [":status: 200", "content-type: application/grpc-web+proto"]);
    assert_eq!(data, [HELLO, OK].concat());
}

#[test]
fn text_in_pieces_is_decoded_and_fully_credited_to_the_window() {
    let mut browser = allowing(Cors::None);
    let message = vec![7; 300_000];
    let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
    let text = STANDARD.encode(&framed);
    browser.ask("POST", ECHO, &[TEXT], &text.as_bytes().chunks(1001).collect::<Vec<_>>());
    let mut body = Bytes::new();
    // The client's window is what the server grants, so that this takes several turns.
    let mut recorded = Vec::new();
    for _ in 0..100 {
        recorded.extend(browser.serve(|_, _, _, _| ()));
        if recorded.iter().any(|event| event.contains("ended")) {
            break;
        }
        browser.outbox.extend_from_slice(&browser.down.take());
        while let Some(event) = browser.http.next_event(&mut browser.outbox, &mut browser.up).unwrap() {
            assert_eq!(event, h2::Event::Room { stream: 1 });
        }
    }
    recorded.retain(|event| event != "others have their turn");
    assert_eq!(recorded.len(), 3, "opened, one message, ended");
    browser.ask("POST", ECHO, &[TEXT], &[STANDARD.encode(HELLO).as_bytes()]);
    browser.serve(|server, ticket, got, out| {
        body = got.clone();
        echo(server, ticket, got, out);
    });
    assert_eq!(&body[..], b"hello");
    let (head, data) = browser.answer();
    assert_eq!(head[1], "content-type: application/grpc-web-text+proto");
    assert_eq!(data, [STANDARD.encode(HELLO), STANDARD.encode(OK)].concat().into_bytes());
}

#[test]
fn messages_and_failure_are_sent_in_the_data() {
    let mut browser = allowing(Cors::None);
    browser.ask("POST", ECHO, &[WEB], &[HELLO]);
    browser.serve(|server, ticket, body, out| {
        let stream = ticket.stream().unwrap();
        server.send_message(stream, body.clone(), out);
        server.send_message(stream, body, out);
        let trailers = [("why", "because")].into_iter().collect();
        server.finish(ticket, Err(Status::not_found("gone")), trailers, out);
    });
    let (_, data) = browser.answer();
    let end = b"\x80\0\0\0\x34grpc-status:5\r\ngrpc-message:gone\r\nwhy:because\r\n";
    assert_eq!(data[..20], [HELLO, HELLO].concat());
    assert_eq!(data[25..], end[5..]);
}

#[test]
fn malformed_call_fails_in_the_data() {
    for (fields, body, status) in [
        (&[WEB, ("grpc-timeout", "soon")][..], HELLO, 13),
        (&[WEB, ("authorization", "one"), ("authorization", "other")], HELLO, 16),
        (&[WEB], b"\x02\0\0\0\0", 13),
        (&[TEXT], b"no base64!", 13),
        (&[WEB], b"\0\0", 13),
    ] {
        let mut browser = allowing(Cors::None);
        browser.ask("POST", ECHO, fields, &[body]);
        browser.serve(|_, _, _, _| panic!("no call is complete"));
        let (head, data) = browser.answer();
        assert_eq!(head[0], ":status: 200");
        let data = if fields[0] == TEXT { STANDARD.decode(data).unwrap() } else { data };
        assert!(data[5..].starts_with(format!("grpc-status:{status}\r\n").as_bytes()));
    }
}

#[test]
fn allowed_origin_can_call() {
    let page = ("origin", "https://page");
    let preflight =
        [page, ("access-control-request-method", "POST"), ("access-control-request-headers", "x-grpc-web")];
    let mut browser = allowing(Cors::Origins(vec!["https://page".into()]));
    browser.ask("OPTIONS", ECHO, &preflight, &[]);
    browser.serve(echo);
    let (head, _) = browser.answer();
    assert_eq!(head[0], ":status: 204");
    assert!(head.contains(&"access-control-allow-origin: https://page".to_owned()));
    assert!(head.contains(&"access-control-allow-headers: x-grpc-web".to_owned()));
    browser.ask("POST", ECHO, &[WEB, page], &[HELLO]);
    browser.serve(echo);
    assert!(browser.answer().0.contains(&"access-control-allow-origin: https://page".to_owned()));

    let mut browser = allowing(Cors::None);
    browser.ask("OPTIONS", ECHO, &preflight, &[]);
    browser.serve(echo);
    assert!(!browser.answer().0.iter().any(|field| field.contains("access-control")));
}

#[test]
fn any_split_yields_the_same_and_damage_never_panics() {
    let text = STANDARD.encode(HELLO);
    for (kind, body) in [(WEB, HELLO), (TEXT, text.as_bytes())] {
        let mut browser = allowing(Cors::None);
        // In two pieces: a request that is complete in one read is a different event.
        browser.ask("POST", ECHO, &[kind], &[&body[..3], &body[3..]]);
        let bytes = browser.up.take();
        assert_any_split(server, &bytes);
        assert_survives_damage(server, &bytes, 1 << 20);
    }
}

#[test]
fn client_calls_by_grpc_web_and_reads_trailers_from_the_data() {
    let mut client = client();
    client.config.web = true;
    let mut pair = Pair::new(client, server());
    for n in 0..3 {
        let answers = pair.call(CallId(n), &call(b"hello"), |call| {
            let mut reply = Reply::message(Format::Protobuf, call.body.clone());
            reply.trailers.insert("behind", "all");
            match n {
                1 => Reply { result: Err(Status::not_found("gone")), ..reply },
                _ => reply,
            }
        });
        let (id, reply) = sole_reply(answers);
        let want = if n == 1 { Err(Status::not_found("gone")) } else { Ok(Bytes::from_static(b"hello")) };
        assert_eq!((id, reply.result), (CallId(n), want));
        assert_eq!(reply.trailers.get("behind"), Some("all"));
        assert_eq!(pair.client.streams(), 0);
    }
}
