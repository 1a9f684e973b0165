//! Messages with more entries of metadata than their receiver accepts. They are not sent, since the receiver could end a
//! connection that other calls share; a call whose reply has too many fails alone.

use polyrpc_core::{Fault, Retry, Status};

use crate::oversized::too_long;

/// A message that is to be sent has too many entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyEntries {
    count: usize,
    max: usize,
}

/// Checks that a message to be sent has at most `max` entries.
#[inline]
pub(crate) fn check(count: usize, max: usize) -> Result<(), TooManyEntries> {
    if count <= max { Ok(()) } else { Err(TooManyEntries { count, max }) }
}

impl TooManyEntries {
    /// Converts to the failure of an outgoing call that is not sent.
    #[cold]
    pub(crate) fn into_refusal(self) -> Status {
        let Self { count, max } = self;
        Status::resource_exhausted(format!(
            "a message has at most {max} entries of metadata, this one has {count}; nothing was sent, and retrying does \
             not help"
        ))
        .with_fault(Fault::Caller)
        .with_retry(Retry::Never)
    }

    /// Converts to the failure of a call whose handler returned the entries.
    #[cold]
    pub(crate) fn into_failure(self) -> Status {
        let Self { count, max } = self;
        Status::internal(format!(
            "the response cannot be sent: it has {count} entries of metadata where {max} are allowed"
        ))
        .with_fault(Fault::Us)
        .with_retry(Retry::Never)
    }
}

/// Returns the failure of a call whose response has more than `max` entries. The call was processed, and would be
/// answered so again.
#[cold]
pub(crate) fn too_many_in_response(max: usize) -> Status {
    too_long(format!("the response has more than the {max} entries of metadata that are allowed"))
}
