//! BSON (bsonspec.org): one document is the header, the next one the body. Implemented from a description, with field
//! names as mgo derives them from Go's fields.

use bytes::{BufMut, Bytes, BytesMut};
use polyrpc_core::protobuf::Reader;
use polyrpc_core::{Limits, Outbox, Status, Violation};

use super::pairs::{Header, Parts};

#[derive(Debug)]
pub(super) struct Bson {
    limits: Limits,
    wanted: usize,
}

impl Bson {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), wanted: 0 }
    }

    fn document(&mut self, inbox: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, Violation> {
        self.wanted = 0;
        let Some(length) = inbox.first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length < EMPTY.len() {
            return Err(malformed());
        }
        if length > limit {
            return Err(Violation::message_too_large(length, limit));
        }
        if inbox.len() < length {
            self.wanted = length;
            return Ok(None);
        }
        Ok(Some(inbox.split_to(length).freeze()))
    }
}

impl Parts for Bson {
    fn header(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, Violation> {
        let Some(document) = self.document(inbox, self.limits.header)? else { return Ok(None) };
        read(&document).map(Some).ok_or_else(malformed)
    }

    fn body(&mut self, _: &Header, inbox: &mut BytesMut) -> Result<Option<Bytes>, Violation> {
        self.document(inbox, self.limits.message)
    }

    fn oversized_body(&self, _: &Header, inbox: &[u8]) -> Option<usize> {
        inbox.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
    }

    fn request(&mut self, name: &str, number: u64, body: Bytes, out: &mut Outbox) -> Result<(), Status> {
        write(name.as_bytes(), number, None, document(body)?, out);
        Ok(())
    }

    fn response(&mut self, header: &Header, body: Option<Bytes>, out: &mut Outbox) -> Result<(), Status> {
        let body = document(body.unwrap_or_default())?;
        write(&header.method, header.number, Some(&header.error), body, out);
        Ok(())
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }
}

fn read(document: &Bytes) -> Option<Header> {
    let (mut header, mut reader) = (Header::default(), Reader::new(document.get(LENGTH..)?));
    loop {
        let [kind] = *reader.take(1)? else { return None };
        if kind == END {
            return reader.is_empty().then_some(header);
        }
        match (name(&mut reader)?, kind) {
            (b"servicemethod", STRING) => header.method = document.slice_ref(string(&mut reader)?),
            (b"error", STRING) => header.error = document.slice_ref(string(&mut reader)?),
            (b"seq", INT32) => header.number = reader.fixed32()?.into(),
            (b"seq", INT64) => header.number = reader.fixed64()?,
            (b"seq", DOUBLE) => header.number = f64::from_bits(reader.fixed64()?) as u64,
            (_, kind) => skip(kind, &mut reader)?,
        }
    }
}

/// Reads a name, which is terminated by a zero byte.
fn name<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = reader.rest().iter().position(|byte| *byte == 0)?;
    let name = reader.take(length)?;
    reader.take(1)?;
    Some(name)
}

/// Reads a text, whose length includes the terminating zero byte.
fn string<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = reader.fixed32()? as usize;
    reader.take(length)?.strip_suffix(&[0])
}

/// Skips a value that does not belong to the header.
fn skip(kind: u8, reader: &mut Reader<'_>) -> Option<()> {
    let length = match kind {
        DOUBLE | INT64 | 0x09 | 0x11 => 8,
        0x07 => 12,
        0x08 => 1,
        INT32 => 4,
        0x13 => 16,
        0x06 | 0x0a | 0x7f | 0xff => 0,
        STRING | 0x0d | 0x0e => reader.fixed32()? as usize,
        // The length of a document includes itself.
        0x03 | 0x04 | 0x0f => (reader.fixed32()? as usize).checked_sub(LENGTH)?,
        // The length of binary data does not include the subtype.
        0x05 => (reader.fixed32()? as usize).checked_add(1)?,
        0x0b => return name(reader).and_then(|_| name(reader)).map(drop),
        0x0c => (reader.fixed32()? as usize).checked_add(12)?,
        _ => return None,
    };
    reader.take(length).map(drop)
}

fn write(method: &[u8], number: u64, error: Option<&[u8]>, body: Bytes, out: &mut Outbox) {
    let buffer = out.buffer();
    let start = buffer.len();
    buffer.put_u32_le(0);
    put_string(buffer, b"servicemethod", method);
    buffer.put_u8(INT64);
    buffer.put_slice(b"seq\0");
    buffer.put_u64_le(number);
    if let Some(error) = error {
        put_string(buffer, b"error", error);
    }
    buffer.put_u8(END);
    let length = (buffer.len() - start) as u32;
    buffer[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    out.body(body);
}

/// Checks that the body is a single document, which the peer expects. An empty body becomes an empty document.
fn document(body: Bytes) -> Result<Bytes, Status> {
    match body.first_chunk() {
        None if body.is_empty() => Ok(Bytes::from_static(EMPTY)),
        Some(length) if u32::from_le_bytes(*length) as usize == body.len() => Ok(body),
        _ => Err(Status::internal("the body is not BSON")),
    }
}

fn put_string(buffer: &mut Vec<u8>, name: &[u8], text: &[u8]) {
    buffer.put_u8(STRING);
    buffer.put_slice(name);
    buffer.put_u8(0);
    buffer.put_u32_le(text.len() as u32 + 1);
    buffer.put_slice(text);
    buffer.put_u8(0);
}

/// An empty document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// Size of a document's length field in bytes.
const LENGTH: usize = 4;

const END: u8 = 0x00;
const DOUBLE: u8 = 0x01;
const STRING: u8 = 0x02;
const INT32: u8 = 0x10;
const INT64: u8 = 0x12;

#[cold]
fn malformed() -> Violation {
    Violation::new("the header cannot be read")
}
