use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyrpc_core::protocol::Parameters;
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::server::Ticket as _;
use polyrpc_core::session::{ClientEvent, ServerEvent};
use polyrpc_core::testing::{
    Pair, assert_any_split, assert_bytes, assert_case, assert_client_survives_damage, assert_survives_damage,
    hex, record_events, sole_reply,
};
use polyrpc_core::{
    Call, CallId, Checksum, Code, Compression, Credential, Detection, Format, Head, Limits, Outbox, Reply,
    Status,
};
use serde_json::Value;

use super::{
    Client, ClientConfig, DESCRIPTOR, Magic, Server, ServerConfig, ServiceDirectory, ServiceHash, recognise,
    service_id, status, version,
};

#[test]
fn service_ids_are_hashes_of_their_names() {
    for row in vectors()["service_ids"].as_array().expect("rows") {
        let name = text(&row["name"]);
        assert_case(
            name,
            u64::from(service_id(name, ServiceHash::OneDot)),
            row["murmur3_x86_32"].as_u64().expect("a number"),
        );
    }
    let double = service_id("test..BenchmarkService", ServiceHash::OneDot);
    assert_eq!(service_id("test.BenchmarkService", ServiceHash::TwoDots), double);
    let global = service_id("BenchmarkService", ServiceHash::OneDot);
    assert_eq!(service_id("BenchmarkService", ServiceHash::TwoDots), global);
}

#[test]
fn every_request_vector_is_read_and_rewritten() {
    let mut recorded = 0;
    for vector in vectors()["vectors"].as_array().expect("vectors") {
        let (name, bytes, fields) = (text(&vector["name"]), hex(text(&vector["hex"])), &vector["fields"]);
        if vector["direction"] != "client_to_server" {
            continue;
        }
        recorded += 1;
        let (mut server, mut inbox, mut out) = (server(), BytesMut::from(&bytes[..]), Outbox::new());
        let event =
            server.next_event(&mut inbox, &mut out).expect("the frame is valid").expect("it is a call");
        let ServerEvent::Call(call, _) = event else { panic!("{name}: expected a call") };
        assert_case(name, call.service, "test.BenchmarkService");
        assert_case(name, call.method, "Test");
        assert_case(name, call.head.format, Format::FlatBuffers);
        assert_case(name, call.body.len() as u64, fields["message_size"].as_u64().expect("a number"));
        let attached = fields["attachment_size"].as_u64().unwrap_or_default();
        assert_case(name, call.attachment.len() as u64, attached);

        let magic = if bytes.starts_with(b"BRPC") { Magic::Brpc } else { Magic::Frpc };
        let id = CallId(fields["correlation_id"].as_u64().unwrap_or(1));
        let call = Call { method: "Test#7,0", ..call };
        let mut out = Outbox::new();
        client(magic).send(id, call, &mut out).expect("the call can be expressed");
        assert_bytes(out.take(), &bytes);
    }
    assert_eq!(recorded, 3);
}

#[test]
fn every_response_vector_is_read_and_rewritten() {
    let mut pair = Pair::new(client(Magic::Frpc), server());
    for (name, id) in [("frpc_response", 0x0102_0304_0506_0708), ("frpc_response_error_1002", 3)] {
        let bytes = vector(name);
        let (_, reply) = heard_by_client(&bytes);
        let request = call(b"message");
        let answers = pair.call(CallId(id), &request, |_| reply.clone());
        let (answered, again) = sole_reply(answers);
        assert_case(name, answered, CallId(id));
        assert_case(
            name,
            again.result.map_err(|status| status.code()),
            reply.result.clone().map_err(|status| status.code()),
        );

        let (mut server, mut out) = (server(), Outbox::new());
        let ticket = ticket(&mut server, id);
        server.reply(ticket, reply, &mut out);
        assert_bytes(out.take(), &bytes);
    }
    assert_eq!(
        heard_by_client(&vector("frpc_response_error_1002")).1.result.unwrap_err().number(),
        Some(1002)
    );
}

