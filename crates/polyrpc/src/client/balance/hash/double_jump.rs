use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use super::jump::{jump, pick_available, rehash};
use crate::client::balance::{Candidate, LoadBalancer, PickContext, Picker};

/// See [`Policy::double_jump`](super::super::Policy::double_jump).
#[derive(Debug, Default)]
pub(crate) struct DoubleJump(Mutex<Slots>);

impl LoadBalancer for DoubleJump {
    fn picker(&self, candidates: &[Candidate]) -> Box<dyn Picker> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut indices = HashMap::new();
        for (index, candidate) in candidates.iter().enumerate() {
            indices.entry(candidate.instance().to_string()).or_insert(index);
        }
        slots.update(&indices);
        let index_of = |name: &String| indices.get(name).copied();
        Box::new(DoubleJumpPicker {
            loose: slots.loose.iter().map(|slot| slot.as_ref().and_then(index_of)).collect(),
            compact: slots.compact.iter().filter_map(index_of).collect(),
        })
    }
}

/// Two arrays of the servers' names.
#[derive(Debug, Default)]
struct Slots {
    /// Slots; a server keeps its slot.
    loose: Vec<Option<String>>,
    /// Vacated slots, the most recent one last.
    left: Vec<usize>,
    /// The same servers without gaps.
    compact: Vec<String>,
    /// Index of each server in both arrays.
    at: HashMap<String, (usize, usize)>,
}

impl Slots {
    /// Adds new servers and then removes those that are gone, as rpcx does (`client/selector.go`).
    fn update(&mut self, servers: &HashMap<String, usize>) {
        let mut names: Vec<_> = servers.keys().collect();
        names.sort_unstable();
        names.into_iter().for_each(|name| self.add(name));
        let mut removed: Vec<_> =
            self.at.keys().filter(|name| !servers.contains_key(*name)).cloned().collect();
        removed.sort_unstable();
        removed.iter().for_each(|name| self.remove(name));
    }

    fn add(&mut self, name: &str) {
        let Entry::Vacant(new) = self.at.entry(name.to_owned()) else { return };
        let slot = self.left.pop().unwrap_or_else(|| {
            self.loose.push(None);
            self.loose.len() - 1
        });
        self.loose[slot] = Some(name.to_owned());
        new.insert((slot, self.compact.len()));
        self.compact.push(name.to_owned());
    }

    fn remove(&mut self, name: &str) {
        let Some((slot, index)) = self.at.remove(name) else { return };
        self.loose[slot] = None;
        self.left.push(slot);
        // The last element fills the gap.
        self.compact.swap_remove(index);
        if let Some((_, moved)) = self.compact.get(index).and_then(|moved| self.at.get_mut(moved)) {
            *moved = index;
        }
    }
}

/// Slots of one set, as indices in that set.
struct DoubleJumpPicker {
    loose: Box<[Option<usize>]>,
    compact: Box<[usize]>,
}

impl DoubleJumpPicker {
    fn at(&self, key: u64) -> usize {
        let slot = self.loose[jump(key, self.loose.len())];
        slot.unwrap_or_else(|| self.compact[jump(rehash(key), self.compact.len())])
    }
}

impl Picker for DoubleJumpPicker {
    fn pick(&self, context: &PickContext<'_>) -> Option<usize> {
        if self.compact.is_empty() {
            return None;
        }
        pick_available(context, &self.compact, |key| self.at(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::balance::tests::{context, vectors};
    use crate::discovery::Instance;

    #[test]
    fn additions_and_removals_equal_those_of_go() {
        let balance = DoubleJump::default();
        let mut candidates = Vec::<Candidate>::new();
        for vector in vectors()["doublejump"].as_array().unwrap() {
            let (op, name) = vector["op"].as_str().unwrap().split_once(' ').unwrap();
            let instance: Instance = name.split(' ').next().unwrap().parse().unwrap();
            match op {
                "add" => candidates.push(Candidate::new(instance)),
                _ => candidates.retain(|candidate| *candidate.instance() != instance),
            }
            let pick = balance.picker(&candidates);
            for (key, server) in vector.as_object().unwrap().iter().filter(|(key, _)| *key != "op") {
                let context = PickContext { key: Some(key.parse().unwrap()), ..context(&candidates) };
                let chosen = candidates[pick.pick(&context).unwrap()].instance().to_string();
                assert_eq!(chosen, server.as_str().unwrap(), "{key} after {op} {name}");
            }
        }
    }
}
