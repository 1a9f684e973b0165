use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

/// Threads with a single-threaded runtime each.
///
/// What is spawned here is dealt out to the threads in turn and stays on its thread: a connection and its
/// handlers never move between cores. Handlers that may hold their thread (`blocking`) run on further threads, which
/// come after these where both want a core ([`nice`](https://man7.org/linux/man-pages/man2/nice.2.html) of 5), so that
/// light calls beside heavy ones need not wait for the end of a time slice. A server ([`Server::on`](crate::Server::on)) or a client
/// ([`client::Builder::on`](crate::client::Builder::on)) runs on them instead of in the caller's runtime.
///
/// The threads end when the last clone is dropped; what still runs on them is dropped then.
#[derive(Clone)]
pub struct Cores(Arc<Inner>);

struct Inner {
    handles: Vec<Handle>,
    next: AtomicUsize,
    /// Dropping it ends the threads.
    _stop: watch::Sender<()>,
}

impl Cores {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread or a reactor.
    pub fn start(threads: usize) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(());
        let handles = (0..threads.max(1)).map(|n| start(n, stopped.clone())).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Inner { handles, next: AtomicUsize::new(0), _stop: stop })))
    }

    /// Starts a thread for each core of the machine.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn all() -> io::Result<Self> {
        Self::start(thread::available_parallelism().map_or(1, usize::from))
    }

    /// The runtime of the thread whose turn it is.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.0.next.fetch_add(1, Ordering::Relaxed);
        &self.0.handles[turn % self.0.handles.len()]
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.next().spawn(future));
    }
}

fn start(n: usize, mut stopped: watch::Receiver<()>) -> io::Result<Handle> {
    // Of the threads of such a runtime only those for blocking work are started by it.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_name(format!("polyrpc-{n}-blocking"))
        .on_thread_start(step_back)
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(format!("polyrpc-{n}")).spawn(move || {
        // An error means that the sender was dropped, which is the signal.
        runtime.block_on(async move { while stopped.changed().await.is_ok() {} });
    })?;
    Ok(handle)
}

/// Lets this thread come after others of the process.
fn step_back() {
    // Where the system refuses, all are alike.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}

/// One of two threads on a core gets a quarter of it then, if the other wants as much as it can get.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Waits for a future on this thread, which counts as inside of no runtime meanwhile: what the future calls may
/// wait for a runtime of its own, as blocking libraries do.
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

/// A task that ends when nobody waits for it any more. One on a thread for blocking work that has begun cannot
/// be ended; one that has not will not begin.
#[derive(Debug)]
pub(crate) struct Owned<T>(JoinHandle<T>);

impl<T> From<JoinHandle<T>> for Owned<T> {
    fn from(task: JoinHandle<T>) -> Self {
        Self(task)
    }
}

impl<T> Future for Owned<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cores").field("threads", &self.0.handles.len()).finish()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn blocking_work_comes_after_what_moves_bytes() {
        let cores = Cores::start(1).unwrap();
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let usual = niceness();
        let handle = cores.next().clone();
        let (core, blocking) = handle.clone().block_on(async move {
            let core = handle.spawn(async move { niceness() }).await.unwrap();
            let blocking =
                handle.spawn_blocking(move || (niceness(), thread::current().name().map(str::to_owned)));
            (core, blocking.await.unwrap())
        });
        assert_eq!(core, usual);
        assert_eq!(blocking, ((usual + NICE).min(19), Some("polyrpc-0-blocking".to_owned())));
    }
}
