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
        let mut reading = Reading { fields: Fields::with_room(block.len()), changes: false, dropped: 0 };
        self.read(block, &mut reading)?;
        let Reading { mut fields, changes, dropped } = reading;
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
        let buffer = reading.fields.buffer();
        let start = buffer.len();
        match index {
            0 => string(block, buffer)?,
            index => buffer.extend_from_slice(lookup(&self.table, index)?.0),
        }
        let middle = buffer.len();
        string(block, buffer)?;
        if inserts {
            self.table.insert(&buffer[start..middle], &buffer[middle..], 0);
            reading.changes = true;
        }
        reading.add_last(start, middle, self.max_list);
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
    pub(in crate::http::h2) fn audited(&self) -> usize {
        self.table.footprint() + self.recent.audited()
    }

    /// Maximum memory of the block cache and of the table.
    pub(in crate::http::h2) const MOST: usize = MOST_HELD + DynamicTable::most(DEFAULT_TABLE);
}

/// State of the block being decoded.
struct Reading {
    fields: Fields,
    /// The block changed the dynamic table.
    changes: bool,
    /// Size of the fields that exceeded the list's limit.
    dropped: usize,
}

impl Reading {
    /// Adds a field, unless the list would become too large. A later field that fits is still added, so that the
    /// request can be answered in the right protocol.
    fn add(&mut self, name: &[u8], value: &[u8], max: usize) {
        let size = name.len() + value.len() + OVERHEAD;
        if self.fields.size() + size > max {
            self.dropped = self.dropped.saturating_add(size);
            return;
        }
        self.fields.push(name, value);
    }

    /// Adds the field that was written to the list's buffer: its name from `start`, its value from `middle` on.
    fn add_last(&mut self, start: usize, middle: usize, max: usize) {
        let buffer = self.fields.buffer();
        let written = buffer.len() - start;
        if self.fields.size() + OVERHEAD > max {
            self.fields.buffer().truncate(start);
            self.dropped = self.dropped.saturating_add(written + OVERHEAD);
            return;
        }
        self.fields.add(middle);
    }
}

fn lookup(table: &DynamicTable, index: usize) -> Option<(&[u8], &[u8])> {
    if index <= STATIC {
        return static_field(index).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    }
    table.get(index - STATIC - 1)
}

/// Decodes a string, Huffman-coded or not (§5.2); `None` if it is malformed.
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let coded = block.first()? & 0x80 != 0;
    let length = integer::decode(block, 7)?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    match coded {
        true => huffman::decode(text, out).ok(),
        false => {
            out.extend_from_slice(text);
            Some(())
        }
    }
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
const MOST_HELD: usize = 16 << 10;

impl BlockCache {
    fn find(&self, block: &[u8]) -> Option<&Arc<Fields>> {
        let known = self.blocks.iter().flatten().find(|(known, _)| **known == *block);
        known.map(|(_, fields)| fields)
    }

    fn add(&mut self, block: &[u8], fields: &Arc<Fields>) {
        let size = block.len() + fields.footprint();
        if self.held + size > MOST_HELD {
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

    fn audited(&self) -> usize {
        self.blocks.iter().flatten().map(|(block, fields)| block.len() + fields.footprint()).sum()
    }
}
