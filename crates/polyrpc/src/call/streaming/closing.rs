use std::sync::Arc;

use tokio::sync::{Notify, watch};

/// Requests that a stream ends while its messages are still read, and waits until it has.
#[derive(Debug, Clone)]
pub(crate) struct Closer {
    asked: Arc<Notify>,
    ended: watch::Receiver<()>,
}

/// The stream's end of its [`Closer`]s.
#[derive(Debug)]
pub(crate) struct Closing {
    asked: Arc<Notify>,
    ended: watch::Sender<()>,
}

/// The stream was aborted before all was sent.
#[derive(Debug)]
pub(crate) struct Abandoned;

impl Closing {
    pub(crate) fn new() -> (Closer, Self) {
        let asked = Arc::new(Notify::new());
        let (said, ended) = watch::channel(());
        (Closer { asked: asked.clone(), ended }, Self { asked, ended: said })
    }

    /// Waits until the end of the stream is requested.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Reports that all was sent and the end follows.
    pub(crate) fn complete(self) {
        self.ended.send_replace(());
    }
}

impl Closer {
    /// Requests the end of the stream, and waits until it has ended.
    pub(crate) async fn close(mut self) -> Result<(), Abandoned> {
        self.asked.notify_one();
        self.ended.changed().await.map_err(|_| Abandoned)
    }
}
