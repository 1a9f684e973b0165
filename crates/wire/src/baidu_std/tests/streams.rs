//! Streams attached to a call, both sides.

use polyrpc_core::session::StreamOptions;
use polyrpc_core::{Message, StreamId};

use super::*;
use crate::baidu_std::StreamLimits;
use crate::baidu_std::meta::FrameType;
use crate::brpc_status::ECONNRESET;

mod vectors {
    use super::*;

    /// Replays the captured conversation, with this side's id in place of the recorded one.
    #[test]
    fn server_bytes_equal_those_of_the_brpc_server() {
        let scenario = scenario("stream");
        let mut ends = Ends::new();
        let mut sent = Vec::new();
        for (_, bytes) in scenario.frames.iter().filter(|(way, _)| *way == ToServer) {
            ends.to_server.extend_from_slice(&rename(bytes, 146, 0));
            for recorded in ends.server_events() {
                match recorded {
                    PeerEvent::Call(ticket) => {
                        drop(ends.accept(ticket, b"\n\x06stream", &StreamOptions::default()))
                    }
                    PeerEvent::Message(stream, message) => {
                        let answer = [b"S:", &message[..]].concat();
                        ends.server.send_message(stream, answer.into(), &mut ends.server_out);
                        ends.server.record_consumed(stream, message.len(), &mut ends.server_out);
                    }
                    PeerEvent::End(_) => {}
                    other => panic!("unexpected: {other:?}"),
                }
            }
            sent.extend_from_slice(&ends.server_out.take());
        }
        let sent: Vec<u8> = frames(&sent).iter().flat_map(|frame| rename(frame, 0, 146)).collect();
        assert_bytes(sent, scenario.received());
    }

    #[test]
    fn client_bytes_equal_those_of_the_brpc_client() {
        check_against_the_brpc_client(|client, stream, out| client.cancel(stream, out), None);
    }

    /// A client that waits for the server's `CLOSE` sends the same frames, and sees the event when it arrives.
    #[test]
    fn orderly_close_equals_that_of_the_brpc_client() {
        check_against_the_brpc_client(|client, stream, out| client.close(stream, out), Some(CallId(0)));
    }

    fn check_against_the_brpc_client(end: impl Fn(&mut Client, CallId, &mut Outbox), told: Option<CallId>) {
        let scenario = scenario("stream");
        let (mut client, mut out, mut inbox) = (super::client(), Outbox::new(), BytesMut::new());
        let (id, stream) = (CallId(171_798_691_842), CallId(0));
        let call = super::call(b"\n\x06stream");
        client.send_with_streams(id, call, &[stream], &StreamOptions::default(), &mut out).expect("it can");
        let mut written = out.take();
        let (mut sent, mut closed) = (0, None);
        for (_, bytes) in scenario.frames.iter().filter(|(way, _)| *way == ToClient) {
            inbox.extend_from_slice(bytes);
            while let Some(answer) = client.next_event(&mut inbox, &mut out).expect("no violation") {
                match answer {
                    ClientEvent::Reply(told, reply) if told == id => {
                        assert_eq!(reply.result, Ok(Bytes::from_static(b"\n\x06stream")));
                        client.send_message(stream, Bytes::from_static(b"data0"), &mut out);
                    }
                    ClientEvent::Message(_, message) => {
                        assert_eq!(message.body, format!("S:data{sent}"));
                        client.record_consumed(stream, message.body.len(), &mut out);
                        sent += 1;
                        match sent {
                            1 => client.send_message(stream, Bytes::from_static(b"data1"), &mut out),
                            _ => end(&mut client, stream, &mut out),
                        }
                    }
                    ClientEvent::Reply(ended, Reply { result: Ok(_), .. }) => closed = Some(ended),
                    other => panic!("unexpected: {other:?}"),
                }
            }
            written.extend_from_slice(&out.take());
        }
        assert_bytes(written, scenario.sent());
        assert_eq!(closed, told);
    }

    #[test]
    fn stream_not_accepted_by_brpc_fails_its_call() {
        let scenario = scenario("stream_not_accepted");
        let (mut client, mut out) = (super::client(), Outbox::new());
        let (id, stream) = (CallId(176_093_659_142), CallId(1));
        let call = super::call(b"\n\x08nostream");
        client.send_with_streams(id, call, &[stream], &StreamOptions::default(), &mut out).expect("it can");
        assert_bytes(out.take(), scenario.sent());
        let mut inbox = BytesMut::from(&scenario.received()[..]);
        let status = failure(client.next_event(&mut inbox, &mut out), id);
        assert_eq!(
            (status.number(), status.message()),
            (Some(EREQUEST), "The server didn't accept the stream")
        );
        assert_eq!(failure(client.next_event(&mut inbox, &mut out), stream).number(), Some(EREQUEST));
        assert!(out.is_empty());
    }

