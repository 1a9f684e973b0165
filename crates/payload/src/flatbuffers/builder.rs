use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use bytes::{Buf, Bytes};

use super::layout::{FIRST_ENTRY, OFFSET};
use super::{Inline, Message, Table, Text};

/// Content that can be written as a table: the values of its fields.
pub trait Build {
    /// Type of the table.
    type Table: Table;

    /// Writes the table, after everything it refers to.
    fn build(&self, builder: &mut Builder) -> Offset<Self::Table>;
}

/// Builds a FlatBuffer from its end to its start: objects are written before those that refer to them, and are
/// therefore located after them.
///
/// The output equals that of Google's builders for the same order of calls. It is written once, into the memory of the
/// message.
#[derive(Debug)]
pub struct Builder {
    /// Written bytes are at its end; the rest is zero.
    bytes: Vec<u8>,
    head: usize,
    align: usize,
    lists: Lists,
}

/// Temporary lists of a builder.
#[derive(Debug, Default)]
struct Lists {
    /// Positions of the open table's fields.
    fields: Vec<Field>,
    /// Positions of the written vtables.
    vtables: Vec<u32>,
    /// Elements of the vectors being collected.
    elements: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    id: u16,
    at: u32,
}

thread_local! {
    /// Kept between messages, so that a message allocates nothing but its own memory.
    static SPARE: Cell<Lists> = const {
        Cell::new(Lists { fields: Vec::new(), vtables: Vec::new(), elements: Vec::new() })
    };
}

/// Position of a written object: its distance from the end of the buffer.
pub struct Offset<T: ?Sized> {
    from_end: u32,
    what: PhantomData<fn() -> Box<T>>,
}

