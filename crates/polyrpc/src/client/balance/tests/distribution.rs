//! Distribution of calls over servers. Statistical bounds are seven standard deviations or more, which one run in 10^11
//! exceeds; the seeds are fixed all the same.

use super::*;
use crate::client::balance::closest::Closest;
use crate::client::balance::least_in_flight::LeastInFlight;
use crate::client::balance::least_reported::LeastReported;
use crate::client::balance::random::Random;
use crate::client::balance::smooth::SmoothWeightedRoundRobin;
use crate::client::balance::sticky::Sticky;
use crate::client::balance::weighted_round_robin::WeightedRoundRobin;
use crate::client::balance::{AttemptOutcome, LoadBalancer, RoundRobin, WeightedRandom, rng};

use std::time::Duration;

use polyrpc_core::{Scope, Status};

#[test]
fn random_distributes_evenly() {
    rng::set_seed(2);
    let candidates = candidates(10);
    let shares = shares(&*Random.picker(&candidates), &candidates, 100_000);
    assert!(shares.iter().all(|share| share.abs_diff(10_000) < 665), "{shares:?}");
}

#[test]
fn round_robin_picks_each_server_in_turn() {
    let candidates = candidates(7);
    assert_eq!(shares(&*RoundRobin::new().picker(&candidates), &candidates, 700), [100; 7]);
}

#[test]
fn round_robin_continues_in_the_next_set() {
    let candidates = candidates(4);
    let balance = RoundRobin::starting_at(0);
    let next = |n: usize| balance.picker(&candidates[..n]).pick(&context(&candidates[..n])).unwrap();
    assert_eq!([next(4), next(4), next(4), next(3), next(4)], [0, 1, 2, 0, 0]);
}

