mod availability;
mod distribution;
mod hashing;
mod simulation;

use std::time::Instant;

use super::{Candidate, PickContext, Picker};
use crate::discovery::{Attributes, Instance};

/// So many servers, of which nothing is said.
pub(crate) fn candidates(n: usize) -> Vec<Candidate> {
    (0..n)
        .map(|place| Candidate::new(Instance::tcp(format!("10.0.{}.{}:80", place / 256, place % 256))))
        .collect()
}

/// Servers of each of which this is said.
pub(super) fn said(name: &str, values: &[&str]) -> Vec<Candidate> {
    let said = |value: &&str| Attributes::new().with(name, *value);
    candidates(values.len())
        .iter()
        .zip(values)
        .map(|(candidate, value)| candidate.renewed(said(value)))
        .collect()
}

/// Servers with these weights.
pub(super) fn weighing(weights: &[u32]) -> Vec<Candidate> {
    let texts: Vec<_> = weights.iter().map(u32::to_string).collect();
    said("weight", &texts.iter().map(|text| &**text).collect::<Vec<_>>())
}

/// A call to any of them.
pub(crate) fn asked(candidates: &[Candidate]) -> PickContext<'_> {
    PickContext {
        service: "Arith",
        method: "Mul",
        key: None,
        request: b"",
        now: Instant::now(),
        candidates,
        tried: &[],
    }
}

/// How many of so many calls each of them gets.
pub(crate) fn shares(pick: &dyn Picker, candidates: &[Candidate], calls: usize) -> Vec<usize> {
    let asked = asked(candidates);
    let mut shares = vec![0; candidates.len()];
    (0..calls).filter_map(|_| pick.pick(&asked)).for_each(|place| shares[place] += 1);
    shares
}

/// The file of vectors that rpcx made.
pub(crate) fn vectors() -> serde_json::Value {
    let text = include_str!("../../../../../../vectors/rpcx/hash_selectors.json");
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    file["fields"].clone()
}
