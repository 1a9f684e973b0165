use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Client as _;
use polyrpc_core::session::Server as _;
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::session::server::{Housekeeping as _, Streaming as _, Ticket as _};
use polyrpc_core::session::{ClientEvent, NotFound, ServerEvent};
use polyrpc_core::testing::{Pair, assert_bytes, assert_case, hex, record_events, sole_reply};
use polyrpc_core::{
    Call, CallId, Checksum, Code, Compression, Credential, Detection, Fault, Format, Head, Json, Limits,
    Metadata, Outbox, Reply, Retry, Status, Violation, session, testing,
};

use super::frame::{self, Frame, Kind};
use super::meta::{self, Meta, StreamMeta};
use super::{Client, ClientConfig, Server, ServerConfig, Ticket, recognise};
use crate::brpc_status as status;
use crate::brpc_status::{EINTERNAL, ELOGOFF, ENOMETHOD, ENOSERVICE, EREQUEST, ERESPONSE, ERPCAUTH};

mod captured;
mod streams;

use captured::*;

mod vectors {
    use super::*;

    /// Our server answers each captured request as brpc's echo server does.
    #[test]
    fn every_captured_request_is_answered_as_by_brpc() {
        for scenario in scenarios() {
            // Its ids are chosen by the server: see `streams`.
            if scenario.name == "stream" {
                continue;
            }
            let served = serve(&scenario.sent());
            assert_case(&scenario.name, meanings(&served.out), meanings(&scenario.received()));
            assert_case(&scenario.name, served.ended, scenario.has_ended());
        }
    }

    #[test]
    fn uncompressed_responses_equal_those_of_brpc_byte_for_byte() {
        // Deflate and snappy leave the choice of matches to the compressor.
        const COMPRESSED: [&str; 4] = ["gzip", "zlib", "snappy", "snappy_attachment"];
        for scenario in scenarios() {
            if scenario.name != "stream" && !COMPRESSED.contains(&scenario.name.as_str()) {
                assert_bytes(serve(&scenario.sent()).out, scenario.received());
            }
        }
    }

    #[test]
    fn every_hand_made_frame_is_handled_as_by_brpc() {
        for case in malformed() {
            match case.name.as_str() {
                // This server has no builtin services.
                "builtin_status_over_baidu_std" | "builtin_list_over_baidu_std" => continue,
                // HTTP is handled by another session; other tests show that ours does not touch it.
                "http_then_prpc" | "prpc_then_http" => continue,
                _ => {}
            }
            let served = serve(&case.sent);
            // brpc skips a frame whose meta is longer than its body if nothing follows it yet. Whether a connection
            // survives must not depend on how its bytes were split: ours always ends.
            if case.name == "meta_gt_body_alone" {
                assert_case(&case.name, (served.ended, served.out.is_empty()), (true, true));
                continue;
            }
            assert_case(&case.name, meanings(&served.out), meanings(&case.received));
            assert_case(&case.name, served.ended, case.closed);
        }
    }

    #[test]
    fn client_writes_the_bytes_of_the_brpc_client() {
        for scenario in scenarios() {
            for request in scenario.frames_of(Kind::Rpc, ToServer) {
                match scenario.name.as_str() {
                    // The request is parsed and re-encoded without its streams: see `streams`.
                    "stream" | "stream_not_accepted" => {}
                    // Deflate and snappy leave the choice of matches to the compressor.
                    "gzip" | "zlib" | "snappy" | "snappy_attachment" => {
                        assert_case(&scenario.name, meanings(&resend(&request)), meanings(&request));
                    }
                    _ => assert_bytes(resend(&request), &request),
                }
            }
        }
    }

    #[test]
    fn client_reads_the_responses_of_the_brpc_server() {
        for scenario in scenarios() {
            let mut client = Client::new(ClientConfig::default());
            let (mut inbox, mut out) = (BytesMut::from(&scenario.received()[..]), Outbox::new());
            let mut replies = Vec::new();
            while let Some(answer) = client.next_event(&mut inbox, &mut out).expect("no violation") {
                replies.push(sole_reply(vec![answer]));
            }
            let told: Vec<_> = replies.iter().map(|(id, reply)| meaning_of_reply(*id, reply)).collect();
            assert_case(&scenario.name, told, responses(&scenario.received()));
        }
    }

    #[test]
    fn meta_round_trips() {
        for scenario in scenarios() {
            for bytes in scenario.frames.iter().map(|(_, bytes)| bytes) {
                let Frame { kind, meta, .. } = Frame::exactly(bytes.clone()).expect("a whole frame");
                let mut written = Vec::new();
                match kind {
                    Kind::Rpc => Meta::read(&meta).expect("an RpcMeta").write(&mut written),
                    Kind::Stream => StreamMeta::read(&meta).expect("a StreamFrameMeta").write(&mut written),
                }
                assert_bytes(written, meta);
            }
        }
    }

