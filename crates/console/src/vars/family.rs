use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::registry::{self, Variable};
use super::value::Reading;

/// Variables of one name, distinguished by the values of labels: bvar's `MultiDimension`. Clones are the same family.
///
/// There may be 1,000 combinations of values; records for further ones are counted together, with the value `other` for
/// every label.
pub struct Family<V, const N: usize>(Arc<Members<V, N>>);

struct Members<V, const N: usize> {
    labels: [&'static str; N],
    all: RwLock<BTreeMap<[String; N], V>>,
}

/// Maximum number of combinations of values.
const MAX_COMBINATIONS: usize = 1_000;

impl<V: Instrument, const N: usize> Family<V, N> {
    /// Creates a family that is listed under this name, with these labels.
    pub fn new(name: &str, labels: [&'static str; N]) -> Self {
        let family = Self(Arc::new(Members { labels, all: RwLock::default() }));
        registry::list(name, &family.0);
        family
    }

    /// Returns the variable of these values; adds it if needed. Keep it where it is used often: finding it takes a
    /// shared lock.
    pub fn with(&self, values: [&str; N]) -> V {
        let key = values.map(str::to_owned);
        if let Some(known) = self.0.all.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let mut all = self.0.all.write().unwrap_or_else(PoisonError::into_inner);
        let key = if all.len() < MAX_COMBINATIONS { key } else { [(); N].map(|()| "other".to_owned()) };
        all.entry(key).or_default().clone()
    }

    /// Removes the variable of these values. Returns whether there was one.
    pub fn remove(&self, values: [&str; N]) -> bool {
        let key = values.map(str::to_owned);
        self.0.all.write().unwrap_or_else(PoisonError::into_inner).remove(&key).is_some()
    }
}

impl<V: Instrument, const N: usize> Variable for Members<V, N> {
    fn read(&self, name: &str, readings: &mut Vec<Reading>) {
        for (values, variable) in self.all.read().unwrap_or_else(PoisonError::into_inner).iter() {
            let first = readings.len();
            variable.read(name, readings);
            for reading in readings.iter_mut().skip(first) {
                reading.labels = self.labels.into_iter().zip(values.iter().cloned()).collect();
            }
        }
    }

    fn sample(&self) {
        self.all.read().unwrap_or_else(PoisonError::into_inner).values().for_each(Sealed::sample);
    }
}

impl<V, const N: usize> Clone for Family<V, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V, const N: usize> fmt::Debug for Family<V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("labels", &self.0.labels).finish_non_exhaustive()
    }
}

/// A variable of which there may be families: [`Counter`](super::Counter), [`Gauge`](super::Gauge),
/// [`Max`](super::Max), [`Latency`](super::Latency).
pub trait Instrument: Sealed + Clone + Default + Send + Sync + 'static {}

impl<V: Sealed + Clone + Default + Send + Sync + 'static> Instrument for V {}

/// Operations of families on their variables.
pub trait Sealed {
    #[doc(hidden)]
    fn read(&self, name: &str, readings: &mut Vec<Reading>);

    #[doc(hidden)]
    fn sample(&self) {}
}

#[cfg(test)]
mod tests {
    use super::super::Counter;
    use super::*;

    #[test]
    fn invented_labels_do_not_grow_without_end() {
        let family = Family::<Counter, 2>::new("family_of_the_test", ["zone", "kind"]);
        for n in 0..MAX_COMBINATIONS + 50 {
            family.with([&n.to_string(), "a\"b"]).add(1);
        }
        let mut readings = Vec::new();
        family.0.read("f", &mut readings);
        assert_eq!(readings.len(), MAX_COMBINATIONS + 1);
        assert!(readings.iter().any(|reading| reading.full_name() == "f{zone=\"7\",kind=\"a\\\"b\"}"));
        assert_eq!(family.with(["other", "other"]).value(), 50);
        assert!(family.remove(["7", "a\"b"]) && !family.remove(["7", "a\"b"]));
    }
}