    /// The server's first stream is 0 here and was 146 in the capture.
    fn rename(frame: &[u8], from: i64, to: i64) -> Vec<u8> {
        let frame = Frame::exactly(Bytes::copy_from_slice(frame)).expect("a whole frame");
        let mut meta = Vec::new();
        if frame.kind == Kind::Rpc {
            let mut rpc = Meta::read(&frame.meta).expect("an RpcMeta");
            if let (Some(settings), true) = (&mut rpc.stream_settings, rpc.response.is_some()) {
                assert_eq!(settings.stream_id, Some(from));
                settings.stream_id = Some(to);
            }
            rpc.write(&mut meta);
            return build_frame(Kind::Rpc, &meta, &frame.payload);
        }
        let mut stream = StreamMeta::read(&frame.meta).expect("a StreamFrameMeta");
        match stream.source_stream_id {
            // Sent by the server: its own id is the source.
            Some(_) if is_from_server(&stream, &frame.payload, from) => stream.source_stream_id = Some(to),
            _ => stream.stream_id = to,
        }
        stream.write(&mut meta);
        let inner = Frame::exactly(frame.payload.clone()).map(|_| rename(&frame.payload, from, to));
        build_frame(Kind::Stream, &meta, &inner.unwrap_or_else(|| frame.payload.to_vec()))
    }

    /// In the captured conversation the client's stream is 0, as the server's is here: the renamed id shows which of
    /// the two is meant.
    fn is_from_server(meta: &StreamMeta, _data: &[u8], from: i64) -> bool {
        from == 0 || meta.stream_id != from
    }

    fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
        let (mut inbox, mut frames) = (BytesMut::from(bytes), Vec::new());
        while !inbox.is_empty() {
            let size = inbox[4..8].iter().fold(0, |size, byte| size << 8 | usize::from(*byte));
            frames.push(inbox.split_to(frame::HEADER + size).to_vec());
        }
        frames
    }
}

mod memory {
    use super::*;

    #[test]
    fn incomplete_messages_count_as_buffered() {
        let mut ends = Ends::connected();
        let idle = ends.server.buffered();
        assert!(idle < 1000, "{idle} bytes for a stream");
        for part in 1..=3 {
            ends.to_server.extend_from_slice(&data(0, 1, true, &[1; 10_000]));
            assert!(ends.server_events().is_empty());
            assert_eq!(ends.server.buffered(), idle + part * 10_000);
        }
        // Emitted messages no longer belong to the session, even if they are not consumed yet.
        ends.to_server.extend_from_slice(&data(0, 1, false, &[1; 10_000]));
        assert!(matches!(&ends.server_events()[..], [PeerEvent::Message(_, whole)] if whole.len() == 40_000));
        assert_eq!(ends.server.buffered(), idle);
        ends.to_server.extend_from_slice(&data(0, 1, true, &[1; 10_000]));
        ends.to_server.extend_from_slice(&reset_of(0));
        assert!(matches!(ends.server_events()[..], [PeerEvent::Gone(_)]));
        assert_eq!(ends.server.buffered(), 0);
    }

    #[test]
    fn offered_streams_are_counted_until_the_call_is_answered() {
        let mut ends = Ends::new();
        let streams: Vec<CallId> = (1..=1000).map(CallId).collect();
        ends.open(&streams, &StreamOptions::default());
        let Some(PeerEvent::Call(ticket)) = ends.server_events().pop() else { panic!("expected a call") };
        assert!((8_000..20_000).contains(&ends.server.buffered()), "{}", ends.server.buffered());
        let reply = Reply::message(Format::Protobuf, Bytes::new());
        ends.server.reply(ticket, reply, &mut ends.server_out);
        assert_eq!(ends.server.buffered(), 0);
    }
}

mod setup {
    use super::*;

    #[test]
    fn stream_is_bidirectional_and_close_ends_both_directions() {
        let mut ends = Ends::connected();
        ends.client.send_message(STREAM, Bytes::from_static(b"up"), &mut ends.client_out);
        ends.server.send_message(SERVED, Bytes::from_static(b"down"), &mut ends.server_out);
        assert_eq!(ends.server_messages(), ["up"]);
        assert_eq!(ends.client_messages(), ["down"]);
        ends.client.cancel(STREAM, &mut ends.client_out);
        assert!(matches!(ends.server_events()[..], [PeerEvent::End(SERVED)]));
        // The server's own CLOSE reaches no stream there, nor does the RST that reports so.
        assert!(ends.client_events().is_empty());
        assert_eq!(ends.client_out.len(), 16);
        assert!(ends.server_events().is_empty());
        ends.server.send_message(SERVED, Bytes::from_static(b"late"), &mut ends.server_out);
        assert!(ends.server_out.is_empty());
    }

