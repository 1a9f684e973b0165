//! What a request was: the suite wants it back within the answer.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use buffa_types::google::protobuf::Any;
use polyrpc::{Context, Metadata};

use crate::proto::Header;
use crate::proto::conformance_payload::RequestInfo;

/// All that travelled beside a request, and its messages.
pub(crate) fn request_info(cx: &Context, requests: Vec<Any>) -> RequestInfo {
    let timeout = cx.remaining().map(|left| (left.as_secs_f64() * 1e3).ceil() as i64);
    RequestInfo {
        request_headers: headers(cx.metadata()),
        timeout_ms: timeout,
        requests,
        ..Default::default()
    }
}

pub(crate) fn any<T: buffa::Message>(name: &str, message: &T) -> Any {
    Any {
        type_url: format!("type.googleapis.com/connectrpc.conformance.v1.{name}"),
        value: message.encode_to_vec().into(),
        ..Default::default()
    }
}

/// Metadata as the suite tells it: bytes in base64, as they are on the wire.
pub(crate) fn headers(metadata: &Metadata) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::new();
    for (name, value) in metadata.iter() {
        let value = match name.ends_with("-bin") {
            true => STANDARD_NO_PAD.encode(value),
            false => String::from_utf8_lossy(value).into_owned(),
        };
        match headers.iter_mut().find(|header| header.name == name) {
            Some(header) => header.value.push(value),
            None => headers.push(Header { name: name.to_owned(), value: vec![value], ..Default::default() }),
        }
    }
    headers
}

/// What the suite wants to travel beside an answer.
pub(crate) fn append(headers: &[Header], metadata: &mut Metadata) {
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        for value in &header.value {
            let bytes = match name.ends_with("-bin") {
                true => STANDARD.decode(value).or_else(|_| STANDARD_NO_PAD.decode(value)).unwrap_or_default(),
                false => value.clone().into_bytes(),
            };
            metadata.append(name.clone(), bytes);
        }
    }
}
