//! Signals that request a program to stop.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Returns a future that resolves on a signal to stop: SIGTERM, as sent by Kubernetes, systemd and `docker stop`, or
/// SIGINT, which is Ctrl-C.
///
/// The signals are handled from this call on. They no longer end the program by themselves then, not even after the
/// future has resolved or was dropped; every further future waits for a signal of its own, so that a second one can cut
/// a shutdown short. If signals cannot be handled, which is reported by a `tracing` event, the future never resolves,
/// and they end the program.
///
/// ```no_run
/// # use std::time::Duration;
/// # use polyrpc::{Server, signal};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polyrpc::Result<()> {
/// let server = Server::new().lame_duck(Duration::from_secs(5)).bind("0.0.0.0:8000").await?;
/// server.run_until(signal::shutdown(), Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// If called outside of a tokio runtime whose IO is enabled.
pub fn shutdown() -> impl Future<Output = ()> + Send + Unpin + 'static {
    Shutdown { signals: system::watch() }
}

/// See [`shutdown`].
#[derive(Debug)]
#[must_use = "it does nothing unless it is awaited"]
struct Shutdown {
    /// `None` if signals cannot be handled.
    signals: Option<system::Signals>,
}

impl Future for Shutdown {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.signals {
            Some(signals) => signals.poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cold]
fn cannot_watch(error: &std::io::Error) {
    tracing::error!(%error, "cannot watch for signals; they end the program at once");
}

mod system {
    use std::io;
    use std::task::{Context, Poll};

    use tokio::signal::unix::{Signal, SignalKind, signal};

    #[derive(Debug)]
    pub(super) struct Signals {
        interrupt: Signal,
        terminate: Signal,
    }

    pub(super) fn watch() -> Option<Signals> {
        let watch = || -> io::Result<Signals> {
            Ok(Signals {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        };
        watch().map_err(|error| super::cannot_watch(&error)).ok()
    }

    impl Signals {
        pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            let is_signalled =
                self.interrupt.poll_recv(cx).is_ready() || self.terminate.poll_recv(cx).is_ready();
            if is_signalled { Poll::Ready(()) } else { Poll::Pending }
        }
    }
}
