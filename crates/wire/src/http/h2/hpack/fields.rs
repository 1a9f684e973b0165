use std::fmt;
use std::sync::OnceLock;

use super::table::OVERHEAD;
use crate::http::h2::message::{MalformedHeaders, ParsedHeaders, classify, is_clean};

/// A header list, decoded from one block.
///
/// All names and values are stored contiguously in one buffer, so that a list costs two allocations however many fields
/// it has.
#[derive(Clone, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    end_offsets: Vec<EndOffsets>,
    /// Parsed meaning of the list, computed once for a list that is repeated.
    meaning: OnceLock<Result<ParsedHeaders, MalformedHeaders>>,
}

/// End offsets of a field's name and value; the field starts where the previous one ended.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EndOffsets {
    name: u32,
    value: u32,
}

impl Fields {
    /// Creates an empty list with capacity for a typical one of a block of this length.
    pub(crate) fn with_room(block: usize) -> Self {
        let (bytes, fields) = (256 + (2 * block).min(MAX_ROOM), 12 + (block / 12).min(MAX_ROOM / 32));
        Self {
            bytes: Vec::with_capacity(bytes),
            end_offsets: Vec::with_capacity(fields),
            meaning: OnceLock::new(),
        }
    }

    /// Returns the buffer to whose end a field is written: its name, then its value. [`add`](Self::add) or
    /// [`Vec::truncate`] must follow.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ensures room for `more` bytes of at most `max` that will be added: no more than these, and at least twice as much
    /// as before.
    pub(super) fn reserve(&mut self, more: usize, max: usize) {
        if more > self.bytes.capacity() - self.bytes.len() {
            self.grow(more, max);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize, max: usize) {
        let room = self.bytes.capacity().max(more).min(max.max(more));
        self.bytes.reserve_exact(room);
    }

    /// Adds the field at the end of the buffer, whose name ends at `name`.
    pub(super) fn add(&mut self, name: usize) {
        self.end_offsets.push(EndOffsets { name: name as u32, value: self.bytes.len() as u32 });
    }

    /// Releases room that the list does not need, if it is much.
    pub(super) fn shrink(&mut self) {
        let (bytes, fields) = (self.bytes.len(), self.end_offsets.len());
        if self.bytes.capacity() > 2 * bytes.max(128) {
            self.bytes.shrink_to_fit();
        }
        if self.end_offsets.capacity() > 2 * fields.max(8) {
            self.end_offsets.shrink_to_fit();
        }
    }

    /// Adds a field.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.meaning.take();
        self.bytes.extend_from_slice(name);
        let name = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.end_offsets.push(EndOffsets { name, value: self.bytes.len() as u32 });
    }

    /// Iterates over the fields in order of arrival, as name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let mut start = 0;
        self.end_offsets.iter().map(move |end_offsets| {
            let (name, value) = (end_offsets.name as usize, end_offsets.value as usize);
            let field = (&self.bytes[start..name], &self.bytes[name..value]);
            start = value;
            field
        })
    }

    /// Returns the value of the first field with this name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.end_offsets.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.end_offsets.is_empty()
    }

    /// Parses the list as the headers of a message or as trailers.
    pub(in crate::http::h2) fn meaning(&self) -> Result<ParsedHeaders, MalformedHeaders> {
        *self
            .meaning
            .get_or_init(|| if is_clean(&self.bytes) { classify(self.iter()) } else { Err(MalformedHeaders) })
    }

    /// Whether the list is worth caching for a repetition. A short block may decode to a very large list, which every
    /// connection would hold as long as it is open.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.bytes.len() <= Self::LONGEST_KEPT && self.end_offsets.len() <= Self::MAX_KEPT
    }

    /// Bytes of names and values in the longest list that is cached: as many as the dynamic table may hold.
    const LONGEST_KEPT: usize = 4 << 10;

    /// Fields in the longest list that is cached.
    const MAX_KEPT: usize = 64;

    /// Returns the memory footprint in bytes.
    pub(crate) fn footprint(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity() + self.end_offsets.capacity() * size_of::<EndOffsets>()
    }

    /// Returns the size as defined for `SETTINGS_MAX_HEADER_LIST_SIZE` (RFC 9113, §6.5.2).
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.end_offsets.len() * OVERHEAD
    }
}

/// Most bytes of room that a list has before it is decoded.
const MAX_ROOM: usize = 4096;

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.end_offsets == other.end_offsets
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        f.debug_list().entries(self.iter().map(|(name, value)| (text(name), text(value)))).finish()
    }
}

impl<'a> FromIterator<(&'a [u8], &'a [u8])> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a [u8], &'a [u8])>>(fields: I) -> Self {
        let mut list = Self::default();
        fields.into_iter().for_each(|(name, value)| list.push(name, value));
        list
    }
}
