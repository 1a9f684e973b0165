//! JSON-RPC 1.0, one object per message (Go `net/rpc/jsonrpc`).

mod extent;
mod oversized;

use std::borrow::Cow;
use std::io::Write;

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::session::{RefusalCause, Refusals, UnreportedRefusals};
use polyrpc_core::{Limits, Outbox, Status, Violation};
use serde_json::value::RawValue;

use super::super::codec::is_blank;
use super::super::status;
use super::{Failure, FrameCodec, Id, Outgoing, Request, Response, Tag, message_too_long};
use crate::json_rpc::MAX_ID_LEN;
use crate::json_rpc::text::{Parts, string};
use crate::kept_part::kept_part;
use crate::oversized::{request_too_large, too_long};

use self::extent::Extent;
use self::oversized::{OversizedObject, Progress};

#[derive(Debug)]
pub(super) struct Json {
    limit: usize,
    /// Maximum number of bytes that are kept of an object that exceeds the limit.
    header_limit: usize,
    extent: Extent,
    /// The object that is being received exceeds the limit.
    oversized: Option<Box<OversizedObject>>,
    /// Calls that exceeded it.
    refusals: UnreportedRefusals,
}

/// An object that was removed from the inbox.
struct Object {
    text: Bytes,
    /// Its nesting is shallow enough to decode.
    is_shallow: bool,
    /// It exceeded the limit, so that its long values are empty.
    is_oversized: bool,
}

impl Json {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            limit: limits.message,
            header_limit: limits.header,
            extent: Extent::default(),
            oversized: None,
            refusals: UnreportedRefusals::default(),
        }
    }

    /// Removes the next object from `inbox`.
    fn next(&mut self, inbox: &mut BytesMut) -> Result<Option<Object>, Violation> {
        if let Some(oversized) = &mut self.oversized {
            let progress = oversized.take(inbox);
            return self.next_oversized(progress);
        }
        let blank = inbox.iter().take_while(|byte| is_blank(**byte)).count();
        inbox.advance(blank);
        if inbox.first().is_some_and(|byte| *byte != b'{') {
            return Err(Violation::new("expected a JSON object"));
        }
        match self.extent.end(inbox) {
            Some((end, depth)) if end <= self.limit => Ok(Some(Object {
                text: utf8(inbox.split_to(end).freeze())?,
                is_shallow: depth <= MAX_DEPTH,
                is_oversized: false,
            })),
            None if inbox.len() <= self.limit => Ok(None),
            _ => {
                self.extent = Extent::default();
                let oversized = self.oversized.insert(Box::new(OversizedObject::new(self.header_limit)));
                let progress = oversized.take(inbox);
                self.next_oversized(progress)
            }
        }
    }

    /// Returns the object that exceeds the limit, once it has ended.
    ///
    /// # Errors
    ///
    /// If its call cannot be identified.
    #[cold]
    fn next_oversized(&mut self, progress: Progress) -> Result<Option<Object>, Violation> {
        match progress {
            Progress::Partial => Ok(None),
            Progress::Unusable => Err(message_too_long(self.limit)),
            Progress::Ended(text) => {
                self.oversized = None;
                Ok(Some(Object { text: utf8(text.into())?, is_shallow: true, is_oversized: true }))
            }
        }
    }
}

impl FrameCodec for Json {
    fn next_request(&mut self, inbox: &mut BytesMut) -> Result<Option<Request>, Violation> {
        let Some(object) = self.next(inbox)? else { return Ok(None) };
        let mut request = read_request(&object.text, object.is_shallow)?;
        if !object.is_shallow {
            request.malformed = Some(too_deep());
        }
        if object.is_oversized {
            self.refusals.record(RefusalCause::TooLarge);
            request.malformed = Some(request_too_large(&message_too_long(self.limit)));
        }
        Ok(Some(request))
    }

    fn next_response(&mut self, inbox: &mut BytesMut) -> Result<Option<Response>, Violation> {
        let Some(object) = self.next(inbox)? else { return Ok(None) };
        let response = read_response(&object.text, object.is_shallow)?;
        if !object.is_oversized {
            return Ok(Some(response));
        }
        let violation = message_too_long(self.limit);
        if response.number.is_none() {
            return Err(violation);
        }
        let failure = Failure::TooLong(too_long(format!("the response cannot be read: {violation}")));
        Ok(Some(Response { result: Err(failure), ..response }))
    }