#[test]
fn both_magics_are_detected() {
    for start in [&b"FRPC"[..], b"BRPC", b"FRPC\0\0"] {
        assert_eq!(recognise(start), Detection::Is(()));
    }
    assert_eq!(recognise(b"FR"), Detection::NeedMore);
    assert_eq!(recognise(b"PRPC"), Detection::Unknown);
}

#[test]
fn any_split_of_the_bytes_yields_the_same_events() {
    let bytes = [
        &vector("frpc_request")[..],
        &vector("brpc_legacy_request_pr3197"),
        &request(24, -1, 0, b"x"),
        &vector("frpc_request_attachment"),
        b"GET /",
    ]
    .concat();
    assert_any_split(server, &bytes);
    let recorded = record_events(server(), &[&bytes]);
    assert_eq!((recorded.calls.len(), recorded.foreign), (4, true));
}

#[test]
fn damaged_frames_never_panic() {
    let bytes = [vector("frpc_request"), vector("frpc_request_attachment")].concat();
    let limits = Limits::default();
    assert_survives_damage(server, &bytes, limits.message + 12);
    let bytes = [vector("frpc_response"), vector("frpc_response_error_1002")].concat();
    assert_client_survives_damage(|| client(Magic::Frpc), &bytes, limits.message + 12);
}

/// A required credential is checked before the sizes are.
#[test]
fn invalid_sizes_fail_the_call_only() {
    let malformed = |magic: Magic, message, attachment| {
        let mut bytes = [request(24, message, attachment, b"four!"), request(24, 4, 1, b"four!")].concat();
        bytes[..4].copy_from_slice(magic.letters());
        let (mut server, mut inbox) = (server(), BytesMut::from(&bytes[..]));
        let mut next = || match server.next_event(&mut inbox, &mut Outbox::new()) {
            Ok(Some(ServerEvent::Call(call, _))) => call.malformed.and_then(|status| status.number()),
            event => panic!("expected a call: {event:?}"),
        };
        let first = next();
        assert_eq!(next(), None, "the connection goes on");
        first
    };
    let many = [(-1, 4), (0, 4), (4, 0), (4, -1), (3, 1), (i32::MAX, i32::MAX), (0, 0), (0, 5), (99, 1)];
    for (message, attachment) in many {
        let case = format!("{message}+{attachment}");
        assert_case(&case, malformed(Magic::Frpc, message, attachment), Some(1003));
        assert_case(&case, malformed(Magic::Brpc, message, attachment), Some(1003));
    }
    // The first proposal can express "no attachment" in two ways.
    assert_eq!(malformed(Magic::Brpc, 5, -1), None);
    assert_eq!(malformed(Magic::Frpc, 5, -1), Some(1003));
}

#[test]
fn message_over_the_limit_is_not_sent() {
    let limits = Limits { message: 100, ..Limits::default() };
    let config = Arc::new(ServerConfig { limits: limits.clone(), ..ServerConfig::default() });
    let client = Client::new(ClientConfig { limits, ..ClientConfig::default() });
    let mut pair = Pair::new(client, Server::new(config));
    let answer = |bytes: usize| Reply::message(Format::FlatBuffers, vec![1; bytes].into());
    assert!(sole_reply(pair.call(CallId(1), &call(&[1; 76]), |_| answer(80))).1.result.is_ok());
    let told = sole_reply(pair.call(CallId(2), &call(b"m"), |_| answer(81))).1.result.unwrap_err();
    assert_eq!(told.number(), Some(2002));
    let status = pair.client.send(CallId(3), call(&[1; 77]), &mut Outbox::new()).unwrap_err();
    assert_eq!(status.number(), Some(1003));
}

