//! Timeouts of calls.

use polyrpc_core::session::server::KeepReason;

use super::streams::{Both, with_unary_method};
use super::*;
use crate::http::h2;

fn tick(both: &mut Both, seconds: f64) {
    both.server.tick(Duration::from_secs_f64(seconds), &mut both.down);
}

/// Advances the time from one second to another, in quarters.
fn pass(both: &mut Both, from: u32, to: u32) {
    (4 * from..=4 * to).for_each(|quarter| tick(both, f64::from(quarter) / 4.0));
}

/// Returns the start of a message of a thousand bytes, as a DATA frame of this stream.
fn beginning(stream: u8) -> [u8; 16] {
    [0, 0, 7, 0, 0, 0, 0, 0, stream, 0, 0, 0, 3, 0xe8, b'a', b'b']
}

#[test]
fn stalled_message_fails_its_stream_only() {
    let mut both = Both::new();
    both.open(1);
    both.open(2);
    assert_eq!(both.recorded().len(), 2);
    assert!(!both.server.needs_ticks(), "no message has begun");
    both.up.extend_from_slice(&beginning(1));
    both.recorded();
    assert!(both.server.needs_ticks());
    pass(&mut both, 0, 9);
    assert_eq!(both.recorded(), [""; 0]);
    pass(&mut both, 9, 11);
    assert_eq!(both.recorded(), ["cancelled 1"]);
    let want = "failed 1 deadline exceeded: the request's message did not arrive in time: 7 bytes in 10 s";
    assert_eq!(both.answered(), [want]);
    assert_eq!(both.server.timeouts(), 1);
    assert!(!both.server.needs_ticks());
    both.server.assert_sound();
    both.client.send_message(CallId(2), Bytes::from_static(b"on"), &mut both.up);
    both.client.end(CallId(2), &mut both.up);
    assert_eq!(both.recorded(), ["message 3 on", "end 3"], "the others go on");
}

#[test]
fn no_clock_runs_between_the_messages_of_a_stream() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    for n in 0..10 {
        pass(&mut both, n * 1000, n * 1000 + 1);
        both.client.send_message(CallId(1), Bytes::from_static(b"one"), &mut both.up);
        assert_eq!(both.recorded().len(), 1);
        assert!(!both.server.needs_ticks());
    }
}

#[test]
fn trickling_message_fails_after_its_time_limit() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    // A message of one mebibyte that arrives at two kilobytes per second.
    both.up.extend_from_slice(&[0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0, 0]);
    for second in 0..200 {
        let recorded = both.recorded();
        if !recorded.is_empty() {
            assert_eq!((second, &recorded[0][..]), (121, "cancelled 1"));
            let answered = both.answered();
            assert!(answered[0].ends_with("it is not complete after 120 s"), "{answered:?}");
            return;
        }
        tick(&mut both, f64::from(second));
        let piece = [&[0, 8, 0, 0, 0, 0, 0, 0, 1][..], &[0; 2048]].concat();
        both.up.extend_from_slice(&piece);
    }
    panic!("it goes on for ever");
}

#[test]
fn message_in_a_long_frame_is_not_stalled_while_the_frame_arrives() {
    const LENGTH: u32 = 600_000;
    let mut both = with_unary_method();
    let http = h2::Config { frame: 1 << 20, window: 1 << 20, ..h2::Config::default() };
    let methods = both.server.config.methods.clone();
    both.server = Server::new(ServerConfig { http: http.into(), methods, ..ServerConfig::default() }.into());
    both.open(1);
    both.recorded();
    let mut frame = LENGTH.to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[0, 1, 0, 0, 0, 1, 0]);
    frame.extend_from_slice(&(LENGTH - 5).to_be_bytes());
    frame.resize(9 + LENGTH as usize, b'm');
    let mut recorded = Vec::new();
    // Ten kilobytes per second: a tenth of the frame in an interval of the minimum rate.
    for (second, piece) in (0_u32..).zip(frame.chunks(10_000)) {
        both.up.extend_from_slice(piece);
        recorded.extend(both.recorded());
        tick(&mut both, f64::from(second));
    }
    recorded.extend(both.recorded());
    assert!(recorded.iter().any(|told| told.ends_with("mmm")), "{} events", recorded.len());
    assert!(!recorded.iter().any(|told| told.starts_with("cancelled")));
    assert_eq!(both.server.timeouts(), 0);
}

#[test]
fn unary_call_without_its_message_fails() {
    let mut both = with_unary_method();
    both.open(1);
    assert_eq!(both.recorded(), [""; 0]);
    assert!(both.server.needs_ticks());
    pass(&mut both, 0, 1);
    assert_eq!(both.recorded(), ["open 1 Echo"]);
    assert!(both.server.needs_ticks());
    pass(&mut both, 1, 9);
    assert_eq!(both.recorded(), [""; 0]);
    // The time before it was opened counts.
    pass(&mut both, 9, 10);
    assert_eq!(both.recorded(), ["cancelled 1"]);
    assert!(both.answered()[0].starts_with("failed 1 deadline exceeded: "));
    assert_eq!(both.server.streams(), 0);
    assert!(!both.server.needs_ticks());
}