    #[test]
    fn any_split_of_any_captured_request_yields_the_same_calls() {
        scenarios().iter().for_each(|scenario| testing::assert_any_split(server, &scenario.sent()));
        malformed().iter().for_each(|case| testing::assert_any_split(server, &case.sent));
    }

    #[test]
    fn damaged_captured_frames_never_panic() {
        let limit = Limits::default().message + frame::HEADER;
        for scenario in scenarios() {
            for (direction, bytes) in &scenario.frames {
                match direction {
                    ToServer => testing::assert_survives_damage(server, bytes, limit),
                    ToClient => testing::assert_client_survives_damage(client, bytes, limit),
                }
            }
        }
        malformed().iter().for_each(|case| testing::assert_survives_damage(server, &case.sent, limit));
    }
}

mod recognition {
    use super::*;

    #[test]
    fn calls_and_streams_are_detected_by_their_magic() {
        for magic in [b"PRPC", b"STRM"] {
            assert_eq!(recognise(magic), Detection::Is(()));
            assert_eq!(recognise(&magic[..2]), Detection::NeedMore);
        }
        assert_eq!(recognise(b"PRPX"), Detection::Unknown);
    }

    #[test]
    fn bytes_of_another_protocol_are_left_in_the_inbox() {
        let http = b"GET /version HTTP/1.1\r\n\r\n";
        let mut inbox = BytesMut::from(&[&request()[..], http].concat()[..]);
        let (mut server, mut out) = (server(), Outbox::new());
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::Call(..)))));
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(ServerEvent::Foreign))));
        assert_bytes(inbox, http);
    }

    #[test]
    fn client_reports_a_server_of_another_protocol() {
        let mut inbox = BytesMut::from("HTTP/1.1 400 Bad Request\r\n");
        let ended = client().next_event(&mut inbox, &mut Outbox::new());
        assert_eq!(ended.err(), Some(Violation::new("the server does not speak baidu_std")));
    }
}

mod sizes {
    use super::*;

    #[test]
    fn body_over_the_limit_closes_the_connection_before_it_arrives() {
        let limit = u32::try_from(Limits::default().message).expect("64 MiB");
        assert!(record_events(server(), &[&header(limit + 1, 20)]).violation.is_some());
        let recorded = record_events(server(), &[&header(limit, 20)]);
        assert_eq!((recorded.violation, recorded.calls.len()), (None, 0));
    }

    #[test]
    fn forged_sizes_never_request_more_than_the_limit() {
        const LIES: [u32; 6] = [0, 1, 20, (1 << 31) - 1, 1 << 31, u32::MAX];
        for (body, meta) in LIES.into_iter().flat_map(|body| LIES.map(|meta| (body, meta))) {
            let (mut server, mut out) = (server(), Outbox::new());
            let mut inbox = BytesMut::from(&header(body, meta)[..]);
            let outcome = server.next_event(&mut inbox, &mut out);
            let lies = body as usize > Limits::default().message || meta > body;
            assert_eq!(outcome.is_err(), lies, "body {body}, meta {meta}");
            let waits = matches!(outcome, Ok(None));
            assert_eq!(server.bytes_needed(), if waits { frame::HEADER + body as usize } else { 0 });
        }
    }

    #[test]
    fn bytes_needed_is_the_frame_length_and_zero_between_frames() {
        let (mut server, mut out, bytes) = (server(), Outbox::new(), request());
        let mut inbox = BytesMut::from(&bytes[..20]);
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(None)));
        assert_eq!(server.bytes_needed(), bytes.len());
        inbox.extend_from_slice(&bytes[20..]);
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(_))));
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(None)));
        assert_eq!(server.bytes_needed(), 0);
    }

    #[test]
    fn idle_connection_is_small_and_holds_no_buffer() {
        assert!(size_of::<Server>() < 100, "{}", size_of::<Server>());
        let (mut server, mut out) = (server(), Outbox::new());
        let mut inbox = BytesMut::with_capacity(4096);
        inbox.extend_from_slice(&request());
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(Some(_))));
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(None)));
        assert!(inbox.try_reclaim(4000), "the session releases the frame");
    }

    #[test]
    fn sessions_and_tickets_are_send() {
        fn assert_send<T: Send + 'static>() {}
        assert_send::<Server>();
        assert_send::<Client>();
        assert_send::<<Server as session::Server>::Ticket>();
    }
}

mod meta_tests {
    use super::*;

    #[test]
    fn million_nested_groups_are_rejected_without_recursion() {
        let groups = vec![0x7b; 1_000_000];
        assert_eq!(Meta::read(&groups), Err(meta::MalformedMeta));
        let recorded = record_events(server(), &[&build_frame(Kind::Rpc, &groups, b"")]);
        assert_eq!(recorded.violation, Some(Violation::new("a meta that is not an RpcMeta")));
    }

    #[test]
    fn groups_nest_as_deep_as_in_libprotobuf() {
        let nested = |depth| [vec![0x7b; depth], vec![0x7c; depth]].concat();
        assert!(Meta::read(&nested(100)).is_ok());
        assert_eq!(Meta::read(&nested(101)), Err(meta::MalformedMeta));
    }