    #[test]
    fn several_streams_of_one_call_are_paired_in_order() {
        let ids = [CallId(7), CallId(3), CallId(5)];
        let mut ends = Ends::new();
        ends.open(&ids, &StreamOptions::default());
        let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        assert_eq!(ticket.offered_streams().map(|offered| offered.streams), Some(3));
        let tickets = ends.accept(ticket, b"", &StreamOptions::default());
        let served: Vec<_> = tickets.iter().filter_map(Ticket::stream).collect();
        assert_eq!(served, [StreamId(0), StreamId(1), StreamId(2)]);
        for stream in &served {
            ends.server.send_message(*stream, format!("on {}", stream.0).into(), &mut ends.server_out);
        }
        let told = ends.client_events().into_iter().map(|answer| match answer {
            ClientEvent::Reply(id, _) => (id, "the reply".into()),
            ClientEvent::Message(id, message) => (id, String::from_utf8_lossy(&message.body).into_owned()),
            other => panic!("unexpected: {other:?}"),
        });
        let want = [(CALL, "the reply"), (ids[0], "on 0"), (ids[1], "on 1"), (ids[2], "on 2")];
        assert_eq!(told.collect::<Vec<_>>(), want.map(|(id, text)| (id, text.to_owned())));
    }

    #[test]
    fn unpaired_stream_is_closed_and_reported() {
        // The client requests two streams and the server answers with one; and the other way round.
        let mut ends = Ends::new();
        ends.open(&[STREAM, CallId(2)], &StreamOptions::default());
        let answers = ends.client_is_told(&response(|meta| meta.stream_settings = settings(&[9])), true);
        assert!(
            matches!(&answers[..], [ClientEvent::Reply(CALL, reply), ClientEvent::Reply(CallId(2), gone)]
            if reply.result.is_ok() && gone.result.is_err())
        );
        assert!(ends.client_out.is_empty());

        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        ends.client_is_told(&response(|meta| meta.stream_settings = settings(&[9, 10, 11])), true);
        assert_bytes(ends.client_out.take(), [reset_of(10), reset_of(11)].concat());
    }