#[test]
fn request_above_the_limit_is_answered_however_it_arrives_and_the_next_is_read() {
    let limits = Limits { message: 100, ..Limits::default() };
    let config = Arc::new(ServerConfig { limits, ..ServerConfig::default() });
    let bytes = [request(24, 77, 0, &[1; 77]), request(24, 4, 1, b"four!")].concat();
    for size in [1, 35, bytes.len()] {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        let recorded = record_events(Server::new(config.clone()), &pieces);
        assert_eq!((recorded.violation, recorded.calls.len()), (None, 1), "{size}");
        assert_eq!(error_codes(&recorded.out), [1003], "{size}");
    }
    let without_fields = request(0, 77, 0, &[1; 77]);
    assert!(record_events(Server::new(config), &[&without_fields]).violation.is_some());
}

#[test]
fn failure_with_a_message_is_an_invalid_response() {
    let mut bytes = vector("frpc_response").to_vec();
    bytes[12] = 1;
    assert_eq!(heard_by_client(&bytes).1.result.unwrap_err().number(), Some(2002));
}

#[test]
fn method_of_another_format_is_unknown() {
    let (mut server, mut out) = (server(), Outbox::new());
    let mut inbox = BytesMut::from(&vector("frpc_request")[..]);
    let Ok(Some(ServerEvent::Call(_, ticket))) = server.next_event(&mut inbox, &mut out) else {
        panic!("expected a call")
    };
    let status = ticket.decode_failure()(Status::invalid_argument("it takes protobuf"));
    assert_eq!(status.number(), Some(1002));
    let failed = Status::invalid_argument("no message").with_number(status::FAILED);
    assert_eq!(ticket.decode_failure()(failed).number(), Some(-1));
}

#[test]
fn longer_meta_is_accepted_and_shorter_meta_closes_the_connection() {
    let newer = request(28, 4, 1, b"newrfour!");
    assert_eq!(record_events(server(), &[&newer]).calls.len(), 1);
    let older = request(23, 4, 1, b"four!");
    assert!(record_events(server(), &[&older]).violation.is_some());
}

#[test]
fn meta_past_its_body_or_body_past_the_limit_closes_the_connection() {
    let past = [&b"FRPC"[..], &8_u32.to_be_bytes(), &24_u32.to_be_bytes()].concat();
    let violation = record_events(server(), &[&past]).violation.expect("it ends");
    assert_eq!(violation.to_string(), "a meta of 24 bytes exceeds its body of 8");
    let long = [&b"FRPC"[..], &u32::MAX.to_be_bytes(), &24_u32.to_be_bytes()].concat();
    let violation = record_events(server(), &[&long]).violation.expect("it ends");
    assert_eq!(violation.to_string(), "a body of 4294967295 bytes exceeds the limit of 67108864");
}

#[test]
fn unknown_service_and_method_numbers_are_reported() {
    let (mut server, mut out) = (server(), Outbox::new());
    let known = service_id("test.BenchmarkService", ServiceHash::OneDot);
    for (service, method, want) in [
        (known, 8_i32, ("test.BenchmarkService", "#8")),
        (known, -1, ("test.BenchmarkService", "#-1")),
        // Only the first proposal uses the index.
        (known, 0, ("test.BenchmarkService", "#0")),
        (1, 7, ("#1", "#7")),
    ] {
        let mut bytes = request(24, 4, 1, b"four!");
        bytes[12..16].copy_from_slice(&service.to_le_bytes());
        bytes[16..20].copy_from_slice(&method.to_le_bytes());
        let mut inbox = BytesMut::from(&bytes[..]);
        let Ok(Some(ServerEvent::Call(call, ticket))) = server.next_event(&mut inbox, &mut out) else {
            panic!("expected a call")
        };
        assert_eq!((call.service, call.method), want);
        let refusal = ticket.not_found_failure(&call, polyrpc_core::session::NotFound::Method);
        server.reply(ticket, Reply::failure(refusal), &mut out);
    }
    assert_eq!(error_codes(&out.take()), [1002; 4]);
}

