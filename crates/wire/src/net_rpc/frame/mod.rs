//! Framing: header and body of calls and responses, as encoded by each codec.

mod pairs;

mod gob;
mod json;
mod message_pack;

mod blocks;
mod gencode;
mod protobuf;

mod bson;
mod colfer;

use std::fmt;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Refusals;
use polyrpc_core::{Limits, Outbox, Status, Violation};

use super::Codec;

use self::pairs::Pairs;

/// Encoder and decoder of one connection's messages, with their state.
pub(super) trait FrameCodec: fmt::Debug + Send {
    /// Removes the next call from `inbox`; `None` if more bytes are needed.
    fn next_request(&mut self, inbox: &mut BytesMut) -> Result<Option<Request>, Violation>;

    /// Removes the next response from `inbox`; `None` if more bytes are needed.
    fn next_response(&mut self, inbox: &mut BytesMut) -> Result<Option<Response>, Violation>;

    /// Appends a call, or nothing if its body cannot be encoded.
    fn request(&mut self, call: Outgoing<'_>, out: &mut Outbox) -> Result<(), Status>;

    /// Appends a response: a body, or the text of a failure. Appends nothing if the body cannot be encoded.
    fn response(&mut self, tag: &Tag, result: Result<Bytes, &str>, out: &mut Outbox) -> Result<(), Status>;

    /// Returns how many bytes the inbox must hold before the next message is available; 0 if unknown.
    fn bytes_needed(&self) -> usize;

    /// Whether a message has started and is incomplete.
    fn is_mid_message(&self, inbox: &BytesMut) -> bool;

    /// Whether no further call may be sent: the connection ends next, or the rest of a long response is to come.
    fn is_spent(&self) -> bool {
        false
    }

    /// Returns the number of rejected calls since the last time.
    fn take_refusals(&mut self) -> Option<Refusals> {
        None
    }

    /// Returns the number of received bytes held: those of an incomplete message, and those that later messages refer
    /// to.
    fn held(&self) -> usize {
        0
    }
}

/// Returns the encoder and decoder of a codec. It is chosen once per connection; type erasure saves the sessions a type parameter.
pub(super) fn frame_codec(codec: Codec, limits: &Limits) -> Box<dyn FrameCodec> {
    match codec {
        Codec::Gob => Box::new(Pairs::new(gob::Gob::new(limits))),
        Codec::Json => Box::new(json::Json::new(limits)),
        Codec::MessagePack => Box::new(Pairs::new(message_pack::MessagePack::new(limits))),
        Codec::Protobuf => Box::new(Pairs::new(protobuf::Protobuf::new(limits))),
        Codec::Gencode => Box::new(Pairs::new(gencode::Gencode::new(limits))),
        Codec::Colfer => Box::new(Pairs::new(colfer::Colfer::new(limits))),
        Codec::Bson => Box::new(Pairs::new(bson::Bson::new(limits))),
    }
}

/// A received call.
#[derive(Debug)]
pub(super) struct Request {
    /// The method's name, in its full encoded form.
    pub(super) name: Bytes,
    pub(super) id: Id,
    pub(super) body: Bytes,
    /// The body is a list of arguments.
    pub(super) positional: bool,
    /// Why the body is malformed.
    pub(super) malformed: Option<Status>,
}

/// A call to be sent.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) name: &'a str,
    pub(super) number: u64,
    pub(super) body: Bytes,
    /// The body is a list of arguments.
    pub(super) positional: bool,
}

/// The parts of a call that its response repeats.
#[derive(Debug)]
pub(super) struct Tag {
    pub(super) method: Bytes,
    pub(super) id: Id,
}

/// Identifier of a call.
#[derive(Debug)]
pub(super) enum Id {
    Number(u64),
    /// JSON as the client wrote it.
    Json(Bytes),
}

/// A received response.
#[derive(Debug)]
pub(super) struct Response {
    /// Sequence number of its call, if it is one of ours.
    pub(super) number: Option<u64>,
    pub(super) result: Result<Bytes, Failure>,
}

/// Why a response has no body.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server failed the call with this text.
    Text(Bytes),
    /// The body exceeds the limit of this side.
    TooLong(Status),
}

/// Returns the violation of a message without announced length that exceeds the limit.
#[cold]
fn message_too_long(limit: usize) -> Violation {
    Violation::too_large(format!("message is too long: {limit} bytes are allowed"))
}
