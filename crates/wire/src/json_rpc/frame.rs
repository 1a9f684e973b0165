//! Parsing and writing of requests and responses.
//!
//! serde_json validates the whole text once, without recursion, after a scan has checked the nesting depth. In valid
//! JSON, the parts are found by a scan over brackets and quotes that does not allocate; parameters and results are then
//! slices of the message, passed on as they were written.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use polyrpc_core::Status;

use crate::kept_part::kept_part;

use super::text::{Parts, after_string, quote, string};
use super::{MAX_ID_LEN, status};

/// A method call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    name: String,
    /// The parameters in their original text; empty if there are none.
    pub(crate) params: Bytes,
    /// The parameters are an array.
    pub(crate) positional: bool,
    /// The id in its original text; `None` makes it a notification.
    pub(crate) id: Option<Bytes>,
}

impl Request {
    /// Returns service and method: the name is split at its last dot. A name without a dot is a plain function's.
    pub(crate) fn names(&self) -> (&str, &str) {
        self.name.rsplit_once('.').unwrap_or(("", &self.name))
    }

    /// Whether the name includes a service.
    pub(crate) fn is_dotted(&self) -> bool {
        self.name.contains('.')
    }
}

/// Content of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// One request.
    One(Request),
    /// A batch: its requests, and the error responses to its malformed entries.
    Many(Vec<Request>, Vec<Vec<u8>>),
    /// The message contains no valid request; this is the error response.
    Refused(Vec<u8>),
}

/// Maximum number of entries of a batch. Each is answered, so that two bytes of a request may cause eighty of a
/// response.
const MAX_BATCH: usize = 1000;

/// Maximum nesting depth of a message: that of serde_json's values. Decoders of the parameters may be recursive.
const MAX_DEPTH: usize = 128;

/// Parses a message.
pub(crate) fn read(message: &Bytes) -> Incoming {
    let text = match check(message) {
        Ok(text) => text,
        Err(reason) => return Incoming::Refused(refusal(None, status::PARSE_ERROR, &reason)),
    };
    let Some(mut entries) = Parts::new(text, b'[') else {
        return match read_request(text, message, ALONE) {
            Ok(request) => Incoming::One(request),
            Err(refusal) => Incoming::Refused(refusal),
        };
    };
    let (mut requests, mut refused) = (Vec::new(), Vec::new());
    while let Some(entry) = entries.next_value() {
        if requests.len() + refused.len() == MAX_BATCH {
            return Incoming::Refused(refusal(
                None,
                status::INVALID_REQUEST,
                "the batch has more than 1000 entries",
            ));
        }
        match read_request(entry, message, IN_BATCH) {
            Ok(request) => requests.push(request),
            Err(refusal) => refused.push(refusal),
        }
    }
    match requests.is_empty() && refused.is_empty() {
        true => Incoming::Refused(refusal(None, status::INVALID_REQUEST, "the batch is empty")),
        false => Incoming::Many(requests, refused),
    }
}

/// Whether a message claims to be JSON-RPC, valid or not.
pub(crate) fn announces(message: &[u8]) -> bool {
    matches!(message.trim_ascii_start(), [b'{' | b'[', ..])
        && memchr::memmem::find(message, b"\"jsonrpc\"").is_some()
}

/// Checks that `message` is one JSON text that is not nested too deeply; returns it without surrounding blanks.
fn check(message: &[u8]) -> Result<&[u8], String> {
    // Checked first: serde_json saves the stack but not the heap, since it keeps a byte for every open level.
    if is_deep(message) {
        return Err(format!("nested deeper than {MAX_DEPTH} levels"));
    }
    let value: &RawValue = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    Ok(value.get().trim_ascii().as_bytes())
}

