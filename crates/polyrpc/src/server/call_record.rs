use std::sync::Arc;
use std::time::Instant;
use std::{fmt, mem};

use polyrpc_core::{Call, Reply, Status};

use super::hook_chain::HookChain;
use crate::call::{ConnectionFacts, MethodName, Outcome, OutcomeKind};
use crate::layer::hook::AnsweredCall;
use crate::service::Route;

/// Record of a call, for hooks that observe its end. They are called when this is dropped, since that happens to every
/// call.
pub(super) struct CallRecord {
    hooks: HookChain,
    caller: Arc<ConnectionFacts>,
    names: Names,
    arrived: Instant,
    request_bytes: usize,
    end: End,
}

enum Names {
    /// As the caller wrote them.
    Asked(Box<str>, Box<str>),
    Known(Arc<MethodName>),
}

enum End {
    /// Its response was not awaited.
    Cancelled,
    Succeeded {
        response_bytes: usize,
    },
    Failed(Status),
    /// The connection is closed instead.
    Unanswered,
}

impl CallRecord {
    pub(super) fn new(
        hooks: &HookChain,
        caller: &Arc<ConnectionFacts>,
        arrived: Instant,
        call: &Call<'_>,
    ) -> Box<Self> {
        Box::new(Self {
            hooks: hooks.clone(),
            caller: caller.clone(),
            names: Names::Asked("".into(), "".into()),
            arrived,
            request_bytes: call.body.len() + call.attachment.len(),
            end: End::Cancelled,
        })
    }

    /// Sets the called method.
    pub(super) fn set_method(&mut self, entry: &Arc<Route>) {
        self.names = Names::Known(entry.name().clone());
    }

    /// Sets the requested names of an unknown method.
    pub(super) fn set_requested_names(&mut self, call: &Call<'_>) {
        self.names = Names::Asked(call.service.into(), call.method.into());
    }

    pub(super) fn set_failure(&mut self, status: &Status) {
        self.end = End::Failed(status.clone());
    }

    pub(super) fn set_outcome(&mut self, outcome: &Outcome) {
        self.end = match (outcome.failure(), &outcome.0) {
            (Some(status), _) => End::Failed(status.clone()),
            (None, OutcomeKind::Reply(reply)) => End::Succeeded { response_bytes: reply_len(reply) },
            (None, OutcomeKind::Accept(reply, _)) => End::Succeeded { response_bytes: reply_len(reply) },
            (None, OutcomeKind::Finish { .. }) => End::Succeeded { response_bytes: 0 },
            (
                None,
                OutcomeKind::CloseConnection | OutcomeKind::Unauthenticated(_) | OutcomeKind::Corrupt(_),
            ) => End::Unanswered,
        };
    }
}

/// Returns the size of a reply in bytes.
fn reply_len(reply: &Reply) -> usize {
    reply.result.as_ref().map_or(0, |message| message.len()) + reply.attachment.len()
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let (service, method, method_found) = match &self.names {
            Names::Asked(service, method) => (&**service, &**method, false),
            Names::Known(name) => (name.service(), name.method(), true),
        };
        let (failure, response_bytes) = match mem::replace(&mut self.end, End::Unanswered) {
            End::Cancelled => (Some(Status::cancelled("the caller went away")), 0),
            End::Succeeded { response_bytes } => (None, response_bytes),
            End::Failed(status) => (Some(status), 0),
            End::Unanswered => (None, 0),
        };
        let answered = AnsweredCall {
            service,
            method,
            method_found,
            failure: failure.as_ref(),
            duration: self.arrived.elapsed(),
            request_bytes: self.request_bytes,
            response_bytes,
            connection_id: self.caller.id,
            protocol: self.caller.protocol,
            peer: &self.caller.peer,
        };
        self.hooks.on_response(&answered);
    }
}

impl fmt::Debug for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRecord").field("request_bytes", &self.request_bytes).finish_non_exhaustive()
    }
}