    #[test]
    fn bare_response_connects_the_stream_as_one_inside_it() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let answers = ends.client_is_told(&response(|meta| meta.stream_settings = settings(&[9])), false);
        assert!(matches!(&answers[..], [ClientEvent::Reply(CALL, reply)] if reply.result.is_ok()));
        assert!(ends.client.has_room(STREAM) && ends.client.is_writable(STREAM));
    }

    #[test]
    fn fragmented_response_does_not_count_towards_the_window() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let bytes = response(|meta| meta.stream_settings = settings(&[9]));
        let (begin, rest) = bytes.split_at(20);
        let frames = [data(1, 9, true, begin), data(1, 9, false, rest), data(1, 9, false, b"one")].concat();
        ends.to_client.extend_from_slice(&frames);
        let answers = ends.client_events();
        assert!(matches!(&answers[..], [ClientEvent::Reply(CALL, _), ClientEvent::Message(STREAM, message)]
            if message.body == "one"));
        ends.client.record_consumed(STREAM, 3, &mut ends.client_out);
        assert_eq!(stream_metas_of_streams(&ends.client_out.take())[0].consumed_size, Some(3));
    }

    #[test]
    fn failed_call_ends_its_streams() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        ends.server.reply(ticket, Reply::failure(Status::internal("boom")), &mut ends.server_out);
        let answers = ends.client_events();
        let [ClientEvent::Reply(CALL, reply), ClientEvent::Reply(STREAM, stream)] = &answers[..] else {
            panic!("unexpected: {answers:?}");
        };
        assert_eq!(reply.result.as_ref().map_err(Status::number), Err(Some(EINTERNAL)));
        assert!(stream.result.is_err());
        assert!(ends.client_out.is_empty());
    }

    #[test]
    fn streams_of_a_failed_response_are_reset() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let failed = response(|meta| {
            meta.response = Some(super::meta::Response { error_code: 2001, error_text: None });
            meta.stream_settings = settings(&[9, 10]);
        });
        ends.client_is_told(&failed, true);
        assert_bytes(ends.client_out.take(), [reset_of(9), reset_of(10)].concat());
    }

    #[test]
    fn streams_of_a_late_response_to_a_cancelled_call_are_reset() {
        let mut ends = Ends::new();
        ends.open(&[STREAM, CallId(2)], &StreamOptions::default());
        ends.client.cancel(CALL, &mut ends.client_out);
        let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        ends.accept(ticket, b"", &StreamOptions::default());
        ends.client_events();
        let gone = ends.server_events();
        assert!(matches!(gone[..], [PeerEvent::Gone(SERVED), PeerEvent::Gone(StreamId(1))]), "{gone:?}");
    }

    #[test]
    fn response_that_cannot_be_sent_leaves_no_stream_behind() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let PeerEvent::Call(mut ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        ends.server.accept_streams(&mut ticket, &StreamOptions::default());
        let reply = Reply::message(Format::MessagePack, Bytes::new());
        ends.server.reply(ticket, reply, &mut ends.server_out);
        assert!(matches!(ends.server_events()[..], [PeerEvent::Gone(SERVED)]));
        let answers = ends.client_events();
        assert!(matches!(&answers[..], [ClientEvent::Reply(CALL, reply), ClientEvent::Reply(STREAM, _)]
            if reply.result.is_err()));
    }

    #[test]
    fn other_frame_in_place_of_the_response_fails_the_call() {
        let cases = [
            (data(1, 9, false, b"no response"), EREQUEST),
            (build_frame(Kind::Stream, &hex("0801 1801"), b""), ECONNRESET),
            (build_frame(Kind::Stream, &hex("0801 1009 1802"), b""), ECONNRESET),
        ];
        for (bytes, number) in cases {
            let mut ends = Ends::new();
            ends.open(&[STREAM, CallId(2)], &StreamOptions::default());
            ends.to_client.extend_from_slice(&bytes);
            let mut failed: Vec<_> = ends
                .client_events()
                .into_iter()
                .map(|answer| match answer {
                    ClientEvent::Reply(id, reply) => (id, reply.result.expect_err("it failed").number()),
                    other => panic!("unexpected: {other:?}"),
                })
                .collect();
            failed.sort();
            assert_eq!(failed, [(STREAM, Some(number)), (CallId(2), Some(number)), (CALL, Some(number))]);
        }
    }

    #[test]
    fn messages_on_further_streams_may_arrive_before_the_response() {
        let mut ends = Ends::new();
        ends.open(&[STREAM, CallId(2)], &StreamOptions::default());
        ends.to_client.extend_from_slice(&data(2, 10, false, b"early"));
        assert!(matches!(&ends.client_events()[..], [ClientEvent::Message(CallId(2), _)]));
        ends.client.record_consumed(CallId(2), 5, &mut ends.client_out);
        assert!(stream_metas_of_streams(&ends.client_out.take()).is_empty());
        ends.client_is_told(&response(|meta| meta.stream_settings = settings(&[9, 10])), true);
        let told = stream_metas(&ends.client_out.take());
        assert_eq!((told.len(), told[0].stream_id, told[0].consumed_size), (1, 10, Some(5)));
    }

    #[test]
    fn settings_reflect_the_options() {
        for (options, need_feedback, writable) in [
            (StreamOptions { max_buf_size: 0, ..<_>::default() }, false, true),
            (StreamOptions { receives: false, ..<_>::default() }, true, false),
        ] {
            let mut ends = Ends::new();
            ends.open(&[STREAM], &options);
            let frame = Frame::exactly(ends.client_out.take().into()).expect("one frame");
            let settings = Meta::read(&frame.meta).expect("an RpcMeta").stream_settings.expect("settings");
            assert_eq!((settings.need_feedback, settings.writable), (need_feedback, writable));
        }
    }

    #[test]
    fn number_of_streams_is_limited() {
        let limits = StreamLimits { streams: 2, ..<_>::default() };
        let mut ends = Ends::with_limits(&limits);
        ends.open(&[STREAM], &StreamOptions::default());
        let two = [CallId(2), CallId(3)];
        let refused = ends.client.send_with_streams(
            CallId(101),
            call(b""),
            &two,
            &StreamOptions::default(),
            &mut ends.client_out,
        );
        assert_eq!(refused.expect_err("too many").code(), Code::ResourceExhausted);

        let mut server = Ends::with_limits(&limits);
        let mut asking = Ends::new();
        asking.open(&[STREAM, CallId(2), CallId(3)], &StreamOptions::default());
        server.to_server.extend_from_slice(&asking.client_out.take());
        let PeerEvent::Call(mut ticket) = server.server_events().remove(0) else { panic!("expected a call") };
        assert_eq!(ticket.offered_streams().map(|offered| offered.streams), Some(0));
        assert!(server.server.accept_streams(&mut ticket, &StreamOptions::default()).is_empty());
    }
}

mod flow {
    use super::*;

    #[test]
    fn sender_waits_for_feedback_and_continues_after_it() {
        let mut ends = Ends::connected_with(&StreamOptions { max_buf_size: 10, ..<_>::default() });
        ends.server.send_message(SERVED, Bytes::from(vec![0; 9]), &mut ends.server_out);
        assert!(ends.server.has_room(SERVED));
        ends.server.send_message(SERVED, Bytes::from(vec![0; 9]), &mut ends.server_out);
        assert!(!ends.server.has_room(SERVED));
        assert_eq!(ends.client_messages().len(), 2);
        ends.client.record_consumed(STREAM, 8, &mut ends.client_out);
        assert!(ends.server_events().is_empty());
        ends.client.record_consumed(STREAM, 1, &mut ends.client_out);
        assert!(matches!(ends.server_events()[..], [PeerEvent::Room(SERVED)]));
        assert!(ends.server.has_room(SERVED));
    }

