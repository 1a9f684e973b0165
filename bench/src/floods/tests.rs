use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::attack::{Attack, BUSY_CLIENT, ExpectedOutcome};
use super::attacker::{self, AttackResult};
use super::attacks;
use super::victim::{Victim, VictimResult};
use crate::exchange::Protocol;
use crate::subject::{ServerKind, ServerOptions};

/// Duration of an attack at first. The server's limits count what it reads: on a busy machine a flood needs longer to reach
/// them, and each further attempt has four times as long.
const WINDOW: Duration = Duration::from_millis(200);

/// Duration of the last attempt.
const LAST: Duration = WINDOW.saturating_mul(16);

#[test]
fn well_behaved_client_loses_no_call_during_any_flood() {
    let server = serve();
    for attack in attacks::all() {
        let mut window = WINDOW;
        while !is_over(attack, server, window) {
            window *= 4;
        }
    }
}

#[test]
fn well_behaved_neighbour_is_never_disconnected() {
    let server = serve();
    let mut window = WINDOW;
    loop {
        let (served, result) = run_beside(&BUSY_CLIENT, server, window);
        assert_eq!(served.lost, 0, "{served:?}");
        assert_eq!((result.closed, result.resets, result.goaway_code), (0, 0, None));
        if served.calls > 0 && result.ended > 100 {
            return;
        }
        assert!(window < LAST, "for {window:?}: {served:?}, {result:?}");
        window *= 4;
    }
}

/// Attacks for this long, during which no call may be lost. Returns whether calls were made and the attack had its
/// expected outcome, as it must in the last attempt.
fn is_over(attack: &Attack, server: SocketAddr, window: Duration) -> bool {
    let (served, result) = run_beside(attack, server, window);
    assert_eq!(served.lost, 0, "{}: {served:?}", attack.name);
    // Connections that are closed only after a while are not closed yet.
    let is_expected =
        matches!(attack.expected, ExpectedOutcome::Closed) || attack.has_expected_outcome(&result);
    let is_over = served.calls > 0 && is_expected;
    assert!(is_over || window < LAST, "{} for {window:?}: {served:?}, {result:?}", attack.name);
    is_over
}

fn run_beside(attack: &Attack, server: SocketAddr, window: Duration) -> (VictimResult, AttackResult) {
    let victim = Victim::connect(server).unwrap();
    thread::scope(|scope| {
        let result = scope.spawn(|| attacker::run(attack, server, window).unwrap());
        (victim.run(window).unwrap(), result.join().unwrap())
    })
}

fn serve() -> SocketAddr {
    let options = ServerOptions {
        kind: ServerKind::Polyrpc,
        listen: ([127, 0, 0, 1], 0).into(),
        protocol: Protocol::BaiduStd,
        payload: 0,
        core: None,
    };
    options.start().unwrap()
}
