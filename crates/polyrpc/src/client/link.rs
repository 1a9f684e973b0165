use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use polyrpc_wire::{Call, CallId, Reply, Status};

/// A live connection with its protocol forgotten: what endpoints and pools hold.
pub(super) trait Link: Send + Sync {
    /// Sends a call; `waker` is woken when it has ended. A one-way call ends as soon as it is sent, and gets
    /// no id.
    fn submit(
        &self,
        call: Call<'_>,
        deadline: Option<Instant>,
        waker: &Waker,
    ) -> Result<Option<CallId>, Status>;

    /// The call's result, once it has one.
    fn poll_reply(&self, id: CallId, cx: &mut Context<'_>) -> Poll<Result<Reply, Status>>;

    /// Nobody waits for this call any more.
    fn abandon(&self, id: CallId);

    /// Whether one more call may be sent now.
    fn available(&self) -> bool;

    /// Ends the connection once nothing waits for a reply on it.
    fn close(&self);
}

/// Sends a call over a link and waits for its end.
///
/// # Cancel safety
///
/// Dropping the future abandons the call: a later reply to it is thrown away.
pub(super) async fn exchange(
    link: &Arc<dyn Link>,
    call: Call<'_>,
    deadline: Option<Instant>,
) -> Result<Option<Reply>, Status> {
    let (mut call, mut waiting) = (Some(call), None);
    poll_fn(|cx| match &waiting {
        None => match link.submit(call.take().expect("a call is sent once"), deadline, cx.waker()) {
            Ok(Some(id)) => {
                waiting = Some(Waiting { link, id });
                Poll::Pending
            }
            Ok(None) => Poll::Ready(Ok(None)),
            Err(status) => Poll::Ready(Err(status)),
        },
        Some(sent) => {
            let result = ready!(link.poll_reply(sent.id, cx));
            waiting.take().map(Waiting::end);
            Poll::Ready(result.map(Some))
        }
    })
    .await
}

/// A call that is waited for; dropping it abandons the call.
struct Waiting<'l> {
    link: &'l Arc<dyn Link>,
    id: CallId,
}

impl Waiting<'_> {
    /// The reply was taken: nothing is left to abandon.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.link.abandon(self.id);
    }
}
