//! One call through the gateway.

mod metadata;
mod refusal;
mod streams;
mod unary;

use std::sync::Arc;

use polyrpc::client::CallOptions;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::layer::StreamType;
use polyrpc::{Format, Protocol, Result};
use polyrpc_core::protocol::Streams;

use crate::config::Sticky;
use crate::plan::{Pair, Plan, Route, Upstream};

/// What is decided about a call before its message is read.
struct Decision {
    upstream: Arc<Upstream>,
    pair: Arc<Pair>,
    /// The method's name for the upstream.
    target: String,
    options: CallOptions,
    /// Formats of the caller's messages and of the upstream's.
    from: Format,
    to: Format,
    /// The caller's protocol.
    caller: Protocol,
}

/// Answers a call by a server of the plan.
pub(crate) async fn answer(plan: Arc<Plan>, mut call: RawRequest) -> Result<RawResponse> {
    let decision = decide(&plan, &call)?;
    // Connections and calls of the old plan end on their own.
    drop(plan);
    let attached = decision.upstream.client.protocol().descriptor().capabilities.streams;
    let shape = decision.pair.shape.unwrap_or(StreamType::UNARY);
    let streams = shape.client_streams || shape.server_streams;
    match attached {
        _ if call.offered_streams() > 0 => streams::attached(decision, call).await,
        Streams::Calls if call.is_streamed() => streams::piped(decision, call).await,
        Streams::Attached if call.is_streamed() && streams => {
            streams::over_attached(decision, shape, call).await
        }
        _ if streams => Err(refusal::streams(&decision)),
        _ => {
            let body = call.body().await?;
            unary::answer(decision, body).await
        }
    }
}

fn decide(plan: &Plan, call: &RawRequest) -> Result<Decision> {
    let (service, method) = (call.service(), call.method());
    let route = plan.route(service, method, call.metadata()).ok_or_else(|| refusal::no_route(call))?;
    let upstream = picked(route, call).ok_or_else(|| refusal::no_route(call))?.clone();
    let from = call.format();
    let to = upstream.format(from);
    let numbered = upstream.client.protocol() == Protocol::FbRpc;
    let target = route.target(service, method);
    let pair = route.pairs.find(&plan.schemas, &target, (from, to), route.on_loss, numbered);
    for translator in [&pair.request, &pair.response] {
        translator.as_ref().map_err(|why| refusal::no_schema(why, &target))?;
    }
    let capabilities = &upstream.client.protocol().descriptor().capabilities;
    if !call.attachment().is_empty() && !capabilities.attachments {
        return Err(refusal::attachment(upstream.client.protocol()));
    }
    let options = CallOptions {
        metadata: metadata::onward(call, &upstream)?,
        attachment: call.attachment().clone(),
        timeout: [call.remaining(), route.timeout, upstream.spec.timeout.map(|it| it.0)]
            .into_iter()
            .flatten()
            .min(),
        format: Some(to),
        oneway: call.is_oneway(),
        ..CallOptions::default()
    };
    let target = pair.numbered.clone().unwrap_or(target);
    let caller = call.protocol();
    Ok(Decision { upstream, pair, target, options, from, to, caller })
}

fn picked<'r>(route: &'r Route, call: &RawRequest) -> Option<&'r Arc<Upstream>> {
    match &route.sticky {
        None => route.pick(None),
        Some(Sticky::Metadata(name)) => route.pick(call.metadata().bytes(name).map(|value| &value[..])),
        Some(Sticky::Peer) => {
            // The port differs for each connection.
            let peer = call.context().peer().to_string();
            let host = peer.rsplit_once(':').map_or(peer.as_str(), |(host, _)| host);
            route.pick(Some(host.as_bytes()))
        }
    }
}
