use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use bytes::{Buf, Bytes};

use super::fields::FIRST_ENTRY;
use super::value::OFFSET;
use super::{Inline, Message, Table, Text};

/// What can be written as a table: the values of its fields.
pub trait Build {
    /// The table.
    type Table: Table;

    /// Writes the table, what it refers to first.
    fn build(&self, builder: &mut Builder) -> Offset<Self::Table>;
}

/// Writes a FlatBuffer, from its end to its beginning: what is referred to comes before what refers to it, and
/// so lies behind it.
///
/// The bytes it makes are those of Google's builders for the same order of calls. They are written once, into
/// the memory that the message keeps.
#[derive(Debug)]
pub struct Builder {
    /// What is written fills its end; before that it is zero.
    bytes: Vec<u8>,
    head: usize,
    align: usize,
    lists: Lists,
}

/// Lists that a builder needs and no message keeps.
#[derive(Debug, Default)]
struct Lists {
    /// Where each field of the open table lies.
    fields: Vec<Field>,
    /// Where the vtables lie that were written.
    vtables: Vec<u32>,
    /// Elements of the vectors that are being gathered.
    elements: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    id: u16,
    at: u32,
}

thread_local! {
    /// Kept between messages, so that the message's own memory is all that a message allocates.
    static SPARE: Cell<Lists> = const {
        Cell::new(Lists { fields: Vec::new(), vtables: Vec::new(), elements: Vec::new() })
    };
}

/// Where something lies that was written: its distance from the end of the buffer.
pub struct Offset<T: ?Sized> {
    from_end: u32,
    what: PhantomData<fn() -> Box<T>>,
}

impl Builder {
    /// A builder that has written nothing.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), head: 0, align: 1, lists: SPARE.take() }
    }

    /// Writes a string.
    pub fn string<'t>(&mut self, text: impl Into<Text<'t>>) -> Offset<Text<'static>> {
        let bytes = text.into().as_bytes();
        // The zero behind it is what C wants.
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
        for (element, place) in elements.iter().zip(self.take(size).chunks_exact_mut(T::SIZE)) {
            element.write(place);
        }
        Offset::new(self.push_len(elements.len()))
    }

    /// Writes a vector of what was written before: tables, strings.
    pub fn offsets<T>(&mut self, elements: &[Offset<T>]) -> Offset<[T]> {
        let mark = self.lists.elements.len();
        self.lists.elements.extend(elements.iter().map(|element| element.from_end));
        self.gathered(mark)
    }

    /// Writes what `each` makes of every item, then a vector of that.
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
        self.gathered(mark)
    }

    /// Writes a vector of tables.
    pub fn tables<B: Build>(&mut self, tables: &[B]) -> Offset<[B::Table]> {
        self.vector_of(tables, |builder, table| table.build(builder))
    }

    /// Writes a vector of strings.
    pub fn strings(&mut self, strings: &[Text<'_>]) -> Offset<[Text<'static>]> {
        self.vector_of(strings, |builder, text| builder.string(*text))
    }

    /// Writes a struct by itself, as a union wants it.
    pub fn structure<T: Inline>(&mut self, value: T) -> Offset<T> {
        Offset::new(self.push(value))
    }

    /// Writes a struct's bytes by themselves, as a union wants them, for who learns the schema at run time.
    pub fn structure_bytes(&mut self, bytes: &[u8], align: usize) -> Offset<()> {
        Offset::new(self.push_bytes(bytes, align))
    }

    /// Writes a vector of so many scalars or structs, given as their bytes, for who learns the schema at run time.
    pub fn vector_bytes(&mut self, count: usize, bytes: &[u8], align: usize) -> Offset<()> {
        self.write(bytes, 0, align.max(OFFSET));
        Offset::new(self.push_len(count))
    }

    /// Begins a table. What it refers to must have been written.
    pub fn table<T: Table>(&mut self) -> TableBuilder<'_, T> {
        let start = self.written();
        TableBuilder { builder: self, start, table: PhantomData }
    }

    /// Ends the message: `root` is its root.
    pub fn finish<T: Table>(self, root: Offset<T>) -> Message<T> {
        Message::unverified(self.finish_raw(root.from_end, None))
    }

    /// Ends the message, marked with the identifier that the schema gives its files, if it gives one.
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

    /// Writes the vector of the elements that were gathered since `mark`.
    fn gathered<T>(&mut self, mark: usize) -> Offset<[T]> {
        let count = self.lists.elements.len() - mark;
        self.make_room(count * OFFSET, OFFSET);
        for _ in 0..count {
            if let Some(element) = self.lists.elements.pop() {
                self.push_offset(element);
            }
        }
        Offset::new(self.push_len(count))
    }

    /// How much is written: where something lies that begins here.
    #[inline]
    fn written(&self) -> u32 {
        // The limit on `grow` keeps it below 2 GiB.
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

    /// Writes bytes that may be many, and so many zeros behind them, so that both together begin where they are
    /// aligned.
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
        // As long as what is written, which is below 2 GiB.
        self.push(len as u32)
    }

    /// Overwrites the number that lies there.
    fn patch(&mut self, at: u32, number: u32) {
        let from = self.bytes.len() - at as usize;
        self.bytes[from..from + OFFSET].copy_from_slice(&number.to_le_bytes());
    }

    /// Lets the next `len` bytes end where what they are written for is aligned.
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

    /// The next `len` bytes, zero still, for which there is room.
    #[inline]
    fn take(&mut self, len: usize) -> &mut [u8] {
        if self.head < len {
            self.grow(len, &[], 0);
        }
        self.head -= len;
        &mut self.bytes[self.head..self.head + len]
    }

    /// Writes `bytes` and so many zeros behind them where there is no room for them, and makes room for `wanted` bytes
    /// before them and, as a rule, for all that is still to come: the long parts of a message are written before the
    /// tables that hold them. What is written here is not made zero first, as other room is.
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

