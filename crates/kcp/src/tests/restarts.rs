//! Servers that were restarted, or exit.

use super::link::{Faults, Pair, connected, kinds, text};
use crate::segment::{Command, KNOWS_ENDS, Segment};
use crate::{Config, EndReason, Millis, Tuning};

/// A client whose first request was acknowledged, but not answered, by a server that is then restarted.
fn restarted(config: Config, knows_ends: bool) -> Pair {
    let mut pair = Pair::new(config, Faults { delay: 5, ..Faults::default() });
    if knows_ends {
        pair.sides[0].session.connect(pair.now);
    } else {
        pair.sides[0].session.accept_peer();
    }
    pair.write(0, b"a request that takes long");
    pair.run(|pair| !pair.sides[1].read.is_empty() && pair.sides[0].session.is_settled());
    pair.restart_server();
    pair.write(0, b"another request");
    pair
}

#[test]
fn restarted_server_refuses_a_conversation_whose_start_was_acknowledged_by_its_predecessor() {
    // In a group of three datagrams the parity behind the third recovers the first: it would not be missing.
    let is_small = |config: &Config| config.shards.is_some_and(|shards| shards.data <= 3);
    for config in kinds().into_iter().filter(|config| !is_small(config)) {
        let mut pair = restarted(config.clone(), true);
        let begin = pair.now;
        pair.run(|pair| pair.sides[0].session.end_reason().is_some());
        assert_eq!(pair.sides[0].session.end_reason(), Some(EndReason::Unknown), "{config:?}");
        assert_eq!(pair.sides[1].session.end_reason(), Some(EndReason::StartMissing));
        // The request, a probe, its answer, the end: 5 ms each.
        assert!(pair.now.since(begin) <= 21, "{} ms", pair.now.since(begin));
    }
}

#[test]
fn client_that_waits_for_a_reply_learns_of_the_restart_if_the_probe_is_lost() {
    let mut pair = restarted(Config::default(), true);
    let begin = pair.now;
    pair.sides[0].session.expect_replies(begin, true);
    pair.lose(1, 1);
    pair.run(|pair| pair.sides[0].session.end_reason().is_some());
    assert_eq!(pair.sides[0].session.end_reason(), Some(EndReason::Unknown));
    // The request is repeated once, and half of the time for which the server may be silent passes.
    assert!(pair.now.since(begin) <= 2700, "{} ms", pair.now.since(begin));
}

#[test]
fn client_that_knows_no_ends_is_not_refused_for_a_missing_start() {
    let mut pair = restarted(Config::default(), false);
    let begin = pair.now;
    pair.run(|pair| pair.now.since(begin) > 60_000);
    assert_eq!(pair.sides[0].session.end_reason(), None);
    assert_eq!(pair.sides[1].session.end_reason(), None);
}

#[test]
fn start_that_is_lost_is_waited_for() {
    for connects in [true, false] {
        for lost in [1, 2, 5] {
            let config = Config { tuning: Tuning::fast(), ..Config::default() };
            let mut pair = Pair::new(config, Faults { delay: 5, ..Faults::default() });
            if connects {
                pair.sides[0].session.connect(pair.now);
                pair.run(|pair| pair.sides[0].session.is_connected());
            }
            pair.lose(0, lost);
            pair.write(0, &text(20_000));
            pair.run(|pair| pair.sides[1].read.len() == 20_000);
            assert!(pair.sides[1].read == text(20_000));
            assert_eq!(pair.sides[1].session.end_reason(), None);
        }
    }
}

#[test]
fn forged_probes_do_not_end_a_conversation_with_a_validated_peer() {
    // The client of the second one has sent nothing yet.
    for greets in [false, true] {
        let mut pair = match greets {
            false => connected(Config::default()),
            true => greeted(),
        };
        for (command, ts) in [(Command::Ask, 0), (Command::Ask, 9), (Command::Tell, 9)] {
            let probe = Segment {
                conv: 7,
                command,
                frg: KNOWS_ENDS,
                wnd: 128,
                ts: Millis(ts),
                sn: 0,
                una: 0,
                data: &[],
            };
            let mut bytes = Vec::new();
            probe.put(&mut bytes);
            let (settings, now) = (pair.settings.clone(), pair.now);
            pair.sides[1].session.handle(now, settings.open(&mut bytes).unwrap());
        }
        pair.write(0, b"request");
        pair.run(|pair| pair.sides[1].read == b"request"[..]);
        assert_eq!(pair.sides[1].session.end_reason(), None);
    }
}

/// A client that was validated by the server's greeting, before it has sent anything.
fn greeted() -> Pair {
    let mut pair = Pair::new(Config::default(), Faults { delay: 5, ..Faults::default() });
    pair.sides[0].session.connect(pair.now);
    pair.run(|pair| pair.sides[0].session.is_connected());
    pair.write(1, b"welcome");
    pair.run(|pair| pair.sides[1].session.is_validated() && pair.sides[1].session.is_settled());
    pair
}

#[test]
fn exiting_server_does_not_wait_once_a_client_that_knows_no_ends_has_everything() {
    for config in kinds() {
        for is_exiting in [true, false] {
            let mut pair = Pair::new(config.clone(), Faults { delay: 5, ..Faults::default() });
            pair.sides[0].session.accept_peer();
            pair.write(0, b"hello");
            pair.run(|pair| !pair.sides[1].read.is_empty());
            let last = text(20_000);
            assert_eq!(pair.sides[1].session.write(&last), last.len());
            if is_exiting {
                pair.sides[1].session.end_when_settled();
            }
            let closed = pair.now;
            pair.sides[1].session.close(closed);
            pair.run(|pair| pair.sides[1].session.is_settled());
            let settled = pair.now;
            pair.run(|pair| pair.sides[1].session.end_reason().is_some());
            assert_eq!(pair.sides[1].session.end_reason(), Some(EndReason::Closed));
            assert!(pair.sides[0].read == last, "{} bytes", pair.sides[0].read.len());
            match is_exiting {
                true => assert_eq!(pair.now, settled),
                false => assert!(pair.now.since(closed) >= 1000, "{} ms", pair.now.since(closed)),
            }
        }
    }
}

#[test]
fn exiting_server_acknowledges_what_has_arrived() {
    let mut pair = Pair::new(Config::default(), Faults { delay: 5, ..Faults::default() });
    pair.sides[0].session.accept_peer();
    pair.write(0, b"hello");
    pair.write(1, b"hello");
    pair.run(|pair| pair.sides.iter().all(|side| !side.read.is_empty() && side.session.is_settled()));
    let begin = pair.now;
    pair.sides[1].session.end_when_settled();
    // Two segments, which the client acknowledges at once. The server would delay its own acknowledgement by 40 ms.
    pair.sides[1].session.write(&text(2000));
    pair.sides[1].session.close(begin);
    pair.run(|pair| pair.now.since(begin) >= 5);
    pair.write(0, b"late");
    pair.run(|pair| pair.sides[1].session.end_reason().is_some());
    assert!(pair.now.since(begin) <= 12, "{} ms", pair.now.since(begin));
    pair.run(|pair| pair.sides[0].session.is_settled());
    assert!(pair.now.since(begin) <= 20, "{} ms", pair.now.since(begin));
}
