//! Frames captured from brpc, the echo service they were captured from, and their decoded meaning.

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use polyrpc_core::session::Server as _;
use polyrpc_core::session::server::Ticket as _;
use polyrpc_core::session::{NotFound, ServerEvent};
use polyrpc_core::testing::hex;
use polyrpc_core::{Call, CallId, Checksum, Compression, Format, Head, Limits, Outbox, Reply, Status};
use polyrpc_payload::compress;
use serde_json::Value;

use super::server;
use crate::baidu_std::frame::{Frame, Kind, NextFrame};
use crate::baidu_std::meta::{Meta, StreamMeta};
use crate::baidu_std::{Ticket, body, frame};
use crate::brpc_status as status;
use crate::brpc_status::EREQUEST;

pub(super) use Direction::{ToClient, ToServer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// One captured scenario, with its frames in chronological order.
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) frames: Vec<(Direction, Bytes)>,
}

impl Scenario {
    pub(super) fn sent(&self) -> Bytes {
        self.all(ToServer)
    }

    pub(super) fn received(&self) -> Bytes {
        self.all(ToClient)
    }

    fn all(&self, wanted: Direction) -> Bytes {
        self.frames.iter().filter(|(way, _)| *way == wanted).flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    pub(super) fn frames_of(&self, kind: Kind, wanted: Direction) -> Vec<Bytes> {
        let frames =
            self.frames.iter().filter(|(way, bytes)| *way == wanted && bytes.starts_with(kind.magic()));
        frames.map(|(_, bytes)| bytes.clone()).collect()
    }

    pub(super) fn has_ended(&self) -> bool {
        ["auth_bad", "close_connection"].contains(&self.name.as_str())
    }
}

pub(super) fn scenario(name: &str) -> Scenario {
    let vector = vector(name);
    let frames = list(&vector["frames"]).iter().map(|frame| {
        let way = if frame["direction"] == "client_to_server" { ToServer } else { ToClient };
        (way, bytes_of(frame))
    });
    Scenario { name: name.into(), frames: frames.collect() }
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let files = std::fs::read_dir(directory()).expect("the captured vectors");
    let names = files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let scenarios: Vec<_> = names.filter(|name| name != "malformed").map(|name| scenario(&name)).collect();
    assert!(scenarios.len() > 20, "{} scenarios", scenarios.len());
    scenarios
}

pub(super) fn responses_of(name: &str) -> Bytes {
    scenario(name).received()
}

/// A hand-made input, brpc's response, and whether brpc closed the connection.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) sent: Bytes,
    pub(super) received: Bytes,
    pub(super) closed: bool,
}

pub(super) fn malformed() -> Vec<Case> {
    let file = vector("malformed");
    let cases = list(&file["cases"]).iter().map(|case| Case {
        name: case["name"].as_str().expect("a name").into(),
        sent: bytes_of(&case["vectors"][0]),
        received: bytes_of(&case["vectors"][1]),
        closed: case["outcome"] == "server closed",
    });
    cases.collect()
}

fn vector(name: &str) -> Value {
    let path = directory().join(name).with_extension("json");
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "vectors", "baidu_std"].iter().collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn bytes_of(vector: &Value) -> Bytes {
    hex(vector["hex"].as_str().expect("hex"))
}

/// Result of a connection to the echo service.
pub(super) struct EchoResult {
    pub(super) out: Vec<u8>,
    /// The server closes the connection, or leaves the remaining bytes to another protocol.
    pub(super) ended: bool,
}

/// Runs the server of the captured scenarios: `example.EchoService`, whose `Echo` is controlled by its message.
pub(super) fn serve(bytes: &[u8]) -> EchoResult {
    let (mut server, mut inbox, mut out) = (server(), BytesMut::from(bytes), Outbox::new());
    let mut ended = false;
    while !ended {
        match server.next_event(&mut inbox, &mut out) {
            Ok(None) => break,
            Ok(Some(ServerEvent::Call(call, ticket))) => match judge(&call, &ticket) {
                Verdict::Refuse => {
                    ended = server.reject(ticket, Status::unauthenticated(""), &mut out);
                }
                Verdict::Close => ended = true,
                Verdict::Answer(reply) => server.reply(ticket, reply, &mut out),
            },
            Ok(Some(_)) | Err(_) => ended = true,
        }
    }
    EchoResult { out: out.take(), ended }
}

enum Verdict {
    Refuse,
    Close,
    Answer(Reply),
}

fn judge(call: &Call<'_>, ticket: &Ticket) -> Verdict {
    if call.credential.bytes().is_some_and(|credential| credential != "secret-token") {
        return Verdict::Refuse;
    }
    match echo(call, ticket) {
        Ok(None) => Verdict::Close,
        Ok(Some(reply)) => Verdict::Answer(reply),
        Err(status) => Verdict::Answer(Reply::failure(status)),
    }
}

