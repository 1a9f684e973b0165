//! Calls that subscribe to a topic.

use bytes::Bytes;
use futures_util::stream::unfold;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::layer::StreamType;
use polyrpc::{Result, Streaming};
use serde_json::{Map, Value};

use super::decision::Decision;
use super::refusal;
use super::watch::Watch;
use crate::config::Topic;
use crate::pairs::{Pair, READABLE};

/// Subscribes to a topic of the upstream, and answers with its messages until the caller ends the call. The upstream
/// keeps the subscription as long as the connection: rest_rpc has no message to cancel one.
pub(super) async fn answer(mut decision: Box<Decision>, mut call: RawRequest) -> Result<RawResponse> {
    let route = decision.route.clone();
    let Some(Topic { key, token }) = route.topic() else { return Err(refusal::no_route(&call)) };
    if !call.is_streamed() {
        return Err(refusal::streams(&decision.target, decision.protocols()));
    }
    // The request carries nothing that the route does not determine.
    let request = call.body().await?;
    if let Err(why) = &decision.pair.published {
        return Err(refusal::no_schema(why, &decision.target));
    }
    let shape = StreamType { client_streaming: false, server_streaming: true };
    let record = decision.begin_record(&call, Some(shape), Some(&request));
    let watch = Watch::new(&mut decision, record.clone());
    let subscribed = decision.upstream().client().subscribe::<Value>(key, token).await;
    let messages = subscribed.map_err(|error| watch.record_failure(decision.failure(error)))?;
    let format = decision.from;
    let messages = unfold(Some((decision, messages, record)), |state| async {
        let (decision, mut messages, record) = state?;
        let next = match messages.message().await {
            Ok(Some(value)) => translate_published(&decision.pair, value),
            Ok(None) => return None,
            Err(error) => Err(decision.failure(error)),
        };
        match next {
            Ok(bytes) => {
                if let Some(record) = &record {
                    record.response(&bytes);
                }
                Some((Ok(bytes), Some((decision, messages, record))))
            }
            Err(error) => Some((Err(error), None)),
        }
    });
    let mut answer = RawResponse::messages(Streaming::from_stream(messages));
    answer.format = Some(format);
    watch.observe(Ok(answer))
}

/// Writes a published value as a response of the method.
fn translate_published(pair: &Pair, value: Value) -> Result<Bytes> {
    let translator = pair.published.as_ref().map_err(|why| refusal::no_schema(why, ""))?;
    let value = match (&pair.sole_field, value) {
        // A topic may publish plain values, but a message has fields.
        (Some(field), value) if !value.is_object() => Value::Object(Map::from_iter([(field.clone(), value)])),
        (_, value) => value,
    };
    let body = Body::new(READABLE, value.to_string().into_bytes());
    Ok(translator.translate(body).map_err(|error| refusal::response(&error))?.body.bytes)
}
