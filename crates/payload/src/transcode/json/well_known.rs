//! Messages with a special representation in ProtoJSON.

use std::ops::Range;

use polyrpc_core::protobuf::{WireType, put_tag, put_varint};

use super::super::binary::{close, open, put_bytes};
use super::super::parse::{self, Parser, RemainingItems, Token};
use super::super::print::{self, Printer, Value};
use super::time::Time;
use crate::schema::{MessageType, WellKnown};
use crate::transcode::Error;

/// Sink of JSON text.
pub(super) trait JsonSink: print::Sink {
    /// Writes JSON that is valid together with the values around it.
    fn raw(&mut self, text: &str);
}

/// Writes a message in its special representation, if it has one.
pub(super) fn print<'a, S: JsonSink>(
    printer: &mut Printer<'a, S>,
    kind: WellKnown,
    message: &'a MessageType,
    parts: Range<usize>,
    depth: usize,
) -> Result<bool, Error> {
    if !kind.has_own_form() {
        return Ok(false);
    }
    let from = printer.scan(message, parts)?;
    match kind {
        WellKnown::Any => print_any(printer, message, from, depth)?,
        WellKnown::Timestamp | WellKnown::Duration => print_time(printer, kind, message, from)?,
        WellKnown::FieldMask => print_field_mask(printer, message, from)?,
        WellKnown::Struct | WellKnown::ListValue | WellKnown::Wrapper => {
            let field = message.field(1).ok_or_else(|| unusual(message))?;
            match printer.group_of(message, from, field) {
                Some(group) => printer.field(field, group, depth)?,
                None => printer.unset(field, depth)?,
            }
        }
        WellKnown::Value => match printer.group(message, from) {
            Some((field, group)) => printer.field(field, group, depth)?,
            None => return Err(Error::new("a google.protobuf.Value without a value")),
        },
        WellKnown::Empty => {}
    }
    printer.pop(from);
    Ok(true)
}

fn print_any<'a, S: JsonSink>(
    printer: &mut Printer<'a, S>,
    message: &'a MessageType,
    from: usize,
    depth: usize,
) -> Result<(), Error> {
    let url = utf8(printer.last_of(message, from, 1))?;
    let value = printer.last_of(message, from, 2);
    printer.sink.raw("{");
    let mut members = 0;
    if !url.is_empty() {
        printer.sink.raw("\"@type\":");
        printer.sink.string(url);
        members = 1;
        let inner = type_of(url).and_then(|name| printer.pool.message_id(name));
        let inner = printer.pool.message_type(inner.ok_or_else(|| unknown_type(url))?);
        let part = printer.push(value);
        if inner.well_known().is_some() {
            printer.sink.raw(",\"value\":");
            printer.message(inner, part, depth)?;
        } else {
            let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
            members = printer.members(inner, part, members, depth)?;
        }
    }
    printer.sink.close_message(0, members);
    Ok(())
}

fn print_time<'a, S: JsonSink>(
    printer: &mut Printer<'a, S>,
    kind: WellKnown,
    message: &'a MessageType,
    from: usize,
) -> Result<(), Error> {
    let int = |value| if let Value::Varint(bits) = value { bits as i64 } else { 0 };
    let seconds = int(printer.last_of(message, from, 1));
    let nanos = int(printer.last_of(message, from, 2)) as i32;
    let time = Time { seconds, nanos };
    let mut text = Vec::with_capacity(32);
    let put = match kind {
        WellKnown::Timestamp => time.put_timestamp(&mut text),
        _ => time.put_duration(&mut text),
    };
    put.ok_or_else(|| Error::new(format!("a {} out of its range", message.full_name())))?;
    printer.sink.string(std::str::from_utf8(&text).unwrap_or_default());
    Ok(())
}

fn print_field_mask<'a, S: JsonSink>(
    printer: &mut Printer<'a, S>,
    message: &'a MessageType,
    from: usize,
) -> Result<(), Error> {
    let mut text = String::new();
    let group = message.field(1).and_then(|field| printer.group_of(message, from, field));
    for path in printer.values(group.unwrap_or(from..from)) {
        let path = utf8(path)?;
        if !text.is_empty() {
            text.push(',');
        }
        to_camel_case(path, &mut text)
            .ok_or_else(|| Error::new(format!("no name of a field: {}", path.escape_debug())))?;
    }
    printer.sink.string(&text);
    Ok(())
}

/// Converts `a_b` to `aB`; `None` if that could not be reversed.
fn to_camel_case(path: &str, out: &mut String) -> Option<()> {
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '_' => out.push(chars.next().filter(char::is_ascii_lowercase)?.to_ascii_uppercase()),
            c if c.is_ascii_uppercase() => return None,
            c => out.push(c),
        }
    }
    Some(())
}

fn utf8(value: Value<'_>) -> Result<&str, Error> {
    match value {
        Value::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|_| Error::new("a string is not UTF-8")),
        _ => Ok(""),
    }
}

