use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc_core::Json;

use super::super::number::{put_go, put_go_f32, put_int, put_rapidjson, put_uint};
use super::super::print::{self, MapKey, Printer};
use super::well_known::{self, JsonSink};
use crate::schema::{EnumType, Field, MessageType};
use crate::transcode::Error;

/// JSON writer, without blanks.
pub(in super::super) struct Sink {
    out: Vec<u8>,
    dialect: Json,
}

impl Sink {
    pub(super) fn new(dialect: Json, size: usize) -> Self {
        Self { out: Vec::with_capacity(size), dialect }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    fn comma(&mut self, first: bool) {
        if !first {
            self.out.push(b',');
        }
    }

    /// Writes the output of `put` as a number, or in quotes.
    fn number(&mut self, quoted: bool, put: impl FnOnce(&mut Vec<u8>)) {
        if quoted {
            self.out.push(b'"');
        }
        put(&mut self.out);
        if quoted {
            self.out.push(b'"');
        }
    }

    /// ProtoJSON quotes 64-bit integers, since JavaScript's numbers cannot represent them.
    fn quotes_64_bits(&self) -> bool {
        self.dialect == Json::Proto3
    }

    /// Writes a non-finite number as a word. brpc itself writes a meaningless number for it, but accepts the words;
    /// Go's encoder rejects it.
    fn not_finite(&mut self, value: f64) -> Result<(), Error> {
        let word = match value {
            _ if self.dialect == Json::Go => return Err(unsupported_value(value)),
            value if value.is_nan() => "NaN",
            value if value > 0.0 => "Infinity",
            _ => "-Infinity",
        };
        self.string_plain(word);
        Ok(())
    }

    fn string_plain(&mut self, text: &str) {
        self.out.push(b'"');
        self.raw(text);
        self.out.push(b'"');
    }

    fn put_quoted(&mut self, text: &str) {
        let is_special = match self.dialect {
            Json::Go => is_special_in_go,
            _ => is_special,
        };
        self.out.push(b'"');
        let mut rest = text;
        while let Some(at) = rest.bytes().position(is_special) {
            let (plain, special) = rest.split_at(at);
            self.raw(plain);
            rest = self.escape(special);
        }
        self.raw(rest);
        self.out.push(b'"');
    }

    /// Writes the first character of `text` escaped and returns the rest.
    fn escape<'t>(&mut self, text: &'t str) -> &'t str {
        let mut chars = text.chars();
        match chars.next() {
            Some('"') => self.raw("\\\""),
            Some('\\') => self.raw("\\\\"),
            Some('\n') => self.raw("\\n"),
            Some('\r') => self.raw("\\r"),
            Some('\t') => self.raw("\\t"),
            Some('\u{8}') => self.raw("\\b"),
            Some('\u{c}') => self.raw("\\f"),
            Some(c) if c.is_ascii() || matches!(c, '\u{2028}' | '\u{2029}') => {
                self.escape_by_number(c as u32)
            }
            Some(c) => self.raw(c.encode_utf8(&mut [0; 4])),
            None => {}
        }
        chars.as_str()
    }

    fn escape_by_number(&mut self, code: u32) {
        let digits: &[u8] = match self.dialect {
            Json::Brpc | Json::BrpcLenient => b"0123456789ABCDEF",
            _ => b"0123456789abcdef",
        };
        self.raw("\\u");
        for shift in [12, 8, 4, 0] {
            self.out.push(digits[(code >> shift & 0xf) as usize]);
        }
    }
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Go escapes characters that could end a script in HTML, and JavaScript's two additional line terminators (their first
/// byte is 0xe2; `escape` passes other characters with that byte through).
fn is_special_in_go(byte: u8) -> bool {
    is_special(byte) || matches!(byte, b'<' | b'>' | b'&' | 0xe2)
}

/// With the text of Go's `encoding/json`.
#[cold]
fn unsupported_value(value: f64) -> Error {
    let value = match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "+Inf",
        _ => "-Inf",
    };
    Error::new(format!("json: unsupported value: {value}"))
}

impl JsonSink for Sink {
    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }
}

impl print::Sink for Sink {
    fn written(&self) -> usize {
        self.out.len()
    }

    fn rank(&self, index: u32, field: &Field) -> u32 {
        match self.dialect {
            Json::Brpc | Json::BrpcLenient => field.brpc_rank(),
            Json::Proto3 => field.number(),
            Json::Go => index,
        }
    }

