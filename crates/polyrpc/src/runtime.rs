//! The runtime's clock, waiting without a runtime, and tasks that end when their owner is dropped.

use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::task::{JoinError, JoinHandle};

/// Current time of tokio's clock, which a test may have paused.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Blocks this thread on a future, outside of any runtime's context: the code that the future calls may block on its
/// own runtime, as blocking libraries do.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Resumes the panic of a task, unless the task ended since its runtime did.
pub(crate) fn resume_panic(error: JoinError) {
    if let Ok(panic) = error.try_into_panic() {
        resume_unwind(panic);
    }
}

/// A task that is aborted when its owner is dropped. A task on the blocking pool cannot be aborted once it has started;
/// before that, it never starts.
#[derive(Debug)]
pub(crate) struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> From<JoinHandle<T>> for AbortOnDrop<T> {
    fn from(task: JoinHandle<T>) -> Self {
        Self(task)
    }
}

impl<T> AbortOnDrop<T> {
    /// Returns whether it has finished.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
