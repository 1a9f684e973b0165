//! One call through the gateway.

mod binary;
mod copies;
mod decision;
mod failure;
mod metadata;
mod refusal;
mod response_room;
mod streams;
mod topic;
mod unary;
mod watch;

use std::sync::Arc;

use polyrpc::Result;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::layer::StreamType;
use polyrpc_core::protocol::Streams;

use self::decision::Decision;
use crate::origin::Proxies;
use crate::plan::Plan;

/// Forwards a call to an upstream of the plan, and returns its answer.
pub(crate) async fn answer(plan: Arc<Plan>, proxies: Arc<Proxies>, call: RawRequest) -> Result<RawResponse> {
    let decision = Box::new(Decision::new(&plan, proxies, &call)?);
    // Connections and calls of the old plan finish with that plan.
    drop(plan);
    let attached = decision.upstream().protocol().descriptor().capabilities.streams;
    let shape = decision.pair.stream_type.unwrap_or(StreamType::UNARY);
    let streams = shape.client_streaming || shape.server_streaming;
    // Boxed, so that the futures of most calls stay small.
    match attached {
        _ if decision.route.topic().is_some() => Box::pin(topic::answer(decision.admit()?, call)).await,
        Streams::Calls if call.offered_streams() > 0 && streams => {
            Box::pin(streams::from_attached(decision.admit()?, shape, call)).await
        }
        _ if call.offered_streams() > 0 => Box::pin(streams::join_attached(decision.admit()?, call)).await,
        // A call of a declared unary method may be copied to a mirror, and retried at another upstream.
        Streams::Calls if call.is_streamed() && !decision.is_declared_unary() => {
            streams::pipe(decision, call).await
        }
        Streams::Attached if call.is_streamed() && streams => {
            Box::pin(streams::forward_attached(decision, shape, call)).await
        }
        _ if streams => Err(refusal::streams(&decision.target, decision.protocols())),
        _ => unary::answer(decision, call).await,
    }
}
