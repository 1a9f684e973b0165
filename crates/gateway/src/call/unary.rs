//! Calls of one message each way.

use std::time::Instant;

use polyrpc::client::Response;
use polyrpc::codec::Body;
use polyrpc::fallback::{MAX_INLINE_TRANSCODE, RawRequest, RawResponse, transcode_blocking};
use polyrpc::layer::StreamType;
use polyrpc::{Failure, Format, Metadata, Result, Retry};
use polyrpc_transform::{Error, Translator, TranslatorError};

use super::decision::Decision;
use super::{copies, failure, metadata, refusal, response_room};
use crate::auto_rollback::is_fault;
use crate::log_rate::LogRate;
use crate::pairs::Pair;

/// Forwards a message, and returns the answer in the caller's format.
pub(super) async fn answer(decision: Box<Decision>, mut call: RawRequest) -> Result<RawResponse> {
    let body = call.body().await?;
    // First, since a call that waits for room takes several KiB.
    let decision = decision.admit()?;
    let room = match response_room::reserve(&decision, &call) {
        Ok(room) => room,
        Err(waiting) => waiting.await?,
    };
    let record = decision.begin_record(&call, Some(StreamType::UNARY), Some(&body));
    let copy = copies::prepare(&decision, &call, &body);
    // Kept if the call may be retried at another upstream.
    let retry_upstream = decision.route.retry_upstream(decision.upstream_index);
    let retry = retry_upstream.map(|upstream_index| (upstream_index, body.clone()));
    // The room is held until the response is returned; from then on it counts as data that the caller has not read.
    let (first, _room) = match room {
        None => (attempt(&decision, body).await, None),
        // Boxed, so that calls with small responses do not pay for its size.
        Some(room) => Box::pin(response_room::await_response(room, attempt(&decision, body))).await,
    };
    let (decision, result) = match (first, retry) {
        (Err(failure), Some((upstream_index, body))) if may_repeat(&decision, &failure) => {
            let decision = decision.retry_at(upstream_index, &call).inspect_err(|failure| {
                if let Some(record) = &record {
                    record.record_end(Err(failure.status()));
                }
            })?;
            // Boxed, so that other calls do not pay for its size.
            let result = Box::pin(attempt(&decision, body)).await;
            (decision, result)
        }
        (result, _) => (decision, result),
    };
    if let Ok(Answer { response, message: Some(message), .. }) = &result {
        decision.pair.response_size.record(message.bytes.len() + response.attachment.len());
    }
    if let Some(copy) = copy {
        let answer = result.as_ref().map(|answer| answer.received.clone());
        let protocol = decision.upstream().protocol();
        copy.compare(decision.pair.clone(), protocol, answer.map_err(|failure| failure.code()));
    }
    if let Some(record) = record {
        match &result {
            Ok(Answer { response, message: Some(message), .. }) => {
                record.record_answer(message.clone(), response);
            }
            // A one-way caller expects no answer.
            Ok(_) => record.record_end(Ok(())),
            Err(failure) => record.record_end(Err(failure.status())),
        }
    }
    result.map(|answer| answer.response)
}

/// Whether a failed call may be retried at another upstream: it was not started, or has no side effects.
fn may_repeat(decision: &Decision, failure: &Failure) -> bool {
    match failure.status().retry() {
        Retry::Elsewhere => true,
        _ => is_fault(failure.code()) && decision.is_safe(),
    }
}

/// An upstream's answer.
pub(super) struct Answer {
    pub(super) response: RawResponse,
    /// The message in the upstream's format.
    received: Body,
    /// The message in the caller's format; `None` if the caller gets none.
    message: Option<Body>,
}

async fn attempt(decision: &Decision, body: Body) -> Result<Answer> {
    let body = request(decision, body).await?;
    let began = Instant::now();
    let result = exchange(decision, body).await;
    let code = result.as_ref().err().map(Failure::code);
    decision.route.record(decision.upstream_index, code, began);
    result
}

async fn exchange(decision: &Decision, body: Body) -> Result<Answer> {
    let Decision { target, options, .. } = decision;
    let oneway = options.oneway;
    let response = decision.upstream().client().call_raw(target, body, options.clone()).await;
    let response = response.map_err(|error| decision.failure(error))?;
    if oneway {
        return Ok(Answer { response: RawResponse::default(), received: response.message, message: None });
    }
    translate(decision, response).await
}