/// Whether more than [`MAX_DEPTH`] brackets are open at once, as far as can be determined for a text that may not be
/// JSON.
fn is_deep(mut rest: &[u8]) -> bool {
    let mut depth = 0usize;
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'"' => rest = after_string(rest),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

/// Error codes for malformed requests.
#[derive(Clone, Copy)]
struct Codes {
    /// It is not an object, or one of its members has the wrong type.
    unfit: i32,
    /// It has no method name.
    nameless: i32,
}

/// rpcx's codes: it reports whatever its decoder rejects as a parse error, and a name without a dot as an unknown
/// method (`server/jsonrpc2.go`).
const ALONE: Codes = Codes { unfit: status::PARSE_ERROR, nameless: status::METHOD_NOT_FOUND };

/// JSON-RPC 2.0's codes (§7), since rpcx does not support batches.
const IN_BATCH: Codes = Codes { unfit: status::INVALID_REQUEST, nameless: status::INVALID_REQUEST };

/// Parses one request in `message`, or returns the error response. Like rpcx, it ignores the version.
fn read_request(text: &[u8], message: &Bytes, codes: Codes) -> Result<Request, Vec<u8>> {
    let unfit = |id, reason| Err(refusal(id, codes.unfit, reason));
    let Some(mut members) = Parts::new(text, b'{') else {
        return unfit(None, "a request is an object");
    };
    let (mut name, mut params, mut id) = (None, None, None);
    while let Some((key, value)) = members.next_member() {
        match &*key {
            "method" => name = Some(value),
            "params" => params = Some(value),
            "id" => id = Some(value),
            _ => {}
        }
    }
    if !id.is_none_or(is_id) {
        return unfit(None, "the id is neither string, number nor null");
    }
    if id.is_some_and(|id| id.len() > MAX_ID_LEN) {
        return unfit(None, "the id has more than 256 bytes");
    }
    let Some(name) = name else {
        return Err(refusal(id, codes.nameless, "must contains servicepath and method"));
    };
    let Some(name) = string(name) else {
        return unfit(id, "the method is not named by a string");
    };
    // rpcx passes any value on as the argument, even one that is neither object nor array.
    let params = params.filter(|params| *params != b"null").unwrap_or_default();
    Ok(Request {
        name: name.into_owned(),
        params: kept_part(message, params),
        positional: params.starts_with(b"["),
        id: id.map(|id| kept_part(message, id)),
    })
}

fn is_id(value: &[u8]) -> bool {
    matches!(value, [b'"' | b'-' | b'0'..=b'9' | b'n', ..])
}

/// Returns the error response to a malformed request.
#[cold]
fn refusal(id: Option<&[u8]>, code: i32, reason: &str) -> Vec<u8> {
    let mut text = Vec::new();
    write_error(&mut text, code, reason, None, id.unwrap_or(b"null"));
    text
}

/// Writes a response with a result, an empty one as `null`.
pub(super) fn write_result(text: &mut Vec<u8>, result: &[u8], id: &[u8]) {
    let result = if result.is_empty() { b"null" } else { result };
    text.reserve(40 + result.len() + id.len());
    text.extend_from_slice(br#"{"jsonrpc":"2.0","result":"#);
    text.extend_from_slice(result);
    text.extend_from_slice(br#","id":"#);
    text.extend_from_slice(id);
    text.push(b'}');
}

/// Writes an error response; `number` is application-specific.
pub(super) fn write_error(text: &mut Vec<u8>, code: i32, message: &str, number: Option<i32>, id: &[u8]) {
    let message = quote(message);
    let data = number.map_or(Cow::Borrowed("null"), |number| number.to_string().into());
    text.extend_from_slice(
        format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":{message},"data":{data}}},"id":"#)
            .as_bytes(),
    );
    text.extend_from_slice(id);
    text.push(b'}');
}

/// Writes a request; without an id it is a notification.
pub(crate) fn write_request(text: &mut Vec<u8>, service: &str, method: &str, params: &[u8], id: Option<u64>) {
    let name = if service.is_empty() { quote(method) } else { quote(&format!("{service}.{method}")) };
    text.extend_from_slice(format!(r#"{{"jsonrpc":"2.0","method":{name}"#).as_bytes());
    if !params.is_empty() {
        text.extend_from_slice(br#","params":"#);
        text.extend_from_slice(params);
    }
    if let Some(id) = id {
        text.extend_from_slice(format!(r#","id":{id}"#).as_bytes());
    }
    text.push(b'}');
}

/// Parses the response to the request with this id.
///
/// # Errors
///
/// Why the message is not such a response.
pub(crate) fn read_response(message: &Bytes, id: u64) -> Result<Result<Bytes, Status>, String> {
    let mut members = Parts::new(check(message)?, b'{').ok_or("the response is not an object")?;
    let (mut result, mut error, mut answers) = (None, None, None);
    while let Some((key, value)) = members.next_member() {
        match &*key {
            "result" => result = Some(value),
            "error" => error = Some(value).filter(|error| *error != b"null"),
            "id" => answers = Some(value).filter(|id| *id != b"null"),
            _ => {}
        }
    }
    // The response to a request whose id was unreadable has no id.
    let ours = match answers {
        Some(answers) => answers == id.to_string().as_bytes(),
        None => error.is_some(),
    };
    if !ours {
        return Err("the response has another id".to_owned());
    }
    match (error, result) {
        (Some(error), _) => read_error(error).map(Err),
        (None, Some(result)) => Ok(Ok(message.slice_ref(result))),
        (None, None) => Err("the response has neither result nor error".to_owned()),
    }
}

fn read_error(text: &[u8]) -> Result<Status, String> {
    let mut members = Parts::new(text, b'{').ok_or("the error is not an object")?;
    let (mut code, mut message, mut number) = (None, Cow::Borrowed(""), None);
    while let Some((key, value)) = members.next_member() {
        match &*key {
            "code" => code = integer(value),
            "message" => message = string(value).unwrap_or_default(),
            "data" => number = integer(value),
            _ => {}
        }
    }
    let code = code.ok_or("the error has no code")?;
    Ok(status::read(code, number, message.into_owned()).into_remote())
}

fn integer(value: &[u8]) -> Option<i32> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
