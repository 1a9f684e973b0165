//! Type definitions of a stream, and their encoding.

use std::collections::HashMap;
use std::ops::Range;

use super::number::{Cursor, begin, end, put_bytes, put_int, put_uint};
use super::{Error, Limits};

/// Type numbers of a stream: Go's basic types, or defined ones.
pub(crate) mod id {
    pub(crate) const BOOL: i32 = 1;
    pub(crate) const INT: i32 = 2;
    pub(crate) const UINT: i32 = 3;
    pub(crate) const FLOAT: i32 = 4;
    pub(crate) const BYTES: i32 = 5;
    pub(crate) const STRING: i32 = 6;
    pub(crate) const COMPLEX: i32 = 7;
    pub(crate) const INTERFACE: i32 = 8;
    /// First number for user types (`firstUserId` in Go's `encoding/gob/type.go`).
    pub(crate) const FIRST: i32 = 64;
}

/// Kind of a type. Inner types are given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int,
    Uint,
    Float,
    Bytes,
    String,
    Complex,
    Interface,
    Array { elem: i32, len: u64 },
    Slice { elem: i32 },
    Map { key: i32, elem: i32 },
    Struct(Fields),
    Opaque(Opaque),
}

/// Method of a self-encoding type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opaque {
    Gob,
    Binary,
    Text,
}

/// Range of a struct's fields in their table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    first: u32,
    count: u32,
}

impl Fields {
    pub(crate) fn len(self) -> usize {
        self.count as usize
    }

    /// Returns the index of the field `delta` after the last one, where -1 is before the first.
    pub(super) fn after(self, last: i64, delta: u64) -> Result<i64, Error> {
        let next = i64::try_from(delta).ok().and_then(|delta| last.checked_add(delta));
        next.filter(|&next| next < i64::from(self.count))
            .ok_or_else(|| Error::new("bad data: field numbers out of bounds"))
    }
}

/// A range of the bytes that a table was parsed from.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// A type defined by a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Definition {
    pub(super) id: i32,
    pub(super) kind: Kind,
    name: Span,
    message: Span,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: Span,
    id: i32,
}

/// Bytes of a map entry.
const PER_ENTRY: usize = 16;

/// Types defined by some bytes. The bytes are stored elsewhere, and passed in whenever a name is needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// In order of arrival.
    definitions: Vec<Definition>,
    /// Indices of types by number, once there are many.
    indices: HashMap<i32, u32>,
    fields: Vec<Field>,
    /// Some type contains interfaces.
    dynamic: bool,
}

impl Table {
    /// Returns the kind of a type, or an error if it is undefined.
    #[inline]
    pub(super) fn kind(&self, id: i32) -> Result<Kind, Error> {
        Ok(match id {
            id::BOOL => Kind::Bool,
            id::INT => Kind::Int,
            id::UINT => Kind::Uint,
            id::FLOAT => Kind::Float,
            id::BYTES => Kind::Bytes,
            id::STRING => Kind::String,
            id::COMPLEX => Kind::Complex,
            id::INTERFACE => Kind::Interface,
            _ => self.find(id).ok_or_else(Error::unknown_type)?.kind,
        })
    }

    pub(super) fn find(&self, id: i32) -> Option<&Definition> {
        if self.definitions.len() <= FEW {
            return self.definitions.iter().find(|definition| definition.id == id);
        }
        self.indices.get(&id).and_then(|index| self.definitions.get(*index as usize))
    }

    fn add(&mut self, definition: Definition) {
        self.definitions.push(definition);
        if self.definitions.len() > FEW {
            let new = self.definitions.iter().enumerate().skip(self.indices.len());
            self.indices.extend(new.map(|(index, definition)| (definition.id, index as u32)));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.definitions.len()
    }

    /// Returns the approximate number of bytes held.
    pub(super) fn held(&self) -> usize {
        self.definitions.capacity() * size_of::<Definition>()
            + self.indices.capacity() * PER_ENTRY
            + self.fields.capacity() * size_of::<Field>()
    }

    /// Whether any of the types contains interfaces, whose content types are in the value.
    pub(super) fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// Iterates over all types, in order of arrival.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.definitions.iter()
    }

