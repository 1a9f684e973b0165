//! Connections that are upgraded to HTTP/2.

use polyrpc_core::testing::assert_survives_damage;
use polyrpc_core::{Format, Json, Metadata};

use super::*;
use crate::http::h2::{self, Connection};
use crate::http_server;

fn h2c() -> Arc<ServerConfig> {
    Arc::new(ServerConfig { h2c: true, ..(*config()).clone() })
}

/// Empty settings, and a window of 10 bytes.
const SETTINGS: [&str; 2] = ["", "AAQAAAAK"];

fn request(settings: &str, fields: &str, body: &str) -> String {
    format!(
        "POST /EchoService/Echo HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: {settings}\r\nContent-Type: application/json\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the HTTP/2 session after the upgrade, which answers the request.
fn upgrade(request: &str) -> http_server::h2::Server {
    let mut connection = TestConnection { server: Server::new(h2c()), ..TestConnection::new() };
    connection.send(request).send("PRI");
    let Ok(Some(ServerEvent::Upgrade(upgrade))) =
        connection.server.next_event(&mut connection.inbox, &mut connection.out)
    else {
        panic!("no upgrade");
    };
    assert_eq!(
        connection.output(),
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    );
    assert_eq!(connection.inbox[..], b"PRI"[..], "what follows is HTTP/2's");
    let grpc = http_server::h2::ServerConfig { gateway: Some(h2c()), ..Default::default() };
    http_server::h2::Server::from_upgrade(grpc.into(), upgrade.downcast().expect("HTTP/2's"))
}

/// Echoes all received calls.
fn echo_all(server: &mut http_server::h2::Server, inbox: &mut BytesMut, out: &mut Outbox) {
    while let Some(event) = server.next_event(inbox, out).expect("no violation") {
        match event {
            ServerEvent::Call(call, ticket) => {
                let reply = Reply::message(call.head.format, call.body.clone());
                server.reply(ticket, reply, out);
            }
            ServerEvent::Room(_) => {}
            _ => panic!("nothing else happens"),
        }
    }
}

/// Returns type, stream and payload of each frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, _, s, t, u, v], rest)) = bytes.split_first_chunk::<9>() {
        let (payload, rest) = rest.split_at(u32::from_be_bytes([0, a, b, c]) as usize);
        frames.push((kind, u32::from_be_bytes([s, t, u, v]), payload.to_vec()));
        bytes = rest;
    }
    frames
}

#[test]
fn upgrade_request_is_answered_over_http_2() {
    let mut server = upgrade(&request(SETTINGS[0], "", "{\"a\":1}"));
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    // The response need not wait for the client's preface.
    echo_all(&mut server, &mut inbox, &mut out);
    let sent = frames(&out.take());
    assert_eq!((sent[0].0, sent[0].1), (4, 0), "the settings come first");
    let (_, _, data) = sent.iter().find(|(kind, stream, _)| (*kind, *stream) == (0, 1)).expect("data");
    assert_eq!(data, b"{\"a\":1}");

    let mut up = Outbox::new();
    let mut client: Connection = Connection::client(Default::default());
    client.send_settings(&mut up);
    inbox.extend_from_slice(&up.take());
    echo_all(&mut server, &mut inbox, &mut out);
    assert!(inbox.is_empty(), "the preface is taken");
    assert_eq!(frames(&out.take()), [(4, 0, vec![])], "and the settings acknowledged");
}

#[test]
fn client_settings_apply_from_the_start() {
    let body = "{\"long\":\"longer than the window\"}";
    let mut server = upgrade(&request(SETTINGS[1], "", body));
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    echo_all(&mut server, &mut inbox, &mut out);
    let data = |sent: &[u8]| -> Vec<u8> {
        frames(sent).into_iter().filter(|(kind, ..)| *kind == 0).flat_map(|(.., data)| data).collect()
    };
    assert_eq!(data(&out.take()), body.as_bytes()[..10]);
    let window = h2::Config { window: 1000, ..Default::default() };
    let mut up = Outbox::new();
    let mut client: Connection = Connection::client(window.into());
    client.send_settings(&mut up);
    inbox.extend_from_slice(&up.take());
    echo_all(&mut server, &mut inbox, &mut out);
    assert_eq!(data(&out.take()), body.as_bytes()[10..]);
}

#[test]
fn grpc_calls_can_upgrade() {
    for (content_type, end) in
        [("application/grpc", None), ("application/grpc-web", Some(&b"grpc-status:0"[..]))]
    {
        let request = request(SETTINGS[0], "", "\0\0\0\0\x02hi").replace("application/json", content_type);
        let mut server = upgrade(&request);
        let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
        let Ok(Some(ServerEvent::Call(call, ticket))) = server.next_event(&mut inbox, &mut out) else {
            panic!("no call");
        };
        assert_eq!((call.service, call.method, &call.body[..]), ("EchoService", "Echo", &b"hi"[..]));
        let reply = Reply::message(Format::Protobuf, call.body.clone());
        drop(call);
        server.reply(ticket, reply, &mut out);
        let sent = out.take();
        assert!(end.is_none_or(|end| sent.windows(end.len()).any(|part| part == end)));
    }
}

#[test]
fn invalid_upgrade_request_stays_in_http_1() {
    let good = request(SETTINGS[1], "", "{}");
    for request in [
        good.replace("HTTP2-Settings\r\n", "\r\n"),
        good.replace("Upgrade: h2c", "Upgrade: websocket"),
        good.replace(": AAQAAAAK", ": AAQ"),
        good.replace(": AAQAAAAK", ": ????"),
        good.replace("HTTP2-Settings: ", "HTTP2-Settings: AAQAAAAK\r\nHTTP2-Settings: "),
        good.replace("HTTP/1.1", "HTTP/1.0"),
    ] {
        let mut connection = TestConnection { server: Server::new(h2c()), ..TestConnection::new() };
        let (call, _) = connection.send(request).call().expect("a call");
        assert_eq!(call.head.metadata, Metadata::new());
    }
    assert!(TestConnection::new().send(&good).call().is_some(), "where it is not offered");
    let mut connection = TestConnection { server: Server::new(h2c()), ..TestConnection::new() };
    connection.send("POST /S/M HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").send(&good);
    assert_eq!(connection.calls().len(), 2, "an earlier answer is pending");
}

#[test]
fn json_rpc_batches_can_upgrade() {
    let batch = r#"[{"jsonrpc":"2.0","method":"A.b","params":[1],"id":1}]"#;
    let mut server = upgrade(&request(SETTINGS[0], "X-JSONRPC-2.0: true\r\n", batch));
    let (mut inbox, mut out) = (BytesMut::new(), Outbox::new());
    let Ok(Some(ServerEvent::Call(call, ticket))) = server.next_event(&mut inbox, &mut out) else {
        panic!("no call");
    };
    assert_eq!(call.head.format, Format::Json(Json::Go));
    drop(call);
    server.reply(ticket, Reply::message(Format::Json(Json::Go), "2".into()), &mut out);
    let sent = out.take();
    let want = br#"[{"jsonrpc":"2.0","result":2,"id":1}]"#;
    assert!(sent.windows(want.len()).any(|part| part == want));
}

#[test]
fn damaged_upgrade_request_never_panics() {
    assert_survives_damage(|| Server::new(h2c()), request(SETTINGS[1], "", "{}").as_bytes(), 64 << 10);
}
