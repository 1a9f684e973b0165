use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use crate::{Algorithm, Cipher, Config, EndReason, Millis, Session, Settings, Shards, Tuning};

/// Two sessions connected by a link with reproducible faults.
pub(super) struct Pair {
    pub(super) now: Millis,
    pub(super) sides: [Side; 2],
    pub(super) settings: Arc<Settings>,
    faults: Faults,
    chance: u64,
    /// Number of the next datagrams of each side that are lost.
    lost: [usize; 2],
    /// Datagrams in flight, by time of arrival.
    under_way: BTreeMap<(u32, u64), (usize, Vec<u8>)>,
    count: u64,
}

pub(super) struct Side {
    pub(super) session: Session,
    pub(super) read: BytesMut,
    pub(super) sent: usize,
    to_write: Vec<u8>,
}

/// Faults of a link, in percent, and its delay.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) loses: u64,
    pub(super) doubles: u64,
    pub(super) damages: u64,
    pub(super) delay: u64,
    pub(super) jitter: u64,
}

impl Pair {
    pub(super) fn new(config: Config, faults: Faults) -> Self {
        let settings = Arc::new(Settings::new(config).unwrap());
        // Close to the wrap-around of numbers.
        let now = Millis(u32::MAX - 500);
        let side = |session| Side { session, read: BytesMut::new(), sent: 0, to_write: Vec::new() };
        let sides = [
            side(Session::new(settings.clone(), 7, [1; 32], now)),
            side(Session::accept(settings.clone(), 7, [2; 32], now)),
        ];
        Self { now, sides, settings, faults, chance: 42, lost: [0; 2], under_way: BTreeMap::new(), count: 0 }
    }

    pub(super) fn write(&mut self, side: usize, bytes: &[u8]) {
        self.sides[side].to_write.extend_from_slice(bytes);
    }

    /// Runs until `done`, or until nothing happens any more.
    pub(super) fn run(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..1_000_000 {
            self.turn();
            if done(self) {
                return;
            }
            let Some(next) = self.next() else { return };
            self.now = if next.since(self.now) > 0 { next } else { self.now.after(1) };
        }
        panic!("the link does not become idle");
    }

    fn turn(&mut self) {
        while let Some(entry) = self.under_way.first_entry() {
            if Millis(entry.key().0).since(self.now) > 0 {
                break;
            }
            let (to, mut datagram) = entry.remove();
            let settings = self.settings.clone();
            if let Some(opened) = settings.open(&mut datagram) {
                self.sides[to].session.handle(self.now, opened);
            }
        }
        for side in 0..2 {
            let now = self.now;
            let Side { session, read, to_write, .. } = &mut self.sides[side];
            session.wake(now);
            session.read(now, read, usize::MAX);
            let written = session.write(to_write);
            to_write.drain(..written);
            session.flush(now);
            while let Some(datagram) = self.sides[side].session.datagram().map(<[u8]>::to_vec) {
                self.sides[side].session.mark_sent();
                self.sides[side].sent += 1;
                self.send(1 - side, datagram);
            }
        }
    }

    /// Replaces the session that was started by the other side, as if its process was restarted.
    pub(super) fn restart_server(&mut self) {
        let session = Session::accept(self.settings.clone(), 7, [6; 32], self.now);
        self.sides[1] = Side { session, read: BytesMut::new(), sent: 0, to_write: Vec::new() };
    }

    /// Lets the time pass in which datagrams arrive, but nothing is read.
    fn pass_without_reading(&mut self) {
        self.now = self.now.after(1);
        while self.under_way.first_key_value().is_some_and(|(at, _)| Millis(at.0).since(self.now) <= 0) {
            let (_, (to, mut datagram)) = self.under_way.pop_first().unwrap();
            let settings = self.settings.clone();
            self.sides[to].session.handle(self.now, settings.open(&mut datagram).unwrap());
        }
        for side in 0..2 {
            self.sides[side].session.wake(self.now);
            self.sides[side].session.flush(self.now);
            while let Some(datagram) = self.sides[side].session.datagram().map(<[u8]>::to_vec) {
                self.sides[side].session.mark_sent();
                self.send(1 - side, datagram);
            }
        }
    }

    /// Drops the next datagrams of a side.
    pub(super) fn lose(&mut self, side: usize, datagrams: usize) {
        self.lost[side] = datagrams;
    }

