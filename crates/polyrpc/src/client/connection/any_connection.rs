use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc_core::{Call, CallId, Reply, Status};

use super::call_counts::CallCounts;
use super::pending::ReceivedMessages;
use crate::call::streaming::StreamOptions;
use crate::client::hook::HookedConnection;

/// Live connection with its protocol type-erased, as held by endpoints and pools.
///
/// A call is made over a [`CallSlot`](super::call_slot::CallSlot), which may hold a reserved slot for it.
pub(in crate::client) trait AnyConnection: Send + Sync {
    /// Sends a call; `waker` is woken when it has ended. A one-way call ends as soon as it is sent, and gets no id.
    ///
    /// If the connection takes no more calls, the call is left in place for another one. `is_reserved`: it uses a
    /// [reserved](Self::reserve) slot, which remains reserved if the call fails or is one-way.
    fn submit(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        is_reserved: bool,
        waker: &Waker,
    ) -> Result<Option<CallId>, Status>;

    /// Sends a call with attached streams, which are streaming calls with ids of their own. Otherwise as
    /// [`submit`](Self::submit).
    fn submit_with_streams(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        attached: &AttachedStreams,
        is_reserved: bool,
        waker: &Waker,
    ) -> Result<(CallId, Vec<CallId>), Status>;

    /// Polls for the call's result.
    fn poll_reply(&self, id: CallId, cx: &mut Context<'_>) -> Poll<Result<Reply, Status>>;

    /// Opens a streaming call; it is sent with the first [`poll_send`](Self::poll_send). If the connection takes no
    /// more calls, the call is left in place as by [`submit`](Self::submit).
    fn open(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        is_reserved: bool,
    ) -> Result<CallId, Status>;

    /// Subscribes to a topic: published messages arrive as the messages of a streaming call.
    fn subscribe(&self, key: &str, token: &str, is_reserved: bool) -> Result<CallId, Status>;

    /// Sends messages of a streaming call while there is capacity. Ready when all are sent and there is capacity for
    /// more, or they were the `last`.
    fn poll_send(
        &self,
        id: CallId,
        messages: &mut VecDeque<Bytes>,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CallEnded>>;

    /// Polls for the messages that a streaming call has received since the last poll. `consumed` is the number of bytes
    /// of earlier messages taken.
    fn poll_receive(
        &self,
        id: CallId,
        consumed: usize,
        arrived: &mut ReceivedMessages,
        cx: &mut Context<'_>,
    ) -> Poll<()>;

    /// Whether a streaming call can end in one direction and continue in the other.
    fn half_closes(&self) -> bool;

    /// Ends a streaming call gracefully, in both directions if they end together; its end is received as usual.
    fn finish(&self, id: CallId);

    /// Ends the streaming call once no message has been sent or received for this time.
    fn end_if_idle(&self, id: CallId, idle: Duration);

    /// Records that this number of bytes of a streaming call were taken.
    fn record_consumed(&self, id: CallId, bytes: usize);

    /// Abandons a call: its result is no longer awaited.
    fn abandon(&self, id: CallId);

    /// Whether the connection takes calls.
    fn readiness(&self) -> Readiness;

    /// Whether another call may be sent now.
    fn is_available(&self) -> bool {
        self.readiness() == Readiness::Free
    }

    /// Reserves slots for this number of calls, or as many as are free; `None` if the connection takes no more calls.
    /// If they are fewer, the waker is woken when another is free, or the connection takes no more calls. Only the
    /// waker that was passed last is woken, once.
    fn reserve(&self, calls: usize, waker: &Waker) -> Option<usize>;

    /// Releases a reserved slot that no call uses.
    fn release_reserved(&self);

    /// Closes the connection once no call is in flight on it.
    fn close(&self);

    /// Returns the counts of its calls; `None` once it has ended, and its counts were added to those of its server.
    fn counts(&self) -> Option<CallCounts>;

    /// Hooks that observe its calls, if there are any.
    fn hooked_connection(&self) -> Option<&HookedConnection> {
        None
    }
}

/// Streams to attach to a call.
pub(in crate::client) struct AttachedStreams {
    pub(in crate::client) options: StreamOptions,
    pub(in crate::client) streams: usize,
    /// Whether the deadline of the call applies to the streams too, since they carry its response; otherwise they have
    /// none.
    pub(in crate::client) ends_with_call: bool,
}

/// Whether a connection takes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Readiness {
    /// Another call may be sent.
    Free,
    /// The server's limit of concurrent calls is reached; when one has ended, another may be sent.
    Full,
    /// It takes no more calls.
    Ending,
}

/// Error: the call has ended, and nothing more can be sent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct CallEnded;