#[test]
fn smooth_weighted_order_equals_that_of_rpcx() {
    let candidates = weighted_candidates(&[5, 1, 1]);
    let pick = SmoothWeightedRoundRobin::new().picker(&candidates);
    let order: Vec<_> = (0..14).map(|_| pick.pick(&context(&candidates)).unwrap()).collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn smooth_weighted_order_continues_across_equal_sets() {
    let balance = SmoothWeightedRoundRobin::new();
    let alike = weighted_candidates(&[1, 1, 1]);
    let next = |candidates: &[Candidate]| balance.picker(candidates).pick(&context(candidates)).unwrap();
    // A registry reports the servers' load every few seconds.
    let doing = |calls: usize| -> Vec<_> {
        let candidates_with =
            |one: &Candidate| one.instance().attributes.clone().with("calls", calls.to_string());
        alike.iter().map(|one| one.with_attributes(candidates_with(one))).collect()
    };
    assert_eq!([0, 1, 2, 3].map(|calls| next(&doing(calls))), [0, 1, 2, 0]);
    let heavier: Vec<_> = alike.iter().map(|one| one.with_attributes("weight=2".parse().unwrap())).collect();
    assert_eq!([next(&heavier), next(&heavier), next(&heavier[..2])], [0, 1, 0]);
    assert_eq!(next(&weighted_candidates(&[1, 1])), 0, "they are others");
}

#[test]
fn weighted_round_robin_is_exact() {
    let weights = [5, 1, 0, 3, 100, 7];
    let candidates = weighted_candidates(&weights);
    for balance in [&SmoothWeightedRoundRobin::new() as &dyn LoadBalancer, &WeightedRoundRobin] {
        let shares = shares(&*balance.picker(&candidates), &candidates, 1160);
        assert_eq!(shares, weights.map(|weight| 10 * weight as usize), "{balance:?}");
    }
}

#[test]
fn heavy_weights_take_no_more_memory() {
    rng::set_seed(1);
    let candidates = weighted_candidates(&[u32::MAX, u32::MAX, u32::MAX - 1, 2]);
    for name in ["swrr", "wrr", "wr"] {
        let shares = shares(&*parse_policy(name).unwrap().picker(&candidates), &candidates, 3000);
        assert!(shares[..3].iter().all(|share| share.abs_diff(1000) < 182), "{name}: {shares:?}");
    }
}

#[test]
fn weighted_round_robin_is_spread_out() {
    // The heaviest server, with five sevenths of the picks, never waits for more than one other pick.
    let candidates = weighted_candidates(&[50, 10, 10]);
    let pick = WeightedRoundRobin.picker(&candidates);
    let order: Vec<_> = (0..140).map(|_| pick.pick(&context(&candidates)).unwrap()).collect();
    assert!(order.windows(2).all(|two| two.contains(&0)), "{order:?}");
}

#[test]
fn no_server_is_picked_if_all_weights_are_zero() {
    let candidates = weighted_candidates(&[0, 0]);
    for name in ["swrr", "wrr", "wr"] {
        let pick = parse_policy(name).unwrap().picker(&candidates);
        assert_eq!(pick.pick(&context(&candidates)), None, "{name}");
    }
}

#[test]
fn weighted_random_approximates_the_weights() {
    rng::set_seed(3);
    let weights = [5, 1, 0, 3, 1];
    let candidates = weighted_candidates(&weights);
    let shares = shares(&*WeightedRandom.picker(&candidates), &candidates, 100_000);
    for (share, weight) in shares.iter().zip(weights) {
        let expected = 10_000 * weight as usize;
        assert!(share.abs_diff(expected) < 1110 && (weight > 0 || *share == 0), "{shares:?}");
    }
}

#[test]
fn least_in_flight_picks_the_least_loaded() {
    rng::set_seed(4);
    let candidates = candidates(20);
    let pick = LeastInFlight.picker(&candidates);
    for _ in 0..500 {
        candidates[pick.pick(&context(&candidates)).unwrap()].load().record_start();
    }
    assert!(candidates.iter().all(|candidate| candidate.load().in_flight() == 25));
    (0..3).for_each(|_| candidates[7].load().record_end());
    assert_eq!(pick.pick(&context(&candidates)), Some(7));
}

#[test]
fn least_in_flight_breaks_ties_at_random() {
    rng::set_seed(5);
    let candidates = candidates(6);
    candidates[0].load().record_start();
    let shares = shares(&*LeastInFlight.picker(&candidates), &candidates, 50_000);
    assert!(shares[0] == 0 && shares[1..].iter().all(|share| share.abs_diff(10_000) < 630), "{shares:?}");
}

#[test]
fn least_in_flight_stays_level_among_many_servers() {
    rng::set_seed(6);
    let candidates = candidates(1000);
    let pick = LeastInFlight.picker(&candidates);
    for _ in 0..20_000 {
        candidates[pick.pick(&context(&candidates)).unwrap()].load().record_start();
    }
    let counts = candidates.iter().map(|candidate| candidate.load().in_flight());
    assert!(counts.clone().all(|count| (17..=22).contains(&count)), "{:?}", counts.collect::<Vec<_>>());
}

#[test]
fn least_reported_follows_calls_and_then_tps() {
    rng::set_seed(7);
    let mut candidates = candidates_with("calls", &["12.50", "3.25", "3.25", "x", "-1", "NaN", "inf"]);
    let tps =
        |candidate: &Candidate, tps: &str| candidate.with_attributes(Attributes::new().with("tps", tps));
    candidates.push(tps(&candidates[0], "4"));
    let shares = shares(&*LeastReported.picker(&candidates), &candidates, 2000);
    assert!(shares[1].abs_diff(1000) < 160 && shares[1] + shares[2] == 2000, "{shares:?}");
    let next = |tried: &[usize]| {
        LeastReported.picker(&candidates).pick(&PickContext { tried, ..context(&candidates) }).unwrap()
    };
    assert_eq!((next(&[1, 2]), next(&[1, 2, 7])), (7, 0));
    // Servers that report nothing come last.
    assert!((3..7).contains(&next(&[0, 1, 2, 7])));
}

#[test]
fn least_reported_without_reports_distributes_evenly() {
    rng::set_seed(8);
    let candidates = candidates(4);
    let shares = shares(&*LeastReported.picker(&candidates), &candidates, 40_000);
    assert!(shares.iter().all(|share| share.abs_diff(10_000) < 610), "{shares:?}");
}

#[test]
fn closest_server_is_picked_and_those_without_coordinates_are_not() {
    rng::set_seed(9);
    let at = |candidate: &Candidate, place: &str| candidate.with_attributes(place.parse().unwrap());
    let places = [
        "latitude=30&longitude=120",
        "latitude=31&longitude=121",
        "latitude=31&longitude=121",
        "latitude=31",
        "",
        "latitude=x&longitude=121",
    ];
    let candidates: Vec<_> =
        candidates(places.len()).iter().zip(places).map(|(one, place)| at(one, place)).collect();
    let pick = Closest::new(31.2, 121.4).picker(&candidates);
    let shares = shares(&*pick, &candidates, 2000);
    assert!(shares[1].abs_diff(1000) < 160 && shares[1] + shares[2] == 2000, "{shares:?}");
    assert_eq!(pick.pick(&PickContext { tried: &[1, 2], ..context(&candidates) }), Some(0));
    assert_eq!(pick.pick(&PickContext { tried: &[0, 1, 2], ..context(&candidates) }), None);
    assert_eq!(Closest::new(f64::NAN, 0.0).picker(&candidates).pick(&context(&candidates)), None);
}

fn lost(status: &Status) -> AttemptOutcome<'_> {
    AttemptOutcome { failure: Some(status), ..AttemptOutcome::new(Duration::ZERO, Instant::now()) }
}

