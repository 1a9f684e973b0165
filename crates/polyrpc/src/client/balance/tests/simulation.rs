//! Simulation of servers of which one is slow, stuck or failing, with closed-loop callers. A server processes one call
//! after another. Time is simulated, so that a run takes no longer than its picks and is reproducible.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use polyrpc_core::Status;

use super::*;
use crate::client::balance::locality_aware::LocalityAware;
use crate::client::balance::{AttemptOutcome, LoadBalancer, P2c, rng};

const MS: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_millis(500);

/// Reply of a server to a call that arrives at this time.
type Behaviour = Box<dyn Fn(Duration) -> Reply>;

#[derive(Clone, Copy)]
enum Reply {
    /// After this processing time, one call at a time.
    After(Duration),
    /// After this time, regardless of the number of concurrent calls.
    Concurrent(Duration),
    /// Failure after this time, without processing.
    Failure(Duration),
    Never,
}

struct World {
    candidates: Vec<Candidate>,
    pick: Box<dyn Picker>,
    servers: Vec<Behaviour>,
    /// When each server becomes idle.
    idle_at: Vec<Duration>,
    began: Instant,
    now: Duration,
    /// Pending ends: time, server, start, and whether the call failed.
    ends: BinaryHeap<Reverse<(Duration, usize, Duration, bool)>>,
    calls: Vec<(Duration, usize)>,
}

impl World {
    fn new(balance: &dyn LoadBalancer, servers: Vec<Behaviour>) -> Self {
        let candidates = candidates(servers.len());
        let pick = balance.picker(&candidates);
        let idle_at = vec![Duration::ZERO; servers.len()];
        let (began, now) = (Instant::now(), Duration::ZERO);
        Self { candidates, pick, servers, idle_at, began, now, ends: BinaryHeap::new(), calls: Vec::new() }
    }

    fn call(&mut self) {
        let now = self.began + self.now;
        let context = PickContext { now, ..context(&self.candidates) };
        let index = self.pick.pick(&context).unwrap();
        self.candidates[index].load().record_start();
        self.pick.call_started(index, now);
        let (took, failed) = match self.servers[index](self.now) {
            Reply::After(work) => {
                let idle_at = &mut self.idle_at[index];
                *idle_at = self.now.max(*idle_at) + work;
                let took = *idle_at - self.now;
                (took.min(TIMEOUT), took > TIMEOUT)
            }
            Reply::Concurrent(took) => (took, false),
            Reply::Failure(took) => (took, true),
            Reply::Never => (TIMEOUT, true),
        };
        self.calls.push((self.now, index));
        self.ends.push(Reverse((self.now + took, index, self.now, failed)));
    }

    /// Completes the next call, whose caller then calls again.
    fn step(&mut self) {
        let Some(Reverse((now, index, began, failed))) = self.ends.pop() else { return };
        self.now = now;
        let status = Status::deadline_exceeded("");
        let outcome = AttemptOutcome {
            latency: now - began,
            now: self.began + now,
            failure: failed.then_some(&status),
            timeout: Some(TIMEOUT),
            attempts_left: 0,
            attempts_made: 1,
        };
        self.candidates[index].load().record_end();
        self.pick.call_finished(index, &outcome);
        self.call();
    }

    fn run(&mut self, callers: usize, until: Duration) {
        (0..callers).for_each(|_| self.call());
        while self.now < until {
            self.step();
        }
    }

    /// Returns each server's share of the calls between these times.
    fn shares(&self, from: Duration, until: Duration) -> Vec<f64> {
        let within: Vec<_> = self.calls.iter().filter(|(at, _)| (from..until).contains(at)).collect();
        let count = |index| within.iter().filter(|(_, at)| *at == index).count() as f64;
        (0..self.servers.len()).map(|index| count(index) / within.len() as f64).collect()
    }
}

fn steady(reply: Reply) -> Behaviour {
    Box::new(move |_| reply)
}

fn healthy() -> Behaviour {
    steady(Reply::After(2 * MS))
}

/// Ten servers; the first one behaves differently.
fn among_healthy(first: Behaviour) -> Vec<Behaviour> {
    let mut servers: Vec<_> = (0..9).map(|_| healthy()).collect();
    servers.insert(0, first);
    servers
}

