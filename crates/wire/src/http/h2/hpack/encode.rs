use super::table::{DynamicTable, STATIC, static_name, static_whole};
use super::{huffman, integer};

/// HPACK encoder for one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// Table sizes set since the last block: the smallest and the last one (RFC 7541, §4.2).
    resized: Option<(usize, usize)>,
    generation: u64,
}

/// How the peer may index a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// Likely to be repeated: it is added to the dynamic table.
    Likely,
    /// Unlikely to be repeated: it is sent as a literal each time.
    Unlikely,
    /// Sensitive: neither this peer nor any proxy behind it may add it to a table (§7.1.3).
    Never,
}

/// A table above the default size is of little use for the few fields of a call, and every connection would hold it.
const MAX_TABLE_SIZE: usize = 4096;

impl Encoder {
    /// Returns the memory footprint of the table in bytes.
    pub(in crate::http::h2) fn footprint(&self) -> usize {
        self.table.footprint()
    }

    /// Creates an encoder for a peer that has not announced its table size yet.
    pub fn new() -> Self {
        Self { table: DynamicTable::new(MAX_TABLE_SIZE), resized: None, generation: 0 }
    }

    /// Applies the peer's maximum table size (`SETTINGS_HEADER_TABLE_SIZE`).
    pub fn resize(&mut self, size: usize) {
        let size = size.min(MAX_TABLE_SIZE);
        if size == self.table.limit() {
            return;
        }
        let min = self.resized.map_or(size, |(min, _)| min.min(size));
        self.resized = Some((min, size));
        self.generation += 1;
        self.table.resize(size);
    }

    /// Changes with the dynamic table: while it stays the same, the same fields encode to the same bytes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the next block must start with a dynamic table size update.
    pub fn is_resized(&self) -> bool {
        self.resized.is_some()
    }

    /// Starts a block with the pending dynamic table size updates.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some((min, last)) = self.resized.take() else { return };
        if min < last {
            integer::encode(min, 5, 0x20, out);
        }
        integer::encode(last, 5, 0x20, out);
    }

    /// Appends a field to the block.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let first = static_name(name);
        if indexing != Indexing::Likely || name.len() + value.len() > self.table.limit() / 4 {
            return literal(first, name, value, indexing, out);
        }
        if let Some(index) = first.and_then(|first| static_whole(first, name, value)) {
            return integer::encode(index, 7, 0x80, out);
        }
        let hash = hash(name, value);
        if let Some(age) = self.table.find(name, value, hash) {
            return integer::encode(STATIC + 1 + age, 7, 0x80, out);
        }
        integer::encode(first.unwrap_or(0), 6, 0x40, out);
        if first.is_none() {
            string(name, out);
        }
        string(value, out);
        self.table.insert(name, value, hash);
        self.generation += 1;
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends fields without using or changing the dynamic table: the block is the same on every connection at any time,
/// so that it can be encoded once and copied.
pub fn encode_stateless<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>, out: &mut Vec<u8>) {
    for (name, value) in fields {
        stateless_field(name, value, Indexing::Unlikely, out);
    }
}

/// Appends one such field.
pub fn stateless_field(name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
    let first = static_name(name);
    match first.and_then(|first| static_whole(first, name, value)) {
        Some(index) if indexing != Indexing::Never => integer::encode(index, 7, 0x80, out),
        _ => literal(first, name, value, indexing, out),
    }
}

/// Appends a literal field that is not indexed (§6.2.2, §6.2.3).
fn literal(name_index: Option<usize>, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
    let flags = if indexing == Indexing::Never { 0x10 } else { 0 };
    integer::encode(name_index.unwrap_or(0), 4, flags, out);
    if name_index.is_none() {
        string(name, out);
    }
    string(value, out);
}

/// Appends a string, Huffman-coded if that is shorter (§5.2).
fn string(text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        integer::encode(coded, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        integer::encode(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// Cheap hash that distinguishes most fields. Only our own fields are hashed, so that it need not resist attacks.
fn hash(name: &[u8], value: &[u8]) -> u64 {
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
    let mut hash = name.len() as u64;
    for part in [name, value] {
        let (chunks, rest) = part.as_chunks::<8>();
        for chunk in chunks {
            hash = (hash.rotate_left(5) ^ u64::from_le_bytes(*chunk)).wrapping_mul(FACTOR);
        }
        for &byte in rest {
            hash = (hash.rotate_left(5) ^ u64::from(byte)).wrapping_mul(FACTOR);
        }
    }
    hash
}
