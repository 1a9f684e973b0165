//! Length-prefixed Gencode (net-rpc-gencode `codec.go`; the layout is that of andyleap/gencode).
//!
//! The header has no tags: the method, the sequence number in eight bytes, little-endian, and the error of a response.

use bytes::{Bytes, BytesMut};
use polyrpc_core::protobuf::Reader;
use polyrpc_core::{Limits, Outbox, Status, Violation};

use super::blocks;
use super::blocks::{Blocks, put_text, text_len};
use super::pairs::{Header, Parts};

#[derive(Debug)]
pub(super) struct Gencode {
    blocks: Blocks,
}

impl Gencode {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { blocks: Blocks::new(limits) }
    }
}

impl Parts for Gencode {
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
        write(name.as_bytes(), number, None, Some(body), out);
        Ok(())
    }

    fn response(&mut self, header: &Header, body: Option<Bytes>, out: &mut Outbox) -> Result<(), Status> {
        write(&header.method, header.number, Some(&header.error), body, out);
        Ok(())
    }

    fn bytes_needed(&self) -> usize {
        self.blocks.bytes_needed()
    }
}

/// Parses a header. A request's header has no error: it ends where a response's continues.
fn read(block: &Bytes) -> Option<Header> {
    let mut reader = Reader::new(block);
    let method = block.slice_ref(reader.bytes()?);
    let number = reader.fixed64()?;
    let error = if reader.is_empty() { Bytes::new() } else { block.slice_ref(reader.bytes()?) };
    Some(Header { method, number, error, ..Header::default() })
}

fn write(method: &[u8], number: u64, error: Option<&[u8]>, body: Option<Bytes>, out: &mut Outbox) {
    let length = text_len(method) + NUMBER + error.map_or(0, text_len);
    let header = |buffer: &mut Vec<u8>| {
        put_text(buffer, method);
        buffer.extend_from_slice(&number.to_le_bytes());
        if let Some(error) = error {
            put_text(buffer, error);
        }
    };
    blocks::write(length, header, body, out);
}

/// Size of the sequence number in bytes.
const NUMBER: usize = 8;