impl Builder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), head: 0, align: 1, lists: SPARE.take() }
    }

    /// Writes a string.
    pub fn string<'t>(&mut self, text: impl Into<Text<'t>>) -> Offset<Text<'static>> {
        let bytes = text.into().as_bytes();
        // C expects the terminating zero.
        self.write(bytes, 1, OFFSET);
        Offset::new(self.push_len(bytes.len()))
    }

    /// Writes a vector of bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Offset<[u8]> {
        self.write(bytes, 0, OFFSET);
        Offset::new(self.push_len(bytes.len()))
    }

    /// Writes a vector of scalars, enums or structs.
    pub fn vector<T: Inline>(&mut self, elements: &[T]) -> Offset<[T]> {
        let size = elements.len() * T::SIZE;
        self.make_room(size, T::ALIGN.max(OFFSET));
        for (element, out) in elements.iter().zip(self.take(size).chunks_exact_mut(T::SIZE)) {
            element.write(out);
        }
        Offset::new(self.push_len(elements.len()))
    }

    /// Writes a vector of objects written before: tables, strings.
    pub fn offsets<T>(&mut self, elements: &[Offset<T>]) -> Offset<[T]> {
        let mark = self.lists.elements.len();
        self.lists.elements.extend(elements.iter().map(|element| element.from_end));
        self.write_collected(mark)
    }

    /// Writes the object that `each` returns for every item, then a vector of them.
    pub fn vector_of<I, T>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        mut each: impl FnMut(&mut Self, I) -> Offset<T>,
    ) -> Offset<[T]> {
        let mark = self.lists.elements.len();
        for item in items {
            let element = each(self, item);
            self.lists.elements.push(element.from_end);
        }
        self.write_collected(mark)
    }

    /// Writes a vector of tables.
    pub fn tables<B: Build>(&mut self, tables: &[B]) -> Offset<[B::Table]> {
        self.vector_of(tables, |builder, table| table.build(builder))
    }

    /// Writes a vector of strings.
    pub fn strings(&mut self, strings: &[Text<'_>]) -> Offset<[Text<'static>]> {
        self.vector_of(strings, |builder, text| builder.string(*text))
    }

    /// Writes a standalone struct, as required in a union.
    pub fn structure<T: Inline>(&mut self, value: T) -> Offset<T> {
        Offset::new(self.push(value))
    }

    /// Writes a struct's bytes as a standalone object, as required in a union, if the schema is known only at run time.
    pub fn structure_bytes(&mut self, bytes: &[u8], align: usize) -> Offset<()> {
        Offset::new(self.push_bytes(bytes, align))
    }

    /// Writes a vector of `count` scalars or structs, given as bytes, if the schema is known only at run time.
    pub fn vector_bytes(&mut self, count: usize, bytes: &[u8], align: usize) -> Offset<()> {
        self.write(bytes, 0, align.max(OFFSET));
        Offset::new(self.push_len(count))
    }

    /// Starts a table. Everything it refers to must have been written before.
    pub fn table<T: Table>(&mut self) -> TableBuilder<'_, T> {
        let start = self.written();
        TableBuilder { builder: self, start, table: PhantomData }
    }

    /// Finishes the message with `root` as its root table.
    pub fn finish<T: Table>(self, root: Offset<T>) -> Message<T> {
        Message::unverified(self.finish_raw(root.from_end, None))
    }

    /// Finishes the message, with the schema's file identifier if there is one.
    pub fn finish_identified<T: Table>(self, root: Offset<T>) -> Message<T> {
        Message::unverified(self.finish_raw(root.from_end, T::FILE_IDENTIFIER))
    }

    fn finish_raw(mut self, root: u32, identifier: Option<[u8; 4]>) -> Bytes {
        let identifier = identifier.as_ref().map_or(&[][..], |identifier| &identifier[..]);
        let align = self.align.max(OFFSET);
        self.make_room(OFFSET + identifier.len(), align);
        self.take(identifier.len()).copy_from_slice(identifier);
        self.push_offset(root);
        let mut bytes = Bytes::from(std::mem::take(&mut self.bytes));
        bytes.advance(self.head);
        bytes
    }

    /// Writes a vector of the elements that were collected since `mark`.
    fn write_collected<T>(&mut self, mark: usize) -> Offset<[T]> {
        let count = self.lists.elements.len() - mark;
        self.make_room(count * OFFSET, OFFSET);
        for _ in 0..count {
            if let Some(element) = self.lists.elements.pop() {
                self.push_offset(element);
            }
        }
        Offset::new(self.push_len(count))
    }

    /// Returns the number of written bytes: the position of an object that starts here.
    #[inline]
    fn written(&self) -> u32 {
        // The limit in `grow` keeps it below 2 GiB.
        (self.bytes.len() - self.head) as u32
    }

    #[inline]
    fn push<T: Inline>(&mut self, value: T) -> u32 {
        self.make_room(T::SIZE, T::ALIGN);
        value.write(self.take(T::SIZE));
        self.written()
    }

    fn push_bytes(&mut self, bytes: &[u8], align: usize) -> u32 {
        self.write(bytes, 0, align);
        self.written()
    }

    /// Writes bytes, possibly many, followed by `zeros` zero bytes, so that both together start aligned.
    fn write(&mut self, bytes: &[u8], zeros: usize, align: usize) {
        self.align = self.align.max(align);
        let zeros = zeros + padding(self.written() as usize + bytes.len() + zeros, align);
        let len = bytes.len() + zeros;
        if self.head < len {
            return self.grow(0, bytes, zeros);
        }
        self.head -= len;
        self.bytes[self.head..self.head + bytes.len()].copy_from_slice(bytes);
    }

    fn push_offset(&mut self, target: u32) -> u32 {
        self.make_room(OFFSET, OFFSET);
        self.take(OFFSET);
        let at = self.written();
        self.patch(at, at - target);
        at
    }

    fn push_len(&mut self, len: usize) -> u32 {
        // No longer than the written bytes, which are below 2 GiB.
        self.push(len as u32)
    }

    /// Overwrites the number at this position.
    fn patch(&mut self, at: u32, number: u32) {
        let from = self.bytes.len() - at as usize;
        self.bytes[from..from + OFFSET].copy_from_slice(&number.to_le_bytes());
    }

    /// Adds padding so that the next `len` bytes are aligned.
    #[inline]
    fn make_room(&mut self, len: usize, align: usize) {
        self.align = self.align.max(align);
        let padding = padding(self.written() as usize + len, align);
        let wanted = padding + len;
        if self.head < wanted {
            self.grow(wanted, &[], 0);
        }
        self.head -= padding;
    }

    /// Returns the next `len` bytes, which are reserved and zero.
    #[inline]
    fn take(&mut self, len: usize) -> &mut [u8] {
        if self.head < len {
            self.grow(len, &[], 0);
        }
        self.head -= len;
        &mut self.bytes[self.head..self.head + len]
    }

    /// Writes `bytes` and `zeros` zero bytes when there is no room for them, and allocates room for `wanted` bytes
    /// before them and, usually, for everything that follows: the long parts of a message are written before the tables
    /// that hold them. The bytes written here are not zeroed first, unlike other room.
    #[cold]
    fn grow(&mut self, wanted: usize, bytes: &[u8], zeros: usize) {
        let before = &self.bytes[self.head..];
        let written = bytes.len() + zeros + before.len();
        assert!(written + wanted <= LONGEST, "a FlatBuffer is shorter than 2 GiB");
        let len = (self.bytes.len() * 2).max(written + wanted + SLACK);
        let mut grown = Vec::with_capacity(len);
        grown.resize(len - written, 0);
        grown.extend_from_slice(bytes);
        grown.resize(grown.len() + zeros, 0);
        grown.extend_from_slice(before);
        self.head = len - written;
        self.bytes = grown;
    }
}