    /// Returns the type of a struct's field.
    pub(super) fn field(&self, fields: Fields, index: i64) -> Result<i32, Error> {
        self.field_at(fields, index).map(|field| field.id)
    }

    /// Returns the name and type of a field.
    #[inline]
    pub(super) fn named_field<'a>(
        &self,
        bytes: &'a [u8],
        fields: Fields,
        index: i64,
    ) -> Result<(&'a str, i32), Error> {
        let field = self.field_at(fields, index)?;
        Ok((text(bytes, field.name), field.id))
    }

    fn field_at(&self, fields: Fields, index: i64) -> Result<&Field, Error> {
        let index = usize::try_from(index).ok().filter(|&index| index < fields.len());
        let field = index.and_then(|index| self.fields.get(fields.first as usize + index));
        field.ok_or_else(|| Error::new("bad data: field numbers out of bounds"))
    }

    /// Iterates over the names and types of a struct's fields.
    pub(super) fn fields<'a>(&self, bytes: &'a [u8], fields: Fields) -> impl Iterator<Item = (&'a str, i32)> {
        let first = fields.first as usize;
        let all = self.fields.get(first..first + fields.len()).unwrap_or_default();
        all.iter().map(move |field| (text(bytes, field.name), field.id))
    }

    /// Returns a type's name, which may be empty.
    pub(super) fn name<'a>(&self, bytes: &'a [u8], definition: &Definition) -> &'a str {
        text(bytes, definition.name)
    }

    /// Iterates over the types that a type consists of.
    pub(super) fn inner(&self, kind: Kind) -> impl Iterator<Item = i32> {
        let (fields, others) = match kind {
            Kind::Struct(fields) => {
                let first = fields.first as usize;
                (self.fields.get(first..first + fields.len()), [None, None])
            }
            Kind::Array { elem, .. } | Kind::Slice { elem } => (None, [Some(elem), None]),
            Kind::Map { key, elem } => (None, [Some(key), Some(elem)]),
            _ => (None, [None, None]),
        };
        fields.unwrap_or_default().iter().map(|field| field.id).chain(others.into_iter().flatten())
    }

    /// Parses a type definition with `cursor` after the type's number, where `bytes` end together with the cursor. The
    /// message started at `start`.
    pub(super) fn define<'a>(
        &mut self,
        id: i32,
        bytes: &'a [u8],
        start: usize,
        cursor: &mut Cursor<'a>,
        limits: &Limits,
    ) -> Result<(), Error> {
        if id < id::FIRST || self.find(id).is_some() {
            return Err(duplicate());
        }
        if self.definitions.len() >= limits.types {
            return Err(Error::new(format!("more than {} types", limits.types)));
        }
        if u32::try_from(bytes.len()).is_err() {
            return Err(Error::new("definitions of types are too long"));
        }
        let mut parser = Parser { bytes, cursor: *cursor, fields: &mut self.fields };
        let (kind, name) = parser.wire_type()?;
        *cursor = parser.cursor;
        let message = span(start..bytes.len() - cursor.len());
        self.dynamic = self.dynamic || self.inner(kind).any(|inner| inner == id::INTERFACE);
        self.add(Definition { id, kind, name, message });
        Ok(())
    }

    /// Returns the range of the message that defined the type.
    pub(super) fn message(definition: &Definition) -> Range<usize> {
        definition.message.start as usize..definition.message.end as usize
    }
}

/// This many are searched linearly: tables are usually short.
const FEW: usize = 8;

#[cold]
fn duplicate() -> Error {
    Error::new("duplicate type received")
}