/// How many bytes lie behind what makes so many, so that it begins where it is aligned.
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
        if kept <= MOST_KEPT {
            SPARE.set(lists);
        }
    }
}

/// Writes the fields of one table.
#[derive(Debug)]
pub struct TableBuilder<'b, T> {
    builder: &'b mut Builder,
    /// What was written before the table.
    start: u32,
    table: PhantomData<fn() -> T>,
}

impl<T> TableBuilder<'_, T> {
    /// Writes a field, whatever it holds.
    #[inline]
    pub fn put<V: Inline>(&mut self, id: u16, value: V) {
        let at = self.builder.push(value);
        self.builder.lists.fields.push(Field { id, at });
    }

    /// Writes a field that holds these bytes, for who learns the schema at run time.
    pub fn put_bytes(&mut self, id: u16, bytes: &[u8], align: usize) {
        let at = self.builder.push_bytes(bytes, align);
        self.builder.lists.fields.push(Field { id, at });
    }

    /// Writes a field unless it holds its default, which who reads it knows.
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

    /// Refers to what was written before.
    #[inline]
    pub fn refer<V: ?Sized>(&mut self, id: u16, target: Offset<V>) {
        let at = self.builder.push_offset(target.from_end);
        self.builder.lists.fields.push(Field { id, at });
    }

    /// Refers to what was written before, if anything was.
    #[inline]
    pub fn refer_if<V: ?Sized>(&mut self, id: u16, target: Option<Offset<V>>) {
        if let Some(target) = target {
            self.refer(id, target);
        }
    }

    /// Ends the table.
    pub fn end(self) -> Offset<T> {
        let Self { builder, start, .. } = self;
        let object = builder.push(0_u32);
        let vtable = builder.vtable(object, start);
        builder.patch(object, vtable.wrapping_sub(object));
        Offset::new(object)
    }
}

impl Builder {
    /// Writes the vtable of the open table, which lies at `object`, unless there is one like it.
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

    /// The place of the vtable that was just written, or of an equal one, and then it is taken back.
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

impl<T: ?Sized> Offset<T> {
    fn new(from_end: u32) -> Self {
        Self { from_end, what: PhantomData }
    }

    /// The same place, whatever lies there: what a union holds.
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

/// What a message may still need when its longest part is written.
const SLACK: usize = 192;

/// Distances are signed in one place.
const LONGEST: usize = i32::MAX as usize;

/// Lists longer than this are not kept for the next message.
const MOST_KEPT: usize = 4096;