    fn has(&self, field: &Field) -> bool {
        !(self.dialect == Json::Go && field.is_extension())
    }

    fn shows_unset(&self, field: &Field) -> bool {
        match self.dialect {
            Json::Brpc | Json::BrpcLenient => field.is_map_like(),
            Json::Proto3 => false,
            Json::Go => !field.has_presence() && !field.is_repeated(),
        }
    }

    fn is_map(&self, field: &Field) -> bool {
        match self.dialect {
            Json::Brpc | Json::BrpcLenient => field.is_map_like(),
            _ => field.is_map(),
        }
    }

    fn open_message(&mut self) -> usize {
        self.out.push(b'{');
        0
    }

    fn key(&mut self, _index: u32, field: &Field, first: bool) {
        self.comma(first);
        match self.dialect {
            Json::Brpc | Json::BrpcLenient => self.put_quoted(field.brpc_name()),
            Json::Proto3 => self.put_quoted(field.json_name()),
            Json::Go => self.string_plain(field.name()),
        }
        self.out.push(b':');
    }

    fn close_message(&mut self, _mark: usize, _members: usize) {
        self.out.push(b'}');
    }

    fn open_list(&mut self) -> usize {
        self.out.push(b'[');
        0
    }

    fn item(&mut self, _field: &Field, first: bool) {
        self.comma(first);
    }

    fn close_list(&mut self, _mark: usize, _items: usize) {
        self.out.push(b']');
    }

    fn open_map(&mut self) -> usize {
        self.out.push(b'{');
        0
    }

    fn entry(&mut self, _field: &Field, key: MapKey<'_>, first: bool) {
        self.comma(first);
        match key {
            MapKey::Bool(value) => self.string_plain(if value { "true" } else { "false" }),
            MapKey::Int(value) => self.number(true, |out| put_int(out, value)),
            MapKey::Uint(value) => self.number(true, |out| put_uint(out, value)),
            MapKey::Text(text) => self.put_quoted(&text),
        }
        self.out.push(b':');
    }

    fn close_map(&mut self, _mark: usize, _entries: usize) {
        self.out.push(b'}');
    }

    fn bool(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    fn int32(&mut self, value: i32) {
        put_int(&mut self.out, value.into());
    }

    fn int64(&mut self, value: i64) {
        self.number(self.quotes_64_bits(), |out| put_int(out, value));
    }

    fn uint32(&mut self, value: u32) {
        put_uint(&mut self.out, value.into());
    }

    fn uint64(&mut self, value: u64) {
        self.number(self.quotes_64_bits(), |out| put_uint(out, value));
    }

    fn float(&mut self, value: f32) -> Result<(), Error> {
        match self.dialect {
            _ if !value.is_finite() => return self.not_finite(value.into()),
            // brpc treats all numbers as doubles.
            Json::Brpc | Json::BrpcLenient => put_rapidjson(&mut self.out, value.into()),
            _ => put_go_f32(&mut self.out, value),
        }
        Ok(())
    }

    fn double(&mut self, value: f64) -> Result<(), Error> {
        match self.dialect {
            _ if !value.is_finite() => return self.not_finite(value),
            Json::Brpc | Json::BrpcLenient => put_rapidjson(&mut self.out, value),
            _ => put_go(&mut self.out, value),
        }
        Ok(())
    }

    fn string(&mut self, value: &str) {
        self.put_quoted(value);
    }

    fn bytes(&mut self, value: &[u8]) {
        self.out.push(b'"');
        let start = self.out.len();
        let length = value.len().div_ceil(3) * 4;
        self.out.resize(start + length, 0);
        // The buffer has the right length, so that this cannot fail.
        let _ = STANDARD.encode_slice(value, self.out.get_mut(start..).unwrap_or_default());
        self.out.push(b'"');
    }

    fn enumeration(&mut self, of: &EnumType, value: i32) {
        match self.dialect {
            Json::Proto3 if of.is_null() => self.raw("null"),
            Json::Go => self.int32(value),
            _ => match of.name(value) {
                Some(name) => self.string_plain(name),
                None => self.int32(value),
            },
        }
    }

    fn special<'a>(
        printer: &mut Printer<'a, Self>,
        message: &'a MessageType,
        parts: Range<usize>,
        depth: usize,
    ) -> Result<bool, Error> {
        match (printer.sink.dialect, message.well_known()) {
            (Json::Proto3, Some(kind)) => well_known::print(printer, kind, message, parts, depth),
            _ => Ok(false),
        }
    }
}
