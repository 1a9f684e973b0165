//! Cost of a pick. A separate binary without the test harness: the allocator counts all threads, so there must be
//! no other.

use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

use polyrpc::client::balance::{AttemptOutcome, Candidate, LoadBalancer, PickContext, Policy};
use polyrpc::discovery::{Attributes, Instance};
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BALANCERS: [&str; 18] = [
    "random",
    "rr",
    "swrr",
    "wrr",
    "wr",
    "least",
    "least_reported",
    "p2c",
    "p2c:choices=8",
    "la",
    "jump",
    "doublejump",
    "c_murmurhash",
    "c_md5",
    "c_ketama",
    "closest:latitude=1 longitude=1",
    "latency",
    "sticky:p2c",
];

/// A thousand servers with different weights and locations.
fn servers() -> Vec<Candidate> {
    let attributes = |index: usize| {
        Attributes::new()
            .with("weight", (index + 1).to_string())
            .with("calls", index.to_string())
            .with("latitude", (index % 90).to_string())
            .with("longitude", "1")
    };
    let server =
        |index| Candidate::new(Instance::tcp(format!("10.0.0.1:{}", index + 1)).with(attributes(index)));
    (0..1000).map(server).collect()
}

fn context(candidates: &[Candidate], key: u64) -> PickContext<'_> {
    let mut context = PickContext::new(candidates);
    (context.service, context.method) = ("Arith", "Mul");
    (context.key, context.request) = (Some(key), b"request");
    context
}

fn main() {
    pick_among_a_thousand_servers_is_fast_and_allocates_nothing();
}

fn pick_among_a_thousand_servers_is_fast_and_allocates_nothing() {
    let candidates = servers();
    for name in BALANCERS {
        let pick = name.parse::<Policy>().unwrap().picker(&candidates);
        let call = |turn: u64| {
            let context = context(&candidates, turn.wrapping_mul(0x9e37_79b9) & u64::from(u32::MAX));
            let index = pick.pick(&context).unwrap();
            candidates[index].record_start();
            pick.call_started(index, context.now);
            candidates[index].record_end();
            let latency = Duration::from_micros(100 + turn % 100);
            pick.call_finished(index, &AttemptOutcome::new(latency, context.now + latency));
        };
        // One-time initialization of the thread.
        call(0);
        let region = Region::new(ALLOCATOR);
        (0..10_000).for_each(call);
        let allocations = region.change().allocations;
        assert_eq!(allocations, 0, "{name}");

        let nanos = (0..5).map(|_| nanos_of_a_pick(&*pick, &candidates)).min().unwrap();
        println!("{name}: {nanos} ns");
        // A release build takes a fifth of it; this only detects algorithms that visit every server.
        assert!(nanos < 5_000, "{name}: {nanos} ns");
    }
}

fn nanos_of_a_pick(pick: &dyn polyrpc::client::balance::Picker, candidates: &[Candidate]) -> u128 {
    const PICKS: u32 = 20_000;
    let mut context = context(candidates, 0);
    let began = thread_time();
    for turn in 0..PICKS {
        context.key = Some(u64::from(turn.wrapping_mul(0x9e37_79b9)));
        black_box(pick.pick(black_box(&context)));
    }
    ((thread_time() - began) / PICKS).as_nanos()
}

/// Processor time of this thread. On a busy machine, other programs run meanwhile too.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