    fn send(&mut self, to: usize, datagram: Vec<u8>) {
        if let Some(left) = self.lost[1 - to].checked_sub(1) {
            self.lost[1 - to] = left;
            return;
        }
        let copies = if self.happens(self.faults.doubles) { 2 } else { 1 };
        for _ in 0..copies {
            if self.happens(self.faults.loses) {
                continue;
            }
            let mut datagram = datagram.clone();
            if self.happens(self.faults.damages) {
                let index = self.random() as usize % datagram.len();
                datagram[index] ^= 1 << (self.random() % 8);
            }
            let delay = self.faults.delay
                + if self.faults.jitter > 0 { self.random() % self.faults.jitter } else { 0 };
            self.count += 1;
            self.under_way.insert((self.now.after(delay as u32).0, self.count), (to, datagram));
        }
    }

    fn next(&self) -> Option<Millis> {
        let arrivals = self.under_way.keys().map(|key| Millis(key.0));
        let alarms = self.sides.iter().filter_map(|side| side.session.next_alarm());
        arrivals.chain(alarms).min_by_key(|next| next.since(self.now))
    }

    fn happens(&mut self, percent: u64) -> bool {
        percent > 0 && self.random() % 100 < percent
    }

    fn random(&mut self) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance >> 11
    }
}

pub(super) fn text(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + index / 251) as u8).collect()
}

fn protected() -> Config {
    Config::rpcx(Cipher::new(Algorithm::Aes, &[7; 32]).unwrap())
}

pub(super) fn kinds() -> Vec<Config> {
    let classic =
        Tuning { stream: false, interval: 100, fast_resend: 0, send_window: 32, ..Tuning::default() };
    vec![
        Config::default(),
        Config { tuning: Tuning::fast(), ..Config::default() },
        Config { tuning: classic, ..protected() },
        protected(),
        Config { shards: Some(Shards { data: 3, parity: 2 }), mtu: 300, ..Config::default() },
    ]
}

/// Asserts that everything arrived on both sides as it was written.
fn exchange(config: Config, faults: Faults) -> Pair {
    let mut pair = Pair::new(config, faults);
    let (first, second) = (text(200_000), text(77_777));
    pair.write(0, &first);
    pair.write(1, &second);
    pair.run(|pair| pair.sides[1].read.len() >= 200_000 && pair.sides[0].read.len() >= 77_777);
    assert!(pair.sides[1].read == first && pair.sides[0].read == second);
    pair
}

#[test]
fn written_bytes_arrive() {
    for config in kinds() {
        let enough = 280_000 / (config.mtu - 60) * 2;
        let pair = exchange(config, Faults { delay: 10, ..Faults::default() });
        assert!(pair.sides[0].sent < enough, "{} datagrams are too many", pair.sides[0].sent);
    }
}

#[test]
fn bytes_arrive_despite_loss_duplication_and_reordering() {
    for config in kinds() {
        exchange(config.clone(), Faults { loses: 10, delay: 20, ..Faults::default() });
        exchange(config.clone(), Faults { doubles: 30, delay: 20, ..Faults::default() });
        exchange(config.clone(), Faults { delay: 5, jitter: 60, ..Faults::default() });
        exchange(config, Faults { loses: 25, doubles: 10, delay: 20, jitter: 40, ..Faults::default() });
    }
}

#[test]
fn checksum_rejects_damaged_datagrams() {
    for algorithm in [Algorithm::None, Algorithm::Aes] {
        let cipher = Cipher::new(algorithm, &[7; 32]).unwrap();
        exchange(Config::rpcx(cipher), Faults { damages: 20, delay: 20, ..Faults::default() });
    }
}

#[test]
fn parity_avoids_waiting_for_retransmission() {
    let faults = Faults { loses: 5, delay: 150, ..Faults::default() };
    let plain =
        Config { tuning: Tuning { congestion_control: false, ..Tuning::default() }, ..Config::default() };
    let begin = Pair::new(Config::default(), faults).now;
    let without = exchange(plain.clone(), faults).now.since(begin);
    let shards = Some(Shards { data: 10, parity: 3 });
    let with = exchange(Config { shards, ..plain }, faults).now.since(begin);
    assert!(with < without, "{with} ms with parity, {without} ms without");
}

