//! Size limits, and how they are reported to the peer.

use polyrpc_core::{Fault, Retry};

use super::streams::{Both, with_unary_method};
use super::*;
use crate::grpc::frame::PREFIX;

/// Returns a call with this number of metadata bytes, in entries of a thousand.
fn heavy(bytes: usize) -> Call<'static> {
    let mut call = call(b"hello");
    for n in 0..bytes.div_ceil(1000) {
        call.head.metadata.append(format!("key-{n}"), Bytes::from(vec![b'v'; 1000]));
    }
    call
}

#[test]
fn ten_kilobytes_of_metadata_fit_the_default_limits() {
    let mut both = Both::new();
    for id in 0..20 {
        let call = heavy(10_000);
        both.client.send(CallId(id), call.clone(), &mut both.up).unwrap();
        assert_eq!(both.recorded(), ["call Echo"]);
        both.server.reply(both.tickets.pop().unwrap(), echo(&call), &mut both.down);
        assert_eq!(both.answered(), [format!("done {id}")]);
    }
}

#[test]
fn call_with_too_much_metadata_fails_alone() {
    let mut both = Both::new();
    // The client does not know the server's limit yet.
    both.client.send(CallId(1), heavy(70_000), &mut both.up).unwrap();
    both.client.send(CallId(2), call(b"hello"), &mut both.up).unwrap();
    assert_eq!(both.recorded(), ["call Echo"]);
    both.server.assert_sound();
    let answered = both.answered();
    let [failed] = &answered[..] else { panic!("{answered:?}") };
    assert!(failed.starts_with("failed 1 resource exhausted: the header list of 73"), "{failed}");
    assert!(failed.ends_with("exceeds the limit of 65536"), "{failed}");
    let reply = Reply::message(Format::Protobuf, Bytes::from_static(b"yes"));
    both.server.reply(both.tickets.pop().unwrap(), reply, &mut both.down);
    assert_eq!(both.answered(), ["done 2"]);
    assert_eq!((both.server.streams(), both.client.streams()), (0, 0));
}

#[test]
fn client_does_not_send_a_call_over_the_limit_of_the_server() {
    let mut both = Both::new();
    both.client.send(CallId(1), call(b"hello"), &mut both.up).unwrap();
    both.recorded();
    both.answered();
    both.up.take();
    let status = both.client.send(CallId(2), heavy(70_000), &mut both.up).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!((status.fault(), status.retry()), (Fault::Caller, Retry::Never));
    assert!(status.message().starts_with("the call's header list of 73"), "{status}");
    assert!(status.message().ends_with("exceeds the server's limit of 65536"), "{status}");
    assert!(both.up.is_empty());
    // A call that just fits is sent, although its size is close to the limit.
    both.client.send(CallId(3), heavy(60_000), &mut both.up).unwrap();
    assert_eq!(both.recorded(), ["call Echo"]);
}

#[test]
fn response_with_an_oversized_header_list_fails_its_call_only() {
    let heavy = heavy(70_000).head.metadata;
    for in_head in [true, false] {
        let mut both = Both::new();
        both.client.send(CallId(1), call(b"one"), &mut both.up).unwrap();
        both.client.send(CallId(2), call(b"two"), &mut both.up).unwrap();
        assert_eq!(both.recorded().len(), 2);
        let reply = Reply::message(Format::Protobuf, Bytes::from_static(b"yes"));
        let mut long = reply.clone();
        *if in_head { &mut long.head.metadata } else { &mut long.trailers } = heavy.clone();
        let (second, first) = (both.tickets.pop().unwrap(), both.tickets.pop().unwrap());
        both.server.reply(first, long, &mut both.down);
        both.server.reply(second, reply, &mut both.down);
        let answered = both.answered();
        let [failed, done] = &answered[..] else { panic!("{answered:?}") };
        assert!(
            failed.starts_with("failed 1 resource exhausted: the response's header list of 7"),
            "{failed}"
        );
        assert!(failed.ends_with("exceeds the limit of 65536"), "{failed}");
        assert_eq!(done, "done 2");
        both.client.assert_sound();
    }
}

#[test]
fn oversized_request_trailers_fail_their_call() {
    let trailers = |stream: u8| {
        let mut block = vec![0x00, 0x01, b'k', 0x7f];
        // 70,000 less 127, the maximum of the prefix.
        block.extend([0xf1, 0xa1, 0x04]);
        block.extend([b'v'; 70_000]);
        let mut frames = Vec::new();
        for (at, part) in block.chunks(16_384).enumerate() {
            let (kind, flags) = if at == 0 { (1, 1) } else { (9, 0) };
            let last = if part.len() < 16_384 { 4 } else { 0 };
            let [_, _, a, b] = (part.len() as u32).to_be_bytes();
            frames.extend([0, a, b, kind, flags | last, 0, 0, 0, stream]);
            frames.extend(part);
        }
        frames
    };
    let mut streamed = Both::new();
    streamed.open(1);
    assert_eq!(streamed.recorded(), ["open 1 Echo"]);
    streamed.to_server.extend_from_slice(&trailers(1));
    assert_eq!(streamed.recorded(), ["cancelled 1"]);
    let mut kept = with_unary_method();
    kept.open(1);
    assert_eq!(kept.recorded(), [""; 0]);
    kept.to_server.extend_from_slice(&trailers(1));
    assert_eq!(kept.recorded(), [""; 0], "no call was delivered");
    for both in [&mut streamed, &mut kept] {
        let answered = both.answered();
        assert!(
            answered[0].starts_with("failed 1 resource exhausted: the header list of 700"),
            "{answered:?}"
        );
        both.server.assert_sound();
        assert_eq!(both.server.streams(), 0);
    }
}