/// Returns the padding after an object at this position that makes its start aligned.
#[inline]
fn padding(written: usize, align: usize) -> usize {
    written.wrapping_neg() & (align - 1)
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let mut lists = std::mem::take(&mut self.lists);
        lists.fields.clear();
        lists.vtables.clear();
        lists.elements.clear();
        let kept = lists.fields.capacity().max(lists.vtables.capacity()).max(lists.elements.capacity());
        if kept <= MAX_KEPT {
            SPARE.set(lists);
        }
    }
}

/// Writes the fields of one table.
#[derive(Debug)]
pub struct TableBuilder<'b, T> {
    builder: &'b mut Builder,
    /// Position at which the table was started.
    start: u32,
    table: PhantomData<fn() -> T>,
}

impl<T> TableBuilder<'_, T> {
    /// Writes a field, even if it has its default value.
    #[inline]
    pub fn put<V: Inline>(&mut self, id: u16, value: V) {
        let at = self.builder.push(value);
        self.builder.lists.fields.push(Field { id, at });
    }

    /// Writes a field with these bytes, if the schema is known only at run time.
    pub fn put_bytes(&mut self, id: u16, bytes: &[u8], align: usize) {
        let at = self.builder.push_bytes(bytes, align);
        self.builder.lists.fields.push(Field { id, at });
    }

    /// Writes a field unless it has its default value, which the reader knows.
    #[inline]
    pub fn put_unless<V: Inline + PartialEq>(&mut self, id: u16, value: V, default: V) {
        if value != default {
            self.put(id, value);
        }
    }

    /// Writes a field if there is a value for it.
    #[inline]
    pub fn put_if<V: Inline>(&mut self, id: u16, value: Option<V>) {
        if let Some(value) = value {
            self.put(id, value);
        }
    }

    /// Writes a reference to an object written before.
    #[inline]
    pub fn refer<V: ?Sized>(&mut self, id: u16, target: Offset<V>) {
        let at = self.builder.push_offset(target.from_end);
        self.builder.lists.fields.push(Field { id, at });
    }

    /// Writes a reference to an object written before, if there is one.
    #[inline]
    pub fn refer_if<V: ?Sized>(&mut self, id: u16, target: Option<Offset<V>>) {
        if let Some(target) = target {
            self.refer(id, target);
        }
    }

    /// Finishes the table.
    pub fn end(self) -> Offset<T> {
        let Self { builder, start, .. } = self;
        let object = builder.push(0_u32);
        let vtable = builder.vtable(object, start);
        builder.patch(object, vtable.wrapping_sub(object));
        Offset::new(object)
    }
}

impl Builder {
    /// Writes the vtable of the open table at `object`, unless there is an equal one.
    fn vtable(&mut self, object: u32, start: u32) -> u32 {
        let entries =
            self.lists.fields.iter().map(|field| usize::from(field.id) + 1).max().unwrap_or_default();
        let len = FIRST_ENTRY + 2 * entries;
        self.make_room(len, 2);
        let fields = std::mem::take(&mut self.lists.fields);
        let vtable = self.take(len);
        let mut set = |at: usize, number: u32| {
            // A table is no longer than its fields, of which the schema has at most 65,536 bytes.
            vtable[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
        };
        set(0, len as u32);
        set(2, object - start);
        for field in &fields {
            set(FIRST_ENTRY + 2 * usize::from(field.id), object - field.at);
        }
        self.lists.fields = fields;
        self.lists.fields.clear();
        self.share_vtable(len)
    }

    /// Returns the position of the vtable just written, or of an equal one, in which case the new one is removed.
    fn share_vtable(&mut self, len: usize) -> u32 {
        let (new, rest) = self.bytes[self.head..].split_at(len);
        let end = rest.len() + len;
        let equal = self.lists.vtables.iter().find(|&&earlier| {
            let from = end - earlier as usize;
            self.bytes[self.head + from..].starts_with(new)
        });
        match equal {
            Some(&earlier) => {
                self.bytes[self.head..self.head + len].fill(0);
                self.head += len;
                earlier
            }
            None => {
                let vtable = self.written();
                self.lists.vtables.push(vtable);
                vtable
            }
        }
    }
}

impl<T: Table> Message<T> {
    /// Builds a message.
    pub fn build(content: &impl Build<Table = T>) -> Self {
        let mut builder = Builder::new();
        let root = content.build(&mut builder);
        builder.finish(root)
    }
}

impl<T: ?Sized> Offset<T> {
    fn new(from_end: u32) -> Self {
        Self { from_end, what: PhantomData }
    }

    /// Returns the same position without its type: the content of a union.
    pub fn untyped(self) -> Offset<()> {
        Offset::new(self.from_end)
    }
}

impl<T: ?Sized> Clone for Offset<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Offset<T> {}

impl<T: ?Sized> fmt::Debug for Offset<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offset({})", self.from_end)
    }
}

/// Bytes that a message may still need when its longest part is written.
const SLACK: usize = 192;

/// One kind of distance is signed.
const LONGEST: usize = i32::MAX as usize;

/// Longer lists are not kept for the next message.
const MAX_KEPT: usize = 4096;
