use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Instant;

use polyrpc_core::{Call, CallId, Reply, Status};

use super::any_connection::AnyConnection;

/// Slot of one call on a connection, to be taken if one is free.
pub(in crate::client) struct CallSlot {
    connection: Arc<dyn AnyConnection>,
}

impl CallSlot {
    pub(in crate::client) fn new(connection: Arc<dyn AnyConnection>) -> Self {
        Self { connection }
    }

    pub(in crate::client) fn connection(&self) -> &Arc<dyn AnyConnection> {
        &self.connection
    }
}

impl Deref for CallSlot {
    type Target = dyn AnyConnection;

    fn deref(&self) -> &Self::Target {
        &*self.connection
    }
}

/// Sends a call and waits for its end. If the connection takes no more calls, the call is left in place as
/// by [`AnyConnection::submit`].
///
/// # Cancel safety
///
/// Dropping the future abandons the call: a later reply to it is discarded.
pub(in crate::client) async fn call(
    slot: &CallSlot,
    call: &mut Option<Call<'_>>,
    deadline: Option<Instant>,
) -> Result<Option<Reply>, Status> {
    let Some(watched) = slot.watched() else { return answer(slot, call, deadline).await };
    let attempting = watched.start(call)?;
    let mut ended = answer(slot, call, deadline).await;
    if let Some(attempting) = attempting {
        attempting.finish(&mut ended);
    }
    ended
}

/// Informs the hooks that a streaming call is about to be opened; its end is not reported.
///
/// # Errors
///
/// A hook's reason not to open it. The call is consumed in this case.
pub(in crate::client) fn announce(slot: &CallSlot, call: &mut Option<Call<'_>>) -> Result<(), Status> {
    if let Some(watched) = slot.watched()
        && let Some(attempting) = watched.start(call)?
    {
        attempting.forget();
    }
    Ok(())
}

async fn answer(
    slot: &CallSlot,
    call: &mut Option<Call<'_>>,
    deadline: Option<Instant>,
) -> Result<Option<Reply>, Status> {
    let mut waiting = None;
    poll_fn(|cx| match &waiting {
        None => match slot.submit(call, deadline, cx.waker()) {
            Ok(Some(id)) => {
                waiting = Some(AbandonOnDrop { slot, id });
                Poll::Pending
            }
            Ok(None) => Poll::Ready(Ok(None)),
            Err(status) => Poll::Ready(Err(status)),
        },
        Some(sent) => {
            let result = ready!(slot.poll_reply(sent.id, cx));
            if let Some(waiting) = waiting.take() {
                waiting.finish();
            }
            Poll::Ready(result.map(Some))
        }
    })
    .await
}

/// Call in flight; dropping it abandons the call.
struct AbandonOnDrop<'s> {
    slot: &'s CallSlot,
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
        self.slot.abandon(self.id);
    }
}
