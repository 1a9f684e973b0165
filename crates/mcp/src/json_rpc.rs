//! The subset of JSON-RPC 2.0 that the protocol uses.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A message of a client.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request {
        id: Id,
        method: String,
        params: Option<&'a RawValue>,
    },
    /// A request without an answer.
    Notification,
    /// An answer to a request of the server, which has made none.
    Answer,
}

/// Identifies a request: a text or an integer, repeated as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Id(Value);

/// A failed request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Error {
    pub(crate) code: i32,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

pub(crate) const PARSE_ERROR: i32 = -32700;
pub(crate) const INVALID_REQUEST: i32 = -32600;
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
pub(crate) const INVALID_PARAMS: i32 = -32602;
pub(crate) const INTERNAL_ERROR: i32 = -32603;
/// A field of the request differs from its body (revision 2026-07-28).
pub(crate) const HEADER_MISMATCH: i32 = -32020;
pub(crate) const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;

impl Error {
    #[cold]
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    /// The whole answer. Without an id, the request could not be read.
    pub(crate) fn answer(&self, id: Option<&Id>) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id.map_or(&Value::Null, |id| &id.0), "error": error })
    }
}

/// The answer to a request that succeeded.
pub(crate) fn success(id: &Id, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.0, "result": result })
}

#[derive(Deserialize)]
struct Raw<'a> {
    jsonrpc: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    id: Option<Value>,
    method: Option<Value>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "deserialize_present")]
    result: Option<Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    error: Option<Value>,
}

/// Distinguishes `null` from a missing member.
fn deserialize_present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl<'a> Message<'a> {
    /// Parses a message. An error has the id of the request, if it can be read.
    pub(crate) fn parse(text: &'a str) -> Result<Self, (Option<Id>, Error)> {
        let raw: Raw<'a> = serde_json::from_str(text).map_err(|error| {
            let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
            (None, Error::new(code, format!("not a message of JSON-RPC: {error}")))
        })?;
        let id = match raw.id {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(Id(text.into()))),
            Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(Some(Id(number.into()))),
            Some(_) => Err((None, Error::new(INVALID_REQUEST, "the id is neither a string nor an integer"))),
        };
        let id = id?;
        let invalid = |text: &str| (id.clone(), Error::new(INVALID_REQUEST, text));
        if raw.jsonrpc != Some(Value::from("2.0")) {
            return Err(invalid("`jsonrpc` is not \"2.0\""));
        }
        match (raw.method, id.clone()) {
            (Some(Value::String(method)), Some(id)) => Ok(Self::Request { id, method, params: raw.params }),
            (Some(Value::String(_)), None) => Ok(Self::Notification),
            (Some(_), _) => Err(invalid("`method` is not a string")),
            (None, _) if raw.result.is_some() || raw.error.is_some() => Ok(Self::Answer),
            (None, _) => Err(invalid("there is no `method`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_a_request_a_notification_or_an_answer() {
        let parse = |text| Message::parse(text);
        let request = parse(r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":1.0}}"#).unwrap();
        assert!(matches!(&request, Message::Request { method, params: Some(params), .. }
            if method == "ping" && params.get() == r#"{"x":1.0}"#));
        for text in
            [r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, r#"{"method":"x","jsonrpc":"2.0"}"#]
        {
            assert!(matches!(parse(text).unwrap(), Message::Notification), "{text}");
        }
        for text in [r#"{"jsonrpc":"2.0","id":1,"result":null}"#, r#"{"jsonrpc":"2.0","id":1,"error":{}}"#] {
            assert!(matches!(parse(text).unwrap(), Message::Answer), "{text}");
        }
    }

    #[test]
    fn malformed_message_is_rejected_with_the_id_if_there_is_one() {
        for (text, code, id) in [
            ("{", PARSE_ERROR, None),
            ("", PARSE_ERROR, None),
            ("7", INVALID_REQUEST, None),
            (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, INVALID_REQUEST, None),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, INVALID_REQUEST, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST, Some(1)),
            (r#"{"jsonrpc":"2.0","id":[],"method":"ping"}"#, INVALID_REQUEST, None),
        ] {
            let (found, error) = Message::parse(text).unwrap_err();
            assert_eq!((error.code, found), (code, id.map(|id: i32| Id(id.into()))), "{text}");
        }
        assert_eq!(Error::new(1, "x").answer(None)["id"], Value::Null);
    }
}
