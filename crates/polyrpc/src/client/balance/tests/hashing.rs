use super::*;
use crate::client::balance::LoadBalancer;

const KEYS: u64 = 20_000;

/// Well-mixed keys of 32 bits.
fn keys() -> impl Iterator<Item = u64> {
    (0..KEYS).map(|key| (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & u64::from(u32::MAX))
}

/// Returns the server of each key, by address.
fn owners(balance: &dyn LoadBalancer, candidates: &[Candidate]) -> Vec<String> {
    let pick = balance.picker(candidates);
    let owner = |key| {
        let index = pick.pick(&PickContext { key: Some(key), ..context(candidates) }).unwrap();
        candidates[index].instance().address.clone()
    };
    keys().map(owner).collect()
}

#[test]
fn removed_server_moves_only_its_own_keys() {
    for name in ["doublejump", "c_murmurhash", "c_md5", "c_ketama"] {
        for n in [2, 5, 10, 50] {
            let balance = parse_policy(name).unwrap();
            let all = candidates(n);
            let before = owners(&*balance, &all);
            let gone = all[n / 2].instance().address.clone();
            let left: Vec<_> =
                all.iter().filter(|candidate| candidate.instance().address != gone).cloned().collect();
            let after = owners(&*balance, &left);
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
            assert!(moved.clone().all(|(before, _)| *before == gone), "{name} of {n}");
            let share = moved.count() as f64 / KEYS as f64;
            assert!(share <= 1.0 / n as f64 + 0.1, "{name} of {n}: {share}");
            // The returning server gets its keys back.
            assert_eq!(owners(&*balance, &all), before, "{name} of {n}");
        }
    }
}

#[test]
fn on_average_one_in_n_keys_moves() {
    for name in ["doublejump", "c_murmurhash", "c_md5", "c_ketama"] {
        let n = 10;
        let all = candidates(n);
        let mut moved = 0;
        for gone in 0..n {
            let balance = parse_policy(name).unwrap();
            let before = owners(&*balance, &all);
            let left: Vec<_> = [&all[..gone], &all[gone + 1..]].concat();
            moved += before
                .iter()
                .zip(owners(&*balance, &left))
                .filter(|(before, after)| *before != after)
                .count();
        }
        let share = moved as f64 / (KEYS as usize * n) as f64;
        assert!(share <= 1.0 / n as f64 + 0.02, "{name}: {share}");
    }
}

#[test]
fn jump_hash_moves_few_keys_when_the_last_server_leaves() {
    let balance = parse_policy("jump").unwrap();
    let all = candidates(10);
    let moved =
        owners(&*balance, &all).iter().zip(owners(&*balance, &all[..9])).filter(|(a, b)| *a != b).count();
    assert!(moved as f64 / KEYS as f64 <= 0.12, "{moved}");
}

#[test]
fn every_server_owns_keys() {
    // Shares of a ring with a hundred points per server vary by a tenth.
    for (name, off) in
        [("jump", 0.15), ("doublejump", 0.15), ("c_murmurhash", 0.6), ("c_md5", 0.6), ("c_ketama", 0.6)]
    {
        let all = candidates(10);
        let owners = owners(&*parse_policy(name).unwrap(), &all);
        for candidate in &all {
            let share = owners.iter().filter(|owner| **owner == candidate.instance().address).count();
            let expected = KEYS as f64 / 10.0;
            assert!((share as f64 - expected).abs() < off * expected, "{name}: {share}");
        }
    }
}

#[test]
fn order_of_a_set_does_not_matter() {
    for name in ["jump", "doublejump", "c_murmurhash", "c_md5", "c_ketama"] {
        let all = candidates(10);
        let turned: Vec<_> = all.iter().rev().cloned().collect();
        let owners = |servers: &[Candidate]| owners(&*parse_policy(name).unwrap(), servers);
        assert_eq!(owners(&all), owners(&turned), "{name}");
    }
}

#[test]
fn equal_requests_without_a_key_reach_the_same_server() {
    let all = candidates(10);
    for name in ["jump", "doublejump", "c_murmurhash"] {
        let pick = parse_policy(name).unwrap().picker(&all);
        let picked =
            |method, request: &[u8]| pick.pick(&PickContext { method, request, ..context(&all) }).unwrap();
        let requests = |method| (0..100_u8).map(move |byte| (method, [byte; 3]));
        let first: Vec<_> = requests("Mul").map(|(method, request)| picked(method, &request)).collect();
        let again: Vec<_> = requests("Mul").map(|(method, request)| picked(method, &request)).collect();
        let other: Vec<_> = requests("Add").map(|(method, request)| picked(method, &request)).collect();
        assert_eq!(first, again, "{name}");
        assert_ne!(first, other, "{name}");
        assert!(first.iter().any(|&index| index != first[0]), "{name}");
        assert!(picked("Mul", &vec![7; 10 << 20]) < 10);
    }
}
