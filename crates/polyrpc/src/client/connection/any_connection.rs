use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc_core::{Call, CallId, Reply, Status};

use super::pending::ReceivedMessages;
use crate::client::hook::HookedConnection;
use crate::streaming::StreamOptions;

/// A live connection with its protocol type-erased: what endpoints and pools hold.
pub(in crate::client) trait AnyConnection: Send + Sync {
    /// Sends a call; `waker` is woken when it has ended. A one-way call ends as soon as it is sent, and gets
    /// no id.
    ///
    /// The call is left where it is if the connection takes no more calls: another may.
    fn submit(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        waker: &Waker,
    ) -> Result<Option<CallId>, Status>;

    /// Sends a call with streams beside it; they are opened calls, each with an id of its own. Otherwise as
    /// [`submit`](Self::submit).
    fn submit_beside(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        beside: &AttachedStreams,
        waker: &Waker,
    ) -> Result<(CallId, Vec<CallId>), Status>;

    /// The call's result, once it has one.
    fn poll_reply(&self, id: CallId, cx: &mut Context<'_>) -> Poll<Result<Reply, Status>>;

    /// Begins a call whose messages follow; it leaves with the first [`poll_send`](Self::poll_send). The call is left
    /// where it is as by [`submit`](Self::submit).
    fn open(&self, call: &mut Option<Call<'_>>, deadline: Option<Instant>) -> Result<CallId, Status>;

    /// Subscribes to a topic: what is published comes as the messages of an opened call.
    fn subscribe(&self, key: &str, token: &str) -> Result<CallId, Status>;

    /// Sends messages of an opened call as long as there is room. Ready when all are sent and there is room for
    /// more, or they were the `last`.
    fn poll_send(
        &self,
        id: CallId,
        messages: &mut VecDeque<Bytes>,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CallEnded>>;

    /// What has come on an opened call since it was last asked, when anything has. `consumed` bytes of what came
    /// before were taken.
    fn poll_receive(
        &self,
        id: CallId,
        consumed: usize,
        arrived: &mut ReceivedMessages,
        cx: &mut Context<'_>,
    ) -> Poll<()>;

    /// Whether an opened call can end in one direction while the other goes on.
    fn half_closes(&self) -> bool;

    /// Ends an opened call in order, in both directions where they end together; its end comes as any other.
    fn finish(&self, id: CallId);

    /// From now on the opened call ends when no message has come or left for so long.
    fn end_if_idle(&self, id: CallId, idle: Duration);

    /// So many bytes of an opened call were taken.
    fn consumed(&self, id: CallId, bytes: usize);

    /// Nobody waits for this call any more.
    fn abandon(&self, id: CallId);

    /// Whether it takes calls.
    fn readiness(&self) -> Readiness;

    /// Whether one more call may be sent now.
    fn available(&self) -> bool {
        self.readiness() == Readiness::Free
    }

    /// Ready when it is not full. Only the task that asked last is woken.
    fn poll_vacancy(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ends the connection once nothing waits for a reply on it.
    fn close(&self);

    /// Who wants to know of its calls, if anybody.
    fn watched(&self) -> Option<&HookedConnection> {
        None
    }
}

/// The streams that are wanted beside a call.
pub(in crate::client) struct AttachedStreams {
    pub(in crate::client) options: StreamOptions,
    pub(in crate::client) streams: usize,
    /// The deadline of the call is theirs too, since they carry its answer; else they go on without one.
    pub(in crate::client) ends_with_call: bool,
}

/// Whether a connection takes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Readiness {
    /// One more may be sent.
    Free,
    /// As many wait as the server allows; when one has ended, another may be sent.
    Full,
    /// It takes no more.
    Ending,
}

/// The call has ended: nothing more can be sent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct CallEnded;

/// Sends a call over a link and waits for its end. The call is left where it is as by [`AnyConnection::submit`].
///
/// # Cancel safety
///
/// Dropping the future abandons the call: a later reply to it is thrown away.
pub(in crate::client) async fn call(
    link: &Arc<dyn AnyConnection>,
    call: &mut Option<Call<'_>>,
    deadline: Option<Instant>,
) -> Result<Option<Reply>, Status> {
    let Some(watched) = link.watched() else { return answer(link, call, deadline).await };
    let attempting = watched.start(call)?;
    let mut ended = answer(link, call, deadline).await;
    if let Some(attempting) = attempting {
        attempting.finish(&mut ended);
    }
    ended
}

/// Tells who wants to know that a call is about to be opened; its end is not told.
///
/// # Errors
///
/// Why it is not to be opened. There is no call any more then.
pub(in crate::client) fn announce(
    link: &Arc<dyn AnyConnection>,
    call: &mut Option<Call<'_>>,
) -> Result<(), Status> {
    if let Some(watched) = link.watched()
        && let Some(attempting) = watched.start(call)?
    {
        attempting.forget();
    }
    Ok(())
}

async fn answer(
    link: &Arc<dyn AnyConnection>,
    call: &mut Option<Call<'_>>,
    deadline: Option<Instant>,
) -> Result<Option<Reply>, Status> {
    let mut waiting = None;
    poll_fn(|cx| match &waiting {
        None => match link.submit(call, deadline, cx.waker()) {
            Ok(Some(id)) => {
                waiting = Some(AbandonOnDrop { link, id });
                Poll::Pending
            }
            Ok(None) => Poll::Ready(Ok(None)),
            Err(status) => Poll::Ready(Err(status)),
        },
        Some(sent) => {
            let result = ready!(link.poll_reply(sent.id, cx));
            if let Some(waiting) = waiting.take() {
                waiting.finish();
            }
            Poll::Ready(result.map(Some))
        }
    })
    .await
}

/// A call that is waited for; dropping it abandons the call.
struct AbandonOnDrop<'l> {
    link: &'l Arc<dyn AnyConnection>,
    id: CallId,
}

impl AbandonOnDrop<'_> {
    /// The reply was taken: nothing is left to abandon.
    fn finish(self) {
        std::mem::forget(self);
    }
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.link.abandon(self.id);
    }
}