/// Translates an upstream's answer.
pub(super) async fn translate(decision: &Decision, mut response: Response<Body>) -> Result<Answer> {
    // A brpc server may answer in another format than that of the request.
    let empty = Body::new(decision.to, bytes::Bytes::new());
    let received = std::mem::replace(&mut response.message, empty);
    let capabilities = &decision.caller.descriptor().capabilities;
    if !response.attachment.is_empty() && !capabilities.attachments {
        return Err(refusal::attachment(decision.caller));
    }
    let from = decision.upstream().protocol();
    metadata::convert_response(from, decision.caller, &mut response.metadata)?;
    metadata::convert_response(from, decision.caller, &mut response.trailers)?;
    let message = response_message(decision, received.clone()).await?;
    let mut answer = RawResponse::message(message.bytes.clone());
    answer.format = Some(message.format);
    answer.metadata = std::mem::take(&mut response.metadata);
    answer.trailers = std::mem::take(&mut response.trailers);
    answer.attachment = std::mem::take(&mut response.attachment);
    Ok(Answer { response: answer, received, message: Some(message) })
}

/// Translates the caller's message; a long one on a blocking thread.
pub(super) async fn request(decision: &Decision, body: Body) -> Result<Body> {
    match &decision.pair.request {
        Ok(translator) if is_slow(translator, &body) => {
            translate_aside(decision, |pair| &pair.request, body, refusal::request).await
        }
        _ => request_in_place(decision, body),
    }
}

/// Translates the caller's message.
pub(super) fn request_in_place(decision: &Decision, body: Body) -> Result<Body> {
    let translator =
        decision.pair.request.as_ref().map_err(|why| refusal::no_schema(why, &decision.target))?;
    let translated = translator.translate(body).map_err(|error| refusal::request(&error))?;
    report(decision, translated.lost);
    Ok(translated.body)
}

/// Translates the server's message; a long one on a blocking thread.
pub(super) async fn response_message(decision: &Decision, body: Body) -> Result<Body> {
    match &decision.pair.response {
        Ok(translator) if is_slow(translator, &body) => {
            check_format(decision, &body)?;
            translate_aside(decision, |pair| &pair.response, body, refusal::response).await
        }
        _ => response_in_place(decision, body),
    }
}

/// Translates a long message on a blocking thread, by this translator of the pair.
async fn translate_aside(
    decision: &Decision,
    translator: fn(&Pair) -> &Result<Translator, TranslatorError>,
    body: Body,
    refuse: fn(&Error) -> Failure,
) -> Result<Body> {
    let (pair, target) = (decision.pair.clone(), decision.target.clone());
    let translated = transcode_blocking(move || {
        let translator = translator(&pair).as_ref().map_err(|why| refusal::no_schema(why, &target))?;
        translator.translate(body).map_err(|error| refuse(&error))
    });
    // Boxed, so that other calls do not pay for its size.
    let translated = Box::pin(translated).await?;
    report(decision, translated.lost);
    Ok(translated.body)
}

/// Whether other calls of the thread would notice a translation in place.
fn is_slow(translator: &Translator, body: &Body) -> bool {
    body.bytes.len() > MAX_INLINE_TRANSCODE && !translator.is_identity()
}

/// Translates the server's message.
pub(super) fn response_in_place(decision: &Decision, body: Body) -> Result<Body> {
    let translator =
        decision.pair.response.as_ref().map_err(|why| refusal::no_schema(why, &decision.target))?;
    check_format(decision, &body)?;
    let translated = Translator::translate(translator, body).map_err(|error| refusal::response(&error))?;
    report(decision, translated.lost);
    Ok(translated.body)
}

/// Checks that a server's message has the expected format.
fn check_format(decision: &Decision, body: &Body) -> Result<()> {
    if !is_same_format(body.format, decision.to) {
        return Err(refusal::response(&Error::new(format!(
            "it is {}, and {} was expected",
            body.format.as_str(),
            decision.to.as_str()
        ))));
    }
    Ok(())
}

fn is_same_format(one: Format, other: Format) -> bool {
    one == other || matches!((one, other), (Format::Json(_), Format::Json(_)))
}

fn report(decision: &Decision, lost: u64) {
    static RATE: LogRate = LogRate::new();
    if lost > 0
        && let Some(suppressed) = RATE.allow()
    {
        let method = &decision.target;
        tracing::warn!(target: "polyrpc_gateway", method, lost, suppressed, "a translation lost parts of a message");
    }
}

impl Decision {
    /// The failure of an upstream, with its metadata as far as the caller's protocol carries them.
    #[cold]
    pub(super) fn failure(&self, error: polyrpc::Error) -> polyrpc::Failure {
        let (upstream, status) = (self.upstream(), error.status());
        let kept = |metadata: &Metadata| {
            let mut metadata = metadata.clone();
            // What cannot be carried is no reason to replace the failure itself.
            match metadata::convert_response(upstream.protocol(), self.caller, &mut metadata) {
                Ok(()) => metadata,
                Err(_) => Metadata::new(),
            }
        };
        let (headers, trailers) = (kept(status.headers()), kept(status.trailers()));
        failure::for_caller(upstream, status).received_with(headers, trailers).into()
    }
}
