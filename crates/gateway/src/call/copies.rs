//! Copies of calls for a mirror.

use std::sync::Arc;

use polyrpc::codec::Body;
use polyrpc::fallback::RawRequest;

use super::decision::{Decision, Forwarding};
use crate::mirror::{CallCopy, Leg};
use crate::plan::RouteState;
use crate::upstream::Upstream;

/// Prepares a copy of a call, if the route has a mirror, the method has no side effects, and the limits allow it.
pub(super) fn prepare(decision: &Decision, call: &RawRequest, body: &Body) -> Option<CallCopy> {
    let RouteState { mirror: Some(mirror), .. } = &*decision.route.state else { return None };
    if call.is_oneway() || !decision.is_safe() || !mirror.selects(call.metadata()) {
        return None;
    }
    let admitted = mirror.admit(body.bytes.len() + call.attachment().len())?;
    let second = mirror.second(&decision.upstream().spec.name)?;
    let leg = |upstream: &Arc<Upstream>| {
        let Forwarding { pair, target, options, .. } = decision.forwarding_to(upstream, call).ok()?;
        Some(Leg { upstream: upstream.clone(), pair, target, options })
    };
    match (leg(&mirror.candidate), leg(second)) {
        (Some(candidate), Some(second)) => {
            Some(CallCopy::new(admitted, decision.callers_name(), body, candidate, second))
        }
        _ => {
            admitted.record_untranslatable();
            None
        }
    }
}