#[test]
fn message_blocked_by_our_window_does_not_time_out() {
    let mut both = Both::new();
    both.open(1);
    for _ in 0..25 {
        both.client.send_message(CallId(1), Bytes::from(vec![b'm'; 60_000]), &mut both.up);
    }
    let mut come = 0;
    loop {
        let recorded = both.recorded().len();
        if recorded == 0 {
            break;
        }
        come += recorded;
        both.answered();
    }
    // The emitted messages are not consumed, so the rest of the next one cannot arrive.
    assert!(both.server.buffered() > 0 && both.server.needs_ticks());
    for second in 0..20 {
        tick(&mut both, f64::from(second));
        assert_eq!(both.recorded().len(), 0);
    }
    both.server.record_consumed(StreamId(1), (come - 1) * 60_000, &mut both.down);
    both.answered();
    assert!(both.recorded().iter().all(|told| told.starts_with("message")));
}

#[test]
fn caller_that_reads_nothing_of_a_long_response_is_cancelled() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    both.server.send_message(StreamId(1), Bytes::from(vec![0; 2 << 20]), &mut both.down);
    let ticket = both.tickets.pop().expect("a call");
    both.server.finish(ticket, Ok(()), Metadata::new(), &mut both.down);
    pass(&mut both, 0, 29);
    assert_eq!(both.recorded(), [""; 0]);
    pass(&mut both, 29, 30);
    assert_eq!(both.recorded(), ["cancelled 1"]);
    assert_eq!(both.server.unsent(), 0);
    assert_ne!(both.server.keep_reason(), KeepReason::Room);
    both.server.assert_sound();
}

#[test]
fn caller_that_reads_a_stream_slowly_is_tolerated() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    for _ in 0..7 {
        both.server.send_message(StreamId(1), Bytes::from(vec![0; 10_000]), &mut both.down);
    }
    pass(&mut both, 0, 40);
    assert_eq!(both.recorded(), [""; 0]);
    both.server.assert_sound();
}

#[test]
fn server_pings_a_silent_peer() {
    let mut both = Both::new();
    both.open(1);
    both.recorded();
    assert!(both.server.ping(&mut both.down));
    assert_eq!(both.answered(), [""; 0], "it is no answer to the client's own ping");
    assert_eq!(both.recorded(), ["alive"]);
}

#[test]
fn go_away_carries_the_reason() {
    for (status, code) in [
        (Status::resource_exhausted("too much memory"), crate::http::h2::ErrorCode::ENHANCE_YOUR_CALM),
        (Status::unavailable("too old"), crate::http::h2::ErrorCode::NO_ERROR),
    ] {
        let mut both = Both::new();
        both.open(1);
        both.recorded();
        both.answered();
        both.server.abort(&status, &mut both.down);
        let sent = both.down.take();
        assert_eq!(sent[3], 7, "GOAWAY");
        assert_eq!(sent[9..13], [0, 0, 0, 1]);
        assert_eq!(sent[13..17], code.0.to_be_bytes());
        assert_eq!(&sent[17..], status.message().as_bytes());
        both.to_client.extend_from_slice(&sent);
        assert_eq!(both.answered(), ["go away"], "no event for heartbeats");
    }
}

#[test]
fn incomplete_requests_do_not_delay_a_draining_server() {
    for acknowledges in [true, false] {
        let mut both = with_unary_method();
        both.open(1);
        both.open(2);
        both.client.send_message(CallId(2), Bytes::from_static(b"whole"), &mut both.up);
        both.client.end(CallId(2), &mut both.up);
        both.recorded();
        pass(&mut both, 0, 1);
        assert_eq!(both.recorded(), ["open 1 Echo"]);
        both.answered();
        both.server.drain(&mut both.down);
        let goodbye = both.down.take();
        if acknowledges {
            both.to_client.extend_from_slice(&goodbye);
            assert_eq!(both.answered(), ["go away"]);
            both.recorded();
        }
        pass(&mut both, 1, 2);
        assert_eq!((both.recorded(), both.answered()), (vec![], vec![]), "a little time is left");
        assert!(both.server.needs_ticks());
        pass(&mut both, 2, 4);
        assert_eq!(both.recorded(), ["cancelled 1"]);
        let last = both.answered().pop();
        let text =
            "failed 1 unavailable: the server is shutting down and did not wait for the rest of the request";
        assert_eq!(last.as_deref(), Some(text));
        assert!(!both.server.is_finished(), "the complete call is not answered yet");
        let reply = Reply::message(Format::Protobuf, Bytes::new());
        both.server.reply(both.tickets.swap_remove(0), reply, &mut both.down);
        assert!(both.server.is_finished());
        assert!(!both.server.needs_ticks());
        assert_eq!(both.answered().last().map(|told| &told[..]), Some("done 2"));
    }
}