#[test]
fn slow_reader_holds_the_writer_back() {
    let mut pair = Pair::new(Config::default(), Faults { delay: 1, ..Faults::default() });
    let everything = text(4 << 20);
    let mut written = 0;
    for _ in 0..5000 {
        written += pair.sides[0].session.write(&everything[written..]);
        pair.sides[0].session.flush(pair.now);
        for side in 0..2 {
            pair.sides[side].session.wake(pair.now);
            while let Some(datagram) = pair.sides[side].session.datagram().map(<[u8]>::to_vec) {
                pair.sides[side].session.mark_sent();
                pair.send(1 - side, datagram);
            }
        }
        pair.now = pair.now.after(1);
        while let Some(entry) = pair.under_way.first_entry() {
            let (to, mut datagram) = entry.remove();
            let settings = pair.settings.clone();
            pair.sides[to].session.handle(pair.now, settings.open(&mut datagram).unwrap());
        }
    }
    // The content of both windows, and what may wait behind them.
    assert!((100_000..1_000_000).contains(&written), "{written} bytes");
    pair.write(0, &everything[written..]);
    pair.run(|pair| pair.sides[1].read.len() == 4 << 20);
    assert!(pair.sides[1].read == everything);
}

#[test]
fn idle_conversation_lives_as_long_as_the_peer() {
    let mut pair = Pair::new(protected(), Faults { delay: 20, loses: 5, ..Faults::default() });
    pair.write(0, b"hello");
    let begin = pair.now;
    pair.run(|pair| pair.now.since(begin) > 3_600_000);
    assert_eq!(
        (&pair.sides[1].read[..], pair.sides[0].session.end_reason(), pair.sides[1].session.end_reason()),
        (&b"hello"[..], None, None)
    );
    assert!(pair.sides[0].sent < 1000, "{} datagrams in an idle hour", pair.sides[0].sent);
}

#[test]
fn conversation_ends_when_the_peer_is_gone() {
    let mut pair = Pair::new(Config::default(), Faults::default());
    pair.write(0, b"hello");
    pair.run(|pair| &pair.sides[1].read[..] == b"hello" && pair.sides[0].session.is_settled());
    pair.faults.loses = 100;
    let begin = pair.now;
    pair.run(|pair| pair.sides.iter().all(|side| side.session.end_reason().is_some()));
    assert!(pair.sides.iter().all(|side| side.session.end_reason() == Some(EndReason::Silent)));
    assert!((10_000..=61_000).contains(&pair.now.since(begin)));
}

#[test]
fn client_gives_up_a_server_that_acknowledges_nothing_within_five_seconds() {
    for config in kinds() {
        let mut pair = connected(config);
        let begin = pair.now;
        pair.faults.loses = 100;
        pair.write(0, b"hello");
        pair.run(|pair| pair.sides[0].session.end_reason().is_some());
        assert_eq!(pair.sides[0].session.end_reason(), Some(EndReason::Unanswered));
        // Sooner if retransmissions follow each other so fast that there were twenty of them.
        assert!((3000..=5100).contains(&pair.now.since(begin)), "{} ms", pair.now.since(begin));
    }
}

#[test]
fn client_that_waits_for_a_reply_probes_the_server_and_gives_it_up() {
    for config in kinds() {
        let mut pair = connected(config);
        let begin = pair.now;
        pair.sides[0].session.expect_replies(begin, true);
        // It takes its time, but it lives.
        pair.run(|pair| pair.now.since(begin) > 60_000);
        assert_eq!(pair.sides[0].session.end_reason(), None);
        assert!(pair.sides[0].sent < 100, "{} datagrams in a minute", pair.sides[0].sent);
        let begin = pair.now;
        pair.faults.loses = 100;
        pair.run(|pair| pair.sides[0].session.end_reason().is_some());
        assert_eq!(pair.sides[0].session.end_reason(), Some(EndReason::Unanswered));
        assert!((2400..=5100).contains(&pair.now.since(begin)), "{} ms", pair.now.since(begin));
    }
}

#[test]
fn client_that_was_stopped_probes_the_server_before_it_gives_it_up() {
    for config in kinds() {
        for (expects, writes) in [(true, false), (false, true), (true, true), (false, false)] {
            let mut pair = connected(config.clone());
            pair.sides[0].session.expect_replies(pair.now, expects);
            if writes {
                pair.write(0, b"hello");
                pair.turn();
            }
            pair.now = pair.now.after(120_000);
            // The timers run before anything is read.
            pair.sides[0].session.wake(pair.now);
            assert_eq!(pair.sides[0].session.end_reason(), None, "{expects} {writes}");
            assert!(pair.sides[0].session.datagram().is_some(), "the server is not probed");
            let begin = pair.now;
            pair.run(|pair| pair.now.since(begin) > 120_000);
            assert_eq!(pair.sides[0].session.end_reason(), None, "{expects} {writes}");
            assert_eq!(pair.sides[1].read.len(), if writes { 5 } else { 0 });
        }
    }
}

