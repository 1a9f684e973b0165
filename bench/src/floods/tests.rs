use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::attack::{Attack, Fate, NEIGHBOUR};
use super::attacker::{self, Siege};
use super::attacks;
use super::victim::{Served, Victim};
use crate::exchange::Protocol;
use crate::subject::{ServerKind, ServerOptions};

const WINDOW: Duration = Duration::from_millis(200);

#[test]
fn well_behaved_client_loses_no_call_during_any_flood() {
    let server = serve();
    for attack in attacks::all() {
        let (served, siege) = beside(attack, server);
        assert!(served.calls > 0 && served.lost == 0, "{}: {served:?}", attack.name);
        // Connections that are closed only after a while are not closed yet.
        let soon = !matches!(attack.fate, Fate::Closed);
        assert!(!soon || attack.met(&siege), "{}: {siege:?}", attack.name);
    }
}

#[test]
fn well_behaved_neighbour_is_never_disconnected() {
    let (served, siege) = beside(&NEIGHBOUR, serve());
    assert!(served.calls > 0 && served.lost == 0, "{served:?}");
    assert_eq!((siege.closed, siege.resets, siege.goodbye), (0, 0, None));
    assert!(siege.ended > 100, "{siege:?}");
}

fn beside(attack: &Attack, server: SocketAddr) -> (Served, Siege) {
    let victim = Victim::connect(server).unwrap();
    thread::scope(|scope| {
        let siege = scope.spawn(|| attacker::run(attack, server, WINDOW).unwrap());
        (victim.run(WINDOW).unwrap(), siege.join().unwrap())
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