    #[test]
    fn feedback_is_cumulative_and_sent_only_on_request() {
        let mut ends = Ends::connected();
        for _ in 0..2 {
            ends.server.send_message(SERVED, Bytes::from_static(b"four"), &mut ends.server_out);
        }
        ends.client_messages();
        ends.client.record_consumed(STREAM, 4, &mut ends.client_out);
        ends.client.record_consumed(STREAM, 4, &mut ends.client_out);
        let told: Vec<_> =
            stream_metas(&ends.client_out.take()).iter().map(|meta| meta.consumed_size).collect();
        assert_eq!(told, [Some(4), Some(8)]);

        let mut ends = Ends::connected_with(&StreamOptions { max_buf_size: 0, ..<_>::default() });
        ends.server.send_message(SERVED, Bytes::from(vec![0; 100 << 20]), &mut ends.server_out);
        assert!(ends.server.has_room(SERVED), "without a window there is always room");
    }

    #[test]
    fn no_messages_are_sent_to_a_peer_that_does_not_receive() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions { receives: false, ..<_>::default() });
        let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        assert_eq!(ticket.offered_streams().map(|offered| offered.writable), Some(false));
        ends.accept(ticket, b"", &StreamOptions { receives: false, ..<_>::default() });
        ends.client_events();
        assert!(!ends.client.is_writable(STREAM));
        ends.server.send_message(SERVED, Bytes::from_static(b"x"), &mut ends.server_out);
        ends.client.send_message(STREAM, Bytes::from_static(b"x"), &mut ends.client_out);
        assert!(ends.server_out.is_empty() && ends.client_out.is_empty());
    }

    #[test]
    fn impossible_feedback_does_not_open_the_window() {
        let mut ends = Ends::connected_with(&StreamOptions { max_buf_size: 10, ..<_>::default() });
        ends.server.send_message(SERVED, Bytes::from(vec![0; 10]), &mut ends.server_out);
        for lie in ["0800 1001 1804", "0800 1001 1804 2a00", "0800 1001 1804 2a0b 08ffffffffffffffffff01"] {
            ends.to_server.extend_from_slice(&build_frame(Kind::Stream, &hex(lie), b""));
            assert!(ends.server_events().is_empty() && !ends.server.has_room(SERVED), "{lie}");
        }
        ends.to_server.extend_from_slice(&build_frame(
            Kind::Stream,
            &hex("0800 1001 1804 2a0a 08ffffffffffffffff7f"),
            b"",
        ));
        assert!(matches!(ends.server_events()[..], [PeerEvent::Room(SERVED)]));
        // Feedback counts no more than was sent: the window is as it was at the start.
        ends.server.send_message(SERVED, Bytes::from(vec![0; 10]), &mut ends.server_out);
        assert!(!ends.server.has_room(SERVED));
    }

    #[test]
    fn fragments_of_different_streams_may_interleave() {
        let mut ends = Ends::connected();
        let mut other = Ends::new();
        other.client.send(CallId(55), call(b"between"), &mut other.client_out).expect("it can");
        let bytes = [
            data(0, 1, true, b"one "),
            other.client_out.take(),
            data(0, 1, true, b""),
            data(0, 1, false, b"message"),
        ]
        .concat();
        ends.to_server.extend_from_slice(&bytes);
        let recorded = ends.server_events();
        assert!(
            matches!(&recorded[..], [PeerEvent::Call(_), PeerEvent::Message(SERVED, message)] if message == "one message")
        );
    }

    #[test]
    fn long_message_is_sent_in_several_frames() {
        let mut ends = Ends::connected();
        let message = Bytes::from(vec![7; (32 << 20) + 1]);
        ends.server.send_message(SERVED, message.clone(), &mut ends.server_out);
        assert_eq!(ends.client_messages_whole(), [message]);
    }

    #[test]
    fn endless_fragmented_message_is_limited() {
        let mut ends = Ends::limited(200, &StreamLimits::default());
        ends.establish(&StreamOptions::default());
        for _ in 0..30 {
            ends.to_server.extend_from_slice(&data(0, 1, true, &[0; 10]));
        }
        assert!(matches!(ends.server_events()[..], [PeerEvent::Gone(SERVED)]));
        assert_bytes(
            &ends.server_out.take()[..17],
            reset_of(1).iter().chain(b"S").copied().collect::<Vec<_>>(),
        );
    }

    #[test]
    fn unread_data_is_limited_per_stream_and_connection() {
        for limits in [
            StreamLimits { unread: 400, ..<_>::default() },
            StreamLimits { unread_in_all: 400, ..<_>::default() },
        ] {
            let mut ends = Ends::limited(200, &limits);
            ends.establish(&StreamOptions::default());
            for _ in 0..4 {
                ends.to_server.extend_from_slice(&data(0, 1, false, &[0; 100]));
            }
            assert_eq!(ends.server_messages().len(), 4);
            ends.server.record_consumed(SERVED, 100, &mut ends.server_out);
            ends.to_server
                .extend_from_slice(&[data(0, 1, false, &[0; 100]), data(0, 1, false, b"x")].concat());
            let recorded = ends.server_events();
            assert!(
                matches!(recorded[..], [PeerEvent::Message(..), PeerEvent::Gone(SERVED)]),
                "{recorded:?}"
            );
        }
    }

    #[test]
    fn unread_data_is_released_with_its_stream() {
        let limits = StreamLimits { unread_in_all: 200, ..<_>::default() };
        let mut ends = Ends::limited(200, &limits);
        for n in 0..20 {
            ends.open_as(CALL, &[CallId(n)], &StreamOptions::default());
            let Some(PeerEvent::Call(ticket)) = ends.server_events().pop() else { panic!("expected a call") };
            let stream = ends.accept(ticket, b"", &StreamOptions::default()).remove(0);
            ends.to_server.extend_from_slice(&data(n.cast_signed(), n.cast_signed(), false, &[0; 150]));
            assert_eq!(ends.server_messages().len(), 1);
            ends.server.finish(stream, Ok(()), Metadata::new(), &mut ends.server_out);
            ends.client_events();
        }
    }
}

