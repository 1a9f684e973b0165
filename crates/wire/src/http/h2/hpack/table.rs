//! Index tables: the static table, and after it the dynamic table, newest entry first (RFC 7541, §2.3).

use std::collections::VecDeque;

/// Overhead of an entry beyond its bytes (§4.1).
pub(super) const OVERHEAD: usize = 32;

/// Number of entries of the static table.
pub(super) const STATIC: usize = 61;

/// Returns the static table's entry for an index.
pub(super) fn static_field(index: usize) -> Option<(&'static str, &'static str)> {
    FIELDS.get(index.checked_sub(1)?).copied()
}

/// Returns the first index of a name in the static table.
pub(super) fn static_name(name: &[u8]) -> Option<usize> {
    Some(match name {
        b":authority" => 1,
        b":method" => 2,
        b":path" => 4,
        b":scheme" => 6,
        b":status" => 8,
        b"accept-charset" => 15,
        b"accept-encoding" => 16,
        b"accept-language" => 17,
        b"accept-ranges" => 18,
        b"accept" => 19,
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"authorization" => 23,
        b"cache-control" => 24,
        b"content-disposition" => 25,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-length" => 28,
        b"content-location" => 29,
        b"content-range" => 30,
        b"content-type" => 31,
        b"cookie" => 32,
        b"date" => 33,
        b"etag" => 34,
        b"expect" => 35,
        b"expires" => 36,
        b"from" => 37,
        b"host" => 38,
        b"if-match" => 39,
        b"if-modified-since" => 40,
        b"if-none-match" => 41,
        b"if-range" => 42,
        b"if-unmodified-since" => 43,
        b"last-modified" => 44,
        b"link" => 45,
        b"location" => 46,
        b"max-forwards" => 47,
        b"proxy-authenticate" => 48,
        b"proxy-authorization" => 49,
        b"range" => 50,
        b"referer" => 51,
        b"refresh" => 52,
        b"retry-after" => 53,
        b"server" => 54,
        b"set-cookie" => 55,
        b"strict-transport-security" => 56,
        b"transfer-encoding" => 57,
        b"user-agent" => 58,
        b"vary" => 59,
        b"via" => 60,
        b"www-authenticate" => 61,
        _ => return None,
    })
}

/// Returns the index of a whole field in the static table. The entries of one name are adjacent.
pub(super) fn static_whole(first: usize, name: &[u8], value: &[u8]) -> Option<usize> {
    let entries = FIELDS[first - 1..].iter().take_while(|(known, _)| known.as_bytes() == name);
    entries.zip(first..).find(|((_, known), _)| known.as_bytes() == value).map(|(_, index)| index)
}

/// HPACK dynamic table.
///
/// The names and values of all entries lie in one buffer, in the order in which they were added, so that an entry costs
/// no allocation: peers whose headers change add several with every call.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Newest first.
    entries: VecDeque<Entry>,
    /// Names and values. Those of entries that were evicted are at the start, until the buffer is full.
    bytes: Vec<u8>,
    /// Bytes removed from the start of the buffer since the table was created; wraps around.
    removed: usize,
    size: usize,
    limit: usize,
}

/// Where a name is stored, with the value after it.
#[derive(Debug)]
struct Entry {
    /// Bytes added to the table before it; wraps around.
    start: usize,
    name: u32,
    value: u32,
    hash: u64,
}

impl Entry {
    fn len(&self) -> usize {
        self.name as usize + self.value as usize
    }
}

impl DynamicTable {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: Vec::new(), removed: 0, size: 0, limit }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns name and value of the entry that was added `age` entries ago.
    pub(super) fn get(&self, age: usize) -> Option<(&[u8], &[u8])> {
        self.field(self.entries.get(age)?)
    }

    /// Returns how many entries were added after this one, if there is such an entry.
    pub(super) fn find(&self, name: &[u8], value: &[u8], hash: u64) -> Option<usize> {
        let same = |entry: &Entry| entry.hash == hash && self.field(entry) == Some((name, value));
        self.entries.iter().position(same)
    }

    fn field(&self, entry: &Entry) -> Option<(&[u8], &[u8])> {
        let field = self.bytes.get(entry.start.wrapping_sub(self.removed)..)?.get(..entry.len())?;
        field.split_at_checked(entry.name as usize)
    }

    /// Adds a field. A field larger than the whole table only empties the table (§4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], hash: u64) {
        let length = name.len() + value.len();
        let size = length + OVERHEAD;
        self.shrink_to(self.limit.saturating_sub(size));
        if size > self.limit {
            return;
        }
        if length > self.bytes.capacity() - self.bytes.len() {
            self.make_room(length);
        }
        self.entries.push_front(Entry {
            start: self.removed.wrapping_add(self.bytes.len()),
            name: name.len() as u32,
            value: value.len() as u32,
            hash,
        });
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += size;
    }

    /// Returns the length of the longest field that the table can hold.
    pub(super) fn longest(&self) -> usize {
        self.limit.saturating_sub(OVERHEAD)
    }

    /// Evicts all entries, as a field does that is too long (§4.4).
    pub(super) fn empty(&mut self) {
        self.shrink_to(0);
    }

    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.shrink_to(limit);
        if self.footprint() > Self::max_footprint(limit) {
            self.remove_evicted();
            self.bytes.shrink_to(2 * limit);
            self.entries.shrink_to(limit / OVERHEAD);
        }
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.size -= oldest.len() + OVERHEAD;
        }
    }

    /// Makes room for `length` bytes, and at least for as many as there are: each byte is moved about once while it is
    /// in the table. Entries are at most as long as the limit, and so is their sum with `length`.
    #[cold]
    fn make_room(&mut self, length: usize) {
        self.remove_evicted();
        let needed = 2 * (self.bytes.len() + length);
        if needed > self.bytes.capacity() {
            let room = needed.next_power_of_two().max(MIN_CAPACITY).min(2 * self.limit);
            self.bytes.reserve_exact(room - self.bytes.len());
        }
    }

    /// Moves the bytes of the entries to the start of the buffer.
    fn remove_evicted(&mut self) {
        let evicted = match self.entries.back() {
            Some(oldest) => oldest.start.wrapping_sub(self.removed).min(self.bytes.len()),
            None => self.bytes.len(),
        };
        self.bytes.drain(..evicted);
        self.removed = self.removed.wrapping_add(evicted);
    }

    /// Returns the memory that the table takes.
    pub(super) fn footprint(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Returns the most memory that a table takes whose limit is not above `limit`.
    pub(super) const fn max_footprint(limit: usize) -> usize {
        let entries = limit / OVERHEAD;
        2 * limit + MIN_CAPACITY + (2 * entries + 4) * size_of::<Entry>()
    }
}

