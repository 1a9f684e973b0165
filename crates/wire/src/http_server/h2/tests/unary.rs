//! Unary calls.

use super::*;

fn pair() -> Pair<Client, Server> {
    Pair::new(client(), server())
}

#[test]
fn repeated_calls_are_answered() {
    let mut pair = pair();
    for n in 0..100 {
        let (id, reply) = sole_reply(pair.call(CallId(n), &call(b"hello"), |got| {
            assert_eq!((got.service, got.method), ("example.EchoService", "Echo"));
            echo(got)
        }));
        assert_eq!((id, &reply.result.unwrap()[..]), (CallId(n), &b"hello"[..]));
    }
}

#[test]
fn name_that_others_would_resolve_in_a_path_is_not_sent() {
    let names = [
        ("S", ".."),
        ("..", "M"),
        ("a/../b", "M"),
        ("S", "%2e%2e"),
        ("S", "a\\b"),
        ("S", "a?b"),
        ("S", "a\nb"),
    ];
    for (service, method) in names {
        let (mut client, mut out) = (client(), Outbox::new());
        let asked = Call { service, method, ..call(b"") };
        let refused = client.send(CallId(1), asked, &mut out).expect_err(method);
        assert_eq!(refused.code(), Code::InvalidArgument, "{service}/{method}");
    }
}

#[test]
fn metadata_and_timeout_round_trip() {
    let mut metadata: Metadata = [("key", "value")].into_iter().collect();
    metadata.append("data-bin", &[0xab, 0xab][..]);
    metadata.append("key", "second");
    let asked = Call {
        head: Head { metadata: metadata.clone(), ..Head::default() },
        timeout: Some(Duration::from_secs(7)),
        ..call(b"")
    };
    let (_, reply) = sole_reply(pair().call(CallId(1), &asked, |got| {
        assert_eq!(got.timeout, Some(Duration::from_secs(7)));
        let mut reply = echo(got);
        reply.trailers.insert("behind-bin", &[1, 2, 3][..]);
        reply
    }));
    assert_eq!(reply.head.metadata.all("key").collect::<Vec<_>>(), ["value", "second"]);
    assert_eq!(reply.head.metadata.bytes("data-bin").unwrap()[..], [0xab, 0xab]);
    assert_eq!(reply.trailers.bytes("behind-bin").unwrap()[..], [1, 2, 3]);
}

#[test]
fn failure_carries_code_text_details_and_trailers() {
    let (_, reply) = sole_reply(pair().call(CallId(1), &call(b""), |_| {
        let status = Status::not_found("n\u{f6}t here\n").with_details(&b"details"[..]);
        let mut reply = Reply::failure(status);
        reply.trailers.insert("why", "because");
        reply
    }));
    let status = reply.result.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "n\u{f6}t here\n"));
    assert_eq!(status.details(), &b"details"[..]);
    assert_eq!(reply.trailers.get("why"), Some("because"));
}

#[test]
fn messages_are_compressed_both_ways_if_that_shortens_them() {
    for compression in [Compression::Gzip, Compression::Zlib, Compression::Zstd, Compression::SnappyFrames] {
        let text = Bytes::from(vec![b'a'; 10_000]);
        let head = Head { compression, ..Head::default() };
        let asked = Call { head, body: text.clone(), ..call(b"") };
        let (_, reply) = sole_reply(pair().call(CallId(1), &asked, |got| {
            assert_eq!(got.head.compression, compression);
            assert!(got.body.len() < 2000);
            let head = Head { compression, ..Head::default() };
            Reply::new(Ok(text.clone()), head)
        }));
        assert_eq!(reply.head.compression, compression);
        assert!(reply.result.unwrap().len() < 2000);
    }
}

#[test]
fn large_message_spans_windows_and_frames() {
    let large = Bytes::from((0..3_000_000_u32).map(|n| n as u8).collect::<Vec<_>>());
    let (mut client, mut server) = (client(), server());
    let asked = Call { body: large.clone(), ..call(b"") };
    let (mut up, mut down) = (Outbox::new(), Outbox::new());
    client.send(CallId(9), asked, &mut up).unwrap();
    let (mut inbox, mut outbox) = (BytesMut::new(), BytesMut::new());
    let (mut ticket, mut body) = (None, None);
    let reply = loop {
        inbox.extend_from_slice(&up.take());
        while let Some(event) = server.next_event(&mut inbox, &mut down).unwrap() {
            match event {
                ServerEvent::Open(_, opened, _) => ticket = Some(opened),
                ServerEvent::Message(_, message) => body = Some(message.body),
                ServerEvent::End(_) => {
                    let reply = Reply::message(Format::Protobuf, body.take().unwrap());
                    server.reply(ticket.take().unwrap(), reply, &mut down);
                }
                ServerEvent::Room(_) | ServerEvent::Pause => {}
                _ => panic!("nothing else happens"),
            }
        }
        outbox.extend_from_slice(&down.take());
        if let Some(answer) = client.next_event(&mut outbox, &mut up).unwrap() {
            break sole_reply(vec![answer]).1;
        }
    };
    assert!(reply.result.unwrap() == large);
}

