use std::sync::Arc;

use tokio::sync::{Notify, watch};

/// Requests that a stream ends while its messages are still read, and waits until it has.
#[derive(Debug, Clone)]
pub(crate) struct Closer {
    requested: Arc<Notify>,
    ended: watch::Receiver<()>,
}

/// The stream's side of its [`Closer`]s.
#[derive(Debug)]
pub(crate) struct Closing {
    requested: Arc<Notify>,
    ended: watch::Sender<()>,
}

/// The stream was aborted before all was sent.
#[derive(Debug)]
pub(crate) struct StreamAborted;

impl Closing {
    pub(crate) fn new() -> (Closer, Self) {
        let requested = Arc::new(Notify::new());
        let (complete, ended) = watch::channel(());
        (Closer { requested: requested.clone(), ended }, Self { requested, ended: complete })
    }

    /// Waits until the end of the stream is requested.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Reports that all was sent and the end follows.
    pub(crate) fn complete(self) {
        self.ended.send_replace(());
    }
}

impl Closer {
    /// Requests the end of the stream, and waits until it has ended.
    pub(crate) async fn close(mut self) -> Result<(), StreamAborted> {
        self.requested.notify_one();
        self.ended.changed().await.map_err(|_| StreamAborted)
    }
}