#[test]
fn client_that_was_stopped_gives_up_a_server_that_is_gone() {
    let mut pair = connected(Config::default());
    pair.sides[0].session.expect_replies(pair.now, true);
    pair.faults.loses = 100;
    pair.now = pair.now.after(120_000);
    let begin = pair.now;
    pair.run(|pair| pair.sides[0].session.end_reason().is_some());
    assert_eq!(pair.sides[0].session.end_reason(), Some(EndReason::Unanswered));
    assert!((2400..=5100).contains(&pair.now.since(begin)), "{} ms", pair.now.since(begin));
}

#[test]
fn client_waits_for_a_server_that_reads_nothing() {
    let mut pair = connected(Config::default());
    let begin = pair.now;
    let mut written = 0;
    let everything = text(4 << 20);
    // Alive, but its application takes nothing: the windows fill up, and stay full.
    while pair.now.since(begin) < 60_000 {
        written += pair.sides[0].session.write(&everything[written..]);
        pair.pass_without_reading();
    }
    assert!(written < everything.len());
    assert_eq!(pair.sides[0].session.end_reason(), None);
}

#[test]
fn connecting_client_probes_until_the_server_answers() {
    for config in kinds() {
        let mut pair = Pair::new(config, Faults { delay: 10, ..Faults::default() });
        let begin = pair.now;
        pair.sides[0].session.connect(begin);
        assert!(!pair.sides[0].session.is_connected());
        pair.lose(0, 3);
        pair.run(|pair| pair.sides[0].session.is_connected());
        // 200, 300 and 450 ms after each other.
        assert!((950..=1050).contains(&pair.now.since(begin)), "{} ms", pair.now.since(begin));
    }
}

#[test]
fn closed_conversation_ends_on_both_sides_once_everything_was_read() {
    for config in kinds() {
        for closer in 0..2 {
            for loses in [0, 30] {
                let mut pair = connected(config.clone());
                pair.faults.loses = loses;
                let last = text(30_000);
                let written = pair.sides[closer].session.write(&last);
                pair.sides[closer].session.close(pair.now);
                pair.run(|pair| pair.sides[1 - closer].session.end_reason().is_some());
                let read = pair.sides[1 - closer].read.len();
                assert_eq!(
                    pair.sides[1 - closer].session.end_reason(),
                    Some(EndReason::ClosedByPeer),
                    "closed by {closer} with a loss of {loses} %: {config:?}"
                );
                assert!(pair.sides[1 - closer].read == last[..written], "{read} of {written} bytes");
                let closed = pair.now;
                pair.run(|pair| pair.sides[closer].session.end_reason().is_some());
                assert_eq!(pair.sides[closer].session.end_reason(), Some(EndReason::Closed));
                if loses == 0 {
                    assert!(pair.now.since(closed) <= 20, "{} ms", pair.now.since(closed));
                }
            }
        }
    }
}

#[test]
fn end_is_not_announced_to_a_peer_that_does_not_know_it() {
    let mut pair = Pair::new(Config::default(), Faults { delay: 10, ..Faults::default() });
    pair.sides[1].session.accept_peer();
    pair.sides[0].session.connect(pair.now);
    pair.write(0, b"hello");
    pair.write(1, b"hello");
    pair.run(|pair| pair.sides.iter().all(|side| !side.read.is_empty() && side.session.is_settled()));
    pair.sides[0].session.close(pair.now);
    pair.run(|pair| pair.sides[0].session.end_reason().is_some());
    pair.run(|pair| pair.under_way.is_empty());
    assert_eq!(pair.sides[1].session.end_reason(), None);
}

#[test]
fn departed_client_that_knows_ends_is_not_kept_for_ten_minutes() {
    let mut pair = connected(Config::default());
    pair.faults.loses = 100;
    let begin = pair.now;
    pair.run(|pair| pair.sides[1].session.end_reason().is_some());
    assert!((55_000..=61_000).contains(&pair.now.since(begin)), "{} ms", pair.now.since(begin));
}

