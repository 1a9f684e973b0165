use std::sync::Arc;

use bytes::BytesMut;
use polyrpc_kcp::{Algorithm, Cipher, Config, Millis, Session, Settings, Shards, Tuning};

use super::Scenario;

/// One side of a conversation receives arbitrary datagrams: each is preceded by its length and by the
/// elapsed time.
pub fn kcp(input: &[u8]) {
    let Some((scenario, mut rest)) = Scenario::read(input) else { return };
    let settings = Arc::new(Settings::new(config(scenario)).expect("a usable configuration"));
    let begin = if scenario.has(32) { Session::accept } else { Session::new };
    let mut session = begin(settings.clone(), CONV, [scenario.seed; 32], Millis(0));
    let (mut now, mut read, mut out, mut taken) = (Millis(0), BytesMut::new(), 0, 0);
    while let Some((&[length, passed], after)) = rest.split_first_chunk() {
        let (datagram, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        now = now.after(u32::from(passed) * 8);
        taken += datagram.len();
        if let Some(opened) = settings.open(&mut datagram.to_vec()) {
            let _ = (opened.conv(), opened.begins(), opened.replaces());
            session.handle(now, opened);
        }
        if scenario.has(1) {
            session.write(&[length; 700]);
            session.flush(now);
        }
        if scenario.has(2) {
            session.read(now, &mut read, usize::from(passed));
        }
        session.wake(now);
        while session.datagram().is_some_and(|datagram| !datagram.is_empty()) {
            out += session.datagram().map_or(0, <[u8]>::len);
            session.mark_sent();
        }
    }
    assert!(read.len() <= 8 * input.len(), "{} bytes were read of {}", read.len(), input.len());
    // Our own data is retransmitted as time passes; beyond that, a peer causes one header per header of its own.
    assert!(scenario.has(1) || out <= 4 * taken + 4096, "{out} bytes were answered to {taken}");
    assert!(session.is_validated() || out <= 3 * taken, "{out} bytes to where {taken} came from");
    session.close(now);
    while let Some(alarm) = session.next_alarm() {
        assert!(alarm.since(now) <= 15_000, "the transfer ends");
        session.wake(alarm);
        while session.datagram().is_some() {
            session.mark_sent();
        }
    }
}

fn config(scenario: Scenario) -> Config {
    Config {
        cipher: scenario.has(8).then(|| Cipher::new(Algorithm::None, &[]).expect("any key will do")),
        shards: scenario.has(4).then_some(Shards { data: 3, parity: 2 }),
        tuning: if scenario.has(16) { Tuning::fast() } else { Tuning::default() },
        ..Config::default()
    }
}

/// The key of the vectors.
const CONV: u32 = 0x0102_0304;
