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
#[derive(Debug)]
pub(super) struct DynamicTable {
    entries: VecDeque<HeaderField>,
    size: usize,
    limit: usize,
}

#[derive(Debug)]
pub(super) struct HeaderField {
    bytes: Box<[u8]>,
    name: usize,
    pub(super) hash: u64,
}

impl HeaderField {
    pub(super) fn name(&self) -> &[u8] {
        &self.bytes[..self.name]
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[self.name..]
    }

    fn size(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }
}

impl DynamicTable {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, limit }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the entry that was added `age` entries ago.
    pub(super) fn get(&self, age: usize) -> Option<&HeaderField> {
        self.entries.get(age)
    }

    /// Iterates over all entries, newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &HeaderField> {
        self.entries.iter()
    }

    /// Adds a field. A field larger than the whole table only empties the table (§4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], hash: u64) {
        let size = name.len() + value.len() + OVERHEAD;
        self.shrink_to(self.limit.saturating_sub(size));
        if size <= self.limit {
            self.entries.push_front(HeaderField {
                bytes: [name, value].concat().into(),
                name: name.len(),
                hash,
            });
            self.size += size;
        }
    }

    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.shrink_to(limit);
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.size -= oldest.size();
        }
    }
}

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
        let names: Vec<_> = table.iter().map(HeaderField::name).collect();
        assert_eq!(names, [b"c", b"b"]);
        table.resize(40);
        assert_eq!(table.get(0).map(HeaderField::value), Some(&b"3"[..]));
        assert!(table.get(1).is_none());
        table.insert(b"large", &[0; 100], 0);
        assert!(table.get(0).is_none());
    }
}
