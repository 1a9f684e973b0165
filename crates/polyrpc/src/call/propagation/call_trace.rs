use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polyrpc_core::Status;

use super::{CURRENT, Trace};

/// Record of one call, written while it is in flight: the phases that it passes, and notes of its handler. A
/// [`CallTracer`](crate::layers::CallTracer) makes one for each call that it records.
pub trait CallTrace: Send + Sync + 'static {
    /// Returns the trace that further calls of this one belong to.
    fn trace(&self) -> Trace;

    /// Called when a phase has ended. It began when the previous one ended, or with the call. A phase may occur several
    /// times, in attempts or in streams.
    fn phase(&self, phase: Phase<'_>);

    /// Adds a [note](note).
    fn note(&self, text: fmt::Arguments<'_>);

    /// Called once, when the call has ended, with its duration, its failure if it failed, and the size of the reply.
    fn end(&self, took: Duration, failure: Option<&Status>, reply: usize);
}

/// Part of a call.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Phase<'a> {
    /// A server has decoded the request.
    Decode,
    /// The handler has returned.
    Handle,
    /// A server has encoded the response.
    Encode,
    /// A client has a connection to this server: it was picked, and connected to if necessary.
    Connect(Option<&'a dyn fmt::Display>),
    /// A client has sent the request, and received the response or the failure of the attempt.
    RoundTrip,
}

impl Phase<'_> {
    /// Returns a name: `decode`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Handle => "handle",
            Self::Encode => "encode",
            Self::Connect(_) => "connect",
            Self::RoundTrip => "round trip",
        }
    }
}

impl fmt::Debug for Phase<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Adds a note to the record of the current call, if it is recorded: brpc's `TRACEPRINTF`. Otherwise the text is not
/// even formatted.
///
/// ```
/// # let found = 3;
/// polyrpc::propagation::note(format_args!("found {found} rows"));
/// ```
pub fn note(text: fmt::Arguments<'_>) {
    if let Some(record) = current_record() {
        record.note(text);
    }
}

/// Records the end of a phase of the current call, if it is recorded.
#[inline]
pub(crate) fn phase_ended(phase: Phase<'_>) {
    if let Some(record) = current_record() {
        record.phase(phase);
    }
}

/// Returns the record of the current call. It is not borrowed, since it may read the current scope.
#[inline]
fn current_record() -> Option<Arc<dyn CallTrace>> {
    CURRENT.try_with(|current| current.borrow().record.clone()).ok().flatten()
}
