use std::sync::Arc;

use polyrpc_core::{Fault, Status};
use tokio::sync::watch;

/// A handle that cancels calls from elsewhere: another task, another thread.
///
/// Whoever awaits such a call gets [`Cancelled`](polyrpc_core::Code::Cancelled); the server is told as if the call's
/// future were dropped: by `RST_STREAM` in gRPC, by whatever the protocol has elsewhere. Clones cancel the same calls. It
/// counts for unary calls and for streaming calls of a stub, until their streams have ended.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polyrpc::Result<()> {
/// use polyrpc::client::Cancel;
/// use polyrpc::{Client, Code, Server};
///
/// let server = Server::new()
///     .register("hang", || async { std::future::pending::<()>().await })
///     .bind("127.0.0.1:0")
///     .await?
///     .start();
/// let client = Client::new(&format!("rpcx://{}", server.address()))?;
///
/// let cancel = Cancel::new();
/// let calling = client.request("hang").cancel(&cancel).call::<()>(&());
/// let (ended, ()) = tokio::join!(calling, async { cancel.cancel() });
/// assert_eq!(ended.unwrap_err().code(), Code::Cancelled);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelHandle(Arc<watch::Sender<bool>>);

impl CancelHandle {
    /// A handle that has cancelled nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the calls that have this handle, those to come too.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether it has cancelled its calls.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is cancelled.
    pub(crate) async fn cancelled(self) -> Status {
        // The sender is in `self`, so that it cannot be gone.
        let _ = self.0.subscribe().wait_for(|cancelled| *cancelled).await;
        Status::cancelled("the caller cancelled the call").with_fault(Fault::Caller)
    }

    /// What `call` ends with, unless it is cancelled before; it is dropped then.
    pub(crate) async fn guard<T>(self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        tokio::select! {
            biased;
            status = self.cancelled() => Err(status),
            ended = call => ended,
        }
    }
}
