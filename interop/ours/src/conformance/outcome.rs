//! What became of a call, as the suite wants to be told.

use buffa_types::google::protobuf::Any;
use polyrpc::client::{Response, Result};
use polyrpc::{Error, Streaming};

use crate::payload::headers;
use crate::proto::{self, ClientResponseResult, ConformancePayload};

/// Of a call with one answer.
pub(crate) fn from_unary<T>(
    ended: Result<Response<T>>,
    payload: impl FnOnce(T) -> Option<ConformancePayload>,
) -> ClientResponseResult {
    match ended {
        Ok(response) => ClientResponseResult {
            response_headers: headers(&response.metadata),
            response_trailers: headers(&response.trailers),
            payloads: vec![payload(response.message).unwrap_or_default()],
            ..Default::default()
        },
        Err(error) => from_failure(&error),
    }
}

/// Of a call with any number of answers, each of which is counted.
pub(crate) async fn from_streams<T>(
    begun: Result<Response<Streaming<T>>>,
    payload: impl Fn(T) -> Option<ConformancePayload>,
    counted: impl Fn(usize),
) -> ClientResponseResult {
    let response = match begun {
        Ok(response) => response,
        Err(error) => return from_failure(&error),
    };
    let (mut messages, mut payloads) = (response.message, Vec::new());
    loop {
        match messages.message().await {
            Ok(Some(message)) => {
                payloads.push(payload(message).unwrap_or_default());
                counted(payloads.len());
            }
            Ok(None) => {
                return ClientResponseResult {
                    response_headers: headers(&response.metadata),
                    response_trailers: headers(&messages.trailers()),
                    payloads,
                    ..Default::default()
                };
            }
            Err(error) => return ClientResponseResult { payloads, ..from_failure(&error) },
        }
    }
}

fn from_failure(error: &Error) -> ClientResponseResult {
    let details = error.status().typed_details().into_iter().map(|detail| Any {
        type_url: detail.type_url,
        value: detail.value,
        ..Default::default()
    });
    let reported = proto::Error {
        code: (error.code() as i32).into(),
        message: Some(error.message().to_owned()),
        details: details.collect(),
        ..Default::default()
    };
    ClientResponseResult {
        response_headers: headers(error.headers()),
        response_trailers: headers(error.trailers()),
        error: reported.into(),
        ..Default::default()
    }
}
