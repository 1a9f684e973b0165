//! Work on long messages. In place it would delay all other connections of the thread, so a server does it on blocking
//! threads, a few messages at a time.

use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};

use polyrpc_core::Status;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::runtime::AbortOnDrop;

/// Maximum length of a message that is decompressed or decoded in place, in bytes: about a millisecond of work.
pub(crate) const MAX_IN_PLACE_BYTES: usize = 256 << 10;

/// Number of long messages that are worked on concurrently.
const MAX_CONCURRENT: usize = 2;

static PERMITS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new((cores / 2).clamp(1, MAX_CONCURRENT)))
});

/// Permission to work on a long message, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// `None` never occurs: the semaphore is not closed.
    _permit: Option<OwnedSemaphorePermit>,
}

/// Waits for permission to work on a long message, in order of arrival.
pub(crate) async fn permit() -> Permit {
    Permit { _permit: PERMITS.clone().acquire_owned().await.ok() }
}

/// Works on a long message on a blocking thread. A panic is resumed here.
///
/// # Cancel safety
///
/// If the future is dropped, work that has started runs to its end, and other work never starts.
pub(crate) async fn on_blocking_pool<T: Send + 'static, E: From<Status> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    // A handler may receive messages on a thread of its own, without a runtime: no other call waits for it.
    let Ok(runtime) = Handle::try_current() else { return work() };
    let permit = permit().await;
    let working = AbortOnDrop::from(runtime.spawn_blocking(move || {
        let _permit = permit;
        work()
    }));
    match working.await {
        Ok(result) => result,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(Status::unavailable("the server is stopping").into()),
        },
    }
}
