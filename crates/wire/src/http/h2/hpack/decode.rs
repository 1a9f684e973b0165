use std::sync::Arc;

use super::fields::Fields;
use super::table::{DynamicTable, OVERHEAD, STATIC, static_field};
use super::{huffman, integer};
use crate::http::h2::settings::DEFAULT_TABLE;

/// HPACK decoder for one direction of a connection.
///
/// A block that equals one of the most recent blocks, bit for bit, and neither changes the dynamic table nor was
/// decoded before a change of it, gives the same list without being decoded again: peers that call the same method with
/// the same headers send exactly such blocks.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// Dynamic table size that was granted to the peer and acknowledged by it.
    allowed: usize,
    /// The peer must start its next block with a dynamic table size update (RFC 7541, §4.2).
    expects_size_update: bool,
    max_list: usize,
    recent: BlockCache,
}

/// Why a block could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The block is malformed, and with it the shared compression state: the connection must be closed.
    Broken,
    /// The list is larger than allowed. The shared state is intact: only this message is rejected.
    TooLarge {
        /// Size of the whole list, counted like `SETTINGS_MAX_HEADER_LIST_SIZE`.
        size: usize,
        /// The fields that fitted into the limit, in order.
        fields: Arc<Fields>,
    },
    /// The list is larger than allowed, and its fields beyond the limit add so much to the dynamic table that decoding
    /// them costs far more than sending them: the connection must be closed.
    TooCostly,
}

impl Decoder {
    /// Creates a decoder whose dynamic table holds at most `table` bytes and that returns no list larger than
    /// `max_list`, counted like `SETTINGS_MAX_HEADER_LIST_SIZE`.
    pub fn new(table: usize, max_list: usize) -> Self {
        Self {
            table: DynamicTable::new(table),
            allowed: table,
            expects_size_update: false,
            max_list,
            recent: BlockCache::default(),
        }
    }

    /// Decodes a complete header block.
    ///
    /// # Errors
    ///
    /// See [`DecodeError`].
    pub fn decode(&mut self, block: &[u8]) -> Result<Arc<Fields>, DecodeError> {
        if let Some(fields) = self.recent.find(block) {
            return Ok(fields.clone());
        }
        let mut reading = Reading::new(Fields::with_room(block.len()));
        self.read(block, &mut reading)?;
        let Reading { mut fields, changes, dropped, .. } = reading;
        if changes {
            self.recent.clear();
        }
        if dropped > 0 {
            fields.shrink();
            return Err(DecodeError::TooLarge { size: fields.size() + dropped, fields: Arc::new(fields) });
        }
        let is_kept = !changes && block.len() <= LONGEST && fields.may_be_kept();
        if is_kept {
            fields.shrink();
        }
        let fields = Arc::new(fields);
        if is_kept {
            self.recent.add(block, &fields);
        }
        Ok(fields)
    }

    fn read(&mut self, mut block: &[u8], reading: &mut Reading) -> Result<(), DecodeError> {
        let mut updates = 0;
        while let Some(&first) = block.first() {
            if first & 0xe0 == 0x20 {
                // Only at the start of a block, and at most two: the smallest size in between and the last one (§4.2).
                updates += 1;
                if !reading.fields.is_empty() || reading.dropped > 0 || updates > 2 {
                    return Err(DecodeError::Broken);
                }
                self.update_size(&mut block)?;
                reading.changes = true;
                continue;
            }
            if self.expects_size_update {
                return Err(DecodeError::Broken);
            }
            self.field(first, &mut block, reading).ok_or(DecodeError::Broken)?;
            if reading.inserted > self.max_list.max(DEFAULT_TABLE).saturating_mul(MAX_INSERTED) {
                return Err(DecodeError::TooCostly);
            }
        }
        Ok(())
    }

    fn update_size(&mut self, block: &mut &[u8]) -> Result<(), DecodeError> {
        let size = integer::decode(block, 5).filter(|size| *size <= self.allowed);
        self.table.resize(size.ok_or(DecodeError::Broken)?);
        self.expects_size_update = false;
        Ok(())
    }