/// Parses a message from its special representation, which starts with `token`.
pub(in super::super) fn parse<'p, 'a, S: parse::Source<'a>>(
    parser: &mut Parser<'p, S>,
    kind: WellKnown,
    message: &'p MessageType,
    token: Token<'a>,
    depth: usize,
) -> Result<(), Error> {
    let number = match (kind, &token) {
        (WellKnown::Any, Token::Object(left)) => {
            let left = left.clone();
            return parse_any(parser, left, depth);
        }
        (WellKnown::Timestamp | WellKnown::Duration, Token::Text(text)) => {
            let time = match kind {
                WellKnown::Timestamp => Time::parse_timestamp(text),
                _ => Time::parse_duration(text),
            };
            put_time(&mut parser.out, time.ok_or_else(|| wrong_form(message))?);
            return Ok(());
        }
        (WellKnown::FieldMask, Token::Text(text)) => {
            return parse_field_mask(&mut parser.out, text).ok_or_else(|| wrong_form(message));
        }
        (WellKnown::Wrapper, _)
        | (WellKnown::Struct, Token::Object(_))
        | (WellKnown::ListValue, Token::List(_)) => 1,
        (WellKnown::Value, Token::Null) => 1,
        (WellKnown::Value, Token::Int(_) | Token::Uint(_) | Token::Float(..)) => 2,
        (WellKnown::Value, Token::Text(_)) => 3,
        (WellKnown::Value, Token::Bool(_)) => 4,
        (WellKnown::Value, Token::Object(_)) => 5,
        (WellKnown::Value, Token::List(_)) => 6,
        (_, token) => return Err(Error::wrong_type(message.full_name(), token)),
    };
    let field = message.field(number).ok_or_else(|| unusual(message))?;
    parser.field(message, field, token, depth)
}

/// Parses an `Any`. Its type may follow the content, so that it is searched first.
fn parse_any<'p, 'a, S: parse::Source<'a>>(
    parser: &mut Parser<'p, S>,
    left: RemainingItems,
    depth: usize,
) -> Result<(), Error> {
    let start = parser.source.clone();
    let mut url = None;
    let mut empty = true;
    let mut at = left.clone();
    while let Some(key) = parser.source.key(&mut at)? {
        empty = false;
        match (is_key(&key, "@type"), parser.source.value()?) {
            (true, Token::Text(text)) if url.is_none() => url = Some(text),
            (true, _) => return Err(Error::mismatch("@type is not one string")),
            (false, other) => parser.skip(other, depth)?,
        }
    }
    let Some(url) = url else {
        return if empty { Ok(()) } else { Err(Error::mismatch("a google.protobuf.Any without @type")) };
    };
    let end = std::mem::replace(&mut parser.source, start);

    let inner = type_of(&url).and_then(|name| parser.pool.message_id(name));
    let inner = parser.pool.message_type(inner.ok_or_else(|| unknown_type(&url))?);
    put_tag(&mut parser.out, 1, WireType::Bytes);
    put_bytes(&mut parser.out, url.as_bytes());
    put_tag(&mut parser.out, 2, WireType::Bytes);
    let mark = open(&mut parser.out);
    if inner.well_known().is_some() {
        parse_any_value(parser, inner, left, depth)?;
    } else {
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        parser.members(inner, left, depth, &["@type"])?;
    }
    close(&mut parser.out, mark);
    parser.source = end;
    Ok(())
}

/// A message with a special representation is under the key `value`.
fn parse_any_value<'p, 'a, S: parse::Source<'a>>(
    parser: &mut Parser<'p, S>,
    inner: &'p MessageType,
    mut left: RemainingItems,
    depth: usize,
) -> Result<(), Error> {
    let mut found = inner.well_known() == Some(WellKnown::Empty);
    while let Some(key) = parser.source.key(&mut left)? {
        let token = parser.source.value()?;
        if is_key(&key, "value") {
            parser.message(inner, token, depth)?;
            found = true;
        } else {
            parser.skip(token, depth)?;
        }
    }
    if found { Ok(()) } else { Err(Error::mismatch(format!("a {} without its value", inner.full_name()))) }
}

fn is_key(token: &Token<'_>, key: &str) -> bool {
    matches!(token, Token::Text(text) if text == key)
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    for (number, value) in [(1, time.seconds), (2, time.nanos.into())] {
        if value != 0 {
            put_tag(out, number, WireType::Varint);
            put_varint(out, value as u64);
        }
    }
}

fn parse_field_mask(out: &mut Vec<u8>, text: &str) -> Option<()> {
    for path in text.split(',').filter(|_| !text.is_empty()) {
        put_tag(out, 1, WireType::Bytes);
        let mark = open(out);
        for byte in path.bytes() {
            match byte {
                b'_' => return None,
                upper if upper.is_ascii_uppercase() => {
                    out.extend_from_slice(&[b'_', upper.to_ascii_lowercase()])
                }
                other => out.push(other),
            }
        }
        close(out, mark);
    }
    Some(())
}

/// Returns the full name at the end of an `Any`'s URL.
fn type_of(url: &str) -> Option<&str> {
    url.rsplit_once('/').map(|(_, name)| name)
}

#[cold]
fn unknown_type(url: &str) -> Error {
    Error::mismatch(format!("unknown type {}", url.escape_debug()))
}

#[cold]
fn wrong_form(message: &MessageType) -> Error {
    Error::mismatch(format!("expected {} in its form, found another string", message.full_name()))
}

#[cold]
fn unusual(message: &MessageType) -> Error {
    Error::new(format!("{} is not declared as usual", message.full_name()))
}
