//! The recording layer of servers and clients.

mod captured;
mod files;
mod open_call;
mod queue;
mod sampling;
mod schemas;
mod thread;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use polyrpc::layer::{Call, Layer, Next, Outcome};

pub use self::open_call::OpenCall;

use self::captured::Pending;
use self::files::FileOptions;
use self::queue::Queue;
use self::sampling::{MethodLimit, Sampler};
use self::thread::RecorderThread;
use crate::redact::Redaction;

/// Layer that records calls to a file, on a server or on a client. It never makes a call fail or wait.
///
/// ```no_run
/// use polyrpc::Server;
/// use polyrpc_record::layer::Recorder;
///
/// // A hundredth of the calls, and all that fail.
/// let recorder = Recorder::options().sample_rate(0.01).failures().open("calls.rec")?;
/// let server = Server::new().layer(recorder.clone());
/// // … when the server was shut down:
/// recorder.close();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A recorded call is copied into a queue of 32 MiB; one thread encodes, redacts and writes it. When the queue is full,
/// or the file cannot be written, calls are counted instead of recorded ([`stats`](Self::stats)), and the recording has
/// their number. A call that is cancelled is recorded as failed.
///
/// Layers do not see the messages of streams: a streaming call is recorded with its metadata, its duration and its
/// outcome. A [fallback](polyrpc::Server::fallback), which has the messages, can record its calls
/// [itself](Self::begin).
///
/// Clones share the recording. It is completed when the last one is dropped.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    sampler: Sampler,
    limit: Option<MethodLimit>,
    failures: bool,
    slow: Option<Duration>,
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Options of a [`Recorder`].
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    share: f64,
    failures: bool,
    slow: Option<Duration>,
    per_method: Option<u32>,
    queue: usize,
    schemas: Vec<Bytes>,
    redaction: Redaction,
    file: FileOptions,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            share: 1.0,
            failures: false,
            slow: None,
            per_method: None,
            queue: 32 << 20,
            schemas: Vec::new(),
            redaction: Redaction::new(),
            file: FileOptions::default(),
        }
    }
}

impl RecorderOptions {
    /// Records this share of the calls: 0.01 for one per cent. Default: all.
    #[must_use]
    pub fn sample_rate(mut self, rate: f64) -> Self {
        self.share = rate;
        self
    }

    /// Records every call that fails, whatever the share.
    #[must_use]
    pub fn failures(mut self) -> Self {
        self.failures = true;
        self
    }

    /// Records every call that takes at least this long, whatever the share.
    #[must_use]
    pub fn slower_than(mut self, time: Duration) -> Self {
        self.slow = Some(time);
        self
    }

    /// Records at most this number of calls of a method in a second. Default: any number.
    #[must_use]
    pub fn per_method(mut self, calls_per_second: u32) -> Self {
        self.per_method = Some(calls_per_second);
        self
    }

    /// Sets the size of the queue in bytes, instead of 32 MiB.
    #[must_use]
    pub fn queue(mut self, bytes: usize) -> Self {
        self.queue = bytes;
        self
    }

    /// Stores these declarations, a serialized `FileDescriptorSet` with all imports, in the recording, for the calls of
    /// the methods that they declare. They are also needed to redact protobuf messages.
    #[must_use]
    pub fn schema(mut self, descriptor_set: impl Into<Bytes>) -> Self {
        self.schemas.push(descriptor_set.into());
        self
    }

    /// Sets which data is removed from calls. Default: credentials.
    #[must_use]
    pub fn redaction(mut self, redaction: Redaction) -> Self {
        self.redaction = redaction;
        self
    }

    /// Starts a new file before the current one exceeds this many bytes, unless a single call is larger. Default:
    /// 256 MiB. The full file gets a number at the end of its name.
    #[must_use]
    pub fn rotate_at(mut self, bytes: u64) -> Self {
        self.file.rotate_at = bytes;
        self
    }

    /// Removes the oldest full files so that all files together stay below this many bytes. Default: 2 GiB.
    #[must_use]
    pub fn total(mut self, bytes: u64) -> Self {
        self.file.total = bytes;
        self
    }

    /// Records nothing while the file system has fewer than this many bytes left. Default: 1 GiB.
    #[must_use]
    pub fn min_free(mut self, bytes: u64) -> Self {
        self.file.min_free = bytes;
        self
    }

    /// Starts to record to this file, which only its owner can read and write. An existing file of this name is
    /// renamed, with a number at the end.
    ///
    /// # Errors
    ///
    /// If the file cannot be created, or a schema is invalid.
    pub fn open(self, path: impl AsRef<Path>) -> io::Result<Recorder> {
        let queue = Arc::new(Queue::new(self.queue));
        let path: PathBuf = path.as_ref().to_owned();
        let setup = RecorderThread::new(path, self.file, self.schemas, self.redaction)?;
        let thread = std::thread::Builder::new().name("recorder".to_owned()).spawn({
            let queue = queue.clone();
            move || setup.run(&queue)
        })?;
        Ok(Recorder(Arc::new(Shared {
            sampler: Sampler::new(self.share),
            limit: self.per_method.map(MethodLimit::new),
            failures: self.failures,
            slow: self.slow,
            queue,
            thread: Mutex::new(Some(thread)),
        })))
    }
}

/// Counts of a [`Recorder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecorderStats {
    /// Calls that were written.
    pub recorded: u64,
    /// Calls for which the queue had no room.
    pub queue_full: u64,
    /// Calls above the limit for their method.
    pub method_limit: u64,
    /// Calls that could not be written, or for which there was no space.
    pub not_written: u64,
}

impl Recorder {
    /// Returns the default options: every call, without credentials.
    pub fn options() -> RecorderOptions {
        RecorderOptions::default()
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> RecorderStats {
        self.0.queue.stats()
    }

    /// Replaces the [schemas](RecorderOptions::schema), for the calls that are recorded from now on.
    ///
    /// # Errors
    ///
    /// If one is invalid; then nothing changes.
    pub fn set_schemas(&self, descriptor_sets: Vec<Bytes>) -> io::Result<()> {
        self.0.queue.put_schemas(schemas::decode(descriptor_sets)?);
        Ok(())
    }

    /// Waits until every recorded call is written, and completes the recording. Later calls are not recorded.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Shared {
    fn close(&self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(target: "polyrpc::record", "the recorder's thread panicked; its recording is incomplete");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

impl Layer for Recorder {
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static {
        let sampled = self.0.sampler.selects();
        let is_watched = sampled || self.0.failures || self.0.slow.is_some();
        let pending = is_watched.then(|| Pending::new(self, sampled, &call, next.target()));
        async move {
            match pending {
                None => next.call(call).await,
                Some(pending) => {
                    let mut outcome = next.call(call).await;
                    pending.finish(&mut outcome);
                    outcome
                }
            }
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
