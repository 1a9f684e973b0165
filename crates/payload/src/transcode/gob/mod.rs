//! Gob, as Go encodes the struct that protoc-gen-go generates for a message: fields in order, under their Go names,
//! unset ones omitted.

use std::collections::HashMap;

use super::Error;
use super::print::{self, MapKey};
use crate::gob::number::{begin, end, put_bytes, put_float, put_int, put_uint, recount};
use crate::gob::types::{Shape, define, id};
use crate::schema::{EnumType, Field, Kind, Message, MessageId, Pool};

mod parse;

pub(super) use self::parse::parse;

pub(super) fn print(message: &Message, bytes: &[u8], max: usize) -> Result<Vec<u8>, Error> {
    let mut types = Types { pool: message.pool(), known: HashMap::new(), next: id::FIRST, out: Vec::new() };
    let root = types.message(message.id());
    let mut out = types.out;
    out.reserve(2 * bytes.len() + 16);
    let mark = begin(&mut out);
    put_int(&mut out, root.into());
    let sink = print::print(message, bytes, Sink { out, last: BEFORE_THE_FIRST }, max)?;
    let mut out = sink.out;
    end(&mut out, mark);
    Ok(out)
}

/// Defines the types of a message and of all nested ones.
struct Types<'p> {
    pool: &'p Pool,
    /// Type numbers of messages, of lists, and of maps by their entries.
    known: HashMap<TypeOf, i32>,
    next: i32,
    out: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum TypeOf {
    Message(MessageId),
    List(i32),
    Map(MessageId),
}

impl Types<'_> {
    fn message(&mut self, message: MessageId) -> i32 {
        if let Some(known) = self.known.get(&TypeOf::Message(message)) {
            return *known;
        }
        let number = self.number(TypeOf::Message(message));
        let ty = self.pool.message_type(message);
        let fields: Vec<_> =
            ty.fields().iter().map(|field| (go_name(field.name()), self.field(field))).collect();
        let fields: Vec<_> = fields.iter().map(|(name, number)| (&**name, *number)).collect();
        define(&mut self.out, number, ty.name(), &Shape::Struct(&fields));
        number
    }

    fn field(&mut self, field: &Field) -> i32 {
        match field.kind().message() {
            Some(entry) if field.is_map() => self.map(entry),
            _ if field.is_repeated() => {
                let elem = self.kind(field.kind());
                self.list(elem)
            }
            _ => self.kind(field.kind()),
        }
    }

    fn list(&mut self, elem: i32) -> i32 {
        if let Some(known) = self.known.get(&TypeOf::List(elem)) {
            return *known;
        }
        let number = self.number(TypeOf::List(elem));
        define(&mut self.out, number, "", &Shape::Slice { elem });
        number
    }

    fn map(&mut self, entry: MessageId) -> i32 {
        if let Some(known) = self.known.get(&TypeOf::Map(entry)) {
            return *known;
        }
        let number = self.number(TypeOf::Map(entry));
        let kind = |types: &mut Self, at: u32| {
            let field = types.pool.message_type(entry).field(at);
            field.map_or(id::STRING, |field| types.kind(field.kind()))
        };
        let (key, elem) = (kind(self, 1), kind(self, 2));
        define(&mut self.out, number, "", &Shape::Map { key, elem });
        number
    }

    fn kind(&mut self, kind: Kind) -> i32 {
        match kind {
            Kind::Double | Kind::Float => id::FLOAT,
            Kind::Int32 | Kind::Int64 | Kind::Sint32 | Kind::Sint64 => id::INT,
            Kind::Sfixed32 | Kind::Sfixed64 | Kind::Enum(_) => id::INT,
            Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => id::UINT,
            Kind::Bool => id::BOOL,
            Kind::String => id::STRING,
            Kind::Bytes => id::BYTES,
            Kind::Message(message) | Kind::Group(message) => self.message(message),
        }
    }

    fn number(&mut self, of: TypeOf) -> i32 {
        let number = self.next;
        self.next += 1;
        self.known.insert(of, number);
        number
    }
}