mod stream_end {
    use super::*;

    #[test]
    fn finished_stream_is_closed_and_failed_stream_is_reset() {
        let mut ends = Ends::connected();
        ends.server.finish(ends.tickets.remove(0), Ok(()), Metadata::new(), &mut ends.server_out);
        let answers = ends.client_events();
        assert!(matches!(&answers[..], [ClientEvent::Reply(STREAM, reply)] if reply.result.is_ok()));

        let mut ends = Ends::connected();
        let failed = Err(Status::internal("boom"));
        ends.server.finish(ends.tickets.remove(0), failed, Metadata::new(), &mut ends.server_out);
        let status = failure(Ok(ends.client_events().pop()), STREAM);
        assert_eq!(status.number(), Some(ECONNRESET));
        // The handler has run, so the call must not be repeated.
        assert_eq!(
            (status.code(), status.retry()),
            (polyrpc_core::Code::Unknown, polyrpc_core::Retry::Never)
        );
        assert_eq!(status.message(), "the server reset the stream");
        // brpc's ends always send CLOSE when they end; no stream receives it here.
        assert!(ends.server_events().is_empty());
        ends.client_events();
        assert!(ends.server_events().is_empty() && ends.client_events().is_empty());
    }

    #[test]
    fn messages_before_a_close_are_readable_after_it_without_feedback() {
        let mut ends = Ends::connected();
        ends.client.send_message(STREAM, Bytes::from_static(b"last"), &mut ends.client_out);
        ends.client.cancel(STREAM, &mut ends.client_out);
        assert!(matches!(ends.server_events()[..], [PeerEvent::Message(..), PeerEvent::End(SERVED)]));
        ends.server_out.take();
        ends.server.record_consumed(SERVED, 4, &mut ends.server_out);
        ends.server.finish(ends.tickets.remove(0), Ok(()), Metadata::new(), &mut ends.server_out);
        assert!(ends.server_out.is_empty());
    }

    #[test]
    fn frames_of_an_ended_stream_are_reset() {
        let mut ends = Ends::connected();
        ends.server.finish(ends.tickets.remove(0), Ok(()), Metadata::new(), &mut ends.server_out);
        ends.server_out.take();
        ends.to_server.extend_from_slice(&data(0, 1, false, b"late"));
        assert!(ends.server_events().is_empty());
        assert_bytes(ends.server_out.take(), reset_of(1));
        // Neither feedback nor a reset is answered.
        for meta in ["0800 1001 1804 2a020805", "0800 1801"] {
            ends.to_server.extend_from_slice(&build_frame(Kind::Stream, &hex(meta), b""));
            assert!(ends.server_events().is_empty() && ends.server_out.is_empty());
        }
    }

    #[test]
    fn unknown_frame_kind_is_ignored() {
        let mut ends = Ends::connected();
        for meta in ["0800 1001", "0800 1001 1800", "0800 1001 1809"] {
            ends.to_server.extend_from_slice(&build_frame(Kind::Stream, &hex(meta), b"?"));
        }
        assert!(ends.server_events().is_empty() && ends.server_out.is_empty());
        ends.client.send_message(STREAM, Bytes::from_static(b"still there"), &mut ends.client_out);
        assert_eq!(ends.server_messages(), ["still there"]);
    }

    #[test]
    fn both_sides_can_close_at_once() {
        let mut ends = Ends::connected();
        ends.client.cancel(STREAM, &mut ends.client_out);
        ends.server.finish(ends.tickets.remove(0), Ok(()), Metadata::new(), &mut ends.server_out);
        for _ in 0..3 {
            assert!(ends.server_events().is_empty());
            assert!(ends.client_events().is_empty());
        }
        assert!(ends.client_out.is_empty() && ends.server_out.is_empty());
    }

