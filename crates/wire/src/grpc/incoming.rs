//! The messages of a request of which more may come.

use bytes::Bytes;
use polyrpc_core::append::append;
use polyrpc_core::{Code, Compression, Message, Status};

use super::base64::Decoder;
use super::dialect::Dialect;
use super::frame::{Assembler, MalformedFrame, PREFIX, ReceivedMessage};

/// The messages of one request, put together as their bytes come.
#[derive(Debug)]
pub(crate) struct Incoming {
    assembler: Assembler,
    /// The bytes come as text.
    text: Option<Decoder>,
    /// The text is none in base64.
    garbled: bool,
    /// The body is one message without a prefix, of which this has come.
    sole: Option<Vec<u8>>,
    compression: Compression,
    ended: bool,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    /// A message.
    Message(Message),
    /// More bytes are needed.
    Wait,
    /// Nothing more.
    End,
}

impl Incoming {
    pub(crate) fn new(dialect: Dialect, compression: Compression) -> Self {
        Self {
            assembler: Assembler::default(),
            text: (dialect == Dialect::WebText).then(Decoder::default),
            garbled: false,
            sole: dialect.is_sole().then(Vec::new),
            compression,
            ended: false,
        }
    }

    /// Takes a piece; how many bytes of it are none of a message.
    pub(crate) fn push(&mut self, piece: Bytes) -> usize {
        let Some(decoder) = &mut self.text else {
            match &mut self.sole {
                None => self.assembler.push(piece),
                Some(sole) => append(sole, &piece),
            }
            return 0;
        };
        match decoder.push(&piece) {
            Ok(decoded) => {
                self.assembler.push(decoded.bytes);
                decoded.overhead
            }
            Err(_) => {
                self.garbled = true;
                piece.len()
            }
        }
    }

    /// No more pieces follow.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        match self.text.as_mut().map(Decoder::finish) {
            None => {}
            Some(Ok(rest)) => self.assembler.push(rest),
            Some(Err(_)) => self.garbled = true,
        }
    }

    /// Whether no more pieces follow.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes of messages that were not taken yet.
    pub(crate) fn held(&self) -> usize {
        self.assembler.held() + self.sole.as_ref().map_or(0, Vec::len)
    }

    /// Bytes before each message.
    pub(crate) fn prefix(&self) -> usize {
        if self.sole.is_some() { 0 } else { PREFIX }
    }

    /// The next message, of `limit` bytes at most.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Next, Status> {
        if let Some(sole) = &mut self.sole {
            return match sole.len() {
                length if length > limit => Err(malformed_frame(MalformedFrame::TooLong { length, limit })),
                _ if !self.ended => Ok(Next::Wait),
                length => {
                    let body = Bytes::from(std::mem::take(sole));
                    self.sole = None;
                    let compression = if length == 0 { Compression::None } else { self.compression };
                    Ok(Next::Message(Message { body, compression }))
                }
            };
        }
        match self.assembler.next(limit) {
            Ok(Some(framed)) => message(framed, self.compression).map(Next::Message),
            Ok(None) if self.garbled => Err(undecodable()),
            Ok(None) if !self.ended => Ok(Next::Wait),
            Ok(None) if self.assembler.is_empty() => Ok(Next::End),
            Ok(None) => Err(truncated()),
            Err(malformed) => Err(malformed_frame(malformed)),
        }
    }
}

/// A message with its compression, which `grpc-encoding` has told.
fn message(framed: ReceivedMessage, told: Compression) -> Result<Message, Status> {
    match (framed.compressed, told) {
        (true, Compression::None) => Err(compressed_without_name()),
        (true, compression) => Ok(Message { body: framed.body, compression }),
        (false, _) => Ok(Message { body: framed.body, compression: Compression::None }),
    }
}

#[cold]
pub(crate) fn compressed_without_name() -> Status {
    Status::internal("a compressed message, and no grpc-encoding that says how")
}

/// The failure of a request whose `grpc-encoding` is not known.
#[cold]
pub(crate) fn unknown_encoding() -> Status {
    Status::unimplemented("the grpc-encoding is not supported")
}

/// The failure of a message that cannot be decompressed, in a compression that is known, or cannot be parsed: INTERNAL,
/// whichever side reads it (`doc/statuscodes.md`). One that becomes too long stays what it is.
#[cold]
pub fn decompression_failed(status: Status) -> Status {
    match status.code() {
        Code::InvalidArgument => Status::internal(status.message().to_owned()),
        _ => status,
    }
}

#[cold]
fn truncated() -> Status {
    Status::internal("the request ended inside of a message")
}

#[cold]
fn undecodable() -> Status {
    Status::internal("the request is no text in base64")
}

#[cold]
pub(crate) fn malformed_frame(malformed: MalformedFrame) -> Status {
    match malformed {
        MalformedFrame::Flag(flag) => Status::internal(format!("a message with the flag {flag}")),
        MalformedFrame::TooLong { length, limit } => {
            Status::resource_exhausted(format!("a message of {length} bytes exceeds the limit of {limit}"))
        }
    }
}
