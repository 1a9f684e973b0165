use std::path::PathBuf;
use std::sync::Arc;

use crate::Protocol;
use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::session::server::{Housekeeping as _, Pushing as _, Ticket as _};
use polyrpc_core::session::{ClientEvent, NotFound, ServerEvent};
use polyrpc_core::testing::{
    Pair, assert_any_split, assert_bytes, assert_case, assert_client_survives_damage, assert_survives_damage,
    hex, sole_reply,
};
use polyrpc_core::{
    Call, CallId, Code, Detection, Format, Limits, Outbox, Push, Reply, Retry, Status, Topic,
};
use serde_json::Value;

use super::{ByteOrder, Client, ClientConfig, Functions, Server, ServerConfig, Ticket, Version, version};
use crate::sniff::sniff;

const OLD: [Version; 5] =
    [Version::V0_04, Version::V0_11, Version::From20221223, Version::From20230216, Version::V0_20];

const ADD: &[u8] = &[0x92, 7, 8];

/// Returns the functions of the servers from which the vectors were captured.
fn functions() -> Functions {
    let mut functions = Functions::default();
    for name in
        ["add", "echo", "hello", "thr", "get_person", "dummy_add", "dummy::add", "publish", "inc", "zero"]
    {
        functions.add("", name);
    }
    functions.add("example.EchoService", "Echo");
    functions
}

fn server(version: Version) -> Server {
    let config = ServerConfig { limits: Limits::default(), functions: functions() };
    Server::new(Arc::new(config), version)
}

fn client(version: Version) -> Client {
    Client::new(ClientConfig { limits: Limits::default(), version })
}

fn pair(version: Version) -> Pair<Client, Server> {
    Pair::new(client(version), server(version))
}

/// Creates a call of a function with a list of arguments.
fn call<'a>(function: &'a str, arguments: &[u8]) -> Call<'a> {
    let mut call = Call::new("", function, Format::MessagePackArray, Bytes::copy_from_slice(arguments));
    call.head.positional = true;
    call
}

fn sole_call(server: &mut Server, bytes: &[u8], out: &mut Outbox) -> (String, Bytes, Ticket) {
    let mut inbox = BytesMut::from(bytes);
    match server.next_event(&mut inbox, out).expect("no violation") {
        Some(ServerEvent::Call(call, ticket)) => {
            assert!(call.head.positional, "arguments are a list");
            (call.method.to_owned(), call.body, ticket)
        }
        other => panic!("expected a call, got {other:?}"),
    }
}

struct Vector {
    name: String,
    version: Version,
    to_server: bool,
    bytes: Bytes,
    body: Bytes,
}

fn vectors() -> Vec<Vector> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/rest_rpc");
    let mut vectors = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the vectors") {
        let path = entry.expect("an entry").path();
        if path.file_stem().is_some_and(|name| name == "struct_pack_values") {
            continue;
        }
        let file: Value = serde_json::from_slice(&std::fs::read(&path).expect("readable")).expect("JSON");
        let frames = file.as_array().cloned().unwrap_or_else(|| vec![file]);
        for frame in frames {
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let name = text(&frame["name"]);
            vectors.push(Vector {
                version: version_of(&name),
                to_server: text(&frame["direction"]).starts_with("client"),
                bytes: hex(&text(&frame["hex"])),
                body: hex(&text(&frame["fields"]["body_hex"])),
                name,
            });
        }
    }
    vectors.sort_by(|a, b| a.name.cmp(&b.name));
    vectors
}

fn version_of(name: &str) -> Version {
    match name.trim_start_matches("rest_rpc_").split('_').next() {
        Some("w1") => Version::V0_04,
        Some("w2") => Version::V0_11,
        Some("w5") => Version::V0_20,
        Some("w6be") => Version::V0_21(ByteOrder::Big),
        _ => Version::V0_21(ByteOrder::Little),
    }
}

/// Returns every captured call with its response.
fn conversations() -> Vec<(Vector, Vector)> {
    let (to_server, to_client): (Vec<_>, Vec<_>) = vectors().into_iter().partition(|vector| vector.to_server);
    let mut answers: Vec<Option<Vector>> = to_client.into_iter().map(Some).collect();
    let mut pairs = Vec::new();
    for request in to_server {
        let wanted = request.name.replace("c2s", "s2c");
        let answer = answers.iter_mut().find(|answer| answer.as_ref().is_some_and(|it| it.name == wanted));
        if let Some(answer) = answer.and_then(Option::take) {
            pairs.push((request, answer));
        }
    }
    assert!(pairs.len() > 35, "found only {} conversations", pairs.len());
    pairs.retain(|(request, _)| !request.name.contains("subscribe"));
    pairs
}

