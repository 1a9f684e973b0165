//! What the suite wants answered.

use std::time::Duration;

use buffa::Message;
use buffa_types::google::protobuf::Any;
use polyrpc::{Code, Context, Status};

use crate::payload::{any, append, request_info};
use crate::proto::unary_response_definition::Response;
use crate::proto::{self, ConformancePayload, UnaryResponseDefinition};

/// The one answer to requests.
pub(crate) async fn unary(
    cx: &mut Context,
    wanted: Option<&UnaryResponseDefinition>,
    requests: Vec<Any>,
) -> Result<ConformancePayload, Status> {
    let info = request_info(cx, requests);
    let Some(wanted) = wanted else {
        return Ok(ConformancePayload { request_info: info.into(), ..Default::default() });
    };
    append(&wanted.response_headers, &mut cx.reply_options().metadata);
    append(&wanted.response_trailers, &mut cx.reply_options().trailers);
    pause(wanted.response_delay_ms).await;
    match &wanted.response {
        Some(Response::Error(error)) => {
            Err(failure(error, Some(any("ConformancePayload.RequestInfo", &info))))
        }
        Some(Response::ResponseData(data)) => {
            Ok(ConformancePayload { data: data.clone(), request_info: info.into(), ..Default::default() })
        }
        None => Ok(ConformancePayload { request_info: info.into(), ..Default::default() }),
    }
}

pub(crate) async fn pause(millis: u32) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis.into())).await;
    }
}

/// A failure as the suite describes it; one before any answer also tells what was asked.
pub(crate) fn failure(error: &proto::Error, info: Option<Any>) -> Status {
    let number = error.code.to_i32();
    let code = Code::ALL.into_iter().find(|code| *code as i32 == number).unwrap_or(Code::Unknown);
    let message = error.message.clone().unwrap_or_default();
    let details: Vec<Any> = error.details.iter().cloned().chain(info).collect();
    let reported =
        proto::Status { code: code as i32, message: message.clone(), details, ..Default::default() };
    Status::new(code, message).with_details(reported.encode_to_vec())
}