    #[test]
    fn unknown_fields_of_every_wire_type_are_skipped() {
        let unknown = hex("
            a006 ffffffffffffffffff01
            a106 0102030405060708
            a206 03616263
            a306 0801 1202ffff a306 a406 a406
            a506 01020304
        ");
        let meta = [&unknown[..], &hex("0a08 0a0141 120142 3801"), &unknown, &hex("2007"), &unknown].concat();
        let meta = Meta::read(&meta).expect("well-formed");
        assert_eq!(meta.correlation_id, 7);
        assert_eq!(meta.request.and_then(|request| request.method_name), Some(&b"B"[..]));
    }

    #[test]
    fn invalid_protobuf_is_malformed() {
        let not_protobuf = [
            ("a field number of 0", "0001"),
            ("wire type 6", "0e01"),
            ("wire type 7", "0f01"),
            ("the end of no group", "0c"),
            ("a group that ends as another", "a306a40e"),
            ("a group without an end", "a306"),
            ("a varint of eleven bytes", "20ffffffffffffffffffff01"),
            ("a varint cut short", "20ff"),
            ("a tag of 33 bits", "8080808010 01"),
            ("a length past the end", "3a05 61"),
            ("a length of 2^64-1", "3affffffffffffffffff01"),
            ("a fixed64 cut short", "a106 01"),
            ("a request without its method", "0a03 0a0141"),
            ("a request without its service", "0a03 120142"),
            ("a broken request", "0a04 0a014112"),
            ("a broken response", "1201 08"),
            ("a broken user field", "4a02 0a05"),
            ("stream settings without a stream", "4202 1001"),
            ("chunk info without a chunk", "3202 0801"),
        ];
        for (case, bytes) in not_protobuf {
            assert_case(case, Meta::read(&hex(bytes)), Err(meta::MalformedMeta));
        }
    }

    #[test]
    fn last_scalar_wins_and_repeated_messages_merge() {
        let meta = hex("0a03 0a0141 0a03 120142 0a03 0a0143 2001 2002 5001 5009");
        let meta = Meta::read(&meta).expect("the request is complete when all is read");
        let request = meta.request.expect("there is a request");
        assert_eq!((request.service_name, request.method_name), (Some(&b"C"[..]), Some(&b"B"[..])));
        assert_eq!((meta.correlation_id, meta.content_type), (2, Some(1)));
    }

    #[test]
    fn field_of_another_wire_type_is_unknown() {
        let meta =
            Meta::read(&hex("2203616263 1d01020304")).map(|meta| (meta.correlation_id, meta.compress_type));
        assert_eq!(meta, Ok((0, None)));
    }

    #[test]
    fn number_of_user_fields_is_limited() {
        let fields = |n| [0x4a, 0].repeat(n);
        assert_eq!(meta::MAX_USER_FIELDS, 256);
        assert!(Meta::read(&fields(meta::MAX_USER_FIELDS)).is_ok());
        assert_eq!(Meta::read(&fields(meta::MAX_USER_FIELDS + 1)), Err(meta::MalformedMeta));
    }

    #[test]
    fn name_that_is_not_utf8_is_empty() {
        let frame = build_frame(Kind::Rpc, &hex("0a07 0a02ffff 120142 204d"), b"");
        let recorded = record_events(server(), &[&frame]);
        assert_eq!(recorded.calls.len(), 1);
        assert!(recorded.calls[0].contains(r#"service: "", method: """#), "{}", recorded.calls[0]);
    }
}

mod calls {
    use super::*;

    #[test]
    fn every_part_of_a_call_and_a_reply_arrives() {
        let mut call = call(b"question");
        call.attachment = Bytes::from_static(b"beside it");
        call.timeout = Some(Duration::from_millis(1500));
        call.head.checksum = Checksum::MessageAndAttachment;
        call.head.metadata = [
            ("log-id", "18446744073709551615"),
            ("x-request-id", "req-42"),
            ("x-bd-trace-id", "7"),
            ("x-bd-span-id", "8"),
            ("x-bd-parent-span-id", "0"),
            ("user", "field"),
            ("empty", ""),
        ]
        .into_iter()
        .collect();
        let mut pair = pair();
        let answers = pair.call(CallId(u64::MAX), &call, |got| {
            assert_eq!((got.service, got.method), (call.service, call.method));
            assert_eq!((&got.body, &got.attachment), (&call.body, &call.attachment));
            assert_eq!((got.timeout, got.oneway, &got.malformed), (call.timeout, false, &None));
            assert_eq!(sort(&got.head.metadata), sort(&call.head.metadata));
            assert_eq!(got.head.checksum, Checksum::MessageAndAttachment);
            let mut reply = Reply::message(Format::Protobuf, Bytes::from_static(b"answer"));
            reply.attachment = Bytes::from_static(b"beside the answer");
            reply.head.checksum = Checksum::Message;
            reply.head.metadata.insert("srv", "yes");
            reply.head.metadata.insert("log-id", "stays a user field");
            reply
        });
        let (id, reply) = sole_reply(answers);
        assert_eq!(id, CallId(u64::MAX));
        assert_eq!(reply.result, Ok(Bytes::from_static(b"answer")));
        assert_eq!(&reply.attachment[..], b"beside the answer");
        assert_eq!(reply.head.metadata.get("srv"), Some("yes"));
        assert_eq!(reply.head.metadata.get("log-id"), Some("stays a user field"));
    }

    /// Metadata with this number of keys.
    fn entries(count: usize) -> Metadata {
        (0..count).map(|n| (n.to_string(), "v")).collect()
    }

    #[test]
    fn call_with_too_many_user_fields_is_not_sent() {
        let (mut client, mut out) = (client(), Outbox::new());
        let mut call = call(b"question");
        call.head.metadata = entries(257);
        let refusal = client.send(CallId(1), call.clone(), &mut out).expect_err("too many");
        assert_eq!((refusal.code(), refusal.retry()), (Code::ResourceExhausted, Retry::Never));
        assert!(refusal.message().contains("at most 256 entries of metadata, this one has 257"), "{refusal}");
        assert!(out.is_empty());
        // Those with a field of their own do not count.
        call.head.metadata = entries(256);
        call.head.metadata.insert("log-id", "7");
        client.send(CallId(2), call, &mut out).expect("it is short enough");
    }

    #[test]
    fn reply_with_too_many_user_fields_fails_only_its_call() {
        let (mut pair, call) = (pair(), call(b"question"));
        let mut reply = |count, result: Result<Bytes, Status>| {
            sole_reply(pair.call(CallId(1), &call, |call| {
                let head = Head { format: call.head.format, metadata: entries(count), ..Head::default() };
                Reply::new(result.clone(), head)
            }))
            .1
        };
        let refused = reply(257, Ok(Bytes::new())).result.expect_err("a failure");
        assert_eq!(refused.code(), Code::Internal);
        assert!(refused.message().contains("257 entries of metadata where 256 are allowed"), "{refused}");
        assert_eq!(reply(256, Ok(Bytes::new())).head.metadata.len(), 256);
        for (count, received) in [(256, 256), (257, 0)] {
            let failed = reply(count, Err(Status::not_found("boom")));
            let text = failed.result.expect_err("a failure").message().to_owned();
            assert!(text.ends_with("boom"), "{text}");
            assert_eq!(failed.head.metadata.len(), received);
        }
    }

    #[test]
    fn received_response_with_too_many_user_fields_fails_only_its_call() {
        let meta = [&hex("1200 2007")[..], &hex("4a00").repeat(257)].concat();
        let mut inbox = BytesMut::from(&build_frame(Kind::Rpc, &meta, b"")[..]);
        inbox.extend_from_slice(&build_frame(Kind::Rpc, &hex("1200 2008"), b""));
        let (mut client, mut out) = (client(), Outbox::new());
        let mut reply = || {
            let event = client.next_event(&mut inbox, &mut out).expect("no violation").expect("a reply");
            sole_reply(vec![event])
        };
        let (id, failed) = reply();
        let failure = failed.result.expect_err("a failure");
        assert_eq!((id, failure.code(), failure.retry()), (CallId(7), Code::ResourceExhausted, Retry::Never));
        let (id, succeeded) = reply();
        assert_eq!((id, succeeded.result), (CallId(8), Ok(Bytes::new())));
    }

    #[test]
    fn every_compression_and_checksum_works_in_both_directions() {
        let text = b"the quick brown fox ".repeat(1000);
        let compressions = [Compression::None, Compression::Snappy, Compression::Gzip, Compression::Zlib];
        let checksums = [Checksum::None, Checksum::Message, Checksum::MessageAndAttachment];
        for (compression, checksum) in compressions.into_iter().flat_map(|c| checksums.map(|s| (c, s))) {
            let mut call = call(&text);
            call.attachment = Bytes::from_static(b"raw");
            call.head = Head { compression, checksum, ..Head::default() };
            let answers = pair().call(CallId(1), &call, |got| {
                assert_eq!(got.malformed, None);
                assert_eq!((got.head.compression, got.head.checksum), (compression, checksum));
                let body = decompress(got.head.compression, &got.body).into();
                Reply { attachment: got.attachment.clone(), ..Reply::new(Ok(body), got.head.clone()) }
            });
            let (_, reply) = sole_reply(answers);
            assert_eq!((reply.head.compression, reply.head.checksum), (compression, checksum));
            assert_bytes(decompress(compression, &reply.result.expect("a message")), &text);
            assert_bytes(reply.attachment, b"raw");
        }
    }

    #[test]
    fn every_format_with_a_content_type_round_trips() {
        let formats = [
            (Format::Protobuf, Format::Protobuf),
            (Format::Json(Json::Brpc), Format::Json(Json::Brpc)),
            (Format::Json(Json::Go), Format::Json(Json::Brpc)),
            (Format::Json(Json::Proto3), Format::Json(Json::Proto3)),
            (Format::ProtoText, Format::ProtoText),
            (Format::Raw, Format::Protobuf),
            (Format::Other(4), Format::Protobuf),
        ];
        for (sent, received) in formats {
            let mut call = call(b"bytes");
            call.head.format = sent;
            let answers =
                pair().call(CallId(1), &call, |got| Reply::message(got.head.format, got.body.clone()));
            let (_, reply) = sole_reply(answers);
            assert_eq!((reply.head.format, reply.result), (received, Ok(Bytes::from_static(b"bytes"))));
        }
    }

    #[test]
    fn large_bodies_are_sent_without_a_copy() {
        let (large, mut out) = (Bytes::from(vec![7; 1 << 20]), Outbox::new());
        let mut call = call(b"");
        (call.body, call.attachment) = (large.clone(), large.clone());
        client().send(CallId(1), call.clone(), &mut out).expect("expressible in baidu_std");
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(out.slices(&mut slices), 3);
        assert!(slices[1..3].iter().all(|slice| slice.as_ptr() == large.as_ptr()));
    }

    #[test]
    fn calls_are_answered_in_any_order() {
        let (mut server, mut out) = (server(), Outbox::new());
        let mut inbox = BytesMut::from(&[request(), request()].concat()[..]);
        let tickets: Vec<Ticket> = (0..2).map(|_| next_call(&mut server, &mut inbox).1).collect();
        for (n, ticket) in tickets.into_iter().enumerate().rev() {
            let body = Bytes::from(vec![b'0' + n as u8]);
            server.reply(ticket, Reply::message(Format::Protobuf, body), &mut out);
        }
        let bodies: Vec<_> = responses(&out.take()).into_iter().map(|meaning| meaning.message).collect();
        assert_eq!(bodies, [b"1", b"0"]);
    }

    #[test]
    fn timeout_is_sent_only_if_set_rounded_up_and_never_as_0() {
        let told = |deliver_timeout, timeout| {
            let client = Client::new(ClientConfig { deliver_timeout, ..ClientConfig::default() });
            let mut call = call(b"");
            call.timeout = Some(timeout);
            let mut told = None;
            Pair::new(client, server()).call(CallId(1), &call, |got| {
                told = got.timeout;
                Reply::message(Format::Protobuf, Bytes::new())
            });
            told
        };
        assert_eq!(told(false, Duration::from_secs(1)), None);
        assert_eq!(told(true, Duration::from_secs(1)), Some(Duration::from_secs(1)));
        assert_eq!(told(true, Duration::from_micros(1500)), Some(Duration::from_millis(2)));
        assert_eq!(told(true, Duration::ZERO), Some(Duration::from_millis(1)));
        assert_eq!(told(true, Duration::MAX), Some(Duration::from_millis(i32::MAX as u64)));
    }

    #[test]
    fn non_numeric_request_id_stays_a_user_field() {
        let mut call = call(b"");
        call.head.metadata = [("log-id", "seven"), ("x-request-id", "")].into_iter().collect();
        pair().call(CallId(1), &call, |got| {
            assert_eq!(sort(&got.head.metadata), sort(&call.head.metadata));
            Reply::message(Format::Protobuf, Bytes::new())
        });
    }

    #[test]
    fn formats_and_compressions_without_a_number_are_not_sent() {
        let heads = [
            Head { format: Format::MessagePack, ..Head::default() },
            Head { compression: Compression::Lz4, ..Head::default() },
            Head { compression: Compression::Zstd, ..Head::default() },
            Head { compression: Compression::Other(4), ..Head::default() },
        ];
        for head in heads {
            let (mut call, mut out) = (call(b"x"), Outbox::new());
            call.head = head.clone();
            let refused = client().send(CallId(1), call.clone(), &mut out).expect_err("not expressible");
            assert_eq!((refused.number(), out.is_empty()), (Some(EREQUEST), true));
            let reply = Reply { head, ..Reply::message(Format::Protobuf, Bytes::new()) };
            assert_eq!(failure_of(reply).number(), Some(ERESPONSE));
        }
    }

    #[test]
    fn credential_is_sent_with_the_first_request_only() {
        let config =
            ClientConfig { credential: Some(Bytes::from_static(b"secret")), ..ClientConfig::default() };
        let mut pair = Pair::new(Client::new(config), server());
        let mut credentials = Vec::new();
        for id in 0..3 {
            pair.call(CallId(id), &call(b""), |got| {
                credentials.push(got.credential.clone());
                Reply::message(Format::Protobuf, Bytes::new())
            });
        }
        let first = Credential::Connection(Some(Bytes::from_static(b"secret")));
        assert_eq!(credentials, [first, Credential::Connection(None), Credential::Connection(None)]);
    }

    #[test]
    fn later_request_may_carry_a_credential() {
        let (mut server, bytes) = (server(), [&auth_request()[..], &auth_request()].concat());
        let mut inbox = BytesMut::from(&bytes[..]);
        assert!(next_call(&mut server, &mut inbox).0.contains("secret-token"));
        assert!(next_call(&mut server, &mut inbox).0.contains("secret-token"));
    }
}

mod failures {
    use super::*;

    #[test]
    fn failure_keeps_its_number_and_its_text_is_prefixed_with_the_address() {
        let cases = [
            (Status::internal("boom"), EINTERNAL, "[127.0.0.1:18001]boom"),
            (Status::unknown(""), EINTERNAL, "[127.0.0.1:18001]"),
            (Status::internal("boom").with_number(EINTERNAL), EINTERNAL, "[127.0.0.1:18001][E2001]boom"),
            (Status::unknown("own").with_number(54321), 54321, "[127.0.0.1:18001][E54321]own"),
            (Status::unknown("own").with_number(-7), -7, "[127.0.0.1:18001][E-7]own"),
            (Status::invalid_argument("odd"), EREQUEST, "[127.0.0.1:18001][E1003]odd"),
        ];
        for (status, number, text) in cases {
            let mut reply = Reply::failure(status);
            reply.attachment = Bytes::from_static(b"is not sent with a failure");
            let status = failure_of(reply);
            assert_eq!((status.number(), status.message()), (Some(number), text));
        }
    }

    #[test]
    fn without_an_address_there_are_no_brackets() {
        let server = Server::new(Arc::default());
        let answers = Pair::new(client(), server)
            .call(CallId(1), &call(b""), |_| Reply::failure(Status::internal("boom")));
        assert_eq!(sole_reply(answers).1.result, Err(status::status(EINTERNAL, "boom")));
    }

    #[test]
    fn unknown_service_is_1001_only_for_a_short_name() {
        let (_, ticket) = next_call(&mut server(), &mut BytesMut::from(&request()[..]));
        let not_found = |service, missing| {
            let call = Call::new(service, "Echo", Format::Protobuf, Bytes::new());
            let status = ticket.not_found_failure(&call, missing);
            (status.number(), status.message().to_owned())
        };
        let no_service = (Some(ENOSERVICE), "Fail to find service=Gone".into());
        assert_eq!(not_found("Gone", NotFound::Service), no_service);
        let no_method = (Some(ENOMETHOD), "Fail to find method=a.Gone/Echo".into());
        assert_eq!(not_found("a.Gone", NotFound::Service), no_method);
        assert_eq!(not_found("a.Gone", NotFound::Method), no_method);
    }

    #[test]
    fn invalid_attachment_size_fails_the_call_only() {
        let cases =
            [(100, "attachment_size=100 is larger than request_size=4"), (-1, "attachment_size is negative")];
        for (size, text) in cases {
            let bytes = request_with(|meta| meta.attachment_size = Some(size), b"\n\x02hi");
            let (told, _) = next_call(&mut server(), &mut BytesMut::from(&bytes[..]));
            assert!(told.contains(text), "{told}");
        }
    }

    #[test]
    fn wrong_checksum_fails_the_call_and_unknown_kind_is_ignored() {
        let malformed = |kind, value: &'static [u8]| {
            let set = |meta: &mut Meta<'static>| {
                (meta.checksum_type, meta.checksum_value) = (Some(kind), Some(value));
            };
            let bytes = request_with(set, b"\n\x03crc");
            next_call(&mut server(), &mut BytesMut::from(&bytes[..]))
                .0
                .contains("Fail to verify the checksum")
        };
        assert!(!malformed(1, b"\xcb\x8c\x53\xf8"));
        assert!(malformed(1, b"\xcb\x8c\x53\xf9"));
        assert!(malformed(1, b"\xcb\x8c\x53"));
        assert!(malformed(1, b""));
        assert!(!malformed(2, b"\0\0\0\0"));
        assert!(!malformed(0, b"\0\0\0\0"));
    }

    #[test]
    fn unusable_response_fails_its_call_only() {
        let respond = |change: fn(&mut Meta<'static>)| {
            let mut meta = Meta { response: Some(<_>::default()), correlation_id: 9, ..Meta::default() };
            change(&mut meta);
            let mut bytes = Vec::new();
            meta.write(&mut bytes);
            let mut inbox = BytesMut::from(&build_frame(Kind::Rpc, &bytes, b"body")[..]);
            let answer = client().next_event(&mut inbox, &mut Outbox::new());
            let (id, reply) = sole_reply(answer.expect("no violation").into_iter().collect());
            assert_eq!(id, CallId(9));
            reply.result.map_err(|status| (status.number(), status.fault()))
        };
        assert_eq!(respond(|_| {}), Ok(Bytes::from_static(b"body")));
        assert_eq!(respond(|meta| meta.response = None), Ok(Bytes::from_static(b"body")));
        let too_long = respond(|meta| meta.attachment_size = Some(5));
        assert_eq!(too_long, Err((Some(ERESPONSE), Fault::Peer)));
        let negative = respond(|meta| meta.attachment_size = Some(-1));
        assert_eq!(negative, Err((Some(ERESPONSE), Fault::Peer)));
        let malformed = respond(|meta| meta.checksum_type = Some(1));
        assert_eq!(malformed, Err((Some(EREQUEST), Fault::Peer)));
    }

    #[test]
    fn response_with_a_malformed_meta_is_dropped() {
        let good = responses_of("plain");
        let bytes = [&build_frame(Kind::Rpc, b"\xff\xff", b"")[..], &good].concat();
        let (mut client, mut inbox) = (client(), BytesMut::from(&bytes[..]));
        let answer = client.next_event(&mut inbox, &mut Outbox::new());
        assert!(matches!(answer, Ok(Some(ClientEvent::Reply(CallId(4_294_967_298), _)))));
    }

    #[test]
    fn rejected_credential_is_answered_without_an_address_and_closes_the_connection() {
        let refused = |status| {
            let (mut server, mut out) = (server(), Outbox::new());
            let (_, ticket) = next_call(&mut server, &mut BytesMut::from(&auth_request()[..]));
            assert!(server.reject(ticket, status, &mut out));
            let meaning = responses(&out.take()).remove(0);
            (meaning.number, meaning.text)
        };
        assert_eq!(refused(Status::unauthenticated("")), (ERPCAUTH, "Fail to authenticate".into()));
        assert_eq!(refused(Status::unauthenticated("too late")), (ERPCAUTH, "too late".into()));
    }

    #[test]
    fn draining_server_rejects_calls_and_the_client_sends_no_more() {
        let (mut server, mut out) = (server(), Outbox::new());
        server.drain(&mut out);
        assert!(out.is_empty());
        let mut inbox = BytesMut::from(&request()[..]);
        assert!(matches!(server.next_event(&mut inbox, &mut out), Ok(None)));

        let (mut client, mut inbox) = (client(), BytesMut::from(&out.take()[..]));
        assert!(client.is_reusable());
        let answer = client.next_event(&mut inbox, &mut out).expect("no violation");
        let status = sole_reply(answer.into_iter().collect()).1.result.expect_err("rejected");
        assert_eq!((status.number(), status.retry()), (Some(ELOGOFF), Retry::Elsewhere));
        assert_eq!(status.message(), "[127.0.0.1:18001][E2003]Server is stopping");
        assert!(!client.is_reusable());
    }

    #[test]
    fn status_code_survives_between_polyrpc_peers() {
        for code in Code::ALL.into_iter().filter(|code| *code != Code::Unknown) {
            assert_eq!(failure_of(Reply::failure(Status::new(code, "why"))).code(), code);
        }
    }
}

mod declined_streams {
    use super::*;

