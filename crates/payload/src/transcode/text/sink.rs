use super::super::number::{put_cpp, put_cpp_f32, put_int, put_uint};
use super::super::print::{self, MapKey};
use crate::schema::{EnumType, Field, Message};
use crate::transcode::Error;

pub(in super::super) fn print(message: &Message, bytes: &[u8], max: usize) -> Result<Vec<u8>, Error> {
    let sink = Sink { out: Vec::with_capacity(bytes.len().saturating_mul(2)), level: 0 };
    print::print(message, bytes, sink, max).map(|sink| sink.out)
}

/// Writes one field per line, like `TextFormat::PrintToString`.
struct Sink {
    out: Vec<u8>,
    /// Nesting level of the message; 0 before the outermost.
    level: usize,
}

impl Sink {
    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn name(&mut self, name: &str) {
        self.indent();
        self.raw(name);
    }

    fn indent(&mut self) {
        self.out.resize(self.out.len() + 2 * self.level.saturating_sub(1), b' ');
    }

    fn open(&mut self) {
        if self.level > 0 {
            self.raw(" {\n");
        }
        self.level += 1;
    }

    fn close(&mut self) {
        self.level -= 1;
        if self.level > 0 {
            self.indent();
            self.raw("}\n");
        }
    }

    fn scalar(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        self.raw(": ");
        put(&mut self.out);
        self.out.push(b'\n');
    }
}

/// Like `CEscape`: non-ASCII bytes are written in octal (protobuf `stubs/strutil.cc`).
fn put_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\'' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => {
                out.extend_from_slice(&[
                    b'\\',
                    b'0' + (byte >> 6),
                    b'0' + (byte >> 3 & 7),
                    b'0' + (byte & 7),
                ]);
            }
        }
    }
    out.push(b'"');
}

impl print::Sink for Sink {
    fn written(&self) -> usize {
        self.out.len()
    }

    fn rank(&self, _index: u32, field: &Field) -> u32 {
        field.number()
    }

    fn open_message(&mut self) -> usize {
        self.open();
        0
    }

    /// A repeated field's name precedes each of its values.
    fn key(&mut self, _index: u32, field: &Field, _first: bool) {
        if !field.is_repeated() {
            self.name(field.text_name());
        }
    }

    fn close_message(&mut self, _mark: usize, _members: usize) {
        self.close();
    }

    fn open_list(&mut self) -> usize {
        0
    }

    fn item(&mut self, field: &Field, _first: bool) {
        self.name(field.text_name());
    }

    fn close_list(&mut self, _mark: usize, _items: usize) {}

    fn open_map(&mut self) -> usize {
        0
    }

    fn entry(&mut self, field: &Field, key: MapKey<'_>, _first: bool) {
        self.name(field.text_name());
        self.open();
        self.name("key");
        match key {
            MapKey::Bool(value) => print::Sink::bool(self, value),
            MapKey::Int(value) => print::Sink::int64(self, value),
            MapKey::Uint(value) => print::Sink::uint64(self, value),
            MapKey::Text(text) => print::Sink::string(self, &text),
        }
        self.name("value");
    }

    fn close_entry(&mut self) {
        self.close();
    }

    fn close_map(&mut self, _mark: usize, _entries: usize) {}

    fn bool(&mut self, value: bool) {
        self.raw(if value { ": true\n" } else { ": false\n" });
    }

    fn int32(&mut self, value: i32) {
        self.scalar(|out| put_int(out, value.into()));
    }

    fn int64(&mut self, value: i64) {
        self.scalar(|out| put_int(out, value));
    }

    fn uint32(&mut self, value: u32) {
        self.scalar(|out| put_uint(out, value.into()));
    }

    fn uint64(&mut self, value: u64) {
        self.scalar(|out| put_uint(out, value));
    }

    fn float(&mut self, value: f32) -> Result<(), Error> {
        self.scalar(|out| put_cpp_f32(out, value));
        Ok(())
    }

    fn double(&mut self, value: f64) -> Result<(), Error> {
        self.scalar(|out| put_cpp(out, value));
        Ok(())
    }

    fn string(&mut self, value: &str) {
        self.scalar(|out| put_quoted(out, value.as_bytes()));
    }

    fn bytes(&mut self, value: &[u8]) {
        self.scalar(|out| put_quoted(out, value));
    }

    fn enumeration(&mut self, of: &EnumType, value: i32) {
        self.scalar(|out| match of.name(value) {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            None => put_int(out, value.into()),
        });
    }
}
