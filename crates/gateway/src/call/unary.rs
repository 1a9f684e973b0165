//! Calls of one message each way.

use polyrpc::codec::Body;
use polyrpc::fallback::RawResponse;
use polyrpc::{Format, Metadata, Result};
use polyrpc_transform::Translator;

use super::metadata::keep_end_to_end;
use super::{Decision, refusal};

/// Forwards a message, and returns the answer in the caller's format.
pub(super) async fn answer(decision: Decision, body: Body) -> Result<RawResponse> {
    let body = request(&decision, body)?;
    let Decision { upstream, target, options, .. } = &decision;
    let oneway = options.oneway;
    let response = upstream.client.call_raw(target, body, options.clone()).await;
    let mut response = response.map_err(|error| decision.failure(error))?;
    if oneway {
        return Ok(RawResponse::default());
    }
    let capabilities = &decision.caller.descriptor().capabilities;
    if !response.attachment.is_empty() && !capabilities.attachments {
        return Err(refusal::attachment(decision.caller));
    }
    if capabilities.has_fields() {
        keep_end_to_end(&mut response.metadata);
        keep_end_to_end(&mut response.trailers);
    }
    // brpc's server may answer in another format than it was asked in.
    let empty = Body::new(decision.to, bytes::Bytes::new());
    let message = std::mem::replace(&mut response.message, empty);
    let message = response_message(&decision, message)?;
    let mut answer = RawResponse::message(message.bytes);
    answer.format = Some(message.format);
    answer.metadata = std::mem::take(&mut response.metadata);
    answer.trailers = std::mem::take(&mut response.trailers);
    answer.attachment = std::mem::take(&mut response.attachment);
    Ok(answer)
}

/// Translates the caller's message.
pub(super) fn request(decision: &Decision, body: Body) -> Result<Body> {
    let translator =
        decision.pair.request.as_ref().map_err(|why| refusal::no_schema(why, &decision.target))?;
    let translated = translator.translate(body).map_err(|error| refusal::request(&error))?;
    report(decision, translated.lost);
    Ok(translated.body)
}

/// Translates the server's message.
pub(super) fn response_message(decision: &Decision, body: Body) -> Result<Body> {
    let translator =
        decision.pair.response.as_ref().map_err(|why| refusal::no_schema(why, &decision.target))?;
    if !same(body.format, decision.to) {
        return Err(refusal::response(&polyrpc_transform::Error::new(format!(
            "it is {}, and {} was expected",
            body.format.as_str(),
            decision.to.as_str()
        ))));
    }
    let translated = Translator::translate(translator, body).map_err(|error| refusal::response(&error))?;
    report(decision, translated.lost);
    Ok(translated.body)
}

fn same(one: Format, other: Format) -> bool {
    one == other || matches!((one, other), (Format::Json(_), Format::Json(_)))
}

fn report(decision: &Decision, lost: u64) {
    if lost > 0 {
        tracing::warn!(target: "polyrpc_gateway", method = decision.target, lost, "a translation lost parts of a message");
    }
}

impl Decision {
    /// The failure of an upstream, with its metadata as far as the caller's protocol has fields for them.
    #[cold]
    pub(super) fn failure(&self, error: polyrpc::Error) -> polyrpc::Failure {
        let status = error.status().clone();
        let kept = |metadata: &Metadata| {
            let mut metadata = metadata.clone();
            keep_end_to_end(&mut metadata);
            metadata
        };
        match self.caller.descriptor().capabilities.has_fields() {
            true => {
                let (headers, trailers) = (kept(status.headers()), kept(status.trailers()));
                status.received_with(headers, trailers).into()
            }
            false => status.into(),
        }
    }
}
