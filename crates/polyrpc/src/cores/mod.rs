//! Threads for servers and clients, each with its own runtime.

mod priority;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{self, Handle};
use tokio::sync::watch;

use self::priority::Priority;

/// Threads with a single-threaded runtime each.
///
/// Tasks spawned here are distributed over the threads in turn and stay on their thread: a connection and its
/// handlers never move between cores. Handlers that may block (`blocking`) run on further threads. On Linux
/// these have a lower priority, so that light calls need not wait for the end of a heavy one's time slice. A
/// server ([`Server::executor`](crate::Server::executor)) or a client
/// ([`client::Builder::executor`](crate::client::Builder::executor)) runs on them instead of in the caller's
/// runtime.
///
/// The threads end when the last clone is dropped; tasks that still run on them are dropped then.
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
    /// If the system cannot create a thread or a reactor.
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::builder().threads(threads).start()
    }

    /// Starts one thread per core of the machine.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start).
    pub fn all() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder with other settings.
    pub fn builder() -> CoresBuilder {
        CoresBuilder { threads: None, blocking: Blocking::default() }
    }

    /// Returns the runtime of the next thread, in turn.
    pub(crate) fn next(&self) -> &Handle {
        let turn = self.0.next.fetch_add(1, Ordering::Relaxed);
        &self.0.handles[turn % self.0.handles.len()]
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.next().spawn(future));
    }
}

impl fmt::Debug for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cores").field("threads", &self.0.handles.len()).finish()
    }
}

/// Builder for [`Cores`].
#[derive(Debug, Clone)]
#[must_use]
pub struct CoresBuilder {
    threads: Option<usize>,
    blocking: Blocking,
}

/// Settings of the blocking threads.
#[derive(Debug, Clone, Copy, Default)]
struct Blocking {
    priority: Priority,
    /// Maximum number of blocking threads per thread.
    threads: Option<usize>,
}

impl CoresBuilder {
    /// Sets the number of threads, at least one. Default: one per core of the machine.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Lets the threads of `blocking` handlers run only while the cores are idle
    /// ([`SCHED_IDLE`](https://man7.org/linux/man-pages/man7/sched.7.html)), for handlers with long computations next
    /// to methods with low latency, which then never wait for them. Only Linux supports it.
    ///
    /// In return the handlers make no progress while the cores are used by the I/O threads, or by other programs,
    /// unless these are in another container with its own share. It is unsuitable for calls with a deadline on a busy
    /// machine, and for handlers that mostly wait, since there are [few threads](Self::blocking_threads).
    ///
    /// By default they have a lower priority, but never without a share: a
    /// [niceness](https://man7.org/linux/man-pages/man2/nice.2.html) of 5 more than the others, which is a quarter of a
    /// core that both sides could use entirely. A thread that does I/O may then still have to wait for the end of a
    /// time slice, some milliseconds, now and then.
    pub fn idle_priority_blocking(mut self) -> Self {
        self.blocking.priority = Priority::Idle;
        self
    }

    /// Sets the maximum number of threads for `blocking` handlers per thread; further calls wait until one of them is
    /// free. Default: 512, or the number of cores with [`idle_priority_blocking`](Self::idle_priority_blocking).
    ///
    /// If blocking handlers wait for other ones on the same thread, the number must exceed that of the waiting
    /// handlers.
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking.threads = Some(threads.max(1));
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread or a reactor.
    pub fn start(self) -> io::Result<Cores> {
        let threads = self.threads.unwrap_or_else(cores);
        let (stop, stopped) = watch::channel(());
        let handles = (0..threads.max(1))
            .map(|n| start(n, self.blocking, stopped.clone()))
            .collect::<io::Result<_>>()?;
        Ok(Cores(Arc::new(Inner { handles, next: AtomicUsize::new(0), _stop: stop })))
    }
}

impl Blocking {
    fn threads(self) -> usize {
        self.threads.unwrap_or_else(|| match self.priority {
            // More threads than cores do not help CPU-bound work: they would only take turns.
            Priority::Idle => cores(),
            Priority::Low => DEFAULT_BLOCKING_THREADS,
        })
    }
}

/// Limit for threads that may all be blocked.
const DEFAULT_BLOCKING_THREADS: usize = 512;

/// Number of cores of the machine.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn start(n: usize, blocking: Blocking, mut stopped: watch::Receiver<()>) -> io::Result<Handle> {
    // A current-thread runtime starts only the threads for blocking work by itself.
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name(format!("polyrpc-{n}-blocking"))
        .max_blocking_threads(blocking.threads())
        .on_thread_start(move || blocking.priority.take())
        .build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name(format!("polyrpc-{n}")).spawn(move || {
        // An error means that the sender was dropped, which is the signal.
        runtime.block_on(async move { while stopped.changed().await.is_ok() {} });
    })?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Asserts how many of three blocking tasks run concurrently.
    fn assert_at_once(cores: CoresBuilder, expected: usize) {
        let cores = cores.threads(1).start().unwrap();
        let (began, begun) = mpsc::channel();
        let held: Vec<mpsc::Sender<()>> = (0..3)
            .map(|_| {
                let ((hold, held), began) = (mpsc::channel(), began.clone());
                drop(cores.next().spawn_blocking(move || {
                    began.send(()).unwrap();
                    // Blocks until the other end is dropped.
                    let _ = held.recv();
                }));
                hold
            })
            .collect();
        for nth in 1..=expected {
            // On a busy machine a thread with idle priority may wait for long.
            let has_begun = begun.recv_timeout(Duration::from_secs(60)).is_ok();
            assert!(has_begun, "fewer than {nth} of {expected}");
        }
        let more = begun.recv_timeout(Duration::from_millis(300));
        assert!(more.is_err(), "more than {expected}");
        drop(held);
    }

    #[test]
    fn number_of_blocking_threads_follows_the_configuration() {
        assert_at_once(Cores::builder().blocking_threads(2), 2);
        assert_at_once(Cores::builder(), 3);
        assert_at_once(Cores::builder().idle_priority_blocking().blocking_threads(3), 3);
        assert_at_once(Cores::builder().idle_priority_blocking(), cores().min(3));
    }
}
