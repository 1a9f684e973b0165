//! Colfer: a header that contains the length of the body after it (github.com/pascaldekloe/colfer, `rpc` package).
//!
//! Fields are in order, each after its index; zero values are omitted. The highest bit of an index marks a number in
//! fixed-size form, most significant byte first, instead of a varint. Implemented from a description.

use bytes::{Bytes, BytesMut};
use polyrpc_core::protobuf::{Reader, put_varint};
use polyrpc_core::{Limits, Outbox, Status, Violation};

use super::blocks::put_text;
use super::message_too_long;
use super::pairs::{Header, Parts};

#[derive(Debug)]
pub(super) struct Colfer {
    limits: Limits,
    wanted: usize,
}

impl Colfer {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), wanted: 0 }
    }
}

impl Parts for Colfer {
    fn header(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, Violation> {
        self.wanted = 0;
        let limit = self.limits.header;
        let length = match scan(inbox, limit)? {
            Some(length) if length <= limit => length,
            None if inbox.len() <= limit => return Ok(None),
            _ => return Err(message_too_long(limit)),
        };
        let block = inbox.split_to(length).freeze();
        read(&block).map(Some).ok_or_else(malformed)
    }

    fn body(&mut self, header: &Header, inbox: &mut BytesMut) -> Result<Option<Bytes>, Violation> {
        self.wanted = 0;
        if header.body > self.limits.message {
            return Err(Violation::message_too_large(header.body, self.limits.message));
        }
        if inbox.len() < header.body {
            self.wanted = header.body;
            return Ok(None);
        }
        Ok(Some(inbox.split_to(header.body).freeze()))
    }

    fn oversized_body(&self, header: &Header, _: &[u8]) -> Option<usize> {
        Some(header.body)
    }

    fn request(&mut self, name: &str, number: u64, body: Bytes, out: &mut Outbox) -> Result<(), Status> {
        write([name.as_bytes(), b""], number, body, out)
    }

    fn response(&mut self, header: &Header, body: Option<Bytes>, out: &mut Outbox) -> Result<(), Status> {
        write([&header.method, &header.error], header.number, body.unwrap_or_default(), out)
    }

    fn bytes_needed(&self) -> usize {
        self.wanted
    }
}

/// Finds the end of a header. It is short, so that restarting with each piece of it costs little.
fn scan(bytes: &[u8], limit: usize) -> Result<Option<usize>, Violation> {
    let (mut reader, mut least) = (Reader::new(bytes), 0);
    loop {
        let field = match reader.take(1) {
            Some([END]) => return Ok(Some(bytes.len() - reader.rest().len())),
            Some([field]) if field & !FIXED >= least => *field,
            Some(_) => return Err(malformed()),
            None => return Ok(None),
        };
        // In ascending order, without duplicates.
        least = (field & !FIXED) + 1;
        let passed = match field {
            NUMBER | SIZE => reader.varint().map(drop),
            METHOD | ERROR => match reader.varint() {
                Some(length) if length > limit as u64 => return Err(malformed()),
                Some(length) => reader.take(length as usize).map(drop),
                None => None,
            },
            FIXED_NUMBER => reader.take(8).map(drop),
            FIXED_SIZE => reader.take(4).map(drop),
            _ => return Err(malformed()),
        };
        if passed.is_none() {
            return Ok(None);
        }
    }
}

fn read(block: &Bytes) -> Option<Header> {
    let (mut header, mut reader) = (Header::default(), Reader::new(block));
    loop {
        let [field] = *reader.take(1)? else { return None };
        match field {
            END => return Some(header),
            NUMBER => header.number = reader.varint()?,
            FIXED_NUMBER => header.number = reader.fixed64()?.swap_bytes(),
            METHOD => header.method = block.slice_ref(reader.bytes()?),
            ERROR => header.error = block.slice_ref(reader.bytes()?),
            SIZE => header.body = usize::try_from(reader.varint()?).ok()?,
            FIXED_SIZE => header.body = usize::try_from(reader.fixed32()?.swap_bytes()).ok()?,
            _ => return None,
        }
    }
}

fn write([method, error]: [&[u8]; 2], number: u64, body: Bytes, out: &mut Outbox) -> Result<(), Status> {
    let size = u32::try_from(body.len()).map_err(|_| overlong())?;
    let buffer = out.buffer();
    // A varint of up to seven bytes is shorter than the fixed form.
    match number {
        0 => {}
        1..0x2_0000_0000_0000 => {
            buffer.push(NUMBER);
            put_varint(buffer, number);
        }
        _ => {
            buffer.push(FIXED_NUMBER);
            buffer.extend_from_slice(&number.to_be_bytes());
        }
    }
    for (field, text) in [(METHOD, method), (ERROR, error)] {
        if !text.is_empty() {
            buffer.push(field);
            put_text(buffer, text);
        }
    }
    match size {
        0 => {}
        1..0x20_0000 => {
            buffer.push(SIZE);
            put_varint(buffer, size.into());
        }
        _ => {
            buffer.push(FIXED_SIZE);
            buffer.extend_from_slice(&size.to_be_bytes());
        }
    }
    buffer.push(END);
    out.body(body);
    Ok(())
}

const NUMBER: u8 = 0;
const METHOD: u8 = 1;
const ERROR: u8 = 2;
const SIZE: u8 = 3;
const FIXED_NUMBER: u8 = FIXED | NUMBER;
const FIXED_SIZE: u8 = FIXED | SIZE;
const FIXED: u8 = 0x80;
const END: u8 = 0x7f;

#[cold]
fn malformed() -> Violation {
    Violation::new("the header cannot be read")
}

#[cold]
fn overlong() -> Status {
    Status::resource_exhausted("a body of colfer holds no more than 4 GiB")
}