/// Returns the reply that encodes to this body.
fn reply_of(version: Version, body: &Bytes) -> Reply {
    let failed = |text: &[u8]| Reply::failure(Status::unknown(String::from_utf8_lossy(text).into_owned()));
    let value = |from: usize| Reply::message(version.format(), body.slice(from..));
    match (version, &body[..]) {
        (Version::V0_21(_), [0, ..]) => value(1),
        (Version::V0_21(_), [1, text @ ..]) => {
            Reply::failure(Status::unimplemented(String::from_utf8_lossy(text).into_owned()))
        }
        (Version::V0_21(_), [4, text @ ..]) => {
            failed(text.strip_prefix(b"exception occur when call").unwrap())
        }
        (_, [0x91, 0]) => value(2),
        (_, [0x92, 0, ..]) => value(2),
        (_, [0x92, 1, _, text @ ..]) => failed(text),
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn every_captured_call_is_answered_as_by_the_peer() {
    for (request, answer) in conversations() {
        let (mut server, mut out) = (server(request.version), Outbox::new());
        let (method, _, ticket) = sole_call(&mut server, &request.bytes, &mut out);
        assert_eq!(
            method.starts_with('#') || method == "nosuch",
            request.name.contains("unknown"),
            "{}",
            request.name
        );
        server.reply(ticket, reply_of(request.version, &answer.body), &mut out);
        assert_bytes(out.take(), &answer.bytes);
    }
}

#[test]
fn every_captured_call_is_written_as_by_the_peer() {
    for (request, _) in conversations() {
        let (mut server, mut out) = (server(request.version), Outbox::new());
        let (method, body, _) = sole_call(&mut server, &request.bytes, &mut out);
        let method = if method.is_empty() { "nosuch".to_owned() } else { method };
        let mut call = Call::new("", &method, request.version.format(), body);
        call.head.positional = true;
        let id = match request.name.contains("callback") {
            true => CallId(1 << 63),
            false => CallId(0),
        };
        client(request.version).send(id, call, &mut out).expect("the call can be expressed");
        assert_bytes(out.take(), &request.bytes);
    }
}

#[test]
fn every_captured_response_is_read() {
    for (request, answer) in conversations() {
        let (mut client, mut out) = (client(request.version), Outbox::new());
        client.send(CallId(0), call("f", ADD), &mut out).expect("the call can be expressed");
        let mut inbox = BytesMut::from(&answer.bytes[..]);
        let Ok(Some(ClientEvent::Reply(_, reply))) = client.next_event(&mut inbox, &mut out) else {
            panic!("{} is no answer", answer.name)
        };
        let want = reply_of(request.version, &answer.body).result;
        assert_case(&answer.name, reply.result.clone().ok(), want.clone().ok());
        assert_case(&answer.name, text(reply.result), text(want));
        assert!(inbox.is_empty());
    }
}

fn text(result: Result<Bytes, Status>) -> Option<String> {
    result.err().map(|status| status.message().to_owned())
}

#[test]
fn every_captured_subscription_and_publication_round_trips() {
    let vectors = vectors();
    let subscriptions = vectors.iter().filter(|vector| vector.name.contains("subscribe"));
    let mut count = 0;
    for vector in subscriptions {
        count += 1;
        let coded = matches!(vector.version, Version::V0_21(_));
        let token = if vector.name.contains("token") { "tok1" } else { "" };
        let data: &'static [u8] = if token.is_empty() { b"hello from server" } else { b"for tok1" };
        let key = if coded { "topic1" } else { "key" };
        let topic = [key, token].concat();
        let mut out = Outbox::new();
        if vector.to_server {
            let mut client = client(vector.version);
            client.subscribe(CallId(7), key, token, &mut out).expect("it has topics");
            assert_bytes(out.take(), &vector.bytes);

            let mut inbox = BytesMut::from(&vector.bytes[..]);
            match server(vector.version).next_event(&mut inbox, &mut out) {
                Ok(Some(ServerEvent::Subscribe(Topic::Name(name)))) => assert_eq!(name, topic),
                Ok(Some(ServerEvent::Subscribe(Topic::Id(id)))) => assert_eq!(id, super::number(&topic)),
                other => panic!("{other:?}"),
            }
        } else {
            let push = Push {
                service: topic,
                method: String::new(),
                metadata: Default::default(),
                body: Bytes::from_static(data),
            };
            server(vector.version).push(push, &mut out).expect("it can push");
            assert_bytes(out.take(), &vector.bytes);

            let mut client = client(vector.version);
            client.subscribe(CallId(7), key, token, &mut out).expect("it has topics");
            let mut inbox = BytesMut::from(&vector.bytes[..]);
            match client.next_event(&mut inbox, &mut out) {
                Ok(Some(ClientEvent::Message(CallId(7), message))) => assert_bytes(message.body, data),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(count, 12);
}

#[test]
fn call_and_response_round_trip_in_every_version() {
    for version in Version::ALL {
        let mut pair = pair(version);
        for id in [0, 1, 1 << 40] {
            let sent = call("add", ADD);
            let (back, reply) = sole_reply(pair.call(CallId(id), &sent, |recorded| {
                assert_eq!((recorded.service, recorded.method), ("", "add"));
                assert_bytes(&recorded.body, ADD);
                assert_eq!(recorded.head.format, version.format());
                Reply::message(version.format(), Bytes::from_static(&[15]))
            }));
            assert_eq!(back, CallId(id));
            assert_eq!(reply.result.expect("a value"), &[15][..]);
        }
    }
}

#[test]
fn service_method_is_called_as_by_cpp() {
    for version in Version::ALL {
        let sent = Call { service: "example.EchoService", method: "Echo", ..call("", b"\x90") };
        let answers = pair(version).call(CallId(0), &sent, |recorded| {
            assert_eq!((recorded.service, recorded.method), ("example.EchoService", "Echo"));
            Reply::message(version.format(), Bytes::new())
        });
        assert_eq!(sole_reply(answers).1.result.expect("no value"), "");
    }
}

#[test]
fn single_argument_needs_no_list() {
    for version in OLD {
        let mut sent = call("echo", b"\xa2hi");
        sent.head.positional = false;
        sole_reply(pair(version).call(CallId(0), &sent, |recorded| {
            assert_bytes(&recorded.body, b"\x91\xa2hi");
            Reply::message(Format::MessagePackArray, Bytes::new())
        }));
    }
}

#[test]
fn only_digits_behind_a_hash_are_the_number_of_a_function() {
    let sent = |function: &str| {
        let mut out = Outbox::new();
        client(Version::V0_20)
            .send(CallId(0), call(function, ADD), &mut out)
            .expect("the call can be expressed");
        out.take()
    };
    for name in ["add", "#x", "#+7"] {
        assert_bytes(sent(name), sent(&format!("#{}", super::number(name))));
    }
}

#[test]
fn call_of_a_malformed_number_is_rejected_before_it_is_sent() {
    for version in [Version::V0_20, Version::default()] {
        for name in ["#007", "#00", "#4294967296"] {
            let mut out = Outbox::new();
            let status = client(version).send(CallId(0), call(name, ADD), &mut out).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{name}");
            assert!(status.message().contains("without leading zeros"), "{name}: {status:?}");
            assert!(out.is_empty(), "{name}");
        }
    }
}

#[test]
fn unknown_function_error_names_its_name_or_number() {
    for (version, want) in [
        (Version::V0_04, "unknown function: nosuch"),
        (Version::V0_11, "unknown function: nosuch"),
        (Version::From20221223, "unknown function: nosuch"),
        (Version::From20230216, "unknown function: 2470863502"),
        (Version::V0_20, "unknown function: 2470863502"),
        (Version::default(), "unknown function: 2470863502"),
    ] {
        let mut out = Outbox::new();
        client(version).send(CallId(0), call("nosuch", ADD), &mut out).expect("the call can be expressed");
        let bytes = out.take();
        let mut server = server(version);
        let mut inbox = BytesMut::from(&bytes[..]);
        match server.next_event(&mut inbox, &mut out) {
            Ok(Some(ServerEvent::Call(call, ticket))) => {
                let status = ticket.not_found_failure(&call, NotFound::Service);
                assert_eq!((status.message(), status.code()), (want, Code::Unimplemented));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn name_can_be_bytes() {
    let (mut server, mut out) = (server(Version::V0_11), Outbox::new());
    let call = hex("08000000 0100000000000000 00 93c403616464 0708");
    let (method, body, _) = sole_call(&mut server, &call, &mut out);
    assert_eq!(method, "add");
    assert_bytes(body, ADD);
    let mut inbox = BytesMut::from(&hex("08000000 0000000000000000 01 92c4026b65c40179")[..]);
    match server.next_event(&mut inbox, &mut out) {
        Ok(Some(ServerEvent::Subscribe(Topic::Name(name)))) => assert_eq!(name, "key"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn topic_can_be_invalid_utf8() {
    let version = Version::V0_20;
    let (mut server, mut out) = (server(version), Outbox::new());
    let subscription = "27010000 04000000 0000000000000000 00000000 92a1ff a0";
    let mut inbox = BytesMut::from(&hex(subscription)[..]);
    match server.next_event(&mut inbox, &mut out) {
        Ok(Some(ServerEvent::Subscribe(Topic::Name(name)))) => assert_eq!(name, &b"\xff"[..]),
        other => panic!("{other:?}"),
    }
    server.publish(b"\xff", Bytes::from_static(b"x"), &mut out).expect("it can push");
    let pushed = out.take();
    assert_bytes(&pushed[20..], b"\x93\0\xa1\xff\xa1x");

    let mut client = client(version);
    client.subscribe(CallId(7), "\u{fffd}", "", &mut out).expect("it has topics");
    let answer = client.next_event(&mut BytesMut::from(&pushed[..]), &mut out);
    assert!(matches!(answer, Ok(Some(ClientEvent::Push(_)))), "it is another topic");
}

#[test]
fn missing_parts_of_a_subscription_are_empty() {
    for (body, want) in [("90", ""), ("91a16b", "k"), ("92a16ba174", "kt"), ("93a16ba17407", "kt")] {
        let length = body.len() / 2;
        let frame = hex(&format!("{length:02x}000000 0000000000000000 01 {body}"));
        let (mut server, mut out) = (server(Version::V0_11), Outbox::new());
        match server.next_event(&mut BytesMut::from(&frame[..]), &mut out) {
            Ok(Some(ServerEvent::Subscribe(Topic::Name(name)))) => assert_eq!(name, want),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn incomplete_call_is_answered_before_its_name_is_looked_up() {
    let refused = "9201be756e7061636b206661696c65643a2041726773206e6f74206d6174636821";
    for (bytes, version) in [
        // A text of five bytes, of which one is present; a missing argument.
        ("0a000000 0100000000000000 92a66e6f73756368a561", Version::V0_04),
        ("08000000 0100000000000000 00 92a66e6f73756368", Version::V0_11),
    ] {
        let (mut server, mut out) = (server(version), Outbox::new());
        let mut inbox = BytesMut::from(&hex(bytes)[..]);
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(None)));
        assert_bytes(&out.take()[version.header()..], hex(refused));
    }
    // Bytes after the list are ignored.
    let (mut server, mut out) = (server(Version::V0_04), Outbox::new());
    let (method, ..) =
        sole_call(&mut server, &hex("0a000000 0100000000000000 91a66e6f73756368a561"), &mut out);
    assert_eq!(method, "nosuch");
}

#[test]
fn connection_of_a_cancelled_call_is_reused_only_if_calls_are_concurrent() {
    for version in Version::ALL {
        let (mut client, mut out) = (client(version), Outbox::new());
        client.send(CallId(0), call("add", ADD), &mut out).expect("the call can be expressed");
        client.cancel(CallId(0), &mut out);
        assert_eq!(client.is_reusable(), !version.is_one_at_a_time(), "{version}");
    }
}

#[test]
fn empty_function_name_has_no_number() {
    for (bytes, version) in [
        ("01000000 0100000000000000 90", Version::V0_04),
        ("02000000 0100000000000000 91a0", Version::V0_04),
        ("02000000 0100000000000000 00 91a0", Version::V0_11),
    ] {
        let (mut server, mut out) = (server(version), Outbox::new());
        let mut inbox = BytesMut::from(&hex(bytes)[..]);
        match server.next_event(&mut inbox, &mut out) {
            Ok(Some(ServerEvent::Call(call, ticket))) => {
                let status = ticket.not_found_failure(&call, NotFound::Service);
                assert_eq!(status.message(), "unknown function: ", "{version}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn struct_with_names_is_answered_with_names() {
    for (arguments, want) in [
        (&b"\x92\x07\x08"[..], Format::MessagePackArray),
        (b"\x91\x93\x01\xa3tom\x14", Format::MessagePackArray),
        (b"\x91\x82\xa2id\x01\xa3age\x14", Format::MessagePack),
        (b"\x92\x01\x91\x81\xa2id\x01", Format::MessagePack),
        (b"\x91\x81\x01\x02", Format::MessagePackArray),
        (b"\x90", Format::MessagePackArray),
    ] {
        sole_reply(pair(Version::V0_20).call(CallId(0), &call("echo", arguments), |recorded| {
            assert_eq!(recorded.head.format, want, "{}", arguments.escape_ascii());
            Reply::message(want, Bytes::from_static(b"\xc0"))
        }));
    }
}

#[test]
fn empty_results_and_other_formats_are_answered() {
    for (format, value, want) in [
        (Format::MessagePackArray, &b""[..], &b"\x91\0"[..]),
        (Format::MessagePackArray, b"\xc0", b"\x92\0\xc0"),
        (Format::MessagePack, b"\xc0", b"\x91\0"),
        (Format::Raw, b"raw", b"\x92\0\xa3raw"),
        (Format::Raw, &[b'x'; 40], &[&b"\x92\0\xd9\x28"[..], &[b'x'; 40]].concat()),
    ] {
        let (mut server, mut out) = (server(Version::V0_20), Outbox::new());
        let (_, _, ticket) =
            sole_call(&mut server, &hex("27000000010000000100000000000000fc78ec3490"), &mut out);
        server.reply(ticket, Reply::message(format, Bytes::copy_from_slice(value)), &mut out);
        assert_bytes(&out.take()[20..], want);
    }
}

#[test]
fn call_whose_body_is_not_a_list_is_answered_and_the_next_is_read() {
    let good = "07000000630000000000000093a36164640708";
    for broken in ["0100000001000000000000007f", "010000000100000000000000c1", "02000000010000000000000091ff"]
    {
        let (mut server, mut out) = (server(Version::V0_04), Outbox::new());
        let (method, body, _) = sole_call(&mut server, &hex(&[broken, good].concat()), &mut out);
        assert_eq!(method, "add");
        assert_bytes(body, ADD);
        assert_bytes(
            out.take(),
            hex("2100000001000000000000009201be756e7061636b206661696c65643a2041726773206e6f74206d6174636821"),
        );
    }
}

#[test]
fn versions_without_call_ids_allow_one_call_at_a_time() {
    for version in Version::ALL {
        let mut out = Outbox::new();
        let mut client = client(version);
        for id in 0..2 {
            client.send(CallId(id), call("add", ADD), &mut out).expect("the call can be expressed");
        }
        let mut inbox = BytesMut::from(&out.take()[..]);
        let mut server = server(version);
        let Ok(Some(ServerEvent::Call(_, first))) = server.next_event(&mut inbox, &mut out) else {
            panic!("no first call")
        };
        let second = matches!(server.next_event(&mut inbox, &mut out), Ok(Some(_)));
        assert_eq!(second, !version.is_one_at_a_time());
        assert_eq!(client.concurrency() == 1, version.is_one_at_a_time());
        server.reply(first, Reply::message(version.format(), Bytes::from_static(&[1])), &mut out);
        if !second {
            assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::Call(..)))));
        }
    }
}

#[test]
fn heartbeat_is_not_answered() {
    for version in OLD {
        let mut out = Outbox::new();
        assert!(!client(version).heartbeat(&mut out), "none comes");
        let bytes = out.take();
        assert_eq!(bytes.len(), version.header());
        let mut inbox = BytesMut::from(&bytes[..]);
        assert!(server(version).next_event(&mut inbox, &mut out).expect("no violation").is_none());
        assert!(inbox.is_empty() && out.is_empty());
    }
    let mut out = Outbox::new();
    assert!(!client(Version::default()).heartbeat(&mut out));
    assert!(out.is_empty(), "an empty call is a call since v0.21");
}

#[test]
fn frame_without_a_body_is_a_heartbeat_up_to_v0_20() {
    for (bytes, version) in [
        ("27010000 00000000 0000000000000000 00000000", Version::V0_20),
        ("27020000 00000000 0000000000000000 00000000", Version::V0_20),
        ("27010000 00000000 0000000000000000", Version::From20221223),
        ("00000000 0000000000000000 01", Version::V0_11),
        ("00000000 0000000000000000 ff", Version::V0_11),
        ("00000000 0100000000000000", Version::V0_04),
    ] {
        let (mut server, mut out) = (server(version), Outbox::new());
        let mut inbox = BytesMut::from(&hex(bytes)[..]);
        assert!(server.next_event(&mut inbox, &mut out).expect(bytes).is_none(), "{bytes}");
        assert_eq!(server.heartbeats(), 1, "{bytes}");
        assert!(inbox.is_empty() && out.is_empty());

        let mut inbox = BytesMut::from(&hex(bytes)[..]);
        client(version).next_event(&mut inbox, &mut out).expect_err("a server sends none");
    }
}

#[test]
fn malformed_subscription_is_skipped() {
    // A number, lists of numbers, of a truncated text, and of too many elements, truncated.
    for body in ["07", "920708", "91a26b", "93a16ba0a5"] {
        let length = body.len() / 2;
        let broken = format!("27010000 {length:02x}000000 0000000000000000 00000000 {body}");
        let good = "27000000 03000000 0100000000000000 fc78ec34 920708";
        let (mut server, mut out) = (server(Version::V0_20), Outbox::new());
        let (method, body, _) = sole_call(&mut server, &hex(&(broken + good)), &mut out);
        assert_eq!(method, "add");
        assert_bytes(body, ADD);
        assert!(out.is_empty());
    }
}

#[test]
fn response_too_long_for_any_client_is_a_failure() {
    let long = Bytes::from(vec![b'x'; 10 << 20]);
    for version in OLD {
        let (_, reply) =
            sole_reply(pair(version).call(CallId(0), &call("add", ADD), |_| {
                Reply::message(Format::MessagePackArray, long.clone())
            }));
        let status = reply.result.expect_err("too long");
        let named = if version.calls_by_name() { "add" } else { "" };
        assert_eq!(status.message(), format!("the response result is out of range: more than 10M {named}"));
    }
    let answers = pair(Version::default())
        .call(CallId(0), &call("add", ADD), |_| Reply::message(Format::RestRpc, long.clone()));
    assert_eq!(sole_reply(answers).1.result.expect("no limit but ours").len(), long.len());
}

#[test]
fn body_of_10_mib_closes_the_connection_before_allocation() {
    for (head, version) in [
        ("0000a000 0100000000000000", Version::V0_04),
        ("ffffffff 0100000000000000 00", Version::V0_11),
        ("27000000 0000a000 0100000000000000 00000000", Version::V0_20),
        ("27000000 01000000 0000000000000000 ffffffffffffffff 0000000000000000", Version::default()),
    ] {
        let mut inbox = BytesMut::from(&hex(head)[..]);
        let mut server = server(version);
        server.next_event(&mut inbox, &mut Outbox::new()).expect_err("too long");
        let mut inbox = BytesMut::from(&hex(head)[..]);
        client(version).next_event(&mut inbox, &mut Outbox::new()).expect_err("too long");
    }
}

#[test]
fn call_above_the_limit_is_answered_and_the_next_is_read() {
    for version in Version::ALL {
        let config =
            ServerConfig { limits: Limits { message: 1024, ..Limits::default() }, functions: functions() };
        let mut pair = Pair::new(client(version), Server::new(Arc::new(config), version));
        let long = [&hex("dc0800")[..], &[7; 0x0800]].concat();
        let answers = pair.call(CallId(1), &call("add", &long), |_| panic!("{version}: it is not called"));
        let (id, reply) = sole_reply(answers);
        let status = reply.result.expect_err("too large");
        assert_eq!((id, status.code(), status.retry()), (CallId(1), Code::ResourceExhausted, Retry::Never));
        assert!(status.message().contains("1024 are allowed"), "{version}: {status}");
        assert_eq!(pair.server.take_refusals().map(|refusals| refusals.too_large), Some(1), "{version}");
        let answers = pair.call(CallId(2), &call("add", ADD), |_| {
            Reply::message(version.format(), Bytes::from_static(&[15]))
        });
        assert!(sole_reply(answers).1.result.is_ok(), "{version}: the connection goes on");
    }
}

#[test]
fn other_magic_byte_closes_the_connection() {
    for version in [Version::V0_20, Version::default()] {
        let mut inbox = BytesMut::from(&hex("28")[..]);
        server(version).next_event(&mut inbox, &mut Outbox::new()).expect_err("not of rest_rpc");
    }
}

#[test]
fn frame_of_an_unknown_kind_is_skipped_by_servers_up_to_v0_20_only() {
    for (other, good, version) in [
        ("01000000 0100000000000000 02 90", "07000000 0200000000000000 00 93a3616464 0708", Version::V0_11),
        (
            "27ff0000 01000000 0100000000000000 90",
            "27000000 07000000 0200000000000000 93a3616464 0708",
            Version::From20221223,
        ),
        (
            "27020000 01000000 0100000000000000 fc78ec34 90",
            "27000000 03000000 0200000000000000 fc78ec34 92 0708",
            Version::V0_20,
        ),
    ] {
        let (mut server, mut out) = (server(version), Outbox::new());
        let (method, body, _) = sole_call(&mut server, &hex(&[other, good].concat()), &mut out);
        assert_eq!(method, "add", "{version}");
        assert_bytes(body, ADD);
        assert!(out.is_empty(), "it has no answer");

        let mut inbox = BytesMut::from(&hex(other)[..]);
        client(version).next_event(&mut inbox, &mut out).expect_err("no answer");
    }
}

#[test]
fn frame_without_a_topic_is_a_call_since_v0_21() {
    for kind in ["02", "ff"] {
        let add = format!("270000{kind} 34ec78fc 0000000000000000 0000000000000001 0000000000000000 07");
        let (mut server, mut out) = (server(Version::V0_21(ByteOrder::Big)), Outbox::new());
        let (method, body, _) = sole_call(&mut server, &hex(&add), &mut out);
        assert_eq!(method, "add");
        assert_bytes(body, [7]);
    }
}

#[test]
fn unsupported_call_is_rejected() {
    for version in Version::ALL {
        let mut out = Outbox::new();
        let mut send = |call: Call<'_>| client(version).send(CallId(0), call, &mut out).is_err();
        assert!(send(Call { attachment: Bytes::from_static(b"x"), ..call("add", ADD) }));
        let mut compressed = call("add", ADD);
        compressed.head.compression = polyrpc_core::Compression::Gzip;
        assert!(send(compressed));
        let mut adorned = call("add", ADD);
        adorned.head.metadata.insert("k", "v");
        assert!(send(adorned));
        assert!(out.is_empty());
    }
}

#[test]
fn slow_subscriber_loses_its_subscription_only() {
    let version = Version::V0_20;
    let (mut client, mut server, mut out) = (client(version), server(version), Outbox::new());
    client.subscribe(CallId(1), "key", "", &mut out).expect("topics");
    client.subscribe(CallId(2), "key", "", &mut out).expect("topics");
    assert_eq!(out.take().len(), 26, "one subscription is sent");
    let data = Bytes::from(vec![b'x'; 9 << 20]);
    let mut ended = Vec::new();
    for _ in 0..5 {
        let push = Push {
            service: "key".into(),
            method: String::new(),
            metadata: Default::default(),
            body: data.clone(),
        };
        server.push(push, &mut out).expect("it can push");
        let mut inbox = BytesMut::from(&out.take()[..]);
        while let Some(answer) = client.next_event(&mut inbox, &mut out).expect("understood") {
            match answer {
                ClientEvent::Message(CallId(2), message) => {
                    client.record_consumed(CallId(2), message.body.len(), &mut out)
                }
                ClientEvent::Message(..) => {}
                ClientEvent::Reply(id, reply) => ended.push((id, reply.result.expect_err("too slow").code())),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(ended, [(CallId(1), Code::ResourceExhausted)]);
}

#[test]
fn draining_server_rejects_calls() {
    for version in Version::ALL {
        let mut pair = pair(version);
        pair.server.drain(&mut Outbox::new());
        let (_, reply) = sole_reply(pair.call(CallId(0), &call("add", ADD), |_| panic!("it is refused")));
        assert_eq!(reply.result.expect_err("refused").code(), Code::Unavailable);
    }
}

#[test]
fn version_is_detected_by_the_first_bytes_of_every_capture() {
    for vector in vectors().iter().filter(|vector| vector.to_server) {
        let heartbeat = vector.body.is_empty() && vector.version == Version::V0_20;
        // A heartbeat is recognised only together with the bytes after it.
        let bytes = if heartbeat { [&vector.bytes[..], &[39]].concat() } else { vector.bytes.to_vec() };
        let told = version(&bytes);
        match vector.version {
            Version::V0_20 | Version::V0_21(ByteOrder::Little) => {
                assert_eq!(told, Some(vector.version), "{}", vector.name);
                for end in 0..bytes.len() {
                    let guess = sniff(&bytes[..end], &Protocol::ALL);
                    assert_ne!(guess, Detection::Unknown, "{} bytes of {}", end, vector.name);
                    let early = version(&bytes[..end]);
                    assert!(early.is_none() || early == told, "{} bytes of {}", end, vector.name);
                }
                assert_eq!(sniff(&bytes, &Protocol::ALL), Detection::Is(Protocol::RestRpc));
            }
            _ => assert_ne!(told, Some(Version::V0_20), "{}", vector.name),
        }
    }
}

#[test]
fn call_of_v0_20_is_detected_with_any_padding() {
    for padding in ["abcd", "00cd", "ab00", "0001", "0101"] {
        let call = hex(&format!("2700{padding} 03000000 0100000000000000 fc78ec34 920708"));
        assert_eq!(version(&call), Some(Version::V0_20), "{padding}");
        for end in 0..call.len() {
            assert_ne!(sniff(&call[..end], &Protocol::ALL), Detection::Unknown, "{end} bytes, {padding}");
        }
    }
}

#[test]
fn ambiguous_bytes_match_no_version() {
    for untold in [Version::From20221223, Version::From20230216] {
        let mut out = Outbox::new();
        client(untold).send(CallId(0), call("add", ADD), &mut out).expect("the call can be expressed");
        assert_eq!(version(&out.take()), None);
    }
    // Padding other than zero, before a heartbeat, a subscription and a body that is not a list.
    for front in [
        "2700abcd 00000000 0000000000000000 00000000 27",
        "2701abcd 03000000 0000000000000000 00000000 92a0a0",
        "2700abcd 03000000 0100000000000000 fc78ec34 070809",
        "2700abcd 0000a000 0100000000000000 fc78ec34 920708",
    ] {
        assert_eq!(sniff(&hex(front), &Protocol::ALL), Detection::Unknown, "{front}");
    }
    // A big-endian call with a body.
    assert_eq!(version(&hex("2700000034ec78fc000000000000000000000000000000120000000000000000")), None);
}

#[test]
fn any_split_of_a_conversation_yields_the_same_events() {
    for version in Version::ALL {
        let mut out = Outbox::new();
        let mut client = client(version);
        client.heartbeat(&mut out);
        client.send(CallId(0), call("add", ADD), &mut out).expect("the call can be expressed");
        if version != Version::V0_04 {
            client.subscribe(CallId(1), "key", "token", &mut out).expect("topics");
        }
        client
            .send(CallId(2), call("nosuch", b"\x91\x93\x01\xa3tom\x14"), &mut out)
            .expect("the call can be expressed");
        let bytes = out.take();
        assert_any_split(|| server(version), &bytes);
        assert_survives_damage(|| server(version), &bytes, Limits::default().message);
    }
}

#[test]
fn damaged_responses_never_panic() {
    for vector in vectors().iter().filter(|vector| !vector.to_server) {
        let waiting = || {
            let (mut client, mut out) = (client(vector.version), Outbox::new());
            client.send(CallId(0), call("f", ADD), &mut out).expect("the call can be expressed");
            if vector.version != Version::V0_04 {
                client.subscribe(CallId(1), "key", "", &mut out).expect("topics");
            }
            client
        };
        assert_client_survives_damage(waiting, &vector.bytes, Limits::default().message);
    }
}