fn latency_balancers() -> [Box<dyn LoadBalancer>; 2] {
    [Box::new(P2c::new()), Box::new(LocalityAware::new())]
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn equal_servers_receive_equal_load() {
    for balance in latency_balancers() {
        rng::set_seed(10);
        let mut world = World::new(&balance, among_healthy(healthy()));
        world.run(20, 10 * SECOND);
        let shares = world.shares(SECOND, 10 * SECOND);
        assert!(shares.iter().all(|share| (0.05..0.2).contains(share)), "{balance:?}: {shares:?}");
    }
}

#[test]
fn slow_server_receives_less_load() {
    for balance in latency_balancers() {
        rng::set_seed(11);
        let mut world = World::new(&balance, among_healthy(steady(Reply::After(40 * MS))));
        world.run(20, 10 * SECOND);
        let shares = world.shares(SECOND, 10 * SECOND);
        assert!(shares[0] < 0.02, "{balance:?}: {shares:?}");
        assert!(world.calls.iter().any(|(_, index)| *index == 0), "{balance:?}");
    }
}

#[test]
fn stuck_server_loses_load_before_its_calls_end() {
    for balance in latency_balancers() {
        rng::set_seed(12);
        let stuck_after = 5 * SECOND;
        let first: Behaviour =
            Box::new(move |now| if now < stuck_after { Reply::After(2 * MS) } else { Reply::Never });
        let mut world = World::new(&balance, among_healthy(first));
        world.run(20, 10 * SECOND);
        let before = world.shares(SECOND, stuck_after);
        // No call to it has ended by then.
        let meanwhile = world.shares(stuck_after + 50 * MS, stuck_after + TIMEOUT);
        let after = world.shares(stuck_after + TIMEOUT, 10 * SECOND);
        assert!(before[0] > 0.05, "{balance:?}: {before:?}");
        assert!(meanwhile[0] < 0.04, "{balance:?}: {meanwhile:?}");
        assert!(after[0] < 0.01, "{balance:?}: {after:?}");
    }
}

#[test]
fn fast_failing_server_does_not_attract_load() {
    for balance in latency_balancers() {
        rng::set_seed(13);
        let mut world = World::new(&balance, among_healthy(steady(Reply::Failure(MS / 10))));
        world.run(20, 10 * SECOND);
        let shares = world.shares(SECOND, 10 * SECOND);
        assert!(shares[0] < 0.01, "{balance:?}: {shares:?}");
    }
}

#[test]
fn recovered_server_regains_its_share() {
    for balance in latency_balancers() {
        rng::set_seed(14);
        let first: Behaviour =
            Box::new(|now| if now < 2 * SECOND { Reply::After(10 * MS) } else { Reply::After(2 * MS) });
        let mut world = World::new(&balance, among_healthy(first));
        world.run(20, 90 * SECOND);
        let shares = world.shares(80 * SECOND, 90 * SECOND);
        // `la` weighs a server by its recent throughput: a server with few calls is picked rarely and grows slowly.
        let min_share = if format!("{balance:?}").starts_with("LocalityAware") { 0.0 } else { 0.05 };
        assert!(shares[0] > min_share, "{balance:?}: {shares:?}");
    }
}

#[test]
fn learned_latencies_survive_a_new_set() {
    for balance in latency_balancers() {
        rng::set_seed(15);
        let mut world = World::new(&balance, among_healthy(steady(Reply::After(40 * MS))));
        world.run(20, 5 * SECOND);
        world.pick = balance.picker(&world.candidates);
        let now = world.now;
        while world.now < now + 2 * SECOND {
            world.step();
        }
        let shares = world.shares(now, now + 2 * SECOND);
        assert!(shares[0] < 0.02, "{balance:?}: {shares:?}");
    }
}

#[test]
fn p2c_gives_twice_the_calls_to_twice_the_weight() {
    rng::set_seed(16);
    let balance = P2c::new().choices(3);
    let mut world = World::new(&balance, (0..3).map(|_| steady(Reply::Concurrent(2 * MS))).collect());
    world.candidates = weighted_candidates(&[2, 1, 1]);
    world.pick = balance.picker(&world.candidates);
    world.run(40, 10 * SECOND);
    let shares = world.shares(SECOND, 10 * SECOND);
    assert!((0.42..0.58).contains(&shares[0]), "{shares:?}");
}