#[test]
fn listener_of_one_magic_closes_connections_of_the_other() {
    let config = ServerConfig { only: Some(Magic::Brpc), directory: directory(), ..ServerConfig::default() };
    let config = Arc::new(config);
    let new = || Server::new(config.clone());
    let violation = record_events(new(), &[b"FRPC"]).violation.expect("it ends");
    assert_eq!(violation.to_string(), "the frame has the other magic of fb_rpc");
    assert!(!record_events(new(), &[&vector("frpc_request")]).foreign);
    assert_eq!(record_events(new(), &[&vector("brpc_legacy_request_pr3197")]).calls.len(), 1);
    assert_any_split(new, b"FR");
}

#[test]
fn calls_round_trip_with_both_magics() {
    for magic in [Magic::Frpc, Magic::Brpc] {
        let mut pair = Pair::new(client(magic), server());
        let request = Call { attachment: Bytes::from_static(b"beside"), ..call(b"message") };
        let answers = pair.call(CallId(5), &request, |call| {
            assert_eq!((call.service, call.method), ("test.BenchmarkService", "Test"));
            let mut reply = Reply::message(Format::FlatBuffers, call.body.clone());
            reply.attachment = call.attachment.clone();
            reply
        });
        let (id, reply) = sole_reply(answers);
        assert_eq!((id, reply.result), (CallId(5), Ok(Bytes::from_static(b"message"))));
        assert_eq!(&reply.attachment[..], b"beside");
    }
}

#[test]
fn magic_and_service_hash_are_separate_choices() {
    let one_dot = service_id("test.BenchmarkService", ServiceHash::OneDot);
    let two_dots = service_id("test.BenchmarkService", ServiceHash::TwoDots);
    for (magic, hash, letters, service, method) in [
        (Magic::Frpc, ServiceHash::OneDot, b"FRPC", one_dot, 7_i32),
        (Magic::Frpc, ServiceHash::TwoDots, b"FRPC", two_dots, 0),
        (Magic::Brpc, ServiceHash::OneDot, b"BRPC", one_dot, 0),
        (Magic::Brpc, ServiceHash::TwoDots, b"BRPC", two_dots, 0),
    ] {
        let mut out = Outbox::new();
        let config = ClientConfig { magic, hash, ..ClientConfig::default() };
        Client::new(config.clone()).send(CallId(1), call(b"m"), &mut out).expect("the call can be expressed");
        let bytes = out.take();
        let case = format!("{magic:?} {hash:?}");
        assert_case(&case, &bytes[..4], &letters[..]);
        assert_case(&case, &bytes[12..16], &service.to_le_bytes()[..]);
        assert_case(&case, &bytes[16..20], &method.to_le_bytes()[..]);
        let mut pair = Pair::new(Client::new(config), server());
        let answers = pair.call(CallId(5), &call(b"message"), |call| {
            assert_eq!((call.service, call.method), ("test.BenchmarkService", "Test"));
            Reply::message(Format::FlatBuffers, call.body.clone())
        });
        assert_case(&case, sole_reply(answers).1.result, Ok(Bytes::from_static(b"message")));
    }
}

#[test]
fn url_selects_magic_and_service_hash() {
    let selected =
        |query| version(&Parameters::parse(query, "fb-rpc", DESCRIPTOR.parameters).expect("it is declared"));
    for (query, expected) in [
        ("", (Magic::Frpc, ServiceHash::OneDot)),
        ("version=frpc", (Magic::Frpc, ServiceHash::OneDot)),
        ("version=frpc-two-dots", (Magic::Frpc, ServiceHash::TwoDots)),
        ("version=brpc", (Magic::Brpc, ServiceHash::OneDot)),
        ("version=brpc-two-dots", (Magic::Brpc, ServiceHash::TwoDots)),
    ] {
        assert_case(query, selected(query), expected);
    }
}