#[test]
fn message_over_the_limit_is_rejected_and_the_connection_stays_open() {
    let limits = polyrpc_core::Limits { message: 1000, ..Default::default() };
    let config = ServerConfig { limits, ..ServerConfig::default() };
    let mut pair = Pair::new(client(), Server::new(config.into()));
    // The server detects that it is too long before all of it has arrived.
    let asked = Call { body: vec![0; 1001].into(), ..call(b"") };
    let (client, out) = pair.client_parts();
    client.send(CallId(1), asked, out).unwrap();
    let recorded = pair.deliver();
    assert!(recorded.iter().any(|event| event.contains("cancelled")), "{recorded:?}");
    let (_, reply) = sole_reply(pair.answers());
    assert_eq!(reply.result.unwrap_err().code(), Code::ResourceExhausted);
    let (_, reply) = sole_reply(pair.call(CallId(2), &call(b"small"), echo));
    assert_eq!(&reply.result.unwrap()[..], b"small");
}

#[test]
fn sensitive_metadata_is_never_indexed() {
    // Huffman coding does not shorten this value, so it appears literally in a block.
    const VALUE: &str = "~~~~~~~~~~~~~~~~";
    for (name, again) in [("authorization", true), ("cookie", true), ("other", false)] {
        let metadata: Metadata = [(name, VALUE)].into_iter().collect();
        let asked = Call { head: Head { metadata, ..Head::default() }, ..call(b"") };
        let (mut client, mut out) = (client(), Outbox::new());
        client.send(CallId(1), asked.clone(), &mut out).unwrap();
        out.take();
        client.send(CallId(2), asked, &mut out).unwrap();
        let second = out.take();
        let is_written = second.windows(VALUE.len()).any(|bytes| bytes == VALUE.as_bytes());
        assert_eq!(is_written, again, "{name}");
    }
}

/// Returns the lengths of the DATA frames in these bytes.
fn data_lengths(mut bytes: &[u8]) -> Vec<usize> {
    bytes = bytes.strip_prefix(crate::http::h2::PREFACE).unwrap_or(bytes);
    let mut lengths = Vec::new();
    while let Some((&[a, b, c, kind, ..], rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        lengths.extend((kind == 0).then_some(length));
        bytes = &rest[length..];
    }
    lengths
}

#[test]
fn large_messages_become_one_frame_in_both_directions() {
    const LENGTH: usize = 300_000;
    let mut both = super::streams::with_unary_method();
    let mut lengths = Vec::new();
    for n in 0..4 {
        let asked = Call { body: vec![b'm'; LENGTH].into(), ..call(b"") };
        both.client.send(CallId(n), asked, &mut both.up).unwrap();
        let (mut sent, mut answered) = (Vec::new(), Vec::new());
        let mut is_answered = false;
        while !is_answered {
            let up = both.up.take();
            sent.extend(data_lengths(&up));
            both.to_server.extend_from_slice(&up);
            both.recorded();
            for ticket in std::mem::take(&mut both.tickets) {
                let reply = Reply::message(Format::Protobuf, vec![b'm'; LENGTH].into());
                both.server.reply(ticket, reply, &mut both.down);
            }
            let down = both.down.take();
            answered.extend(data_lengths(&down));
            both.to_client.extend_from_slice(&down);
            while let Some(event) = both.client.next_event(&mut both.to_client, &mut both.up).unwrap() {
                is_answered |= matches!(event, ClientEvent::Reply(..));
            }
            both.client.assert_sound();
            both.server.assert_sound();
        }
        lengths.push([sent, answered]);
    }
    // Before the server has announced longer frames.
    assert_eq!(lengths[0][0][..4], [5, 16_384, 16_384, 16_384]);
    assert_eq!(lengths[3], [[LENGTH + 5], [LENGTH + 5]]);
}
