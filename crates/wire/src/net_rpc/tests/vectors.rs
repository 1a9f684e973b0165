//! Vectors recorded between real peers.

use polyrpc_core::testing::{assert_any_split, assert_client_survives_damage, assert_survives_damage};
use serde_json::Value;

use super::*;

#[test]
fn every_captured_call_is_answered_as_by_the_peer() {
    for CapturedCall { name, codec, request, response } in captured() {
        let (mut server, mut out) = (server(codec), Outbox::new());
        let mut inbox = BytesMut::from(&request[..]);
        let (service, method, body, ticket) = match server.next_event(&mut inbox, &mut out) {
            Ok(Some(ServerEvent::Call(call, ticket))) => {
                (call.service.to_owned(), call.method.to_owned(), call.body.clone(), ticket)
            }
            other => panic!("{name}: {other:?}"),
        };
        assert!(server.next_event(&mut inbox, &mut out).expect("nothing more").is_none());
        assert!(inbox.is_empty(), "{name}");
        assert_case(&name, (&service[..], &method[..]), method_of(&name));
        assert!(!body.is_empty(), "{name}");
        let (_, result) = receive_reply(codec, &response);
        server.reply(
            ticket,
            Reply::new(result, polyrpc_core::Head { format: codec.format(), ..<_>::default() }),
            &mut out,
        );
        let written = out.take();
        // The peer's program had numbered more types than it sent.
        match codec {
            Codec::Gob if name.contains("error") || name.contains("no") => {
                assert_case(&name, receive_reply(codec, &written), receive_reply(codec, &response));
            }
            _ => assert_bytes(written, response),
        }
    }
}

#[test]
fn every_captured_request_is_written_as_by_the_peer() {
    for CapturedCall { name, codec, request, .. } in captured() {
        let (mut server, mut out) = (server(codec), Outbox::new());
        let mut inbox = BytesMut::from(&request[..]);
        let Ok(Some(ServerEvent::Call(call, _))) = server.next_event(&mut inbox, &mut out) else {
            panic!("{name}")
        };
        client(codec).send(CallId(3), call, &mut out).expect("the protocol can express it");
        assert_bytes(out.take(), request);
    }
}

#[test]
fn captured_conversations_are_read_for_any_split_and_damage_never_panics() {
    for CapturedCall { codec, request, response, .. } in captured() {
        assert_any_split(|| server(codec), &request);
        let limits = Limits { message: 1 << 16, header: 1 << 12, ..Limits::default() };
        let most = limits.message + 16;
        assert_survives_damage(|| server_within(codec, limits.clone()), &request, most);
        let asked = || {
            let config = ClientConfig { limits: limits.clone(), codec, ..Default::default() };
            let mut client = Client::new(config);
            client
                .send(CallId(7), call(codec, "Arith", "Mul"), &mut Outbox::new())
                .expect("the protocol can express it");
            client
        };
        assert_client_survives_damage(asked, &response, most);
    }
}

#[test]
fn failure_is_answered_with_an_empty_body_where_old_peers_answer_nothing() {
    for (file, codec, want) in [
        ("old_protobuf_error", Codec::Protobuf, "13 0a0b41726974682e4572726f72 1a04626f6f6d 00"),
        ("old_gencode_error", Codec::Gencode, "19 0b41726974682e4572726f72 0000000000000000 04626f6f6d 00"),
    ] {
        let [request, response] = conversation(file);
        assert!(response.is_empty());
        let (mut server, mut out) = (server(codec), Outbox::new());
        let ticket = sole_call(&mut server, &mut BytesMut::from(&request[..]), &mut out);
        server.reply(ticket, Reply::failure(Status::unknown("boom")), &mut out);
        assert_bytes(out.take(), hex(want));
    }
}

/// A recorded call and its response.
struct CapturedCall {
    name: String,
    codec: Codec,
    request: Bytes,
    response: Bytes,
}

/// Returns every recorded call that was answered.
fn captured() -> Vec<CapturedCall> {
    let files = [
        ("gob_mul", Codec::Gob),
        ("gob_error", Codec::Gob),
        ("gob_nomethod", Codec::Gob),
        ("gob_noservice", Codec::Gob),
        ("http_mul", Codec::Gob),
        ("json_mul", Codec::Json),
        ("json_error", Codec::Json),
        ("json_nomethod", Codec::Json),
        ("old_msgpack_mul", Codec::MessagePack),
        ("old_msgpack_echo", Codec::MessagePack),
        ("old_msgpack_echo_go-msgpack-v2", Codec::MessagePack),
        ("old_msgpack_error", Codec::MessagePack),
        ("old_msgpack_error_go-msgpack-v2", Codec::MessagePack),
        ("old_protobuf_mul", Codec::Protobuf),
        ("old_gencode_mul", Codec::Gencode),
    ];
    files
        .map(|(file, codec)| {
            let [request, response] = conversation(file);
            CapturedCall { name: file.to_owned(), codec, request, response }
        })
        .into()
}

/// Returns the bytes that each side sent after the HTTP handshake.
fn conversation(file: &str) -> [Bytes; 2] {
    let path = format!("{}/vectors/netrpc/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let items: Value = serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("JSON");
    let side = |direction: &str| {
        let items = items.as_array().expect("a list");
        let item = items.iter().find(|item| item["direction"] == direction).expect("a direction");
        let bytes = hex(item["hex"].as_str().expect("a text"));
        let preamble = item["fields"]["preamble"].as_str().map_or(0, str::len);
        bytes.slice(preamble..)
    };
    [side("client->server"), side("server->client")]
}

/// Returns the method of a recorded call.
fn method_of(file: &str) -> (&'static str, &'static str) {
    match file {
        file if file.contains("echo") => ("Echo", "Echo"),
        file if file.contains("error") => ("Arith", "Error"),
        file if file.contains("nomethod") => ("Arith", "Nope"),
        file if file.contains("noservice") => ("Nope", "Mul"),
        _ => ("Arith", "Mul"),
    }
}

/// Returns a client's result for a response to its first call.
fn receive_reply(codec: Codec, response: &[u8]) -> (CallId, Result<Bytes, Status>) {
    let (mut client, mut out) = (client(codec), Outbox::new());
    client.send(CallId(7), call(codec, "Arith", "Mul"), &mut out).expect("the protocol can express it");
    let mut inbox = BytesMut::from(response);
    match client.next_event(&mut inbox, &mut out) {
        Ok(Some(ClientEvent::Reply(id, reply))) => (id, reply.result),
        other => panic!("{other:?}"),
    }
}