#[test]
fn failed_client_is_pointed_to_the_other_dialects() {
    let (mut client, mut out) = (client(Magic::Frpc), Outbox::new());
    assert!(client.failure_hint().expect("no event").contains("version=frpc-two-dots"));
    let mut inbox = BytesMut::from(&vector("frpc_response_error_1002")[..]);
    let Ok(Some(ClientEvent::Reply(_, reply))) = client.next_event(&mut inbox, &mut out) else {
        panic!("expected a reply")
    };
    let status = reply.result.unwrap_err();
    assert_eq!(status.number(), Some(1002));
    assert!(status.message().contains("version=brpc-two-dots for brpc#3197 as of January 2026"), "{status}");
    // After a call was understood, an unknown method is simply unknown.
    inbox.extend_from_slice(&vector("frpc_response"));
    inbox.extend_from_slice(&vector("frpc_response_error_1002"));
    assert!(client.next_event(&mut inbox, &mut out).is_ok());
    let Ok(Some(ClientEvent::Reply(_, reply))) = client.next_event(&mut inbox, &mut out) else {
        panic!("expected a reply")
    };
    assert_eq!(reply.result.unwrap_err().message(), status::status(1002).message());
    assert_eq!(client.failure_hint(), None);
}

#[test]
fn large_body_is_not_copied() {
    let body = Bytes::from(vec![7; Outbox::SHARE]);
    let mut out = Outbox::new();
    let request = Call { body: body.clone(), ..call(b"") };
    client(Magic::Frpc).send(CallId(1), request, &mut out).expect("the call can be expressed");
    let mut slices = [std::io::IoSlice::new(&[]); 2];
    assert_eq!(out.slices(&mut slices), 2);
    assert_eq!(slices[1].as_ptr(), body.as_ptr());
}

#[test]
fn failures_are_sent_as_numbers_only() {
    for (failure, number, code) in [
        (Status::internal("why"), -1, Code::Internal),
        (Status::unknown("why"), -1, Code::Internal),
        (Status::internal("why").with_number(2001), 2001, Code::Internal),
        (Status::invalid_argument("why"), 1003, Code::InvalidArgument),
        (Status::resource_exhausted("why"), 2004, Code::ResourceExhausted),
        (Status::internal("why").with_number(54321), 54321, Code::Unknown),
    ] {
        let mut pair = Pair::new(client(Magic::Frpc), server());
        let answers = pair.call(CallId(1), &call(b"m"), |_| Reply::failure(failure.clone()));
        let told = sole_reply(answers).1.result.unwrap_err();
        assert_eq!((told.number(), told.code()), (Some(number), code), "{failure}");
        assert!(!told.message().contains("why"));
    }
    assert_eq!(status::status(1002).message(), "the server reports ENOMETHOD");
}

#[test]
fn response_without_a_message_is_a_failure() {
    let mut pair = Pair::new(client(Magic::Frpc), server());
    let answers = pair.call(CallId(1), &call(b"m"), |_| Reply::message(Format::FlatBuffers, Bytes::new()));
    assert_eq!(sole_reply(answers).1.result.unwrap_err().number(), Some(2002));
}

#[test]
fn response_of_the_wrong_length_is_a_failure() {
    let mut bytes = vector("frpc_response").to_vec();
    bytes[16] += 1;
    let (_, reply) = heard_by_client(&bytes);
    assert_eq!(reply.result.unwrap_err().number(), Some(2002));
}

#[test]
fn draining_server_rejects_calls_as_retryable_elsewhere() {
    let mut pair = Pair::new(client(Magic::Frpc), server());
    pair.server.drain(&mut Outbox::new());
    let answers = pair.call(CallId(1), &call(b"m"), |_| unreachable!("it is refused"));
    assert_eq!(sole_reply(answers).1.result.unwrap_err().number(), Some(2003));
    assert!(!pair.client.is_reusable());
}

