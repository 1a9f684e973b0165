//! MessagePack as rpcx encodes Go's structs: a map keyed by field names (vmihailenco/msgpack v5).
//!
//! Integers are written in their shortest form and accepted in any.

use super::json::well_known;
use super::parse::{self, JsonDialect, Parser, RemainingItems, Token};
use super::print::{self, MapKey};
use super::{Error, Format, ParsedMessage};
use crate::msgpack;
use crate::msgpack::{Reader, Writer};
use crate::schema::{EnumType, Field, Message, MessageType, WellKnown};

pub(super) fn parse(message: &Message, bytes: &[u8]) -> Result<ParsedMessage, Error> {
    parse::parse(message, Source { reader: Reader::new(bytes) }, JsonDialect::Go, bytes.len())
}

pub(super) fn print(message: &Message, bytes: &[u8], max: usize) -> Result<Vec<u8>, Error> {
    // Then no length or count in it needs more than 32 bits.
    u32::try_from(bytes.len()).map_err(|_| Error::new("a message of more than 4 GiB"))?;
    let sink = Sink { out: Vec::with_capacity(bytes.len().saturating_mul(2)) };
    print::print(message, bytes, sink, max).map(|sink| sink.out)
}

#[derive(Clone)]
struct Source<'a> {
    reader: Reader<'a>,
}

impl<'a> From<msgpack::Token<'a>> for Token<'a> {
    fn from(token: msgpack::Token<'a>) -> Self {
        match token {
            msgpack::Token::Nil => Self::Null,
            msgpack::Token::Bool(value) => Self::Bool(value),
            msgpack::Token::Unsigned(value) => i64::try_from(value).map_or(Self::Uint(value), Self::Int),
            msgpack::Token::Negative(value) => Self::Int(value),
            msgpack::Token::F32(value) => Self::Float(value.into(), ""),
            msgpack::Token::F64(value) => Self::Float(value, ""),
            // Old encoders write binary data as strings.
            msgpack::Token::Str(bytes) => {
                std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), |text| Self::Text(text.into()))
            }
            msgpack::Token::Bin(bytes) => Self::Bytes(bytes),
            msgpack::Token::Array(count) => Self::List(RemainingItems(count as usize)),
            msgpack::Token::Map(count) => Self::Object(RemainingItems(count as usize)),
            msgpack::Token::Ext(..) => Self::Opaque,
        }
    }
}

impl<'a> parse::Source<'a> for Source<'a> {
    const BASE64: bool = false;

    fn value(&mut self) -> Result<Token<'a>, Error> {
        self.reader.next().map(Token::from).map_err(|_| broken())
    }

    fn item(&mut self, left: &mut RemainingItems) -> Result<bool, Error> {
        let more = left.0.checked_sub(1);
        left.0 = more.unwrap_or(0);
        Ok(more.is_some())
    }

    fn key(&mut self, left: &mut RemainingItems) -> Result<Option<Token<'a>>, Error> {
        if self.item(left)? { self.value().map(Some) } else { Ok(None) }
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.reader.is_empty() { Ok(()) } else { Err(Error::new("bytes after the end of the message")) }
    }

    fn number(text: &str) -> Option<Token<'_>> {
        text.parse().map(Token::Int).or_else(|_| text.parse().map(Token::Uint)).ok()
    }

    fn special<'p>(
        parser: &mut Parser<'p, Self>,
        kind: WellKnown,
        message: &'p MessageType,
        token: Token<'a>,
        depth: usize,
    ) -> Result<(), Error> {
        well_known::parse(parser, kind, message, token, depth)
    }
}

#[cold]
fn broken() -> Error {
    Error::new(format!("not a message in {}", Format::MessagePack.as_str()))
}

struct Sink {
    out: Vec<u8>,
}

impl Sink {
    fn writer(&mut self) -> Writer<'_> {
        Writer::new(&mut self.out)
    }
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

    fn shows_unset(&self, field: &Field) -> bool {
        !field.has_presence() && !field.is_repeated()
    }

    fn open_message(&mut self) -> usize {
        self.writer().begin()
    }

    fn key(&mut self, _index: u32, field: &Field, _first: bool) {
        self.writer().str(field.name());
    }

    fn close_message(&mut self, mark: usize, members: usize) {
        self.writer().end_map(mark, members);
    }

    fn open_list(&mut self) -> usize {
        self.writer().begin()
    }

    fn item(&mut self, _field: &Field, _first: bool) {}

    fn close_list(&mut self, mark: usize, items: usize) {
        self.writer().end_array(mark, items);
    }

    fn open_map(&mut self) -> usize {
        self.writer().begin()
    }

    fn entry(&mut self, _field: &Field, key: MapKey<'_>, _first: bool) {
        match key {
            MapKey::Bool(value) => self.writer().bool(value),
            MapKey::Int(value) => self.writer().signed(value),
            MapKey::Uint(value) => self.writer().unsigned(value),
            MapKey::Text(text) => self.writer().str(&text),
        }
    }

    fn close_map(&mut self, mark: usize, entries: usize) {
        self.writer().end_map(mark, entries);
    }

    fn bool(&mut self, value: bool) {
        self.writer().bool(value);
    }

    fn int32(&mut self, value: i32) {
        self.writer().signed(value.into());
    }

    fn int64(&mut self, value: i64) {
        self.writer().signed(value);
    }

    fn uint32(&mut self, value: u32) {
        self.writer().unsigned(value.into());
    }

    fn uint64(&mut self, value: u64) {
        self.writer().unsigned(value);
    }

    fn float(&mut self, value: f32) -> Result<(), Error> {
        self.writer().f32(value);
        Ok(())
    }

    fn double(&mut self, value: f64) -> Result<(), Error> {
        self.writer().f64(value);
        Ok(())
    }

    fn string(&mut self, value: &str) {
        self.writer().str(value);
    }

    fn bytes(&mut self, value: &[u8]) {
        self.writer().bin(value);
    }

    fn enumeration(&mut self, _of: &EnumType, value: i32) {
        self.writer().signed(value.into());
    }
}