    /// Decodes one field (§6.1, §6.2); `None` if it is malformed.
    fn field(&mut self, first: u8, block: &mut &[u8], reading: &mut Reading) -> Option<()> {
        if first & 0x80 != 0 {
            let index = integer::decode(block, 7)?;
            let (name, value) = lookup(&self.table, index)?;
            reading.add(name, value, self.max_list);
            return Some(());
        }
        let inserts = first & 0x40 != 0;
        let index = integer::decode(block, if inserts { 6 } else { 4 })?;
        // What fits neither into the list nor into the table is not copied.
        let room = reading.room(self.max_list);
        let longest = room.unwrap_or(0).max(if inserts { self.table.longest() } else { 0 });
        let start = reading.fields.buffer().len();
        let name = match index {
            0 => string(block, &mut reading.fields, longest)?,
            index => copy(lookup(&self.table, index)?.0, &mut reading.fields, longest),
        };
        let middle = reading.fields.buffer().len();
        let length = name + string(block, &mut reading.fields, longest.saturating_sub(name))?;
        let fits = room.is_some_and(|room| length <= room);
        if inserts {
            reading.changes = true;
            if length <= self.table.longest() {
                let buffer = reading.fields.buffer();
                self.table.insert(&buffer[start..middle], &buffer[middle..], 0);
                reading.inserted += if fits { 0 } else { length };
            } else {
                self.table.empty();
            }
        }
        match fits {
            true => reading.fields.add(middle),
            false => reading.drop_last(start, length),
        }
        Some(())
    }

    /// Sets the dynamic table size that the peer has acknowledged. If it is smaller than the current table, the peer
    /// must start its next block with a size update.
    pub fn allow(&mut self, size: usize) {
        self.expects_size_update = size < self.table.limit();
        self.allowed = size;
    }

    /// Bytes held by the cache of decoded blocks and by the table.
    pub(in crate::http::h2) fn held(&self) -> usize {
        self.table.footprint() + self.recent.held
    }

    /// The same bytes of the block cache, recounted.
    pub(in crate::http::h2) fn recount(&self) -> usize {
        self.table.footprint() + self.recent.recount()
    }

    /// Maximum memory of the block cache and of the table.
    pub(in crate::http::h2) const MAX_FOOTPRINT: usize =
        MAX_HELD + DynamicTable::max_footprint(DEFAULT_TABLE);
}

/// State of the block being decoded.
struct Reading {
    fields: Fields,
    /// The block changed the dynamic table.
    changes: bool,
    /// Size of the fields that exceeded the list's limit.
    dropped: usize,
    /// Bytes of these that were added to the dynamic table.
    inserted: usize,
}

impl Reading {
    fn new(fields: Fields) -> Self {
        Self { fields, changes: false, dropped: 0, inserted: 0 }
    }

    /// Returns the length of the longest field that fits into the list; `None` if not even an empty one does.
    fn room(&self, max: usize) -> Option<usize> {
        max.checked_sub(self.fields.size() + OVERHEAD)
    }

    /// Adds a field, unless the list would become too large. A later field that fits is still added, so that the
    /// request can be answered in the right protocol.
    fn add(&mut self, name: &[u8], value: &[u8], max: usize) {
        let length = name.len() + value.len();
        match self.room(max) {
            Some(room) if length <= room => {
                self.fields.reserve(length, room);
                self.fields.push(name, value);
            }
            _ => self.dropped = self.dropped.saturating_add(length + OVERHEAD),
        }
    }

    /// Drops the field of this length that was written, as far as it was, from `start` of the list's buffer on.
    #[cold]
    fn drop_last(&mut self, start: usize, length: usize) {
        self.fields.buffer().truncate(start);
        self.dropped = self.dropped.saturating_add(length + OVERHEAD);
    }
}

/// Limit of bytes that the dropped fields of one block may add to the dynamic table, in limits of the list: a field of two
/// bytes can add as much as the table holds.
const MAX_INSERTED: usize = 4;

fn lookup(table: &DynamicTable, index: usize) -> Option<(&[u8], &[u8])> {
    if index <= STATIC {
        return static_field(index).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    }
    table.get(index - STATIC - 1)
}

/// Appends a text of at most `longest` bytes. Returns its length.
fn copy(text: &[u8], fields: &mut Fields, longest: usize) -> usize {
    if text.len() <= longest {
        fields.reserve(text.len(), longest);
        fields.buffer().extend_from_slice(text);
    }
    text.len()
}

