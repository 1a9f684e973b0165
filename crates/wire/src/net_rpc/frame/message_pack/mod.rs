//! MessagePack without framing: one value is the header, the next one the body (hashicorp/net-rpc-msgpackrpc
//! `codec.go`).

mod extent;

use bytes::{Bytes, BytesMut};
use polyrpc_core::{Limits, Outbox, Status, Violation};
use polyrpc_payload::msgpack::{Error, Reader, Token, Writer};

use super::pairs::{Header, Parts};

use self::extent::Extent;

#[derive(Debug)]
pub(super) struct MessagePack {
    limits: Limits,
    extent: Extent,
}

impl MessagePack {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), extent: Extent::default() }
    }

    fn next(&mut self, inbox: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, Violation> {
        let end = self.extent.end(inbox, limit)?;
        Ok(end.map(|end| inbox.split_to(end).freeze()))
    }
}

impl Parts for MessagePack {
    fn header(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, Violation> {
        let Some(value) = self.next(inbox, self.limits.header)? else { return Ok(None) };
        read(&value).map(Some).map_err(malformed)
    }

    fn body(&mut self, _: &Header, inbox: &mut BytesMut) -> Result<Option<Bytes>, Violation> {
        self.next(inbox, self.limits.message)
    }

    fn request(&mut self, name: &str, number: u64, body: Bytes, out: &mut Outbox) -> Result<(), Status> {
        let body = value(body)?;
        let mut writer = Writer::new(out.buffer());
        writer.map(2);
        put_call(&mut writer, number, name.as_bytes());
        out.body(body);
        Ok(())
    }

    fn response(&mut self, header: &Header, body: Option<Bytes>, out: &mut Outbox) -> Result<(), Status> {
        let body = body.map_or_else(|| Ok(Bytes::from_static(&[EMPTY_MAP])), value)?;
        let mut writer = Writer::new(out.buffer());
        writer.map(3);
        writer.str("Error");
        put_text(&mut writer, &header.error);
        put_call(&mut writer, header.number, &header.method);
        out.body(body);
        Ok(())
    }

    fn bytes_needed(&self) -> usize {
        self.extent.bytes_needed()
    }
}

/// Checks that the body is a single value, which the peer expects: anything else would end its connection. An empty
/// body becomes nil.
fn value(body: Bytes) -> Result<Bytes, Status> {
    if body.is_empty() {
        return Ok(Bytes::from_static(&[NIL]));
    }
    match Extent::default().end(&body, usize::MAX) {
        Ok(Some(end)) if end == body.len() => Ok(body),
        _ => Err(no_value()),
    }
}

/// Writes the members common to a call and its response, in alphabetical order, as Go's library sorts them.
fn put_call(writer: &mut Writer<'_>, number: u64, method: &[u8]) {
    writer.str("Seq");
    writer.unsigned(number);
    writer.str("ServiceMethod");
    put_text(writer, method);
}

fn put_text(writer: &mut Writer<'_>, text: &[u8]) {
    // The library of 2016 knew only today's str types, and wrote no one-byte lengths; it reads both.
    writer.str(&String::from_utf8_lossy(text));
}

/// Parses a header, a map by names or an array in the order of Go's fields: Go's library reads a struct from either.
fn read(value: &Bytes) -> Result<Header, Error> {
    let (mut header, mut reader) = (Header::default(), Reader::new(value));
    match reader.next()? {
        Token::Map(members) => {
            for _ in 0..members {
                let key = reader.next()?;
                let (Token::Str(key) | Token::Bin(key)) = key else { return Err(Error::Reserved) };
                read_member(&mut header, key, value, &mut reader)?;
            }
        }
        Token::Array(members) => {
            for key in [&b"ServiceMethod"[..], b"Seq", b"Error"].into_iter().take(members as usize) {
                read_member(&mut header, key, value, &mut reader)?;
            }
        }
        Token::Nil => {}
        _ => return Err(Error::Reserved),
    }
    Ok(header)
}

fn read_member(header: &mut Header, key: &[u8], value: &Bytes, reader: &mut Reader<'_>) -> Result<(), Error> {
    let text = |reader: &mut Reader<'_>| match reader.next()? {
        Token::Str(text) | Token::Bin(text) => Ok(value.slice_ref(text)),
        Token::Nil => Ok(Bytes::new()),
        _ => Err(Error::Reserved),
    };
    match key {
        b"ServiceMethod" => header.method = text(reader)?,
        b"Error" => header.error = text(reader)?,
        b"Seq" => {
            header.number = match reader.next()? {
                Token::Unsigned(number) => number,
                Token::Nil => 0,
                _ => return Err(Error::Reserved),
            }
        }
        _ => reader.skip()?,
    }
    Ok(())
}

const NIL: u8 = 0xc0;
const EMPTY_MAP: u8 = 0x80;

#[cold]
fn no_value() -> Status {
    Status::internal("the body is not MessagePack")
}

#[cold]
fn malformed(_: Error) -> Violation {
    Violation::new("the header cannot be read")
}
