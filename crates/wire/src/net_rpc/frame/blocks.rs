//! Blocks prefixed by their lengths, which are varints.

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::protobuf::varint_len;
use polyrpc_core::{Limits, Outbox, Violation, protobuf};

use super::pairs::Header;

/// Reads blocks from an inbox.
#[derive(Debug)]
pub(super) struct Blocks {
    limits: Limits,
    wanted: usize,
}

impl Blocks {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), wanted: 0 }
    }

    /// Reads a header, which `read` parses from its block.
    pub(super) fn header(
        &mut self,
        inbox: &mut BytesMut,
        read: impl FnOnce(&Bytes) -> Option<Header>,
    ) -> Result<Option<Header>, Violation> {
        let Some(block) = self.next(inbox, self.limits.header)? else { return Ok(None) };
        read(&block).map(Some).ok_or_else(malformed)
    }

    /// Reads a body.
    pub(super) fn body(&mut self, inbox: &mut BytesMut) -> Result<Option<Bytes>, Violation> {
        self.next(inbox, self.limits.message)
    }

    /// Returns the length of the block at the start of `inbox`, its prefix included.
    #[cold]
    pub(super) fn length(inbox: &[u8]) -> Option<usize> {
        let mut prefix = protobuf::Reader::new(inbox);
        let length = usize::try_from(prefix.varint()?).ok()?;
        length.checked_add(inbox.len() - prefix.rest().len())
    }

    pub(super) fn bytes_needed(&self) -> usize {
        self.wanted
    }

    fn next(&mut self, inbox: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, Violation> {
        self.wanted = 0;
        let mut prefix = protobuf::Reader::new(inbox);
        let Some(length) = prefix.varint() else {
            return if inbox.len() < LONGEST_VARINT { Ok(None) } else { Err(length_too_long()) };
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > limit {
            return Err(Violation::message_too_large(length, limit));
        }
        let start = inbox.len() - prefix.rest().len();
        let end = start + length;
        if inbox.len() < end {
            self.wanted = end;
            return Ok(None);
        }
        let mut block = inbox.split_to(end).freeze();
        block.advance(start);
        Ok(Some(block))
    }
}

/// Appends a message of two blocks: a header of `length` bytes, which `write` appends, and a body.
pub(super) fn write(length: usize, write: impl FnOnce(&mut Vec<u8>), body: Option<Bytes>, out: &mut Outbox) {
    let body = body.unwrap_or_default();
    let buffer = out.buffer();
    buffer.reserve(2 * LONGEST_VARINT + length);
    protobuf::put_varint(buffer, length as u64);
    let start = buffer.len();
    write(buffer);
    debug_assert_eq!(buffer.len() - start, length, "the length that was announced");
    protobuf::put_varint(buffer, body.len() as u64);
    out.body(body);
}

/// Returns the encoded length of a length-prefixed text.
pub(super) fn text_len(text: &[u8]) -> usize {
    varint_len(text.len() as u64) + text.len()
}

/// Appends a length-prefixed text.
pub(super) fn put_text(buffer: &mut Vec<u8>, text: &[u8]) {
    protobuf::put_varint(buffer, text.len() as u64);
    buffer.extend_from_slice(text);
}

const LONGEST_VARINT: usize = 10;

#[cold]
fn length_too_long() -> Violation {
    Violation::new("an endless length")
}

#[cold]
fn malformed() -> Violation {
    Violation::new("the header cannot be read")
}
