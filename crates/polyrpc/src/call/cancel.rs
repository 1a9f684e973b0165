use std::sync::Arc;

use polyrpc_core::{Fault, Status};
use tokio::sync::watch;

/// A handle that cancels calls from elsewhere: another task, another thread.
///
/// The caller of such a call receives [`Cancelled`](polyrpc_core::Code::Cancelled). The server is notified as if the
/// call's future were dropped: by `RST_STREAM` in gRPC, by the protocol's own means elsewhere. Clones cancel the same
/// calls. It applies to unary calls, and to streaming calls of a stub until their streams have ended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polyrpc::Result<()> {
/// use polyrpc::client::{CancelHandle, Request};
/// use polyrpc::{Client, Code, Server};
///
/// let server = Server::new()
///     .function("hang", || async { std::future::pending::<()>().await })
///     .bind("127.0.0.1:0")
///     .await?
///     .start();
/// let client = Client::new(&format!("rpcx://{}", server.address()))?;
///
/// let cancel = CancelHandle::new();
/// let calling = client.call_with::<()>("hang", Request::new(()).with_cancel(&cancel));
/// let (ended, ()) = tokio::join!(calling, async { cancel.cancel() });
/// assert_eq!(ended.unwrap_err().code(), Code::Cancelled);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelHandle(Arc<watch::Sender<bool>>);

impl CancelHandle {
    /// Creates a handle that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the calls that have this handle, including future ones.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Returns whether the handle is cancelled.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is cancelled.
    pub(crate) async fn cancelled(self) -> Status {
        // The sender is in `self`, so it cannot be dropped.
        let _ = self.0.subscribe().wait_for(|cancelled| *cancelled).await;
        Status::cancelled("the caller cancelled the call").with_fault(Fault::Caller)
    }

    /// Returns the result of `call`, or drops it if it is cancelled first.
    pub(crate) async fn guard<T>(self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::select! {
            biased;
            status = self.cancelled() => Err(status),
            ended = call => ended,
        }
    }
}