/// Answers a call; `None` closes the connection.
fn echo(call: &Call<'_>, ticket: &Ticket) -> Result<Option<Reply>, Status> {
    let known = ["EchoService", "example.EchoService"].contains(&call.service);
    if !known || call.method != "Echo" {
        let missing = if known { NotFound::Method } else { NotFound::Service };
        return Err(ticket.not_found_failure(call, missing));
    }
    if let Some(reason) = &call.malformed {
        return Err(reason.clone());
    }
    let unreadable = || status::status(EREQUEST, "Fail to parse request");
    let limit = Limits::default().decompressed;
    let body = compress::decompress(call.head.compression, &call.body, limit).map_err(|_| unreadable())?;
    let text = text_of(call.head.format, &body).ok_or_else(unreadable)?;
    let mut head = Head::default();
    match text.as_str() {
        "fail-generic" => return Err(Status::internal("deliberate failure")),
        "fail-code" => return Err(Status::unknown("custom error").with_number(54321)),
        "close" => return Ok(None),
        asks if asks.starts_with("gzip") => head.compression = Compression::Gzip,
        asks if asks.starts_with("zlib") => head.compression = Compression::Zlib,
        asks if asks.starts_with("snappy") => head.compression = Compression::Snappy,
        asks if asks.starts_with("crc") => head.checksum = Checksum::Message,
        asks if asks.starts_with("ctype") => head.format = call.head.format,
        _ => {}
    }
    Ok(Some(Reply { attachment: call.attachment.clone(), ..Reply::new(Ok(body.into()), head) }))
}

/// Returns the text of an `EchoRequest`: its only, required field.
fn text_of(format: Format, body: &[u8]) -> Option<String> {
    match format {
        Format::Protobuf => {
            let (0x0a, rest) = body.split_first()? else { return None };
            let (length, text) = match rest {
                [length, text @ ..] if *length < 0x80 => (usize::from(*length), text),
                [low, high, text @ ..] => (usize::from(low & 0x7f) | usize::from(*high) << 7, text),
                _ => return None,
            };
            (text.len() == length).then(|| lossy(text))
        }
        Format::Json(_) => {
            Some(serde_json::from_slice::<Value>(body).ok()?.get("message")?.as_str()?.to_owned())
        }
        Format::ProtoText => Some(std::str::from_utf8(body).ok()?.split('"').nth(1)?.to_owned()),
        _ => None,
    }
}

/// Decoded content of a frame, independent of the compressor's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) id: i64,
    pub(super) number: i32,
    /// The text of 1003 comes from the dispatcher, not from the protocol.
    pub(super) text: String,
    pub(super) head: (Format, Compression, Checksum),
    pub(super) user_fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) message: Vec<u8>,
    pub(super) attachment: Vec<u8>,
    /// Meta of a stream's frame. The wrapped response is the next meaning.
    pub(super) stream: Option<StreamMeta>,
}

pub(super) fn meanings(bytes: &[u8]) -> Vec<Meaning> {
    let mut inbox = BytesMut::from(bytes);
    let mut meanings = Vec::new();
    while let NextFrame::Whole(frame) = frame::take_frame(&mut inbox, usize::MAX).expect("a sound frame") {
        match frame.kind {
            Kind::Rpc => meanings.push(meaning(&frame)),
            Kind::Stream => {
                let stream = Some(StreamMeta::read(&frame.meta).expect("a StreamFrameMeta"));
                let inner = Frame::exactly(frame.payload.clone());
                let empty = || meaning(&Frame { kind: Kind::Rpc, meta: Bytes::new(), payload: Bytes::new() });
                meanings.push(Meaning { stream, ..inner.as_ref().map_or_else(empty, meaning) });
            }
        }
    }
    assert!(inbox.is_empty(), "{} bytes are left over", inbox.len());
    meanings
}

fn meaning(frame: &Frame) -> Meaning {
    let meta = Meta::read(&frame.meta).expect("an RpcMeta");
    let head = body::head(&meta);
    let (message, attachment) = body::split(frame.payload.clone(), &meta).expect("a sound payload");
    let (number, text) =
        meta.response.map_or((0, None), |response| (response.error_code, response.error_text));
    let owned = |(key, value): &(&[u8], &[u8])| (key.to_vec(), value.to_vec());
    Meaning {
        id: meta.correlation_id,
        number,
        text: if number == EREQUEST { String::new() } else { lossy(text.unwrap_or_default()) },
        head: (head.format, head.compression, head.checksum),
        user_fields: meta.user_fields.iter().map(owned).collect(),
        message: if number == 0 { decompress(head.compression, &message) } else { Vec::new() },
        attachment: attachment.to_vec(),
        stream: None,
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Returns the responses among some frames, bare or wrapped in a stream's frame.
pub(super) fn responses(bytes: &[u8]) -> Vec<Meaning> {
    let mut meanings = meanings(bytes);
    meanings.retain(|meaning| meaning.stream.is_none() || meaning.id != 0);
    meanings.iter_mut().for_each(|meaning| meaning.stream = None);
    meanings
}

pub(super) fn meaning_of_reply(id: CallId, reply: &Reply) -> Meaning {
    let status = reply.result.as_ref().err();
    Meaning {
        id: id.0.cast_signed(),
        number: status.map_or(0, status::number),
        text: status.map_or_else(String::new, |status| status.message().to_owned()),
        head: (reply.head.format, reply.head.compression, reply.head.checksum),
        user_fields: Vec::new(),
        message: reply
            .result
            .as_ref()
            .map_or_else(|_| Vec::new(), |message| decompress(reply.head.compression, message)),
        attachment: reply.attachment.to_vec(),
        stream: None,
    }
}

pub(super) fn decompress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    compress::decompress(compression, bytes, Limits::default().decompressed).expect("compressed as announced")
}
