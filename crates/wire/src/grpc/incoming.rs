//! Messages of a request that may have more to come.

use bytes::Bytes;
use polyrpc_core::append::append;
use polyrpc_core::{Code, Compression, Message, Retry, Status};

use super::base64::Decoder;
use super::dialect::Dialect;
use super::frame::{Assembler, MalformedFrame, PREFIX, ReceivedMessage};

/// The messages of one request, assembled as its bytes arrive.
#[derive(Debug)]
pub(crate) struct Incoming {
    assembler: Assembler,
    /// Decoder for a base64 body.
    text: Option<Decoder>,
    /// The body is not valid base64.
    undecodable_body: bool,
    /// Received part of a body that is one message without a prefix.
    bare: Option<Vec<u8>>,
    compression: Compression,
    ended: bool,
}

/// Next item of a request.
#[derive(Debug)]
pub(crate) enum Next {
    /// A message.
    Message(Message),
    /// More bytes are needed.
    Wait,
    /// The end of the request.
    End,
}

impl Incoming {
    pub(crate) fn new(dialect: Dialect, compression: Compression) -> Self {
        Self {
            assembler: Assembler::default(),
            text: (dialect == Dialect::WebText).then(Decoder::default),
            undecodable_body: false,
            bare: dialect.has_bare_request().then(Vec::new),
            compression,
            ended: false,
        }
    }

    /// Adds a piece; returns how many of its bytes are overhead rather than message bytes.
    pub(crate) fn push(&mut self, piece: Bytes) -> usize {
        let Some(decoder) = &mut self.text else {
            match &mut self.bare {
                None => self.assembler.push(piece),
                Some(bare) => append(bare, &piece),
            }
            return 0;
        };
        match decoder.push(&piece) {
            Ok(decoded) => {
                self.assembler.push(decoded.bytes);
                decoded.overhead
            }
            Err(_) => {
                self.undecodable_body = true;
                piece.len()
            }
        }
    }

    /// Marks the end of the body.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        match self.text.as_mut().map(Decoder::finish) {
            None => {}
            Some(Ok(rest)) => self.assembler.push(rest),
            Some(Err(_)) => self.undecodable_body = true,
        }
    }

    /// Whether the end of the body was received.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Number of message bytes that were not returned yet.
    pub(crate) fn held(&self) -> usize {
        self.assembler.held() + self.bare.as_ref().map_or(0, Vec::len)
    }

    /// Bytes before each message.
    pub(crate) fn prefix(&self) -> usize {
        if self.bare.is_some() { 0 } else { PREFIX }
    }

    /// Returns the next message, of at most `limit` bytes.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Next, Status> {
        if let Some(bare) = &mut self.bare {
            return match bare.len() {
                length if length > limit => Err(malformed_frame(MalformedFrame::TooLong { length, limit })),
                _ if !self.ended => Ok(Next::Wait),
                length => {
                    let body = Bytes::from(std::mem::take(bare));
                    self.bare = None;
                    let compression = if length == 0 { Compression::None } else { self.compression };
                    Ok(Next::Message(Message { body, compression }))
                }
            };
        }
        match self.assembler.next(limit) {
            Ok(Some(framed)) => message(framed, self.compression).map(Next::Message),
            Ok(None) if self.undecodable_body => Err(undecodable()),
            Ok(None) if !self.ended => Ok(Next::Wait),
            Ok(None) if self.assembler.is_empty() => Ok(Next::End),
            Ok(None) => Err(truncated()),
            Err(malformed) => Err(malformed_frame(malformed)),
        }
    }
}

/// Combines a message with the compression announced in `grpc-encoding`.
fn message(framed: ReceivedMessage, declared: Compression) -> Result<Message, Status> {
    match (framed.compressed, declared) {
        (true, Compression::None) => Err(compressed_without_name()),
        (true, compression) => Ok(Message { body: framed.body, compression }),
        (false, _) => Ok(Message { body: framed.body, compression: Compression::None }),
    }
}

#[cold]
pub(crate) fn compressed_without_name() -> Status {
    Status::internal("a compressed message without a grpc-encoding")
}

/// Returns the failure of a request whose `grpc-encoding` is not supported.
#[cold]
pub(crate) fn unknown_encoding() -> Status {
    Status::unimplemented("the grpc-encoding is not supported")
}

/// Returns the failure of a message that cannot be decompressed, in a supported compression, or cannot be parsed:
/// INTERNAL, on whichever side (`doc/statuscodes.md`). The failure of a message that becomes too long is unchanged.
#[cold]
pub fn decompression_failed(status: Status) -> Status {
    match status.code() {
        Code::InvalidArgument => Status::internal(status.message().to_owned()),
        _ => status,
    }
}

#[cold]
fn truncated() -> Status {
    Status::internal("the request ended inside a message")
}

#[cold]
fn undecodable() -> Status {
    Status::internal("the request is not base64")
}

#[cold]
pub(crate) fn malformed_frame(malformed: MalformedFrame) -> Status {
    match malformed {
        MalformedFrame::Flag(flag) => Status::internal(format!("a message with the flag {flag}")),
        MalformedFrame::TooLong { length, limit } => {
            // The call may have been processed, and would be answered so again.
            Status::resource_exhausted(format!("a message of {length} bytes exceeds the limit of {limit}"))
                .with_retry(Retry::Never)
        }
    }
}
