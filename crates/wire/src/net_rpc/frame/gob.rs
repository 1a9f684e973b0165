//! gob: each direction of a connection is one stream of values, alternating headers and bodies (Go `net/rpc/server.go`,
//! `gobServerCodec`).

use std::fmt;

use bytes::{Bytes, BytesMut};
use polyrpc_core::{Limits, Outbox, Status, Violation};
use polyrpc_payload::gob::{EMPTY_STRUCT, Error, Reader, Writer};
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize, de};

use super::pairs::{Header, Parts};

#[derive(Debug)]
pub(super) struct Gob {
    reader: Reader,
    writer: Writer,
    /// A message was written, so that the peer knows the header's type.
    begun: bool,
    /// Limit of a message in bytes.
    limit: usize,
}

impl Gob {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            reader: Reader::new(limits.into()),
            writer: Writer::new(),
            begun: false,
            limit: limits.message,
        }
    }

    /// Returns the violation of a message that exceeds the limit, if that is what `inbox` starts with.
    #[cold]
    fn too_large(&self, inbox: &[u8]) -> Option<Violation> {
        let (length, _) = uint(inbox)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        (length > self.limit).then(|| Violation::message_too_large(length, self.limit))
    }

    /// Appends both parts, or nothing.
    fn write<H>(&mut self, header: &H, body: &[u8], out: &mut Outbox) -> Result<(), Status>
    where
        H: Serialize + for<'de> Deserialize<'de> + 'static,
    {
        let buffer = out.buffer();
        let start = buffer.len();
        let header = self.writer.encode(header, buffer);
        let written = header.and_then(|()| self.writer.value(body, buffer));
        self.begun |= written.is_ok();
        written.map_err(|error| {
            buffer.truncate(start);
            if !self.begun {
                // The definition of the header's type was discarded too.
                self.writer = Writer::new();
            }
            encode_failure(&error)
        })
    }
}

impl Parts for Gob {
    fn header(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, Violation> {
        let Some(value) = self.reader.next(inbox)? else { return Ok(None) };
        let ReceivedHeader { method, number, error } = value.decode()?;
        Ok(Some(Header { method: method.0, number, error: error.0, body: 0 }))
    }

    fn body(&mut self, _: &Header, inbox: &mut BytesMut) -> Result<Option<Bytes>, Violation> {
        match self.reader.next(inbox) {
            Ok(value) => Ok(value.map(|value| value.into_bytes())),
            Err(error) => match self.too_large(inbox) {
                Some(_) if kind_is_missing(inbox) => Ok(None),
                Some(violation) => Err(violation),
                None => Err(error.into()),
            },
        }
    }

    /// A value in one message, as it is without interfaces.
    fn oversized_body(&self, _: &Header, inbox: &[u8]) -> Option<usize> {
        if self.reader.is_within_value() {
            // Without this part the value could not be finished.
            return None;
        }
        let (length, width) = uint(inbox)?;
        let (kind, _) = uint(&inbox[width..])?;
        // A negative type id is that of a definition, without which no later value could be read.
        let is_value = kind & 1 == 0;
        usize::try_from(length).ok()?.checked_add(width).filter(|_| is_value)
    }

    fn request(&mut self, name: &str, number: u64, body: Bytes, out: &mut Outbox) -> Result<(), Status> {
        self.write(&Request { method: name.to_owned(), number }, value(&body), out)
    }

    fn response(&mut self, header: &Header, body: Option<Bytes>, out: &mut Outbox) -> Result<(), Status> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let response =
            Response { method: text(&header.method), number: header.number, error: text(&header.error) };
        self.write(&response, value(&body.unwrap_or_default()), out)
    }

    fn bytes_needed(&self) -> usize {
        self.reader.wanted()
    }

    fn is_mid_part(&self) -> bool {
        self.reader.is_mid_value()
    }

    fn held(&self) -> usize {
        self.reader.held()
    }
}

/// Whether the message at the start of `bytes` ends before the type of its value, which follows the length.
fn kind_is_missing(bytes: &[u8]) -> bool {
    bytes.len() < 2 * LONGEST_UINT && uint(bytes).is_some_and(|(_, width)| uint(&bytes[width..]).is_none())
}

/// Number of bytes of the longest number.
const LONGEST_UINT: usize = 9;

/// Reads a number: one byte below 128, or its negated length before its bytes, the most significant one first. Returns
/// it with the number of bytes that it takes.
fn uint(bytes: &[u8]) -> Option<(u64, usize)> {
    match *bytes.first()? {
        small @ ..=0x7f => Some((small.into(), 1)),
        negated => {
            let width = usize::from(negated.wrapping_neg());
            let digits = bytes.get(1..=width).filter(|_| width <= 8)?;
            let value = digits.iter().fold(0, |value, digit| value << 8 | u64::from(*digit));
            Some((value, 1 + width))
        }
    }
}

/// Returns the value of a body. An empty body is not a value: it becomes the empty struct that Go writes after a
/// failure.
fn value(body: &[u8]) -> &[u8] {
    if body.is_empty() { EMPTY_STRUCT } else { body }
}

/// Header of a call, with Go's field names and order.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Request")]
struct Request {
    #[serde(rename = "ServiceMethod")]
    method: String,
    #[serde(rename = "Seq")]
    number: u64,
}

/// Header of a response.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Response")]
struct Response {
    #[serde(rename = "ServiceMethod")]
    method: String,
    #[serde(rename = "Seq")]
    number: u64,
    #[serde(rename = "Error")]
    error: String,
}

/// A received header, of a call or of a response: a call's has no error.
#[derive(Deserialize)]
struct ReceivedHeader {
    #[serde(rename = "ServiceMethod", default)]
    method: Text,
    #[serde(rename = "Seq", default)]
    number: u64,
    #[serde(rename = "Error", default)]
    error: Text,
}

/// A Go string, which need not be UTF-8.
#[derive(Default)]
struct Text(Bytes);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                self.visit_bytes(text.as_bytes())
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(Bytes::copy_from_slice(bytes)))
            }
        }

        deserializer.deserialize_str(Either)
    }
}

#[cold]
fn encode_failure(error: &Error) -> Status {
    Status::internal(format!("the body is not gob: {error}"))
}