#[test]
fn opening_and_cancelling_watches_is_not_abuse() {
    let mut both = with_unary_method();
    for n in 0..2500 {
        both.server.tick(Duration::from_millis(20 * n), &mut both.down);
        both.open(n);
        both.client.send_message(CallId(n), Bytes::from_static(b"watch"), &mut both.up);
        both.client.end(CallId(n), &mut both.up);
        let recorded = both.recorded();
        assert!(recorded.contains(&"call Echo".to_owned()), "{recorded:?}");
        let id = StreamId(2 * n + 1);
        both.server.send_message(id, Bytes::from_static(b"serving"), &mut both.down);
        both.tickets.clear();
        assert_eq!(both.answered().len(), 2);
        both.client.cancel(CallId(n), &mut both.up);
        assert_eq!(both.recorded(), [format!("cancelled {}", id.0)]);
    }
    assert!(both.client.is_reusable());
}

#[test]
fn buffered_bytes_are_counted() {
    let mut both = with_unary_method();
    let (message, window) = (Bytes::from(vec![0; 10_000]), Bytes::from(vec![0; 1 << 20]));
    both.open(1);
    both.client.send_message(CallId(1), message, &mut both.up);
    both.recorded();
    both.server.assert_sound();
    assert_eq!(both.server.buffered(), 10_005, "a part that is kept back");
    let mut streamed = Both::new();
    streamed.open(1);
    streamed.client.send_message(CallId(1), window, &mut streamed.up);
    streamed.recorded();
    streamed.server.assert_sound();
    assert_eq!(
        streamed.server.buffered(),
        65_535,
        "an incomplete message, as far as the windows let it through"
    );
    streamed.client.cancel(CallId(1), &mut streamed.up);
    streamed.recorded();
    assert_eq!(streamed.server.buffered(), 0);
    streamed.up.extend_from_slice(&[0, 0, 3, 1, 0, 0, 0, 0, 3, 0x82, 0x86, 0x84]);
    streamed.recorded();
    assert_eq!(streamed.server.buffered(), 3, "a header block");
    both.client.end(CallId(1), &mut both.up);
    both.recorded();
    assert_eq!((both.server.buffered(), both.server.unsent()), (0, 0));
    let long = Reply::message(Format::Protobuf, Bytes::from(vec![0; 1 << 20]));
    both.server.reply(both.tickets.pop().unwrap(), long, &mut both.down);
    assert_eq!(both.server.unsent(), (1 << 20) + PREFIX - 65_536);
}

/// Returns a connection on which every method was called several times with this number of metadata entries, with all
/// calls answered.
fn at_rest(methods: &[&'static str], entries: usize) -> Server {
    let mut both = Both::new();
    for id in 0..20 {
        let mut call = Call { method: methods[id as usize % methods.len()], ..call(b"hello") };
        for n in 0..entries {
            call.head.metadata.append(format!("key-{n}"), Bytes::from_static(b"some usual value"));
        }
        both.client.send(CallId(id), call.clone(), &mut both.up).unwrap();
        assert_eq!(both.recorded().len(), 1);
        both.server.assert_sound();
        both.server.reply(both.tickets.pop().unwrap(), echo(&call), &mut both.down);
        assert_eq!(both.answered(), [format!("done {id}")]);
    }
    both.server
}

#[test]
fn cached_unusual_heads_are_counted_and_large_ones_not_cached() {
    let usual = at_rest(&["A", "B"], 4);
    assert!(usual.recount_heads()[0] > 0, "heads are remembered");
    assert_eq!(usual.buffered(), 0, "a usual connection at rest holds nothing");
    let unusual = at_rest(&["A", "B", "C", "D"], 22);
    assert!(unusual.recount_heads()[0] > 12_000, "{:?}", unusual.recount_heads());
    assert!(unusual.buffered() > 4_000, "{}", unusual.buffered());
    let more = at_rest(&["A", "B", "C", "D"], 50);
    assert!((8_000..32 << 10).contains(&more.recount_heads()[0]), "{:?}", more.recount_heads());
    let many = at_rest(&["A", "B", "C", "D"], 70);
    assert_eq!(many.recount_heads(), [0, 0]);
    assert_eq!(many.buffered(), 0);
}

#[test]
fn call_with_more_fields_than_a_head_may_have_fails_alone() {
    let mut both = Both::new();
    let with = |count| {
        let mut call = call(b"hello");
        (0..count).for_each(|_| call.head.metadata.append("key", Bytes::from_static(b"v")));
        call
    };
    both.client.send(CallId(1), with(1_000), &mut both.up).unwrap();
    both.client.send(CallId(2), with(300), &mut both.up).unwrap();
    assert_eq!(both.recorded(), ["call Echo"]);
    both.server.assert_sound();
    let want = ["failed 1 resource exhausted: the head has more than 512 fields"];
    assert_eq!(both.answered(), want);
    let reply = Reply::message(Format::Protobuf, Bytes::from_static(b"yes"));
    both.server.reply(both.tickets.pop().unwrap(), reply, &mut both.down);
    assert_eq!(both.answered(), ["done 2"]);
}
