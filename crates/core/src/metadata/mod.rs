mod key;
mod received;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use thin_vec::ThinVec;

use self::key::Key;
pub use self::received::ReceivedMetadata;

/// Key/value pairs sent along with a message.
///
/// [`insert`](Self::insert) keeps a key unique, as most protocols require; [`append`](Self::append) adds another value
/// to it (HTTP headers, gRPC).
///
/// Most calls have no metadata, so that an empty one costs no allocation; lookups are linear, which for a handful of
/// entries is faster than a map.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// A thin vector, since most calls have no entries: it is one word to move and one comparison to drop, whereas a
    /// `Vec` is three words and a destructor call, seven times per call.
    entries: ThinVec<(Key, Bytes)>,
}

/// Approximate overhead of an entry beyond its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 128;

impl Metadata {
    /// Creates empty metadata.
    pub const fn new() -> Self {
        Self { entries: ThinVec::new() }
    }

    /// Sets `key`, replacing its previous values.
    pub fn insert(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        let (key, value) = (key.into(), value.into());
        let Some(at) = self.entries.iter().position(|(known, _)| known.as_str() == key) else {
            return self.entries.push((key.into(), value));
        };
        self.entries[at].1 = value;
        let mut seen = 0;
        self.entries.retain(|(known, _)| {
            seen += 1;
            seen <= at + 1 || known.as_str() != key
        });
    }

    /// Adds a value to `key`, after its existing ones.
    pub fn append(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        self.entries.push((key.into().into(), value.into()));
    }

    /// Iterates over all values of `key`, in order.
    pub fn all<'m>(&'m self, key: &'m str) -> impl Iterator<Item = &'m Bytes> {
        self.entries.iter().filter(move |(known, _)| known.as_str() == key).map(|(_, value)| value)
    }

    /// Makes each key unique: the result of `unite` for all values of a key replaces the first of them. Many entries
    /// are sorted first, to avoid quadratic time.
    pub fn merge_duplicates(&mut self, mut unite: impl FnMut(&str, &[Bytes]) -> Bytes) {
        const FEW: usize = 16;
        let entries = &self.entries;
        let repeats = |at: usize| entries.iter().take(at).any(|(known, _)| *known == entries[at].0);
        if entries.len() <= FEW && !(1..entries.len()).any(repeats) {
            return;
        }
        let mut order: Vec<usize> = (0..entries.len()).collect();
        // The sort is stable: the values of one key keep their order.
        order.sort_by(|one, other| entries[*one].0.cmp(&entries[*other].0));
        let mut stays = vec![false; entries.len()];
        let mut united = Vec::new();
        for same in order.chunk_by(|one, other| entries[*one].0 == entries[*other].0) {
            stays[same[0]] = true;
            if same.len() > 1 {
                let values: Vec<Bytes> = same.iter().map(|at| entries[*at].1.clone()).collect();
                united.push((same[0], unite(entries[same[0]].0.as_str(), &values)));
            }
        }
        united.into_iter().for_each(|(at, value)| self.entries[at].1 = value);
        let mut stays = stays.into_iter();
        self.entries.retain(|_| stays.next().unwrap_or(true));
    }

    /// Returns a key with several values, if there is one.
    pub fn repeated(&self) -> Option<&str> {
        const FEW: usize = 16;
        let repeats = |at: &usize| {
            let (key, _) = &self.entries[*at];
            self.entries.iter().take(*at).any(|(known, _)| known == key)
        };
        if self.entries.len() <= FEW {
            return (1..self.entries.len()).find(repeats).map(|at| self.entries[at].0.as_str());
        }
        let mut keys: Vec<&str> = self.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// Keeps only the entries for which `keep` returns `true`.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &Bytes) -> bool) {
        self.entries.retain(|(key, value)| keep(key.as_str(), value));
    }

    /// Makes each key unique like [`insert`](Self::insert): the last value wins.
    #[inline]
    pub fn dedup_keep_last(&mut self) {
        if self.entries.len() > 1 {
            self.merge_duplicates(|_, values| values.last().cloned().unwrap_or_default());
        }
    }

    /// Removes `key` with all its values; returns the first one.
    pub fn remove(&mut self, key: &str) -> Option<Bytes> {
        let at = self.entries.iter().position(|(known, _)| known.as_str() == key)?;
        let first = self.entries.remove(at).1;
        self.entries.retain(|(known, _)| known.as_str() != key);
        Some(first)
    }

    /// Returns the first value of `key` as text; `None` if absent or not UTF-8.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.bytes(key).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Returns the first value of `key`.
    pub fn bytes(&self, key: &str) -> Option<&Bytes> {
        self.entries.iter().find(|(known, _)| known.as_str() == key).map(|(_, value)| value)
    }

    /// Iterates over all entries, in the order in which they were first set.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Bytes)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the approximate memory footprint in bytes.
    pub fn footprint(&self) -> usize {
        self.entries.iter().map(|(key, value)| key.as_str().len() + value.len() + ENTRY_OVERHEAD_BYTES).sum()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Cow<'static, str>>, V: Into<Bytes>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut metadata = Self::new();
        pairs.into_iter().for_each(|(key, value)| metadata.append(key, value));
        metadata.dedup_keep_last();
        metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collecting_pairs_equals_inserting_them_one_by_one() {
        for (count, keys) in [(0, 1), (5, 3), (16, 16), (16, 4), (17, 17), (300, 300), (300, 7), (300, 1)] {
            let pairs = (0..count).map(|n| (format!("key-{}", n * 31 % keys), format!("value-{n}")));
            let mut inserted = Metadata::new();
            pairs.clone().for_each(|(key, value)| inserted.insert(key, value));
            assert_eq!(pairs.collect::<Metadata>(), inserted, "{count} pairs of {keys} keys");
        }
    }
}