/// Least room of the buffer: a few fields.
const MIN_CAPACITY: usize = 256;

/// RFC 7541, Appendix A.
const FIELDS: [(&str, &str); STATIC] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_static_field_is_found_by_name_and_value() {
        for index in 1..=STATIC {
            let (name, value) = static_field(index).unwrap();
            let first = static_name(name.as_bytes()).unwrap();
            assert!(first <= index);
            assert_eq!(static_whole(first, name.as_bytes(), value.as_bytes()), Some(index));
        }
        assert_eq!(static_field(0), None);
        assert_eq!(static_field(62), None);
        assert_eq!(static_name(b"x"), None);
        assert_eq!(static_whole(8, b":status", b"201"), None);
    }

    #[test]
    fn oldest_entries_are_evicted() {
        let mut table = DynamicTable::new(100);
        table.insert(b"a", b"1", 0);
        table.insert(b"b", b"2", 0);
        table.insert(b"c", b"3", 0);
        assert_eq!(
            [0, 1, 2].map(|age| table.get(age)),
            [Some((&b"c"[..], &b"3"[..])), Some((b"b", b"2")), None]
        );
        table.resize(40);
        assert_eq!([0, 1].map(|age| table.get(age)), [Some((&b"c"[..], &b"3"[..])), None]);
        table.insert(b"large", &[0; 100], 0);
        assert_eq!(table.get(0), None);
    }

    /// A table as RFC 7541 describes it.
    #[derive(Default)]
    struct Model {
        entries: VecDeque<(Vec<u8>, Vec<u8>)>,
        limit: usize,
    }

    impl Model {
        fn insert(&mut self, name: &[u8], value: &[u8]) {
            self.entries.push_front((name.to_vec(), value.to_vec()));
            self.evict();
        }

        fn evict(&mut self) {
            let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + OVERHEAD;
            while self.entries.iter().map(size).sum::<usize>() > self.limit {
                self.entries.pop_back();
            }
        }
    }

    #[test]
    fn table_equals_its_model_whatever_is_added_and_whenever_it_is_resized() {
        for limit in [0, 31, 32, 33, 100, 256, 300, 1000, 4096] {
            let (mut table, mut model) = (DynamicTable::new(limit), Model { limit, ..Model::default() });
            // Offsets wrap around.
            table.removed = usize::MAX - 500;
            for round in 0..3000_usize {
                if round % 701 == 700 {
                    let limit = [limit / 2, limit, 0, limit][round / 701 % 4];
                    (table.limit, model.limit) = (limit, limit);
                    table.resize(limit);
                    model.evict();
                }
                let name = vec![b'a' + (round % 26) as u8; round * 7 % 23];
                let value =
                    vec![b'A' + (round % 26) as u8; round * 31 % if round % 50 == 0 { 5000 } else { 90 }];
                table.insert(&name, &value, round as u64);
                model.insert(&name, &value);
                let ages = 0..=model.entries.len();
                let want = ages
                    .clone()
                    .map(|age| model.entries.get(age).map(|(name, value)| (&name[..], &value[..])));
                assert!(ages.map(|age| table.get(age)).eq(want), "round {round} of {limit}");
                let found = table.find(&name, &value, round as u64);
                assert_eq!(found, (!model.entries.is_empty()).then_some(0));
                let max = DynamicTable::max_footprint(limit);
                assert!(table.footprint() <= max, "{} bytes", table.footprint());
            }
        }
    }

    #[test]
    fn emptied_table_releases_its_memory() {
        let mut table = DynamicTable::new(4096);
        (0..1000).for_each(|_| table.insert(b"name", b"value", 0));
        table.resize(0);
        assert_eq!(table.footprint(), 0);
    }
}