fn span(range: Range<usize>) -> Span {
    // Definitions are limited to far less than 4 GiB; `Table::define` checks it.
    Span { start: range.start as u32, end: range.end as u32 }
}

fn text(bytes: &[u8], span: Span) -> &str {
    let bytes = bytes.get(span.start as usize..span.end as usize).unwrap_or_default();
    // It was checked when the definition was parsed; a table is always used with the same bytes.
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Parses Go's `wireType` (`encoding/gob/type.go`), which is an ordinary struct.
struct Parser<'t, 'a> {
    bytes: &'a [u8],
    cursor: Cursor<'a>,
    fields: &'t mut Vec<Field>,
}

impl Parser<'_, '_> {
    fn wire_type(&mut self) -> Result<(Kind, Span), Error> {
        let mut found = None;
        let mut index = -1;
        while let Some(next) = self.next_field(index, 7)? {
            index = next;
            let kind = match next {
                0 => self.array_type()?,
                1 => self.slice_type()?,
                2 => self.struct_type()?,
                3 => self.map_type()?,
                4 => self.opaque_type(Opaque::Gob)?,
                5 => self.opaque_type(Opaque::Binary)?,
                _ => self.opaque_type(Opaque::Text)?,
            };
            if found.replace(kind).is_some() {
                return Err(Error::new("a type definition defines two types"));
            }
        }
        found.ok_or_else(|| Error::new("a type definition is empty"))
    }

    fn array_type(&mut self) -> Result<(Kind, Span), Error> {
        let (mut index, mut name, mut elem, mut len) = (-1, Span::default(), 0, 0);
        while let Some(next) = self.next_field(index, 3)? {
            index = next;
            match next {
                0 => name = self.common_type()?,
                1 => elem = self.cursor.id()?,
                _ => {
                    let announced = self.cursor.int()?;
                    len = u64::try_from(announced).map_err(|_| Error::new("an array of negative length"))?;
                }
            }
        }
        Ok((Kind::Array { elem, len }, name))
    }

    fn slice_type(&mut self) -> Result<(Kind, Span), Error> {
        let (mut index, mut name, mut elem) = (-1, Span::default(), 0);
        while let Some(next) = self.next_field(index, 2)? {
            index = next;
            match next {
                0 => name = self.common_type()?,
                _ => elem = self.cursor.id()?,
            }
        }
        Ok((Kind::Slice { elem }, name))
    }

    fn map_type(&mut self) -> Result<(Kind, Span), Error> {
        let (mut index, mut name, mut key, mut elem) = (-1, Span::default(), 0, 0);
        while let Some(next) = self.next_field(index, 3)? {
            index = next;
            match next {
                0 => name = self.common_type()?,
                1 => key = self.cursor.id()?,
                _ => elem = self.cursor.id()?,
            }
        }
        Ok((Kind::Map { key, elem }, name))
    }

    fn opaque_type(&mut self, opaque: Opaque) -> Result<(Kind, Span), Error> {
        let (mut index, mut name) = (-1, Span::default());
        while let Some(next) = self.next_field(index, 1)? {
            index = next;
            name = self.common_type()?;
        }
        Ok((Kind::Opaque(opaque), name))
    }

    fn struct_type(&mut self) -> Result<(Kind, Span), Error> {
        let (mut index, mut name) = (-1, Span::default());
        let first = self.fields.len();
        while let Some(next) = self.next_field(index, 2)? {
            index = next;
            match next {
                0 => name = self.common_type()?,
                _ => self.field_types()?,
            }
        }
        let count = (self.fields.len() - first) as u32;
        Ok((Kind::Struct(Fields { first: first as u32, count }), name))
    }

    fn field_types(&mut self) -> Result<(), Error> {
        let count = self.cursor.count(1)?;
        for _ in 0..count {
            let (mut index, mut field) = (-1, Field { name: Span::default(), id: 0 });
            while let Some(next) = self.next_field(index, 2)? {
                index = next;
                match next {
                    0 => field.name = self.name()?,
                    _ => field.id = self.cursor.id()?,
                }
            }
            if field.name.start == field.name.end {
                return Err(Error::new("empty name for remote field"));
            }
            self.fields.push(field);
        }
        Ok(())
    }

    /// Reads its name; the number in it repeats that of the definition, and Go's decoder ignores it.
    fn common_type(&mut self) -> Result<Span, Error> {
        let (mut index, mut name) = (-1, Span::default());
        while let Some(next) = self.next_field(index, 2)? {
            index = next;
            match next {
                0 => name = self.name()?,
                _ => drop(self.cursor.id()?),
            }
        }
        Ok(name)
    }

    fn name(&mut self) -> Result<Span, Error> {
        let length = self.cursor.text()?.len();
        let end = self.bytes.len() - self.cursor.len();
        Ok(span(end - length..end))
    }

    /// Returns the next field of a struct of `count`, or `None` at its end, which the end of the bytes is too.
    fn next_field(&mut self, last: i64, count: u32) -> Result<Option<i64>, Error> {
        if self.cursor.is_empty() {
            return Ok(None);
        }
        match self.cursor.uint()? {
            0 => Ok(None),
            delta => Fields { first: 0, count }.after(last, delta).map(Some),
        }
    }
}

/// Structure of a type to be defined.
pub(crate) enum Shape<'a> {
    Array {
        elem: i32,
        len: u64,
    },
    Slice {
        elem: i32,
    },
    Map {
        key: i32,
        elem: i32,
    },
    /// Names and types of its fields.
    Struct(&'a [(&'a str, i32)]),
    Opaque(Opaque),
}

