use std::time::{Duration, Instant};

use super::*;
use crate::discovery::Attributes;

/// Every balancer by name.
const ALL: [&str; 18] = [
    "random",
    "rr",
    "swrr",
    "wrr",
    "wr",
    "least",
    "least_reported",
    "p2c",
    "p2c:choices=64",
    "la",
    "jump",
    "doublejump",
    "c_murmurhash",
    "c_md5",
    "c_ketama",
    "closest:latitude=1 longitude=1",
    "latency",
    "sticky:rr",
];

/// Servers with all attributes that any balancer reads.
fn servers(n: usize) -> Vec<Candidate> {
    let candidates_with = |index: usize| {
        Attributes::new()
            .with("weight", (index % 7 + 1).to_string())
            .with("calls", (index % 3).to_string())
            .with("latitude", "1")
            .with("longitude", (index % 5).to_string())
    };
    candidates(n)
        .iter()
        .enumerate()
        .map(|(index, candidate)| candidate.with_attributes(candidates_with(index)))
        .collect()
}

#[test]
fn only_available_servers_are_picked() {
    for name in ALL {
        let balance = parse_policy(name).unwrap();
        for n in [1, 2, 3, 10, 100] {
            let candidates = servers(n);
            let pick = balance.picker(&candidates);
            // All but a few are unhealthy, ejected or tried.
            let left = [n / 2, n - 1];
            let tried: Vec<_> = (0..n).filter(|index| index % 3 == 2 && !left.contains(index)).collect();
            for (index, candidate) in candidates.iter().enumerate().filter(|(index, _)| !left.contains(index))
            {
                match index % 3 {
                    0 => candidate.load().set_healthy(false),
                    1 => candidate.load().mark_unavailable_until(Instant::now() + Duration::from_secs(60)),
                    _ => {}
                }
            }
            for key in 0..200 {
                let context = PickContext { key: Some(key), tried: &tried, ..context(&candidates) };
                let index = pick.pick(&context);
                assert!(index.is_some_and(|index| left.contains(&index)), "{name} among {n}: {index:?}");
            }
        }
    }
}

#[test]
fn no_server_is_picked_if_none_is_available() {
    for name in ALL {
        for n in [0, 1, 2, 50] {
            let candidates = servers(n);
            let pick = parse_policy(name).unwrap().picker(&candidates);
            candidates.iter().for_each(|candidate| candidate.load().set_healthy(false));
            assert_eq!(pick.pick(&context(&candidates)), None, "{name} among {n}");
            candidates.iter().for_each(|candidate| candidate.load().set_healthy(true));
            let tried: Vec<_> = (0..n).collect();
            assert_eq!(
                pick.pick(&PickContext { tried: &tried, ..context(&candidates) }),
                None,
                "{name} among {n}"
            );
            assert_eq!(pick.pick(&context(&candidates)).is_some(), n > 0, "{name} among {n}");
        }
    }
}

#[test]
fn outcome_for_an_unknown_index_is_ignored() {
    let outcome = crate::client::balance::AttemptOutcome::new(Duration::ZERO, Instant::now());
    for name in ALL {
        let pick = parse_policy(name).unwrap().picker(&[]);
        pick.call_started(3, Instant::now());
        pick.call_finished(3, &outcome);
    }
}

#[test]
fn remaining_servers_take_over_evenly() {
    // An unhealthy server's share must not fall to one neighbour only.
    for name in ["random", "rr", "jump", "doublejump", "c_murmurhash:replicas=1000"] {
        let candidates = candidates(10);
        let pick = parse_policy(name).unwrap().picker(&candidates);
        candidates[4].load().set_healthy(false);
        let mut shares = [0_usize; 10];
        for key in 0..9000_u64 {
            // Well-mixed keys of 32 bits.
            let key = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & u64::from(u32::MAX);
            let context = PickContext { key: Some(key), ..context(&candidates) };
            shares[pick.pick(&context).unwrap()] += 1;
        }
        let others = shares.iter().enumerate().filter(|(index, _)| *index != 4);
        assert!(others.clone().all(|(_, share)| (750..1250).contains(share)), "{name}: {shares:?}");
    }
}

#[test]
fn remaining_servers_keep_their_relative_weights() {
    for name in ["swrr", "wrr", "wr"] {
        let candidates = weighted_candidates(&[1_000_000, 3, 1, 0]);
        let pick = parse_policy(name).unwrap().picker(&candidates);
        candidates[0].load().set_healthy(false);
        let shares = shares(&*pick, &candidates, 8000);
        // Seven standard deviations of 39.
        assert!(shares[0] == 0 && shares[3] == 0 && shares[1].abs_diff(6000) < 280, "{name}: {shares:?}");
    }
}

#[test]
fn skipped_turn_does_not_skew_the_others() {
    let candidates = candidates(3);
    let pick = parse_policy("rr").unwrap().picker(&candidates);
    candidates[1].load().set_healthy(false);
    assert_eq!(shares(&*pick, &candidates, 100), [50, 0, 50]);
}
