//! Responses with metadata or trailers that their protocol cannot carry: such a call fails, with the key in the
//! message. In the response of another server, which a fallback forwards, such entries are left out instead.

use std::time::Duration;

use polyrpc_core::session::server::Ticket;
use polyrpc_core::{Carrier, Head, Metadata, Status, UnsupportedEntry};

use crate::call::{Outcome, OutcomeKind, remove_unsupported};
use crate::rate_limited::EventLimiter;

/// Turns a response that cannot be encoded into a failure. A response that is already a failure only loses the entry.
#[inline]
pub(super) fn reject(ticket: &impl Ticket, outcome: &mut Outcome) {
    let has_none = match &outcome.0 {
        OutcomeKind::Reply(reply) => reply.head.metadata.is_empty() && reply.trailers.is_empty(),
        OutcomeKind::Accept(reply, _) => reply.head.metadata.is_empty() && reply.trailers.is_empty(),
        OutcomeKind::Finish { trailers, .. } => trailers.is_empty(),
        OutcomeKind::CloseConnection | OutcomeKind::Unauthenticated(_) | OutcomeKind::Corrupt(_) => true,
    };
    if !has_none {
        reject_entries(ticket.carrier(), outcome);
    }
}

#[cold]
fn reject_entries(carrier: Carrier, outcome: &mut Outcome) {
    if let OutcomeKind::Reply(reply) = &mut outcome.0
        && reply.head.relayed
    {
        remove_unsupported(carrier, &mut reply.head.metadata);
        remove_unsupported(carrier, &mut reply.trailers);
        return;
    }
    if let OutcomeKind::Accept(reply, _) = &mut outcome.0
        && reply.head.relayed
    {
        remove_unsupported(carrier, &mut reply.head.metadata);
        remove_unsupported(carrier, &mut reply.trailers);
        return;
    }
    let failure = match &outcome.0 {
        OutcomeKind::Reply(reply) => first_unsupported(carrier, &reply.head.metadata, &reply.trailers),
        OutcomeKind::Accept(reply, _) => first_unsupported(carrier, &reply.head.metadata, &reply.trailers),
        OutcomeKind::Finish { trailers, .. } => first_unsupported(carrier, &Metadata::new(), trailers),
        OutcomeKind::CloseConnection | OutcomeKind::Unauthenticated(_) | OutcomeKind::Corrupt(_) => None,
    };
    let Some(failure) = failure else { return };
    match &mut outcome.0 {
        OutcomeKind::Reply(reply) if reply.result.is_ok() => *outcome = Outcome::failed(failure),
        OutcomeKind::Accept(..) => *outcome = Outcome::failed(failure),
        OutcomeKind::Finish { result, .. } if result.is_ok() => *result = Err(failure),
        _ => {}
    }
}

/// Returns the failure of a call whose response has this head, if the protocol cannot carry it.
pub(super) fn check_head(carrier: Carrier, head: &mut Head) -> Option<Status> {
    if head.metadata.is_empty() {
        return None;
    }
    if head.relayed {
        remove_unsupported(carrier, &mut head.metadata);
        return None;
    }
    first_unsupported(carrier, &head.metadata, &Metadata::new())
}

fn first_unsupported(carrier: Carrier, metadata: &Metadata, trailers: &Metadata) -> Option<Status> {
    let entry = match carrier {
        // Its protocols send no trailers.
        Carrier::Map => carrier.check(metadata).err(),
        // HTTP's content type is exempt: HTTP's own mapping uses it, and other protocols have a field of their own.
        _ => [metadata, trailers]
            .into_iter()
            .flat_map(|metadata| carrier.unsupported(metadata))
            .find(|entry| !entry.key().eq_ignore_ascii_case(CONTENT_TYPE)),
    }?;
    log(entry);
    Some(entry.into_failure())
}

fn log(entry: UnsupportedEntry<'_>) {
    let Some(suppressed) = EVENTS.allow() else { return };
    let (key, reason) = (entry.key(), entry.reason());
    tracing::error!(key, reason, suppressed, "metadata of a response cannot be sent");
}

static EVENTS: EventLimiter = EventLimiter::new(20, Duration::from_secs(10));

const CONTENT_TYPE: &str = "content-type";