/// Appends the message that defines a type.
pub(crate) fn define(out: &mut Vec<u8>, id: i32, name: &str, shape: &Shape<'_>) {
    let mark = begin(out);
    put_int(out, -i64::from(id));
    let index = match shape {
        Shape::Array { .. } => 0,
        Shape::Slice { .. } => 1,
        Shape::Struct(_) => 2,
        Shape::Map { .. } => 3,
        Shape::Opaque(Opaque::Gob) => 4,
        Shape::Opaque(Opaque::Binary) => 5,
        Shape::Opaque(Opaque::Text) => 6,
    };
    put_uint(out, index + 1);
    put_common(out, name, id);
    match *shape {
        Shape::Array { elem, len } => {
            put_id(out, elem);
            if len > 0 {
                put_uint(out, 1);
                put_int(out, len as i64);
            }
        }
        Shape::Slice { elem } => put_id(out, elem),
        Shape::Map { key, elem } => {
            put_id(out, key);
            put_id(out, elem);
        }
        Shape::Struct(fields) => put_fields(out, fields),
        Shape::Opaque(_) => {}
    }
    // End of the description, and of the struct around it.
    out.extend_from_slice(&[0, 0]);
    end(out, mark);
}

fn put_common(out: &mut Vec<u8>, name: &str, id: i32) {
    put_uint(out, 1);
    let mut delta = 2;
    if !name.is_empty() {
        put_uint(out, 1);
        put_bytes(out, name.as_bytes());
        delta = 1;
    }
    put_uint(out, delta);
    put_int(out, id.into());
    put_uint(out, 0);
}

fn put_fields(out: &mut Vec<u8>, fields: &[(&str, i32)]) {
    if fields.is_empty() {
        return;
    }
    put_uint(out, 1);
    put_uint(out, fields.len() as u64);
    for &(name, id) in fields {
        put_uint(out, 1);
        put_bytes(out, name.as_bytes());
        put_id(out, id);
        put_uint(out, 0);
    }
}

/// Writes the next field, a type number.
fn put_id(out: &mut Vec<u8>, id: i32) {
    put_uint(out, 1);
    put_int(out, id.into());
}