#[test]
fn missing_credential_closes_the_connection_without_a_response() {
    let (mut server, mut out) = (server(), Outbox::new());
    let ticket = ticket(&mut server, 1);
    assert!(server.reject(ticket, Status::unauthenticated(""), &mut out));
    assert!(out.is_empty());
}

#[test]
fn unsupported_call_is_rejected_before_it_is_sent() {
    let plain = || call(b"m");
    let cases = [
        ("a format", Call { head: Head { format: Format::Protobuf, ..Head::default() }, ..plain() }),
        (
            "metadata",
            Call { head: Head { metadata: [("k", "v")].into_iter().collect(), ..plain().head }, ..plain() },
        ),
        ("compression", Call { head: Head { compression: Compression::Gzip, ..plain().head }, ..plain() }),
        ("a checksum", Call { head: Head { checksum: Checksum::Message, ..plain().head }, ..plain() }),
        ("a credential", Call { credential: Credential::Call(Some(Bytes::from_static(b"me"))), ..plain() }),
        ("nothing", Call { body: Bytes::new(), ..plain() }),
        ("a name without a number", Call { method: "Test", ..plain() }),
        ("a number that is none", Call { method: "Test#x", ..plain() }),
        ("a negative number", Call { method: "#-1", ..plain() }),
        ("a number with a sign", Call { method: "#+7", ..plain() }),
        ("a number with leading zeros", Call { method: "#007", ..plain() }),
        ("an index with leading zeros", Call { method: "#7,00", ..plain() }),
        ("a service that is none", Call { service: "#x", ..plain() }),
        ("a service with a sign", Call { service: "#+1", ..plain() }),
        ("a service with leading zeros", Call { service: "#0892566233", ..plain() }),
    ];
    for (case, call) in cases {
        let mut out = Outbox::new();
        let status = client(Magic::Frpc).send(CallId(1), call, &mut out).unwrap_err();
        assert_case(case, status.number(), Some(1003));
        assert!(out.is_empty(), "{case}");
    }
    let config = ClientConfig { credential: Some(Bytes::from_static(b"me")), ..ClientConfig::default() };
    Client::new(config).send(CallId(1), plain(), &mut Outbox::new()).unwrap_err();
}

#[test]
fn service_can_be_called_by_its_number() {
    let mut out = Outbox::new();
    let call = Call { service: "#892566233", method: "#7", ..call(b"m") };
    client(Magic::Frpc).send(CallId(1), call, &mut out).expect("the call can be expressed");
    assert_eq!(record_events(server(), &[&out.take()]).calls.len(), 1);
}

#[test]
fn methods_without_ids_are_numbered_by_position() {
    let mut directory = ServiceDirectory::default();
    directory.add_service("S", [("A", None), ("B", None), ("C", Some(9))]).expect("numbers differ");
    let id = service_id("S", ServiceHash::OneDot);
    let name = |number| directory.names(id, number, Magic::Frpc).and_then(|(_, method)| method);
    assert_eq!([name(0), name(1), name(2), name(9)], [Some("A"), Some("B"), None, Some("C")]);
}

#[test]
fn method_numbering_follows_the_magic_if_both_hashes_collide() {
    let mut directory = ServiceDirectory::default();
    directory.add_service("S", [("A", Some(1)), ("B", Some(0))]).expect("numbers differ");
    let ids = [ServiceHash::OneDot, ServiceHash::TwoDots].map(|hash| service_id("S", hash));
    assert_eq!(ids[0], ids[1]);
    let name = |number, magic| directory.names(ids[0], number, magic).and_then(|(_, method)| method);
    assert_eq!([name(0, Magic::Frpc), name(1, Magic::Frpc)], [Some("B"), Some("A")]);
    assert_eq!([name(0, Magic::Brpc), name(1, Magic::Brpc)], [Some("A"), Some("B")]);
}

