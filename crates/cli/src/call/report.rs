//! Output of `--verbose`: the request, the server, its response, and the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc::client::{Attempt, Hook};
use polyrpc::codec::Body;
use polyrpc::{Address, Code, Metadata, Scope, Status};
use serde_json::{Map, Value, json};

use crate::failure;
use crate::message::readable;
use crate::terminal::{self, ShortDuration};

/// Record of one call. Does nothing unless it is to be shown.
#[derive(Debug, Clone)]
pub(super) struct Report {
    shown: Option<Style>,
    json: bool,
    begun: Instant,
    peer: Peer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Words,
    Json,
}

/// The server that the last attempt of a call went to, and whether it has answered one.
#[derive(Debug, Clone, Default)]
struct Peer {
    server: Arc<Mutex<Option<String>>>,
    has_answered: Arc<AtomicBool>,
}

/// Outcome of a call, without its message.
pub(super) struct Ending<'a> {
    /// Size and format of the response; for a stream, of all messages together.
    pub(super) received: ReceivedMessages,
    pub(super) headers: &'a Metadata,
    pub(super) trailers: &'a Metadata,
    pub(super) attachment: &'a Bytes,
}

/// Number of received messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceivedMessages {
    pub(super) messages: usize,
    pub(super) bytes: usize,
    pub(super) format: &'static str,
}

impl Report {
    pub(super) fn new(verbose: bool, json: bool) -> Self {
        let style = if json { Style::Json } else { Style::Words };
        Self { shown: verbose.then_some(style), json, begun: Instant::now(), peer: Peer::default() }
    }

    /// The hook that records the server's address, and whether it answers.
    pub(super) fn hook(&self) -> impl Hook + use<> {
        self.peer.clone()
    }

    /// Forgets the answers to queries that preceded the call.
    pub(super) fn forget_answers(&self) {
        self.peer.has_answered.store(false, Ordering::Relaxed);
    }

    /// Whether the server has answered a unary call.
    pub(super) fn has_answered(&self) -> bool {
        self.peer.has_answered.load(Ordering::Relaxed)
    }

    /// Whether this failure of a unary call came from this program: the protocol cannot express the call, so nothing was
    /// sent.
    pub(super) fn is_unsent(&self, status: &Status) -> bool {
        let of_transport = [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled];
        !self.has_answered() && status.scope() == Scope::Call && !of_transport.contains(&status.code())
    }

    /// A call starts. The messages of a stream are not known yet.
    pub(super) fn on_start(&mut self, target: &str, request: Option<&Body>, metadata: &Metadata) {
        self.begun = Instant::now();
        if self.shown != Some(Style::Words) {
            return;
        }
        match request {
            Some(body) => {
                let size = size(body.bytes.len());
                terminal::print_error(format_args!("> {target}: {size} of {}", body.format.as_str()));
            }
            None => terminal::print_error(format_args!("> {target}: a stream")),
        }
        for (key, value) in metadata.iter() {
            terminal::print_error(format_args!("> {key}: {}", readable(value)));
        }
    }

    pub(super) fn on_success(&self, ending: &Ending<'_>) {
        let ReceivedMessages { messages, bytes, format } = ending.received;
        match self.shown {
            None => self.mention(ending.attachment),
            Some(Style::Json) => self.print_json(
                json!({
                    "status": "ok",
                    "code": 0,
                    "messages": messages,
                    "bytes": bytes,
                    "format": format,
                    "attachment_bytes": ending.attachment.len(),
                }),
                ending.headers,
                ending.trailers,
            ),
            Some(Style::Words) => {
                let size = size(bytes);
                let what = match messages {
                    1 => format!("{size} of {format}"),
                    0 => "no message".to_owned(),
                    n => format!("{n} messages, {size} of {format}"),
                };
                self.print_outcome(&format!("ok: {what}"), ending.headers, ending.trailers);
                let attachment = ending.attachment;
                if !attachment.is_empty() {
                    terminal::print_error(format_args!(
                        "< attachment of {} bytes:\n{}",
                        attachment.len(),
                        readable(attachment)
                    ));
                }
            }
        }
    }

    /// Mentions an attachment, which is no part of the printed message.
    fn mention(&self, attachment: &Bytes) {
        match attachment.len() {
            0 => {}
            length if self.json => terminal::print_error(json!({ "attachment_bytes": length })),
            length => terminal::print_error(format_args!("attachment of {length} bytes")),
        }
    }

    pub(super) fn on_failure(&self, status: &Status) {
        let (headers, trailers) = (status.headers(), status.trailers());
        let number = failure::number(status.code());
        match self.shown {
            None => {}
            Some(Style::Json) => self.print_json(
                json!({ "status": status.code().as_str(), "code": number }),
                headers,
                trailers,
            ),
            Some(Style::Words) => {
                self.print_outcome(&format!("{} (status {number})", status.code()), headers, trailers);
            }
        }
    }

    /// A oneway call was sent.
    pub(super) fn on_oneway_sent(&self) {
        let nothing = Metadata::new();
        match self.shown {
            None => {}
            Some(Style::Json) => self.print_json(json!({ "status": "sent" }), &nothing, &nothing),
            Some(Style::Words) => self.print_outcome("sent", &nothing, &nothing),
        }
    }

    fn print_outcome(&self, how: &str, headers: &Metadata, trailers: &Metadata) {
        let peer = self.peer.get().map(|peer| format!(" from {peer}")).unwrap_or_default();
        terminal::print_error(format_args!("< {how}{peer} in {}", ShortDuration(self.elapsed())));
        for (key, value) in headers.iter() {
            terminal::print_error(format_args!("< {key}: {}", readable(value)));
        }
        for (key, value) in trailers.iter() {
            terminal::print_error(format_args!("< trailer {key}: {}", readable(value)));
        }
    }

    fn print_json(&self, mut call: Value, headers: &Metadata, trailers: &Metadata) {
        if let Value::Object(call) = &mut call {
            call.insert("peer".into(), self.peer.get().into());
            call.insert("time_ms".into(), (self.elapsed().as_secs_f64() * 1e3).into());
            call.insert("headers".into(), metadata_json(headers));
            call.insert("trailers".into(), metadata_json(trailers));
        }
        terminal::print_error(json!({ "call": call }));
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// A list of values per key, since a key may be repeated.
fn metadata_json(metadata: &Metadata) -> Value {
    let mut object = Map::new();
    for (key, value) in metadata.iter() {
        let values = object.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(readable(value).into());
        }
    }
    Value::Object(object)
}

fn size(bytes: usize) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        _ => format!("{bytes} bytes"),
    }
}

impl Peer {
    fn get(&self) -> Option<String> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, server: &Address) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.to_string());
    }
}

impl Hook for Peer {
    fn on_connect_error(&self, server: &Address, _: &Status) {
        self.set(server);
    }

    fn on_attempt(&self, attempt: &Attempt<'_>) -> Result<(), Status> {
        self.set(attempt.server);
        Ok(())
    }

    fn on_receive(&self, _: &Attempt<'_>, _: &mut Metadata, _: &mut Result<Bytes, Status>) {
        self.has_answered.store(true, Ordering::Relaxed);
    }
}
