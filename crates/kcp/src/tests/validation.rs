//! Peers whose address may be forged.

use std::sync::Arc;

use bytes::BytesMut;

use super::link::{Faults, Pair, text};
use crate::segment::{Command, Segment};
use crate::{Algorithm, Cipher, Config, EndReason, Millis, Session, Settings, Shards, Tuning};

/// A session started by a peer with possibly forged datagrams, and the datagrams sent to the peer.
struct AcceptedSession {
    settings: Arc<Settings>,
    session: Session,
    now: Millis,
    received: usize,
    sent: Vec<Vec<u8>>,
}

impl AcceptedSession {
    fn new(config: Config) -> Self {
        let settings = Arc::new(Settings::new(config).unwrap());
        let session = Session::accept(settings.clone(), 7, [9; 32], Millis(0));
        Self { settings, session, now: Millis(0), received: 0, sent: Vec::new() }
    }

    /// Sends the data of a client that has received nothing from us.
    fn request(&mut self, bytes: usize) {
        let mut client = Session::new(self.settings.clone(), 7, [3; 32], self.now);
        client.write(&text(bytes));
        client.flush(self.now);
        while let Some(datagram) = client.datagram().map(<[u8]>::to_vec) {
            client.mark_sent();
            self.datagram(datagram);
        }
    }

    /// Sends segments without encryption.
    fn segments(&mut self, segments: &[Segment<'_>]) {
        let mut bytes = Vec::new();
        segments.iter().for_each(|segment| segment.put(&mut bytes));
        self.datagram(bytes);
    }

    fn datagram(&mut self, mut datagram: Vec<u8>) {
        self.received += datagram.len();
        let settings = self.settings.clone();
        self.session.handle(self.now, settings.open(&mut datagram).unwrap());
        self.collect();
    }

    fn reply(&mut self, bytes: usize) {
        self.session.read(self.now, &mut BytesMut::new(), usize::MAX);
        self.session.write(&text(bytes));
        self.session.flush(self.now);
        self.collect();
    }

    /// Advances the time until the session has ended.
    fn run(&mut self) {
        while let Some(alarm) = self.session.next_alarm() {
            assert!(alarm.since(self.now) >= 0, "a deadline in the past");
            self.now = alarm;
            self.session.wake(alarm);
            self.collect();
        }
    }

    fn collect(&mut self) {
        while let Some(datagram) = self.session.datagram() {
            self.sent.push(datagram.to_vec());
            self.session.mark_sent();
        }
    }

    fn sent(&self) -> usize {
        self.sent.iter().map(Vec::len).sum()
    }

    /// Returns the sent segments with data; there must be no encryption.
    fn pushed(&self) -> Vec<Segment<'_>> {
        let mut pushed = Vec::new();
        for datagram in &self.sent {
            let mut rest = &datagram[..];
            while let Some(Ok(segment)) = Segment::cut(&mut rest) {
                pushed.extend((segment.command == Command::Push).then_some(segment));
            }
        }
        pushed
    }
}

fn acknowledgement(sn: u32, ts: Millis) -> Segment<'static> {
    Segment { conv: 7, command: Command::Ack, frg: 0, wnd: 128, ts, sn, una: 0, data: &[] }
}

fn kinds() -> Vec<Config> {
    let cipher = Cipher::new(Algorithm::Aes, &[7; 32]).unwrap();
    let shards = Some(Shards { data: 1, parity: 3 });
    vec![
        Config::default(),
        Config { tuning: Tuning::fast(), ..Config::default() },
        Config { mtu: 128, tuning: Tuning::fast(), ..Config::default() },
        Config { shards, tuning: Tuning::fast(), ..Config::default() },
        Config { tuning: Tuning::fast(), ..Config::rpcx(cipher) },
    ]
}

#[test]
fn forged_address_is_sent_at_most_three_times_what_came_from_it() {
    for config in kinds() {
        for request in [1, 18, 200, 5000] {
            for reply in [0, 1, 60, 100_000] {
                let mut accepted = AcceptedSession::new(config.clone());
                accepted.request(request);
                accepted.reply(reply);
                accepted.run();
                let (sent, received) = (accepted.sent(), accepted.received);
                assert!(sent <= 3 * received, "{sent} bytes for {received}: {config:?}");
                assert!(
                    reply == 0 || request > 200 || sent > received,
                    "{sent} bytes for {received}: {config:?}"
                );
            }
        }
    }
}

#[test]
fn retransmissions_and_probes_count_towards_the_amplification_limit() {
    let mut accepted = AcceptedSession::new(Config { tuning: Tuning::fast(), ..Config::default() });
    accepted.request(18);
    accepted.reply(100_000);
    for _ in 0..100 {
        let ask = Segment { command: Command::Ask, ..acknowledgement(0, Millis(0)) };
        accepted.segments(&[ask]);
        accepted.now = accepted.now.after(100);
        accepted.session.wake(accepted.now);
        accepted.collect();
    }
    accepted.run();
    assert!(accepted.sent() <= 3 * accepted.received);
}

