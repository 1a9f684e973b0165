use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker, ready};
use std::time::Instant;

use polyrpc_core::{Call, CallId, Reply, Status};

use super::any_connection::{AnyConnection, AttachedStreams};

/// Slot of one call on a connection: reserved for it, or to be taken if one is free.
///
/// Dropping it releases a reserved slot that was not used.
pub(in crate::client) struct CallSlot {
    connection: Arc<dyn AnyConnection>,
    /// Whether the connection reserves a slot for the call. Only the call itself changes it.
    is_reserved: AtomicBool,
}

impl CallSlot {
    /// A slot that the call takes if one is free.
    pub(in crate::client) fn new(connection: Arc<dyn AnyConnection>) -> Self {
        Self { connection, is_reserved: AtomicBool::new(false) }
    }

    /// A slot that the connection has [reserved](AnyConnection::reserve).
    pub(in crate::client) fn from_reserved(connection: Arc<dyn AnyConnection>) -> Self {
        Self { connection, is_reserved: AtomicBool::new(true) }
    }

    pub(in crate::client) fn connection(&self) -> &Arc<dyn AnyConnection> {
        &self.connection
    }

    /// As [`AnyConnection::submit`].
    pub(in crate::client) fn submit(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        waker: &Waker,
    ) -> Result<Option<CallId>, Status> {
        let is_reserved = self.is_reserved();
        let id = self.connection.submit(call, deadline, is_reserved, waker)?;
        if is_reserved && id.is_some() {
            self.set_used();
        }
        Ok(id)
    }

    /// As [`AnyConnection::submit_with_streams`].
    pub(in crate::client) fn submit_with_streams(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
        attached: &AttachedStreams,
        waker: &Waker,
    ) -> Result<(CallId, Vec<CallId>), Status> {
        let ids = self.connection.submit_with_streams(call, deadline, attached, self.is_reserved(), waker)?;
        self.set_used();
        Ok(ids)
    }

    /// As [`AnyConnection::open`].
    pub(in crate::client) fn open(
        &self,
        call: &mut Option<Call<'_>>,
        deadline: Option<Instant>,
    ) -> Result<CallId, Status> {
        let id = self.connection.open(call, deadline, self.is_reserved())?;
        self.set_used();
        Ok(id)
    }

    /// As [`AnyConnection::subscribe`].
    pub(in crate::client) fn subscribe(&self, key: &str, token: &str) -> Result<CallId, Status> {
        let id = self.connection.subscribe(key, token, self.is_reserved())?;
        self.set_used();
        Ok(id)
    }

    fn is_reserved(&self) -> bool {
        self.is_reserved.load(Ordering::Relaxed)
    }

    fn set_used(&self) {
        self.is_reserved.store(false, Ordering::Relaxed);
    }
}

impl Deref for CallSlot {
    type Target = dyn AnyConnection;

    fn deref(&self) -> &Self::Target {
        &*self.connection
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        if *self.is_reserved.get_mut() {
            self.connection.release_reserved();
        }
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
    let Some(watched) = slot.hooked_connection() else { return answer(slot, call, deadline).await };
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
    if let Some(watched) = slot.hooked_connection()
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
