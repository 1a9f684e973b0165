//! Responses with metadata or trailers that their protocol cannot carry: such a call fails, with the key in the
//! message.

use std::time::Duration;

use polyrpc_core::session::Server as Session;
use polyrpc_core::{Carrier, Misfit};
use polyrpc_core::{Metadata, Status};

use crate::rate_limited::EventLimiter;
use crate::service::Outcome;

/// Turns a response that cannot be encoded into a failure. A response that is already a failure only loses the entry.
#[inline]
pub(super) fn refuse<S: Session>(ticket: &S::Ticket, ending: &mut Outcome) {
    let has_none = match ending {
        Outcome::Reply(reply) => reply.head.metadata.is_empty() && reply.trailers.is_empty(),
        Outcome::Accept(reply, _) => reply.head.metadata.is_empty() && reply.trailers.is_empty(),
        Outcome::Finish { trailers, .. } => trailers.is_empty(),
        Outcome::CloseConnection | Outcome::Unauthenticated(_) | Outcome::Corrupt(_) => true,
    };
    if !has_none {
        refuse_entries(S::carrier(ticket), ending);
    }
}

#[cold]
fn refuse_entries(carrier: Carrier, ending: &mut Outcome) {
    let failure = match ending {
        Outcome::Reply(reply) => misfit(carrier, [&reply.head.metadata, &reply.trailers]),
        Outcome::Accept(reply, _) => misfit(carrier, [&reply.head.metadata, &reply.trailers]),
        Outcome::Finish { trailers, .. } => misfit(carrier, [trailers, &Metadata::new()]),
        Outcome::CloseConnection | Outcome::Unauthenticated(_) | Outcome::Corrupt(_) => None,
    };
    let Some(failure) = failure else { return };
    match ending {
        Outcome::Reply(reply) if reply.result.is_ok() => *ending = Outcome::failed(failure),
        Outcome::Accept(..) => *ending = Outcome::failed(failure),
        Outcome::Finish { result, .. } if result.is_ok() => *result = Err(failure),
        _ => {}
    }
}

/// Returns the failure of a call whose response has this head, if the protocol cannot carry it.
pub(super) fn of_head(carrier: Carrier, metadata: &Metadata) -> Option<Status> {
    if metadata.is_empty() { None } else { misfit(carrier, [metadata, &Metadata::new()]) }
}

fn misfit(carrier: Carrier, beside: [&Metadata; 2]) -> Option<Status> {
    let misfits = beside.into_iter().flat_map(|metadata| carrier.misfits(metadata));
    // HTTP's content type is exempt: HTTP's own mapping uses it, and other protocols have a field of their own.
    let misfit = { misfits }.find(|misfit| !misfit.key().eq_ignore_ascii_case(CONTENT_TYPE))?;
    tell(misfit);
    Some(misfit.into_failure())
}

fn tell(misfit: Misfit<'_>) {
    let Some(suppressed) = UNSENDABLE.allow() else { return };
    let (key, reason) = (misfit.key(), misfit.reason());
    tracing::error!(key, reason, suppressed, "metadata of a response cannot be sent");
}

static UNSENDABLE: EventLimiter = EventLimiter::new(20, Duration::from_secs(10));

const CONTENT_TYPE: &str = "content-type";
