//! What travels: a call's header and body one way, an answer's the other, as each codec writes them.

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
use polyrpc_core::{Limits, Outbox, Status, Violation};

use super::Codec;

use self::pairs::Pairs;

/// How one connection's messages are written and read, with what it must remember for that.
pub(super) trait Framing: fmt::Debug + Send {
    /// Takes the next call out of `inbox`, or `None` when it needs more bytes.
    fn next_request(&mut self, inbox: &mut BytesMut) -> Result<Option<Request>, Violation>;

    /// Takes the next answer out of `inbox`, or `None` when it needs more bytes.
    fn next_response(&mut self, inbox: &mut BytesMut) -> Result<Option<Response>, Violation>;

    /// Appends a call, or nothing if its body cannot be written.
    fn request(&mut self, call: Outgoing<'_>, out: &mut Outbox) -> Result<(), Status>;

    /// Appends an answer: a body, or the text of a failure. Nothing if the body cannot be written.
    fn response(&mut self, tag: &Tag, result: Result<Bytes, &str>, out: &mut Outbox) -> Result<(), Status>;

    /// How many bytes the inbox must hold in all before the next message can come; 0 when unknown.
    fn bytes_needed(&self) -> usize;

    /// Whether a message, once begun, is still incomplete.
    fn is_mid_message(&self, inbox: &BytesMut) -> bool;

    /// Bytes that are kept of what came: of a message that is not whole, and of what later ones refer to.
    fn held(&self) -> usize {
        0
    }
}

/// The framing of a codec. It is chosen once a connection; to forget its type then spares the sessions a parameter.
pub(super) fn framing(codec: Codec, limits: &Limits) -> Box<dyn Framing> {
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

/// A call as it came.
#[derive(Debug)]
pub(super) struct Request {
    /// The name of the method, with all that it may hold.
    pub(super) name: Bytes,
    pub(super) id: Id,
    pub(super) body: Bytes,
    /// The body is a list of arguments.
    pub(super) positional: bool,
    /// Why the body cannot be used.
    pub(super) spoiled: Option<Status>,
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

/// What an answer repeats of its call.
#[derive(Debug)]
pub(super) struct Tag {
    pub(super) method: Bytes,
    pub(super) id: Id,
}

/// What tells a call from others.
#[derive(Debug)]
pub(super) enum Id {
    Number(u64),
    /// JSON as the client wrote it.
    Json(Bytes),
}

/// An answer as it came.
#[derive(Debug)]
pub(super) struct Response {
    /// The number of its call, if it is one of ours.
    pub(super) number: Option<u64>,
    /// The body, or the text of a failure.
    pub(super) result: Result<Bytes, Bytes>,
}

/// A message whose length nothing announces goes beyond the limit.
#[cold]
fn message_too_long(limit: usize) -> Violation {
    Violation::too_large(format!("message is too long: {limit} bytes are allowed"))
}