#[test]
fn refusal_ends_the_conversation_and_is_at_most_as_long_as_its_cause() {
    for config in kinds() {
        let settings = Arc::new(Settings::new(config.clone()).unwrap());
        let mut pair = connected(config);
        pair.sides[0].session.connect(pair.now);
        let mut probe = pair.sides[0].session.datagram().unwrap().to_vec();
        let mut refusal = Session::refusal(settings.clone(), 7, [5; 32], pair.now);
        assert!(refusal.len() <= probe.len(), "{} bytes for {}", refusal.len(), probe.len());
        assert!(settings.open(&mut probe).unwrap().wants_answer());
        let refusal = settings.open(&mut refusal).unwrap();
        assert!(!refusal.wants_answer(), "a refusal is not refused");
        pair.sides[0].session.handle(pair.now, refusal);
        assert_eq!(pair.sides[0].session.end_reason(), Some(EndReason::Unknown));
    }
}

#[test]
fn silent_peer_is_kept_if_monitoring_is_off() {
    for config in kinds() {
        let mut pair = Pair::new(config, Faults { delay: 20, ..Faults::default() });
        // Like one of `kcp-go`, the side that starts the conversation does not monitor the other.
        pair.sides[0].session.accept_peer();
        pair.write(0, b"hello");
        pair.write(1, b"hello");
        pair.run(|pair| pair.sides.iter().all(|side| !side.read.is_empty()));
        let begin = pair.now;
        pair.faults.loses = 100;
        pair.write(1, b", still there?");
        pair.run(|pair| pair.now.since(begin) > 300_000);
        pair.faults.loses = 0;
        pair.run(|pair| pair.sides[0].read.len() > 5);
        assert_eq!(&pair.sides[0].read[..], b"hello, still there?");
        // But not forever.
        pair.run(|pair| pair.under_way.is_empty() && pair.sides[1].session.is_settled());
        let begin = pair.now;
        pair.faults.loses = 100;
        pair.run(|pair| pair.sides[1].session.end_reason().is_some());
        assert_eq!(pair.sides[1].session.end_reason(), Some(EndReason::Silent));
        assert!((560_000..=601_000).contains(&pair.now.since(begin)), "{}", pair.now.since(begin));
    }
}

#[test]
fn silent_unmonitored_conversation_can_be_evicted_after_a_minute() {
    let mut pair = Pair::new(Config::default(), Faults::default());
    pair.sides[0].session.accept_peer();
    pair.write(0, b"hello");
    pair.write(1, b"hello");
    pair.run(|pair| pair.sides.iter().all(|side| !side.read.is_empty()));
    pair.faults.loses = 100;
    let begin = pair.now;
    pair.run(|pair| pair.now.since(begin) > 50_000);
    assert!(!pair.sides[1].session.give_up());
    pair.run(|pair| pair.now.since(begin) > 61_000);
    assert!(pair.sides[1].session.give_up());
    assert_eq!(pair.sides[1].session.end_reason(), Some(EndReason::Silent));
}

#[test]
fn bytes_written_before_close_are_delivered() {
    let mut pair = Pair::new(protected(), Faults { loses: 20, delay: 30, ..Faults::default() });
    let farewell = text(30_000);
    let written = pair.sides[0].session.write(&farewell);
    assert_eq!(written, farewell.len());
    pair.sides[0].session.close(pair.now);
    pair.run(|pair| pair.sides[0].session.end_reason().is_some());
    assert_eq!(pair.sides[0].session.end_reason(), Some(EndReason::Closed));
    assert!(pair.sides[1].read == farewell);
}

#[test]
fn request_and_response_need_no_timer() {
    let mut pair = Pair::new(protected(), Faults { delay: 3, ..Faults::default() });
    let begin = pair.now;
    for _ in 0..10 {
        pair.write(0, b"request");
        pair.run(|pair| !pair.sides[1].read.is_empty());
        pair.sides[1].read.clear();
        pair.write(1, b"answer");
        pair.run(|pair| !pair.sides[0].read.is_empty());
        pair.sides[0].read.clear();
    }
    assert!(pair.now.since(begin) <= 80, "{} ms", pair.now.since(begin));
}

/// Two sides that know of each other that they know ends, whose addresses are proved, over a link with a delay.
pub(super) fn connected(config: Config) -> Pair {
    let mut pair = Pair::new(config, Faults { delay: 5, ..Faults::default() });
    pair.sides[0].session.connect(pair.now);
    pair.write(0, b"hello");
    pair.write(1, b"hello");
    pair.run(|pair| pair.sides.iter().all(|side| !side.read.is_empty() && side.session.is_settled()));
    assert!(pair.sides.iter().all(|side| side.session.is_connected() && side.session.is_validated()));
    pair.sides.iter_mut().for_each(|side| side.read.clear());
    pair
}