    #[test]
    fn unaccepted_stream_is_answered_as_by_brpc() {
        let stream = scenario("stream").frames_of(Kind::Rpc, ToServer).remove(0);
        let out = serve(&stream).out;
        let outer = Frame::exactly(out.into()).expect("one frame");
        assert_eq!(outer.kind, Kind::Stream);
        let meta = StreamMeta::read(&outer.meta).expect("a StreamFrameMeta");
        assert_eq!((meta.stream_id, meta.source_stream_id), (0, Some(-1)));
        assert_eq!(responses(&outer.payload)[0].message, b"\n\x06stream");
    }

    #[test]
    fn failure_of_a_call_with_a_stream_is_sent_inside_the_stream_too() {
        let stream = scenario("stream").frames_of(Kind::Rpc, ToServer).remove(0);
        let (mut server, mut out) = (server(), Outbox::new());
        server.drain(&mut out);
        assert!(matches!(server.next_event(&mut BytesMut::from(&stream[..]), &mut out), Ok(None)));
        let outer = Frame::exactly(out.take().into()).expect("one frame");
        assert_eq!((outer.kind, responses(&outer.payload)[0].number), (Kind::Stream, ELOGOFF));
    }

    #[test]
    fn large_body_is_sent_inside_the_stream_too() {
        let stream = scenario("stream").frames_of(Kind::Rpc, ToServer).remove(0);
        let (mut server, mut out, body) = (server(), Outbox::new(), Bytes::from(vec![7; 100_000]));
        let (_, ticket) = next_call(&mut server, &mut BytesMut::from(&stream[..]));
        server.reply(ticket, Reply::message(Format::Protobuf, body.clone()), &mut out);
        let answer = client().next_event(&mut BytesMut::from(&out.take()[..]), &mut out);
        let (_, reply) = sole_reply(answer.expect("no violation").into_iter().collect());
        assert!(reply.result == Ok(body));
    }

