use std::sync::Arc;

use bytes::BytesMut;

use super::link::{Faults, Pair, text};
use crate::packet::OutgoingDatagrams;
use crate::segment::{Command, Segment};
use crate::{Algorithm, Cipher, Config, Millis, Session, Settings, Shards, Tuning};

fn plain() -> Arc<Settings> {
    Arc::new(Settings::new(Config::default()).unwrap())
}

fn session(settings: &Arc<Settings>) -> Session {
    Session::new(settings.clone(), 7, [1; 32], Millis(0))
}

fn push(sn: u32, data: &[u8]) -> Segment<'_> {
    Segment { conv: 7, command: Command::Push, frg: 0, wnd: 128, ts: Millis(0), sn, una: 0, data }
}

fn datagram(segments: &[Segment<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    segments.iter().for_each(|segment| segment.put(&mut bytes));
    bytes
}

fn handle(settings: &Settings, session: &mut Session, segments: &[Segment<'_>]) {
    let mut bytes = datagram(segments);
    session.handle(Millis(1), settings.open(&mut bytes).unwrap());
}

fn drain(session: &mut Session) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(datagram) = session.datagram() {
        all.push(datagram.to_vec());
        session.mark_sent();
    }
    all
}

#[test]
fn announced_fragments_that_never_arrive_block_nothing() {
    let (settings, mut read) = (plain(), BytesMut::new());
    let mut session = session(&settings);
    handle(&settings, &mut session, &[Segment { frg: 255, ..push(0, b"first") }]);
    assert_eq!(session.read(Millis(1), &mut read, 100), 5);
}

#[test]
fn empty_segments_use_no_memory() {
    let (settings, mut read) = (plain(), BytesMut::new());
    let mut session = session(&settings);
    for sn in 0..1000 {
        handle(&settings, &mut session, &[push(sn, b"")]);
        drain(&mut session);
    }
    handle(&settings, &mut session, &[push(1000, b"data")]);
    session.read(Millis(1), &mut read, 100);
    assert_eq!(&read[..], b"data");
}

#[test]
fn segments_beyond_the_window_are_dropped() {
    let (settings, mut read) = (plain(), BytesMut::new());
    let mut session = session(&settings);
    for sn in [128, 5000, u32::MAX, 1 << 31, u32::MAX / 2] {
        handle(&settings, &mut session, &[push(sn, b"far away")]);
    }
    handle(&settings, &mut session, &[push(0, b"here")]);
    assert_eq!(session.read(Millis(1), &mut read, 100), 4);
}

#[test]
fn acknowledgement_of_an_unsent_segment_is_ignored() {
    let settings = plain();
    for forged in [
        Segment { command: Command::Ack, una: 100, ..push(0, b"") },
        Segment { command: Command::Ack, sn: 100, ..push(0, b"") },
        Segment { command: Command::Tell, una: 2, ..push(0, b"") },
        Segment { command: Command::Ack, una: u32::MAX / 2, ..push(0, b"") },
    ] {
        let mut session = session(&settings);
        session.write(b"one segment");
        session.flush(Millis(0));
        drain(&mut session);
        handle(&settings, &mut session, &[forged]);
        assert!(!session.is_settled(), "{forged:?}");
        session.wake(Millis(250));
        assert_eq!(drain(&mut session).len(), 1, "retransmission after {forged:?}");
    }
}

#[test]
fn repeated_acknowledgements_do_not_retransmit_everything() {
    let settings = Arc::new(Settings::new(Config { tuning: Tuning::fast(), ..Config::default() }).unwrap());
    let mut session = session(&settings);
    session.write(&text(20_000));
    session.flush(Millis(0));
    drain(&mut session);
    let ack = Segment { command: Command::Ack, ts: Millis(0), ..push(10, b"") };
    handle(&settings, &mut session, &[ack; 60]);
    session.flush(Millis(1));
    let again: usize = drain(&mut session).iter().map(Vec::len).sum();
    assert!(again < 2 * 20_000, "{again} bytes were sent again");
    for _ in 0..20 {
        handle(&settings, &mut session, &[ack; 60]);
        session.flush(Millis(1));
        assert_eq!(drain(&mut session).len(), 0);
    }
}

#[test]
fn duplicates_are_acknowledged_once_per_datagram() {
    let settings = plain();
    let mut session = session(&settings);
    for _ in 0..1000 {
        handle(&settings, &mut session, &[push(0, b""); 60]);
    }
    let answered: usize = drain(&mut session).iter().map(Vec::len).sum();
    // A datagram of 60 duplicates is answered with one acknowledgement.
    assert!(answered < 1000 * 60, "{answered} bytes");
}

#[test]
fn forged_timestamps_do_not_extend_the_timeout() {
    let settings = plain();
    let mut session = session(&settings);
    for sn in 0..20 {
        session.write(&text(3000));
        session.flush(Millis(0));
        let ts = Millis(0x8000_0000 + sn);
        handle(&settings, &mut session, &[Segment { command: Command::Ack, ts, ..push(sn, b"") }]);
    }
    drain(&mut session);
    session.wake(Millis(1000));
    assert!(!drain(&mut session).is_empty());
}

#[test]
fn stored_shards_are_bounded_for_any_number() {
    let shards = Some(Shards { data: 10, parity: 3 });
    let settings = Arc::new(Settings::new(Config { shards, ..Config::default() }).unwrap());
    let mut session = session(&settings);
    for seqid in (0..10_000_u32).map(|count| count.wrapping_mul(0x9e37_79b9)) {
        for flag in [0xf1, 0xf2_u16] {
            let mut bytes = seqid.to_le_bytes().to_vec();
            bytes.extend_from_slice(&flag.to_le_bytes());
            bytes.extend_from_slice(&[seqid as u8; 60]);
            if let Some(opened) = settings.open(&mut bytes) {
                session.handle(Millis(1), opened);
            }
        }
    }
    // A group has 13 shards, of 60 bytes here.
    let kept = format!("{session:?}").len();
    assert!(kept < 100_000, "{kept} characters to describe it");
}

#[test]
fn random_bytes_never_panic() {
    let cipher = Cipher::new(Algorithm::Tea, &[3; 16]).unwrap();
    for config in [Config::default(), Config::rpcx(cipher)] {
        let settings = Arc::new(Settings::new(config).unwrap());
        let mut session = session(&settings);
        let mut noise = text(100_000);
        for (count, length) in (0..1500).chain(0..100).enumerate() {
            if let Some(opened) = settings.open(&mut noise[count..count + length]) {
                let _ = (opened.conv(), opened.begins(), opened.replaces());
                session.handle(Millis(count as u32), opened);
            }
        }
        assert_eq!(session.read(Millis(2000), &mut BytesMut::new(), 10), 0);
    }
}

#[test]
fn flipped_bits_and_truncation_never_panic() {
    let mut pair = Pair::new(
        Config { shards: Some(Shards { data: 2, parity: 1 }), ..Config::default() },
        Faults { damages: 30, delay: 10, ..Faults::default() },
    );
    // Without a checksum damage may go undetected, as with the peers; it must have no other effect.
    pair.write(0, &text(50_000));
    let begin = pair.now;
    pair.run(|pair| pair.now.since(begin) > 60_000);
}

#[test]
fn conversation_starts_only_with_early_data_and_no_acknowledgement() {
    let settings = plain();
    let begins = |segment: Segment<'_>| {
        let mut bytes = datagram(&[segment]);
        settings.open(&mut bytes).unwrap().begins()
    };
    assert!(begins(push(0, b"x")));
    assert!(begins(push(3, b"the first is still under way")));
    assert!(!begins(Segment { una: 4, ..push(0, b"late") }));
    assert!(!begins(push(70, b"late")));
    assert!(!begins(Segment { command: Command::Ack, ..push(0, b"") }));
    assert!(!begins(Segment { command: Command::Ask, ..push(0, b"") }));
}