#[test]
fn duplicate_number_is_rejected_and_same_service_is_replaced() {
    let mut directory = ServiceDirectory::default();
    let error = directory.add_service("S", [("A", Some(1)), ("B", None)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "S/A and S/B are both number 1 in fb_rpc; rename one, or give it another id"
    );
    directory.add_service("S", [("A", Some(1))]).expect("numbers differ");
    directory.add_service("S", [("B", Some(1))]).expect("it is the same service");
    let names = directory.names(service_id("S", ServiceHash::OneDot), 1, Magic::Frpc);
    assert_eq!(names, Some(("S", Some("B"))));
}

fn server() -> Server {
    Server::new(Arc::new(ServerConfig { directory: directory(), ..ServerConfig::default() }))
}

fn directory() -> Arc<ServiceDirectory> {
    let mut directory = ServiceDirectory::default();
    directory.add_service("test.BenchmarkService", [("Test", Some(7))]).expect("numbers differ");
    Arc::new(directory)
}

/// Creates a client of #3559, or of #3197 when it used `BRPC`.
fn client(magic: Magic) -> Client {
    let hash = if magic == Magic::Brpc { ServiceHash::TwoDots } else { ServiceHash::OneDot };
    Client::new(ClientConfig { magic, hash, ..ClientConfig::default() })
}

fn call(body: &'static [u8]) -> Call<'static> {
    Call::new("test.BenchmarkService", "Test#7,0", Format::FlatBuffers, Bytes::from_static(body))
}

/// Creates a request with a meta of this length and these sizes; `rest` follows the first 24 bytes of the meta.
fn request(meta: u32, message: i32, attachment: i32, rest: &[u8]) -> Vec<u8> {
    let body = 24 + rest.len() as u32;
    [
        &b"FRPC"[..],
        &body.to_be_bytes(),
        &meta.to_be_bytes(),
        &service_id("test.BenchmarkService", ServiceHash::OneDot).to_le_bytes(),
        &7_i32.to_le_bytes(),
        &message.to_le_bytes(),
        &attachment.to_le_bytes(),
        &1_u64.to_le_bytes(),
        rest,
    ]
    .concat()
}

/// Creates the server's ticket of the call with this number.
fn ticket(server: &mut Server, id: u64) -> super::Ticket {
    let mut out = Outbox::new();
    client(Magic::Frpc).send(CallId(id), call(b"m"), &mut out).expect("the call can be expressed");
    let mut inbox = BytesMut::from(&out.take()[..]);
    match server.next_event(&mut inbox, &mut out) {
        Ok(Some(ServerEvent::Call(_, ticket))) => ticket,
        other => panic!("expected a call, not {other:?}"),
    }
}

fn heard_by_client(bytes: &[u8]) -> (CallId, Reply) {
    let (mut inbox, mut out) = (BytesMut::from(bytes), Outbox::new());
    match client(Magic::Frpc).next_event(&mut inbox, &mut out) {
        Ok(Some(ClientEvent::Reply(id, reply))) => (id, reply),
        other => panic!("expected a reply, not {other:?}"),
    }
}

/// Returns the error codes of responses without a payload.
fn error_codes(bytes: &[u8]) -> Vec<i32> {
    let frames = bytes.chunks_exact(32);
    assert!(frames.remainder().is_empty());
    frames
        .map(|frame| {
            assert!(frame.starts_with(b"FRPC\0\0\0\x14\0\0\0\x14"), "{}", frame.escape_ascii());
            i32::from_le_bytes([frame[12], frame[13], frame[14], frame[15]])
        })
        .collect()
}

fn vectors() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/fb_rpc/derived.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the vectors")).expect("JSON")
}

fn vector(name: &str) -> Bytes {
    let vectors = vectors();
    let vector =
        vectors["vectors"].as_array().and_then(|all| all.iter().find(|vector| vector["name"] == name));
    hex(text(&vector.expect("a vector of this name")["hex"]))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}