    #[test]
    fn message_for_an_unknown_stream_is_reset_on_both_sides() {
        let data = hex("5354524d 0000000b 00000009 08b960 1005 1803 2000 7878");
        let rst = hex("5354524d 00000004 00000004 0805 1801");
        assert_bytes(record_events(server(), &[&data]).out, &rst);
        let mut out = Outbox::new();
        let answer = client().next_event(&mut BytesMut::from(&data[..]), &mut out);
        assert!(matches!(answer, Ok(None)));
        assert_bytes(out.take(), &rst);
    }

    #[test]
    fn malformed_stream_frame_or_one_without_a_sender_is_dropped() {
        for meta in ["ff", "1005", "0801 1803", "0801 1005 1801", "0801 1005 1804"] {
            let recorded = record_events(server(), &[&build_frame(Kind::Stream, &hex(meta), b"")]);
            assert_case(meta, (recorded.out.len(), recorded.violation), (0, None));
        }
        // An unknown type is ignored: the frame is a message from a sender that requires feedback.
        let recorded = record_events(server(), &[&build_frame(Kind::Stream, &hex("0801 1005 1809"), b"")]);
        assert_eq!(recorded.out.len(), 16);
    }

    #[test]
    fn stream_data_is_a_response_only_if_it_is_one_whole_frame() {
        let response = responses_of("plain");
        let last = hex("0800 1001 1803 2000");
        let not_last = hex("0800 1001 1803 2001");
        let answered = |meta: &[u8], data: &[u8]| {
            let mut inbox = BytesMut::from(&build_frame(Kind::Stream, meta, data)[..]);
            client().next_event(&mut inbox, &mut Outbox::new()).expect("no violation").is_some()
        };
        assert!(answered(&last, &response));
        assert!(!answered(&not_last, &response));
        assert!(!answered(&last, &response[..response.len() - 1]));
        assert!(!answered(&last, &[&response[..], b"x"].concat()));
        assert!(!answered(&last, b"PRPC"));
    }