/// Returns the Go struct's field name (protobuf-go `internal/strs.GoCamelCase`).
fn go_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    let mut in_word = false;
    while let Some(c) = chars.next() {
        match c {
            '_' if out.is_empty() => out.push('X'),
            '_' if chars.peek().is_some_and(char::is_ascii_lowercase) => in_word = false,
            c if c.is_ascii_lowercase() && !in_word => {
                out.push(c.to_ascii_uppercase());
                in_word = true;
            }
            c => {
                out.push(c);
                in_word = c.is_ascii_alphabetic();
            }
        }
    }
    out
}

const BEFORE_THE_FIRST: i64 = -1;

struct Sink {
    out: Vec<u8>,
    /// Index of the last written field.
    last: i64,
}

impl print::Sink for Sink {
    fn written(&self) -> usize {
        self.out.len()
    }

    fn rank(&self, index: u32, _field: &Field) -> u32 {
        index
    }

    fn has(&self, field: &Field) -> bool {
        !field.is_extension()
    }

    /// The value passed back at the end is the field index of the enclosing message.
    fn open_message(&mut self) -> usize {
        let outside = std::mem::replace(&mut self.last, BEFORE_THE_FIRST);
        (outside - BEFORE_THE_FIRST) as usize
    }

    fn key(&mut self, index: u32, _field: &Field, _first: bool) {
        let index = i64::from(index);
        put_uint(&mut self.out, (index - self.last) as u64);
        self.last = index;
    }

    fn close_message(&mut self, outside: usize, _members: usize) {
        self.out.push(0);
        self.last = outside as i64 + BEFORE_THE_FIRST;
    }

    fn open_list(&mut self) -> usize {
        begin(&mut self.out)
    }

    fn item(&mut self, _field: &Field, _first: bool) {}

    fn close_list(&mut self, mark: usize, items: usize) {
        recount(&mut self.out, mark, 1, items as u64);
    }

    fn open_map(&mut self) -> usize {
        begin(&mut self.out)
    }

    fn entry(&mut self, _field: &Field, key: MapKey<'_>, _first: bool) {
        match key {
            MapKey::Bool(value) => self.bool(value),
            MapKey::Int(value) => self.int64(value),
            MapKey::Uint(value) => self.uint64(value),
            MapKey::Text(text) => self.string(&text),
        }
    }

    fn close_map(&mut self, mark: usize, entries: usize) {
        recount(&mut self.out, mark, 1, entries as u64);
    }

    fn bool(&mut self, value: bool) {
        self.out.push(value.into());
    }

    fn int32(&mut self, value: i32) {
        put_int(&mut self.out, value.into());
    }

    fn int64(&mut self, value: i64) {
        put_int(&mut self.out, value);
    }

    fn uint32(&mut self, value: u32) {
        put_uint(&mut self.out, value.into());
    }

    fn uint64(&mut self, value: u64) {
        put_uint(&mut self.out, value);
    }

    fn float(&mut self, value: f32) -> Result<(), Error> {
        put_float(&mut self.out, value.into());
        Ok(())
    }

    fn double(&mut self, value: f64) -> Result<(), Error> {
        put_float(&mut self.out, value);
        Ok(())
    }

    fn string(&mut self, value: &str) {
        put_bytes(&mut self.out, value.as_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        put_bytes(&mut self.out, value);
    }

    fn enumeration(&mut self, _of: &EnumType, value: i32) {
        put_int(&mut self.out, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_as_by_protoc_gen_go() {
        for (declared, go) in [
            ("A", "A"),
            ("message", "Message"),
            ("two_words", "TwoWords"),
            ("_hidden", "XHidden"),
            ("a_1b", "A_1B"),
            ("field1a", "Field1A"),
            ("camelCase", "CamelCase"),
            ("double__", "Double__"),
        ] {
            assert_eq!(go_name(declared), go);
        }
    }
}