    #[test]
    fn thousand_streams_share_one_connection() {
        let mut ends = Ends::new();
        for n in 0..1000 {
            ends.open_as(CallId(10_000 + n), &[CallId(n)], &StreamOptions::default());
            let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
            ends.accept(ticket, b"", &StreamOptions::default());
            ends.client_events();
        }
        for n in 0..1000 {
            ends.client.send_message(CallId(n), n.to_string().into(), &mut ends.client_out);
        }
        let want: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
        assert_eq!(ends.server_messages(), want);
    }
}

mod streaming_methods {
    use super::*;

    #[test]
    fn streaming_answer_starts_with_an_empty_response_and_ends_with_the_stream() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        assert_eq!(ticket.stream(), Some(SERVED));
        let mut head = Head { format: Format::Json(Json::Brpc), ..Head::default() };
        head.metadata.insert("key", "value");
        assert!(ends.server.has_room(SERVED));
        ends.server.start_response(SERVED, head, &mut ends.server_out);
        ends.server.send_message(SERVED, Bytes::from_static(b"1"), &mut ends.server_out);
        ends.server.finish(ticket, Ok(()), Metadata::new(), &mut ends.server_out);
        let answers = ends.client_events();
        let [
            ClientEvent::Reply(CALL, reply),
            ClientEvent::Message(STREAM, message),
            ClientEvent::Reply(STREAM, end),
        ] = &answers[..]
        else {
            panic!("unexpected: {answers:?}");
        };
        assert_eq!(reply.result, Ok(Bytes::new()));
        assert_eq!(
            (reply.head.format, reply.head.metadata.get("key")),
            (Format::Json(Json::Brpc), Some("value"))
        );
        assert_eq!((&message.body[..], end.result.is_ok()), (&b"1"[..], true));
    }

    #[test]
    fn early_failure_fails_the_call_and_a_late_one_resets_the_stream() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        let failed = || Err(Status::not_found("nothing"));
        ends.server.finish(ticket, failed(), Metadata::new(), &mut ends.server_out);
        assert_eq!(failure(Ok(ends.client_events().into_iter().next()), CALL).code(), Code::NotFound);

        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let PeerEvent::Call(ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        ends.server.send_message(SERVED, Bytes::from_static(b"1"), &mut ends.server_out);
        ends.server.finish(ticket, failed(), Metadata::new(), &mut ends.server_out);
        assert_eq!(failure(Ok(ends.client_events().pop()), STREAM).number(), Some(ECONNRESET));
    }

    #[test]
    fn closing_the_stream_cancels_the_call() {
        let mut ends = Ends::new();
        ends.open(&[STREAM], &StreamOptions::default());
        let PeerEvent::Call(_ticket) = ends.server_events().remove(0) else { panic!("expected a call") };
        ends.server.start_response(SERVED, Head::default(), &mut ends.server_out);
        ends.client_events();
        ends.client.cancel(STREAM, &mut ends.client_out);
        assert!(matches!(ends.server_events()[..], [PeerEvent::Gone(SERVED)]));
    }
}

#[test]
fn any_split_of_a_conversation_yields_the_same_events() {
    let sent = scenario("stream").sent();
    testing::assert_any_split(server, &sent);
}

const CALL: CallId = CallId(100);
const STREAM: CallId = CallId(1);
const SERVED: StreamId = StreamId(0);

/// A client and a server, and the bytes in flight between them.
struct Ends {
    client: Client,
    server: Server,
    to_client: BytesMut,
    to_server: BytesMut,
    client_out: Outbox,
    server_out: Outbox,
    /// Tickets of the accepted streams.
    tickets: Vec<Ticket>,
}

#[derive(Debug)]
enum PeerEvent {
    Call(Ticket),
    Message(StreamId, Bytes),
    End(StreamId),
    Room(StreamId),
    Gone(StreamId),
}

impl Ends {
    fn new() -> Self {
        Self::with_limits(&StreamLimits::default())
    }

    fn with_limits(limits: &StreamLimits) -> Self {
        Self::limited(Limits::default().message, limits)
    }

    fn limited(message: usize, streams: &StreamLimits) -> Self {
        let limits = Limits { message, ..Limits::default() };
        let config = ServerConfig { limits: limits.clone(), streams: streams.clone(), ..<_>::default() };
        let client = ClientConfig { limits, streams: streams.clone(), ..<_>::default() };
        Self {
            client: Client::new(client),
            server: Server::new(Arc::new(config)),
            to_client: BytesMut::new(),
            to_server: BytesMut::new(),
            client_out: Outbox::new(),
            server_out: Outbox::new(),
            tickets: Vec::new(),
        }
    }

    fn connected() -> Self {
        Self::connected_with(&StreamOptions::default())
    }

    fn connected_with(options: &StreamOptions) -> Self {
        let mut ends = Self::new();
        ends.establish(options);
        ends
    }

    fn establish(&mut self, options: &StreamOptions) {
        self.open(&[STREAM], options);
        let Some(PeerEvent::Call(ticket)) = self.server_events().pop() else { panic!("expected a call") };
        self.tickets = self.accept(ticket, b"", options);
        self.client_events();
    }