#[test]
fn sticky_client_stays_until_its_connection_fails() {
    let candidates = candidates(3);
    let balance = Sticky::new(RoundRobin::starting_at(0));
    let pick = balance.picker(&candidates);
    let next = |tried: &[usize]| pick.pick(&PickContext { tried, ..context(&candidates) }).unwrap();
    assert_eq!([next(&[]), next(&[]), next(&[])], [0, 0, 0]);
    // A retry goes elsewhere; the next call does not.
    assert_eq!([next(&[0]), next(&[])], [1, 0]);
    pick.call_finished(0, &lost(&Status::unavailable("")));
    assert_eq!(next(&[]), 0);
    // A broken connection of another server has no effect; one of the kept server has.
    let broken = Status::unavailable("").with_scope(Scope::Connection);
    pick.call_finished(1, &lost(&broken));
    assert_eq!(next(&[]), 0);
    pick.call_finished(0, &lost(&broken));
    assert_eq!([next(&[]), next(&[])], [2, 2]);
    candidates[2].load().set_healthy(false);
    assert_eq!([next(&[]), next(&[])], [0, 0]);
}

#[test]
fn sticky_client_keeps_its_server_in_other_sets() {
    let candidates = candidates(3);
    let balance = Sticky::new(RoundRobin::starting_at(2));
    let next = |set: &[Candidate]| balance.picker(set).pick(&context(set)).unwrap();
    assert_eq!(next(&candidates), 2);
    let turned: Vec<_> = candidates.iter().rev().cloned().collect();
    assert_eq!(next(&turned), 0);
    assert_eq!(next(&candidates[..2]), 1);
    assert_eq!(next(&candidates[1..]), 0);
}

#[test]
fn boxed_and_shared_balancers_are_balancers() {
    let candidates = candidates(2);
    let shared: std::sync::Arc<dyn LoadBalancer> = std::sync::Arc::new(RoundRobin::new());
    let boxed: Box<dyn LoadBalancer> = Box::new(shared);
    assert_eq!(shares(&*boxed.picker(&candidates), &candidates, 10), [5, 5]);
}
