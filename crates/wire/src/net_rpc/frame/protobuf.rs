//! Length-prefixed Protobuf (mars9/codec `codec.go`, `internal/wire.proto`).
//!
//! The header is a message: 1 is the method, 2 the sequence number, 3 the error of a response.

use bytes::{Bytes, BytesMut};
use polyrpc_core::protobuf::{Reader, WireType, put_tag, put_varint, varint_len};
use polyrpc_core::{Limits, Outbox, Status, Violation};

use super::blocks;
use super::blocks::{Blocks, put_text, text_len};
use super::pairs::{Header, Parts};

#[derive(Debug)]
pub(super) struct Protobuf {
    blocks: Blocks,
}

impl Protobuf {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { blocks: Blocks::new(limits) }
    }
}

impl Parts for Protobuf {
    const FAILURES_MAY_LACK_A_BODY: bool = true;

    fn header(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, Violation> {
        self.blocks.header(inbox, read)
    }

    fn body(&mut self, _: &Header, inbox: &mut BytesMut) -> Result<Option<Bytes>, Violation> {
        self.blocks.body(inbox)
    }

    fn oversized_body(&self, _: &Header, inbox: &[u8]) -> Option<usize> {
        Blocks::length(inbox)
    }

    fn request(&mut self, name: &str, number: u64, body: Bytes, out: &mut Outbox) -> Result<(), Status> {
        write([name.as_bytes(), b""], number, Some(body), out);
        Ok(())
    }

    fn response(&mut self, header: &Header, body: Option<Bytes>, out: &mut Outbox) -> Result<(), Status> {
        write([&header.method, &header.error], header.number, body, out);
        Ok(())
    }

    fn bytes_needed(&self) -> usize {
        self.blocks.bytes_needed()
    }
}

fn read(block: &Bytes) -> Option<Header> {
    let (mut header, mut reader) = (Header::default(), Reader::new(block));
    while !reader.is_empty() {
        match reader.tag()? {
            (METHOD, WireType::Bytes) => header.method = block.slice_ref(reader.bytes()?),
            (NUMBER, WireType::Varint) => header.number = reader.varint()?,
            (ERROR, WireType::Bytes) => header.error = block.slice_ref(reader.bytes()?),
            (number, wire) => reader.skip(number, wire)?,
        }
    }
    Some(header)
}

/// Writes method and error; empty fields are omitted, as in proto3.
fn write([method, error]: [&[u8]; 2], number: u64, body: Option<Bytes>, out: &mut Outbox) {
    let text = |text: &[u8]| if text.is_empty() { 0 } else { TAG + text_len(text) };
    let sequence = if number == 0 { 0 } else { TAG + varint_len(number) };
    let header = |buffer: &mut Vec<u8>| {
        put(buffer, METHOD, method);
        if number != 0 {
            put_tag(buffer, NUMBER, WireType::Varint);
            put_varint(buffer, number);
        }
        put(buffer, ERROR, error);
    };
    blocks::write(text(method) + sequence + text(error), header, body, out);
}

fn put(buffer: &mut Vec<u8>, field: u32, text: &[u8]) {
    if !text.is_empty() {
        put_tag(buffer, field, WireType::Bytes);
        put_text(buffer, text);
    }
}

const METHOD: u32 = 1;
const NUMBER: u32 = 2;
const ERROR: u32 = 3;

/// Size of a tag in bytes.
const TAG: usize = 1;