    #[test]
    fn unrequested_stream_is_reset() {
        let response = scenario("stream").received();
        let mut out = Outbox::new();
        let answer = client().next_event(&mut BytesMut::from(&response[..]), &mut out);
        assert!(matches!(answer, Ok(Some(ClientEvent::Reply(..)))));
        assert_bytes(out.take(), hex("5354524d 00000005 00000005 089201 1801"));
    }
}

fn server() -> Server {
    Server::new(Arc::new(ServerConfig { address: "127.0.0.1:18001".into(), ..ServerConfig::default() }))
}

fn client() -> Client {
    Client::new(ClientConfig { deliver_timeout: true, ..ClientConfig::default() })
}

fn pair() -> Pair<Client, Server> {
    Pair::new(client(), server())
}

fn call(body: &[u8]) -> Call<'static> {
    Call::new("example.EchoService", "Echo", Format::Protobuf, Bytes::copy_from_slice(body))
}

/// Returns the captured request of the simplest scenario.
fn request() -> Bytes {
    scenario("plain").sent()
}

/// Returns a request with the credential `secret-token`.
fn auth_request() -> Bytes {
    scenario("auth_ok").frames_of(Kind::Rpc, ToServer).remove(0)
}

fn request_with(change: impl FnOnce(&mut Meta<'static>), payload: &[u8]) -> Vec<u8> {
    let mut meta = Meta::read(b"\x0a\x08\x0a\x03a.B\x12\x01C").expect("an RpcMeta");
    change(&mut meta);
    let mut bytes = Vec::new();
    meta.write(&mut bytes);
    build_frame(Kind::Rpc, &bytes, payload)
}

fn build_frame(kind: Kind, meta: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = frame::start_frame(&mut bytes, kind);
    bytes.extend_from_slice(meta);
    frame::finish(&mut bytes, start, meta.len(), payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

fn header(body: u32, meta: u32) -> Vec<u8> {
    [*b"PRPC", body.to_be_bytes(), meta.to_be_bytes()].concat()
}

/// Returns the next call, as text, and its ticket.
fn next_call(server: &mut Server, inbox: &mut BytesMut) -> (String, Ticket) {
    match server.next_event(inbox, &mut Outbox::new()) {
        Ok(Some(ServerEvent::Call(call, ticket))) => (testing::describe_call(&call), ticket),
        other => panic!("expected a call, got {other:?}"),
    }
}

/// Returns the failure that a client sees if the server answers with `reply`.
fn failure_of(reply: Reply) -> Status {
    let answers = pair().call(CallId(1), &call(b""), |_| reply.clone());
    let (_, reply) = sole_reply(answers);
    assert!(reply.attachment.is_empty());
    reply.result.expect_err("a failure")
}

fn sort(metadata: &Metadata) -> Vec<(String, Bytes)> {
    let mut entries: Vec<_> = metadata.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    entries.sort();
    entries
}

/// Parses a captured request with our server and re-encodes it with our client.
fn resend(request: &[u8]) -> Vec<u8> {
    let (mut server, mut out) = (server(), Outbox::new());
    let mut inbox = BytesMut::from(request);
    let Ok(Some(ServerEvent::Call(mut call, _))) = server.next_event(&mut inbox, &mut out) else {
        panic!("expected a call");
    };
    call.body = decompress(call.head.compression, &call.body).into();
    let credential = call.credential.bytes().cloned();
    let mut client =
        Client::new(ClientConfig { credential, deliver_timeout: true, ..ClientConfig::default() });
    let id = CallId(meanings(request)[0].id.cast_unsigned());
    client.send(id, call.clone(), &mut out).expect("a received call can be sent");
    out.take()
}
