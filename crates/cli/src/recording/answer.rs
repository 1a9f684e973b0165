//! Answers to a call, recorded or received, and their differences.

use bytes::Bytes;
use polyrpc::client::Response;
use polyrpc::codec::Body;
use polyrpc::payload::schema::Message;
use polyrpc::{Code, Format, Status};
use polyrpc_record::call::Outcome;
use polyrpc_record::compare::{Difference, Rules};
use polyrpc_record::value::Value;

/// An answer that can be compared.
#[derive(Debug)]
pub(crate) struct Answer {
    /// `ok`, or the code and the number of the failure.
    status: String,
    /// The text of the failure.
    reason: Option<String>,
    /// `None` if there is none, or it was not kept.
    body: Option<Value>,
    attachment: Bytes,
}

impl Answer {
    /// A recorded answer. `declared` is the response message, if it is known.
    pub(crate) fn from_outcome(outcome: &Outcome, declared: Option<&Message>) -> Self {
        let status = match &outcome.failure {
            None if outcome.closed => "closed".to_owned(),
            None => "ok".to_owned(),
            Some(failure) => format_status(&failure.code, failure.number),
        };
        let body = outcome.response.as_ref().filter(|message| message.omitted.is_empty());
        let body = body.and_then(|message| Some(decode(message.format?, &message.body, declared)));
        let reason = outcome.failure.as_ref().map(|failure| failure.message.clone());
        Self { status, reason, body, attachment: outcome.attachment.clone() }
    }

    /// An answer of a server.
    pub(crate) fn from_response(answer: &Result<Response<Body>, Status>, declared: Option<&Message>) -> Self {
        match answer {
            Ok(response) => Self {
                status: "ok".to_owned(),
                reason: None,
                body: Some(decode(response.message.format, &response.message.bytes, declared)),
                attachment: response.attachment.clone(),
            },
            Err(status) => Self {
                status: format_status(status.code().as_str(), status.number()),
                reason: Some(status.message().to_owned()),
                body: None,
                attachment: Bytes::new(),
            },
        }
    }

    /// Returns how another answer differs from this one. A body that was not kept differs from nothing.
    pub(crate) fn differences(&self, rules: &Rules, other: &Self) -> Vec<Difference> {
        if self.status != other.status && !self.has_same_reason(other) {
            let text = |answer: &Self| Some(Value::Text(answer.status.clone()));
            return vec![Difference { path: "status".to_owned(), left: text(self), right: text(other) }];
        }
        let mut found = match (&self.body, &other.body) {
            (Some(left), Some(right)) => rules.compare(left, right),
            _ => Vec::new(),
        };
        if self.attachment != other.attachment {
            let bytes = |answer: &Self| Some(Value::Bytes(answer.attachment.to_vec()));
            found.push(Difference { path: "attachment".to_owned(), left: bytes(self), right: bytes(other) });
        }
        found
    }

    /// Whether both failed with the same text, and one of them without a code, since its protocol has none (rpcx,
    /// net/rpc, rest_rpc).
    fn has_same_reason(&self, other: &Self) -> bool {
        let lacks_code = [self, other].iter().any(|answer| answer.status == Code::Unknown.as_str());
        lacks_code && self.reason.is_some() && self.reason == other.reason
    }
}

fn decode(format: Format, bytes: &[u8], declared: Option<&Message>) -> Value {
    Value::decode_or_bytes(format, bytes, declared)
}

fn format_status(code: &str, number: Option<i32>) -> String {
    match number {
        None => code.to_owned(),
        Some(number) => format!("{code} ({number})"),
    }
}