#[test]
fn forged_conversation_ends_after_five_seconds() {
    let mut accepted = AcceptedSession::new(Config::default());
    accepted.request(100);
    accepted.reply(100);
    accepted.run();
    assert_eq!(accepted.session.end_reason(), Some(EndReason::Silent));
    assert!(accepted.now.since(Millis(0)) <= 5000);
}

#[test]
fn guessable_values_do_not_validate_an_address() {
    for guess in [
        Segment { una: 1, ..acknowledgement(0, Millis(0)) },
        Segment { una: 1, command: Command::Tell, ..acknowledgement(0, Millis(0)) },
        Segment { una: 1, command: Command::Push, data: b"more", ..acknowledgement(1, Millis(0)) },
        Segment { command: Command::Ask, ..acknowledgement(0, Millis(0)) },
        acknowledgement(0, Millis(5)),
    ] {
        let mut accepted = AcceptedSession::new(Config { tuning: Tuning::fast(), ..Config::default() });
        accepted.now = Millis(5);
        accepted.request(18);
        accepted.reply(100_000);
        accepted.segments(&[guess]);
        assert!(!accepted.session.is_validated(), "{guess:?}");
        accepted.run();
        assert!(accepted.sent() <= 3 * accepted.received, "{guess:?}");
    }
}

#[test]
fn acknowledgement_with_the_time_of_a_sent_segment_validates_the_address() {
    let mut accepted = AcceptedSession::new(Config { tuning: Tuning::fast(), ..Config::default() });
    accepted.request(200);
    accepted.reply(10_000);
    let (sn, ts) = accepted.pushed().first().map(|first| (first.sn, first.ts)).unwrap();
    // `una` covers it already, as in the datagrams of `kcp-go`.
    accepted.segments(&[Segment { una: 1, ..acknowledgement(sn, ts) }]);
    assert!(accepted.session.is_validated());
    let data: usize = accepted.pushed().iter().map(|segment| segment.data.len()).sum();
    assert!(data >= 10_000, "{data} bytes");
}

#[test]
fn correct_timestamp_after_wrong_guesses_does_not_validate() {
    let mut accepted = AcceptedSession::new(Config { tuning: Tuning::fast(), ..Config::default() });
    accepted.request(200);
    accepted.reply(10_000);
    let (sn, ts) = accepted.pushed().first().map(|first| (first.sn, first.ts)).unwrap();
    for guess in (1..=64).rev() {
        accepted.segments(&[acknowledgement(sn, ts.after(guess))]);
    }
    accepted.segments(&[acknowledgement(sn, ts)]);
    assert!(!accepted.session.is_validated());
}

#[test]
fn timestamps_of_two_conversations_are_unrelated() {
    let first_time = |seed: u8| {
        let mut accepted = AcceptedSession::new(Config::default());
        accepted.session = Session::accept(accepted.settings.clone(), 7, [seed; 32], Millis(0));
        accepted.request(200);
        accepted.reply(10);
        accepted.pushed()[0].ts
    };
    assert_ne!(first_time(1), first_time(2));
}

#[test]
fn unvalidated_peer_fills_at_most_a_window_of_32_segments_twice() {
    let mut accepted = AcceptedSession::new(Config::default());
    let data = [1; 1000];
    for sn in 0..200 {
        let push = Segment { command: Command::Push, data: &data, ..acknowledgement(sn, Millis(0)) };
        accepted.segments(&[push]);
    }
    let mut read = BytesMut::new();
    while accepted.session.read(accepted.now, &mut read, usize::MAX) > 0 {}
    assert_eq!(read.len(), 64 * 1000);
}

#[test]
fn first_reply_continues_after_its_first_acknowledgement() {
    for config in kinds() {
        let mut pair = Pair::new(config.clone(), Faults { delay: 10, ..Faults::default() });
        let begin = pair.now;
        pair.write(0, &text(200));
        pair.run(|pair| pair.sides[1].read.len() == 200);
        assert!(!pair.sides[1].session.is_validated());
        pair.write(1, &text(10_000));
        pair.run(|pair| pair.sides[0].read.len() == 10_000);
        assert!(pair.sides[1].session.is_validated());
        let passed = pair.now.since(begin);
        assert!(passed <= 500, "{passed} ms: {config:?}");
    }
}

#[test]
fn first_reply_arrives_after_its_first_datagram_is_lost_twice() {
    let mut pair = Pair::new(Config::default(), Faults { delay: 10, ..Faults::default() });
    pair.write(0, &text(200));
    pair.run(|pair| pair.sides[1].read.len() == 200);
    // The request was acknowledged: the client sends nothing more by itself.
    pair.run(|pair| pair.sides[0].session.is_settled());
    pair.write(1, &text(10_000));
    pair.lose(1, 2);
    pair.run(|pair| pair.sides[0].read.len() == 10_000);
}

#[test]
fn large_first_request_arrives() {
    for config in kinds() {
        let mut pair = Pair::new(config, Faults { delay: 10, ..Faults::default() });
        pair.write(0, &text(300_000));
        pair.run(|pair| pair.sides[1].read.len() == 300_000);
        pair.write(1, &text(300_000));
        pair.run(|pair| pair.sides[0].read.len() == 300_000);
    }
}