    fn request(&mut self, call: Outgoing<'_>, out: &mut Outbox) -> Result<(), Status> {
        let body = value(call.body)?;
        let [open, close] = if call.positional { ["", ""] } else { ["[", "]"] };
        out.extend_from_slice(br#"{"method":"#);
        put_text(out, call.name);
        put(out, format_args!(r#","params":{open}"#));
        out.body(body);
        put(out, format_args!("{close},\"id\":{}}}\n", call.number));
        Ok(())
    }

    fn response(&mut self, tag: &Tag, result: Result<Bytes, &str>, out: &mut Outbox) -> Result<(), Status> {
        let result = match result {
            Ok(body) => Ok(result_of(value(body)?)),
            Err(text) => Err(text),
        };
        out.extend_from_slice(br#"{"id":"#);
        match &tag.id {
            Id::Json(id) => out.extend_from_slice(id),
            Id::Number(number) => put(out, format_args!("{number}")),
        }
        match result {
            Ok(body) => {
                out.extend_from_slice(br#","result":"#);
                out.body(body);
                out.extend_from_slice(b",\"error\":null}\n");
            }
            Err(text) => {
                out.extend_from_slice(br#","result":null,"error":"#);
                put_text(out, text);
                out.extend_from_slice(b"}\n");
            }
        }
        Ok(())
    }

    fn bytes_needed(&self) -> usize {
        0
    }

    fn is_mid_message(&self, inbox: &BytesMut) -> bool {
        self.oversized.is_some() || !inbox.is_empty()
    }

    fn is_spent(&self) -> bool {
        self.oversized.is_some()
    }

    fn take_refusals(&mut self) -> Option<Refusals> {
        self.refusals.take()
    }

    fn held(&self) -> usize {
        self.oversized.as_ref().map_or(0, |oversized| oversized.held())
    }
}

fn put(out: &mut Outbox, arguments: std::fmt::Arguments<'_>) {
    out.buffer().write_fmt(arguments).expect("a Vec takes every byte");
}

fn put_text(out: &mut Outbox, text: &str) {
    serde_json::to_writer(out.buffer(), text).expect("a Vec takes every byte");
}

/// Checks that the body is a JSON value: anything else would end the peer's connection. An empty body becomes null.
fn value(body: Bytes) -> Result<Bytes, Status> {
    if body.is_empty() {
        return Ok(or_null(body));
    }
    match serde_json::from_slice::<&RawValue>(&body) {
        Ok(_) => Ok(body),
        Err(error) => Err(Status::internal(format!("the body is not JSON: {error}"))),
    }
}

/// Returns the result of a body. Go's clients treat a response with a null result as a failure without a text, and give
/// the connection up: an empty result becomes an empty struct there.
fn result_of(body: Bytes) -> Bytes {
    match &body[..] {
        b"null" => Bytes::from_static(b"{}"),
        _ => body,
    }
}

/// Keys are matched case-insensitively, like in `encoding/json`.
fn read_request(object: &Bytes, is_shallow: bool) -> Result<Request, Violation> {
    let mut members = members(object, is_shallow)?;
    let (mut name, mut params, mut id) = (None, None, None);
    while let Some((key, value)) = members.next_member() {
        if key.eq_ignore_ascii_case("method") {
            // Go leaves a field unchanged by null.
            name = Some(value).filter(|value| *value != b"null").or(name);
        } else if key.eq_ignore_ascii_case("params") {
            params = Some(value);
        } else if key.eq_ignore_ascii_case("id") {
            id = Some(value);
        }
    }
    if id.is_some_and(|id| id.len() > MAX_ID_LEN) {
        return Err(Violation::new("the id has more than 256 bytes"));
    }
    let (body, positional, malformed) = arguments(object, params);
    Ok(Request {
        name: text(object, name.unwrap_or(b"null"))?,
        id: Id::Json(or_null(kept_part(object, id.unwrap_or_default()))),
        body,
        positional,
        malformed,
    })
}

/// Returns the arguments in the params: the only one, as in Go, or all of them for a function of several.
fn arguments(object: &Bytes, params: Option<&[u8]>) -> (Bytes, bool, Option<Status>) {
    let params = match params {
        None | Some(b"null") => return (Bytes::new(), false, Some(status::missing_params())),
        Some(params) => params,
    };
    let Some(mut values) = Parts::new(params, b'[') else {
        return (Bytes::new(), false, Some(no_list(params)));
    };
    match (values.next_value(), values.next_value()) {
        // Without a value to decode, Go's method gets the zero value, as for a null.
        (None, _) => (or_null(Bytes::new()), false, None),
        (Some(sole), None) => (kept_part(object, sole), false, None),
        (Some(_), Some(_)) => (kept_part(object, params), true, None),
    }
}

fn read_response(object: &Bytes, is_shallow: bool) -> Result<Response, Violation> {
    let mut members = members(object, is_shallow)?;
    let (mut result, mut error, mut id) = (Bytes::new(), None, None);
    while let Some((key, value)) = members.next_member() {
        if key.eq_ignore_ascii_case("result") {
            result = object.slice_ref(value);
        } else if key.eq_ignore_ascii_case("error") {
            error = Some(value).filter(|error| *error != b"null");
        } else if key.eq_ignore_ascii_case("id") {
            id = std::str::from_utf8(value).ok().and_then(|id| id.parse().ok());
        }
    }
    let result = match error {
        None if is_shallow => Ok(or_null(result)),
        None => Err(Bytes::from_static(TOO_DEEP.as_bytes())),
        Some(error) => Err(failure(error)),
    };
    Ok(Response { number: id, result: result.map_err(Failure::Text) })
}

/// Go's clients expect a text, and have a default for an empty one.
fn failure(error: &[u8]) -> Bytes {
    match string(error) {
        Some(text) if text.is_empty() => Bytes::from_static(b"unspecified error"),
        Some(text) => text.into_owned().into(),
        None => format!("invalid error {}", String::from_utf8_lossy(error)).into(),
    }
}

/// Returns the members of an object that is validated afterwards, unless it is nested so deeply that its values are not
/// decoded.
fn members(object: &[u8], is_shallow: bool) -> Result<Parts<'_>, Violation> {
    if is_shallow {
        serde_json::from_slice::<&RawValue>(object).map_err(|error| no_json(&error))?;
    }
    Parts::new(object, b'{').ok_or_else(|| Violation::new("expected a JSON object"))
}

/// Decodes a string; without escapes it is a slice of the message. `null` leaves it empty, as in Go.
fn text(object: &Bytes, value: &[u8]) -> Result<Bytes, Violation> {
    match string(value) {
        Some(Cow::Borrowed(text)) => Ok(kept_part(object, text.as_bytes())),
        Some(Cow::Owned(text)) => Ok(text.into()),
        None if value == b"null" => Ok(Bytes::new()),
        None => Err(Violation::new("the method is not named by a string")),
    }
}

/// Replaces invalid UTF-8 by U+FFFD, as Go does.
///
/// # Errors
///
/// If a long object contains invalid UTF-8: it would grow to three times its length.
fn utf8(object: Bytes) -> Result<Bytes, Violation> {
    match simdutf8::basic::from_utf8(&object) {
        Ok(_) => Ok(object),
        Err(_) if object.len() > MAX_REPAIRED => Err(Violation::new("a long message is not UTF-8")),
        Err(_) => Ok(String::from_utf8_lossy(&object).into_owned().into()),
    }
}

/// Returns the value, or null if there is none.
fn or_null(value: Bytes) -> Bytes {
    if value.is_empty() { Bytes::from_static(b"null") } else { value }
}

/// Maximum length of an object whose invalid UTF-8 is replaced, in bytes.
const MAX_REPAIRED: usize = 64 << 10;

/// Nesting limit, that of serde_json's values.
const MAX_DEPTH: usize = 128;

/// Go's text (`encoding/json`, `scanner.go`).
const TOO_DEEP: &str = "exceeded max depth";

#[cold]
fn too_deep() -> Status {
    Status::invalid_argument(TOO_DEEP)
}

/// Go's text (`encoding/json`, `decode.go`).
#[cold]
fn no_list(params: &[u8]) -> Status {
    let what = match params.first() {
        Some(b'{') => "object",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        _ => "number",
    };
    Status::invalid_argument(format!("json: cannot unmarshal {what} into Go value of type [1]interface {{}}"))
}

#[cold]
fn no_json(error: &serde_json::Error) -> Violation {
    Violation::new(format!("this is not JSON: {error}"))
}