/// Decodes a string, Huffman-coded or not (§5.2), and appends it unless it is longer than `longest`. Returns its length;
/// `None` if it is malformed.
fn string(block: &mut &[u8], fields: &mut Fields, longest: usize) -> Option<usize> {
    let coded = block.first()? & 0x80 != 0;
    let length = integer::decode(block, 7)?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    if !coded {
        return Some(copy(text, fields, longest));
    }
    let max_len = huffman::max_decoded_len(text);
    let length = if max_len <= longest { max_len } else { huffman::decoded_len(text).ok()? };
    if length > longest {
        return Some(length);
    }
    fields.reserve(length + huffman::SYMBOLS_PER_LOAD, longest.saturating_add(huffman::SYMBOLS_PER_LOAD));
    huffman::decode(text, length, fields.buffer()).ok()
}

/// The most recent blocks that left the dynamic table unchanged, with their decoded lists.
#[derive(Debug, Default)]
struct BlockCache {
    blocks: [Option<(Box<[u8]>, Arc<Fields>)>; RECENT],
    next: usize,
    /// Bytes that the cache holds.
    held: usize,
}

/// Peers alternate between few blocks: headers and trailers of one or two methods.
const RECENT: usize = 4;

/// A longer block is rarely repeated, and every connection would keep it.
const LONGEST: usize = 1024;

/// Most bytes that a connection keeps of blocks and their lists.
const MAX_HELD: usize = 16 << 10;

impl BlockCache {
    fn find(&self, block: &[u8]) -> Option<&Arc<Fields>> {
        let known = self.blocks.iter().flatten().find(|(known, _)| **known == *block);
        known.map(|(_, fields)| fields)
    }

    fn add(&mut self, block: &[u8], fields: &Arc<Fields>) {
        let size = block.len() + fields.footprint();
        if self.held + size > MAX_HELD {
            self.clear();
        }
        let replaced = self.blocks[self.next].replace((block.into(), fields.clone()));
        self.held += size;
        self.held -= replaced.map_or(0, |(block, fields)| block.len() + fields.footprint());
        self.next = (self.next + 1) % RECENT;
    }

    fn clear(&mut self) {
        if self.held > 0 {
            *self = Self::default();
        }
    }