#[test]
fn peer_that_never_acknowledges_is_abandoned_after_ten_seconds() {
    let settings = plain();
    let mut session = session(&settings);
    handle(&settings, &mut session, &[push(0, b"from anywhere")]);
    while let Some(alarm) = session.next_alarm() {
        session.wake(alarm);
        drain(&mut session);
        assert!(alarm.since(Millis(0)) <= 10_100);
    }
}

#[test]
fn invalid_configuration_is_rejected() {
    let unusable = |config| Settings::new(config).unwrap_err().to_string();
    assert!(unusable(Config { mtu: 20, ..Config::default() }).contains("128 and 1500 bytes"));
    assert!(unusable(Config { mtu: 9000, ..Config::default() }).contains("128 and 1500 bytes"));
    for (data, parity) in [(0, 3), (10, 0), (200, 100)] {
        let shards = Some(Shards { data, parity });
        assert!(
            unusable(Config { shards, ..Config::default() }).contains("one data shard and one parity shard")
        );
    }
}

#[test]
fn datagrams_take_no_more_memory_if_the_socket_never_accepts_all_of_them() {
    let mut out = OutgoingDatagrams::default();
    let put = |out: &mut OutgoingDatagrams, content: u8| {
        let begin = out.end();
        out.bytes().extend_from_slice(&[content; 1000]);
        out.finish(begin);
    };
    (0..100).for_each(|count| put(&mut out, count));
    for count in 100..10_000_u32 {
        put(&mut out, count as u8);
        assert_eq!(out.first(), Some(&[(count - 100) as u8; 1000][..]));
        out.advance();
        assert_eq!(out.len(), 100_000);
    }
    assert!(out.bytes().capacity() <= 500_000, "{} bytes", out.bytes().capacity());
}
