use std::sync::Arc;

use bytes::Bytes;
use thin_vec::ThinVec;

use super::Metadata;
use super::key::Key;

/// Collects the entries of a received message.
///
/// The keys of all entries are slices of one allocation, and the values of another, so that the cost of an entry is
/// that of copying it. Each of the values keeps the others alive: a handler that stores one for long should copy it.
///
/// ```
/// use polyrpc_core::ReceivedMetadata;
///
/// let mut received = ReceivedMetadata::default();
/// received.append("tenant", b"a");
/// received.append("trace", b"1-2");
/// let metadata = received.into_metadata();
/// assert_eq!(metadata.get("trace"), Some("1-2"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReceivedMetadata {
    keys: String,
    values: Vec<u8>,
    /// Where key and value of each entry end.
    ends: Vec<(u32, u32)>,
}

impl ReceivedMetadata {
    /// Makes room for a number of entries of usual length.
    pub fn reserve(&mut self, entries: usize) {
        self.keys.reserve(entries * TYPICAL_KEY_LENGTH);
        self.values.reserve(entries * TYPICAL_VALUE_LENGTH);
        self.ends.reserve(entries);
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a value to `key`, after its existing ones.
    pub fn append(&mut self, key: &str, value: &[u8]) {
        let written = self.append_with(key, |values| {
            values.extend_from_slice(value);
            Some(())
        });
        debug_assert!(written.is_some());
    }

    /// Adds the value that `write` appends to its argument. If that fails, nothing is added.
    pub fn append_with<T>(&mut self, key: &str, write: impl FnOnce(&mut Vec<u8>) -> Option<T>) -> Option<T> {
        let before = self.values.len();
        let written = write(&mut self.values);
        let ends = (u32::try_from(self.keys.len() + key.len()), u32::try_from(self.values.len()));
        // No header list is nearly as long as 4 GiB.
        let (Some(written), (Ok(key_end), Ok(value_end))) = (written, ends) else {
            self.values.truncate(before);
            return None;
        };
        self.keys.push_str(key);
        self.ends.push((key_end, value_end));
        Some(written)
    }

    /// Returns the entries, in their order.
    pub fn into_metadata(mut self) -> Metadata {
        if self.ends.is_empty() {
            return Metadata::new();
        }
        self.release_spare();
        let (keys, values) = (Arc::new(self.keys), Bytes::from(self.values));
        let mut entries = ThinVec::with_capacity(self.ends.len());
        let (mut start, mut value_start) = (0, 0);
        for (end, value_end) in self.ends {
            let value = values.slice(value_start as usize..value_end as usize);
            entries.push((Key::Shared { keys: keys.clone(), start, end }, value));
            (start, value_start) = (end, value_end);
        }
        Metadata { entries }
    }

    /// Releases room that exceeds what is used: [`Metadata::footprint`] counts only the latter.
    fn release_spare(&mut self) {
        if self.keys.capacity() > 2 * self.keys.len() {
            self.keys.shrink_to_fit();
        }
        if self.values.capacity() > 2 * self.values.len() {
            self.values.shrink_to_fit();
        }
    }
}

/// Room for a key of usual length.
const TYPICAL_KEY_LENGTH: usize = 12;
/// Room for a value of usual length.
const TYPICAL_VALUE_LENGTH: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_entries_equal_those_appended_one_by_one() {
        let (mut received, mut appended) = (ReceivedMetadata::default(), Metadata::new());
        assert_eq!(received.clone().into_metadata(), appended);
        for n in 0..200 {
            let (key, value) = (format!("key-ü-{}", n % 50), vec![n as u8; n % 7]);
            received.append(&key, &value);
            appended.append(key, value);
        }
        let mut metadata = received.into_metadata();
        assert_eq!(metadata, appended);
        assert_eq!(metadata.all("key-ü-3").count(), 4);
        for metadata in [&mut metadata, &mut appended] {
            metadata.insert("key-ü-3", "one");
            metadata.remove("key-ü-4");
            metadata.merge_duplicates(|_, values| values.concat().into());
        }
        assert_eq!(metadata, appended);
        assert_eq!(metadata.repeated(), None);
    }

    #[test]
    fn value_that_cannot_be_written_leaves_no_trace() {
        let mut received = ReceivedMetadata::default();
        received.append("a", b"1");
        let failed = received.append_with("b", |values| {
            values.extend_from_slice(b"half");
            None::<()>
        });
        assert_eq!(failed, None);
        received.append("c", b"");
        let want: Metadata = [("a", "1"), ("c", "")].into_iter().collect();
        assert_eq!(received.into_metadata(), want);
    }

    #[test]
    fn entries_share_two_allocations() {
        let mut received = ReceivedMetadata::default();
        received.append("a", b"first");
        received.append("b", b"second");
        let metadata = received.into_metadata();
        let [first, second] = ["a", "b"].map(|key| metadata.bytes(key).unwrap());
        assert_eq!(first.as_ptr().wrapping_add(first.len()), second.as_ptr());
    }

    #[test]
    fn room_reserved_for_more_than_was_received_is_released() {
        for length in [0, 1, 10, 1000] {
            let mut received = ReceivedMetadata::default();
            received.reserve(500);
            received.append("key", &vec![1; length]);
            let mut metadata = received.into_metadata();
            let (Key::Shared { keys, .. }, _) = &metadata.entries[0] else { panic!("a key of its own") };
            assert!(keys.capacity() <= 2 * keys.len(), "{} bytes for the key", keys.capacity());
            // The only owner of the block takes it over as it is.
            let room = bytes::BytesMut::from(metadata.remove("key").unwrap()).capacity();
            assert!(room <= 2 * length, "{room} bytes for a value of {length}");
        }
    }
}