    fn recount(&self) -> usize {
        self.blocks.iter().flatten().map(|(block, fields)| block.len() + fields.footprint()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A literal field: indexed if `inserts`, its name by index or as a string, strings Huffman-coded if `coded`.
    fn literal(inserts: bool, name: Result<usize, &[u8]>, value: &[u8], coded: bool) -> Vec<u8> {
        let mut block = Vec::new();
        let (bits, flags) = if inserts { (6, 0x40) } else { (4, 0) };
        integer::encode(name.unwrap_or(0), bits, flags, &mut block);
        for text in name.err().into_iter().chain([value]) {
            let mut code = Vec::new();
            huffman::encode(text, &mut code);
            let (text, flag) = if coded { (&code[..], 0x80) } else { (text, 0) };
            integer::encode(text.len(), 7, flag, &mut block);
            block.extend_from_slice(text);
        }
        block
    }

    /// Index of the newest entry of the dynamic table.
    const NEWEST: usize = STATIC + 1;

    #[test]
    fn list_that_is_too_long_takes_no_more_memory_than_the_longest_one() {
        const LIMIT: usize = 10_000;
        let large = vec![b'a'; 300_000];
        // Codes of 30 bits: the code of a text that fits is four times as long.
        let rare = vec![b'\n'; 9_000];
        let entry = literal(true, Err(b"name"), &[b'v'; 4000], false);
        let indexed = [&entry[..], &[0x80 | NEWEST as u8; 20_000]].concat();
        for (case, block) in [
            ("a value", literal(false, Err(b"name"), &large, false)),
            ("a coded value", literal(false, Err(b"name"), &large, true)),
            ("a name", literal(false, Err(&large), b"value", true)),
            ("a value for the table", literal(true, Err(b"name"), &large, false)),
            ("rare symbols", literal(false, Err(b"name"), &rare, true)),
            ("rare symbols twice", literal(false, Err(b"name"), &rare, true).repeat(2)),
            ("small entries", literal(true, Err(b"name"), &[b'v'; 100], true).repeat(150)),
            ("large entries", literal(true, Err(b"name"), &[b'v'; 4000], false).repeat(10)),
            ("empty fields", literal(false, Err(b""), b"", false).repeat(100_000)),
            ("an entry by its index", indexed),
        ] {
            let mut decoder = Decoder::new(DEFAULT_TABLE, LIMIT);
            let mut reading = Reading::new(Fields::default());
            decoder.read(&block, &mut reading).unwrap();
            // A field above the limit may be an entry of the table; the ends of a field take less than its overhead.
            let max = LIMIT + DEFAULT_TABLE + LIMIT / 2;
            assert!(reading.fields.footprint() <= max, "{case}: {} bytes", reading.fields.footprint());
            assert!(reading.fields.size() <= LIMIT, "{case}");
        }
    }

    #[test]
    fn dropped_fields_change_the_table_as_others_do() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let (mut exceeded, mut fitted) = (0, 0);
        for _ in 0..50 {
            let limit = 100 + random(400) as usize;
            let (mut limited, mut whole) =
                (Decoder::new(DEFAULT_TABLE, limit), Decoder::new(DEFAULT_TABLE, usize::MAX));
            let mut entries = 0;
            for _ in 0..100 {
                let mut block = Vec::new();
                for _ in 0..1 + random(4) {
                    // Empty, short, near the limit, as large as the table, just larger, far larger.
                    let length = match random(20) {
                        0..9 => random(50),
                        9..14 => 0,
                        14..17 => random(600),
                        17 => 4060,
                        18 => 4061,
                        _ => 20_000,
                    };
                    let symbol = [b'a', b'7', b'\n', 0xff][random(4) as usize];
                    let value = vec![symbol; length as usize];
                    let inserts = random(2) == 0;
                    if entries > 0 && random(4) == 0 {
                        block.push(0x80 | NEWEST as u8);
                    } else {
                        let name = if entries > 0 && random(3) == 0 { Ok(NEWEST) } else { Err(&b"name"[..]) };
                        block.extend(literal(inserts, name, &value, random(2) == 0));
                        if inserts {
                            entries = if value.len() + 4 <= 4064 { 1 } else { 0 };
                        }
                    }
                }
                let all = whole.decode(&block).expect("a list of any size");
                let (mut want, mut size) = (Fields::default(), 0);
                for (name, value) in all.iter() {
                    let field = name.len() + value.len() + OVERHEAD;
                    size += field;
                    if want.size() + field <= limit {
                        want.push(name, value);
                    }
                }
                if size <= limit {
                    fitted += 1;
                    assert_eq!(*limited.decode(&block).unwrap(), want);
                } else {
                    exceeded += 1;
                    let fields = Arc::new(want);
                    assert_eq!(limited.decode(&block), Err(DecodeError::TooLarge { size, fields }));
                }
            }
        }
        assert!(exceeded > 1000 && fitted > 1000, "{exceeded} {fitted}");
    }

    #[test]
    fn few_bytes_cannot_add_many_to_the_table_beyond_the_limit() {
        let name = vec![b'n'; 4000];
        let mut block = literal(true, Err(&name), b"", false);
        for _ in 0..100 {
            block.extend(literal(true, Ok(NEWEST), b"", false));
        }
        let decoded = Decoder::new(DEFAULT_TABLE, 10_000).decode(&block);
        assert_eq!(decoded, Err(DecodeError::TooCostly));
        // Within the limit they are taken, and without an entry of the table they cost nothing.
        assert_eq!(Decoder::new(DEFAULT_TABLE, 1 << 20).decode(&block).map(|fields| fields.len()), Ok(101));
        let mut block = literal(true, Err(&name), b"", false);
        for _ in 0..100 {
            block.extend(literal(false, Ok(NEWEST), b"", false));
        }
        let decoded = Decoder::new(DEFAULT_TABLE, 10_000).decode(&block);
        assert!(matches!(decoded, Err(DecodeError::TooLarge { size: 407_232, .. })), "{decoded:?}");
    }
}