    fn open(&mut self, streams: &[CallId], options: &StreamOptions) {
        self.open_as(CALL, streams, options);
    }

    fn open_as(&mut self, id: CallId, streams: &[CallId], options: &StreamOptions) {
        self.client.send_with_streams(id, call(b""), streams, options, &mut self.client_out).expect("it can");
    }

    fn accept(&mut self, mut ticket: Ticket, reply: &'static [u8], options: &StreamOptions) -> Vec<Ticket> {
        let tickets = self.server.accept_streams(&mut ticket, options);
        let reply = Reply::message(Format::Protobuf, Bytes::from_static(reply));
        self.server.reply(ticket, reply, &mut self.server_out);
        tickets
    }

    fn server_events(&mut self) -> Vec<PeerEvent> {
        self.to_server.extend_from_slice(&self.client_out.take());
        let mut recorded = Vec::new();
        while let Some(event) =
            self.server.next_event(&mut self.to_server, &mut self.server_out).expect("no violation")
        {
            recorded.push(match event {
                ServerEvent::Call(_, ticket) => PeerEvent::Call(ticket),
                ServerEvent::Message(stream, Message { body, .. }) => PeerEvent::Message(stream, body),
                ServerEvent::End(stream) => PeerEvent::End(stream),
                ServerEvent::Room(stream) => PeerEvent::Room(stream),
                ServerEvent::Cancelled(stream) => PeerEvent::Gone(stream),
                other => panic!("unexpected: {other:?}"),
            });
        }
        recorded
    }

    fn client_events(&mut self) -> Vec<ClientEvent> {
        self.to_client.extend_from_slice(&self.server_out.take());
        let mut recorded = Vec::new();
        while let Some(answer) =
            self.client.next_event(&mut self.to_client, &mut self.client_out).expect("no violation")
        {
            recorded.push(answer);
        }
        recorded
    }

    /// Delivers a response to the client, bare or wrapped in a frame of its first stream.
    fn client_is_told(&mut self, response: &[u8], inside: bool) -> Vec<ClientEvent> {
        let bytes = if inside { data(1, 9, false, response) } else { response.to_vec() };
        self.client_out.take();
        self.to_client.extend_from_slice(&bytes);
        self.client_events()
    }

    fn server_messages(&mut self) -> Vec<String> {
        let text = |recorded| match recorded {
            PeerEvent::Message(_, message) => String::from_utf8_lossy(&message).into_owned(),
            other => panic!("unexpected: {other:?}"),
        };
        self.server_events().into_iter().map(text).collect()
    }

    fn client_messages(&mut self) -> Vec<String> {
        let whole = self.client_messages_whole();
        whole.iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect()
    }

    fn client_messages_whole(&mut self) -> Vec<Bytes> {
        let body = |answer| match answer {
            ClientEvent::Message(_, message) => message.body,
            other => panic!("unexpected: {other:?}"),
        };
        self.client_events().into_iter().map(body).collect()
    }
}

fn failure(answer: Result<Option<ClientEvent>, Violation>, of: CallId) -> Status {
    match answer {
        Ok(Some(ClientEvent::Reply(id, reply))) if id == of => reply.result.expect_err("it failed"),
        other => panic!("unexpected: {other:?}"),
    }
}

fn response(change: impl FnOnce(&mut Meta<'static>)) -> Vec<u8> {
    let mut meta = Meta { response: Some(<_>::default()), correlation_id: 100, ..Meta::default() };
    change(&mut meta);
    let mut bytes = Vec::new();
    meta.write(&mut bytes);
    build_frame(Kind::Rpc, &bytes, b"")
}

fn settings(ids: &[i64]) -> Option<meta::StreamSettings> {
    Some(meta::StreamSettings {
        stream_id: ids.first().copied(),
        need_feedback: true,
        writable: true,
        extra_stream_ids: ids[1..].to_vec(),
    })
}

fn data(to: i64, from: i64, continues: bool, data: &[u8]) -> Vec<u8> {
    stream_frame(
        &StreamMeta {
            stream_id: to,
            source_stream_id: Some(from),
            frame_type: FrameType::Data,
            has_continuation: Some(continues),
            consumed_size: None,
        },
        data,
    )
}

fn reset_of(stream_id: i64) -> Vec<u8> {
    stream_frame(&StreamMeta { stream_id, frame_type: FrameType::Rst, ..<_>::default() }, b"")
}

fn stream_frame(meta: &StreamMeta, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    meta.write(&mut bytes);
    build_frame(Kind::Stream, &bytes, data)
}

/// Returns the metas of frames that all belong to streams.
fn stream_metas(bytes: &[u8]) -> Vec<StreamMeta> {
    meanings(bytes).into_iter().map(|meaning| meaning.stream.expect("a stream's frame")).collect()
}

fn stream_metas_of_streams(bytes: &[u8]) -> Vec<StreamMeta> {
    meanings(bytes).into_iter().filter_map(|meaning| meaning.stream).collect()
}
