use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A location in the program that takes a lock, with the waits of threads there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSite {
    /// The source file; empty for the sum of the locations that found no room in the table.
    pub file: &'static str,
    /// The line in it.
    pub line: u32,
    /// Number of waits.
    pub waits: u64,
    /// Total time of the waits.
    pub total: Duration,
    /// The longest wait.
    pub longest: Duration,
}

/// Collects the stacks of threads that wait for locks.
struct LockTracer {
    stack: Box<dyn Fn() -> Option<Box<[usize]>> + Send + Sync>,
    waited: Box<dyn Fn(Box<[usize]>, &'static Location<'static>, Duration) + Send + Sync>,
}

/// Counters of the waits at one location.
struct Site {
    location: OnceLock<&'static Location<'static>>,
    waits: AtomicU64,
    nanos: AtomicU64,
    longest: AtomicU64,
}

impl Site {
    const fn new() -> Self {
        Self {
            location: OnceLock::new(),
            waits: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            longest: AtomicU64::new(0),
        }
    }

    fn add(&self, nanos: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    fn read(&self) -> Option<LockSite> {
        let waits = self.waits.load(Ordering::Relaxed);
        (waits > 0).then(|| LockSite {
            file: self.location.get().map_or("", |location| location.file()),
            line: self.location.get().map_or(0, |location| location.line()),
            waits,
            total: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
            longest: Duration::from_nanos(self.longest.load(Ordering::Relaxed)),
        })
    }
}

/// Size of the hash table of locations; programs have fewer locations.
static SITES: [Site; 512] = [const { Site::new() }; 512];

/// The locations for which there was no room.
static OTHERS: Site = Site::new();

static WATCHES: AtomicUsize = AtomicUsize::new(0);

static TRACER: RwLock<Option<Arc<LockTracer>>> = RwLock::new(None);

/// Counts waits for [`Mutex`](super::Mutex)es until it is dropped: see [`watch`].
struct ContentionWatch {
    /// The tracer of the waits, if there is one.
    tracer: Option<Arc<LockTracer>>,
}

/// Counts waits for [`Mutex`](super::Mutex)es from now on, until the result is dropped. Each wait costs two readings of
/// the clock.
///
/// ```
/// let watch = polyrpc::contention::watch();
/// for site in polyrpc::contention::sites() {
///     println!("{}:{} {} waits, {:?}", site.file, site.line, site.waits, site.total);
/// }
/// ```
#[must_use = "waits are counted for as long as the result exists"]
pub fn watch() -> impl fmt::Debug + Send + Sync + 'static {
    WATCHES.fetch_add(1, Ordering::Relaxed);
    ContentionWatch { tracer: None }
}

/// Collects the stacks of waits until the result is dropped. There is one collector at a time: a later one replaces
/// an earlier one.
///
/// `stack` is called by a thread that is about to wait, and returns its stack as addresses; `None` if this wait is not
/// collected. `waited` receives the stack of a wait that is over, its location and its duration; the thread has locked
/// the mutex and unlocked it again. Neither may take the locks that are watched.
#[must_use = "stacks are collected for as long as the result exists"]
pub fn trace(
    stack: impl Fn() -> Option<Box<[usize]>> + Send + Sync + 'static,
    waited: impl Fn(Box<[usize]>, &'static Location<'static>, Duration) + Send + Sync + 'static,
) -> impl fmt::Debug + Send + Sync + 'static {
    let tracer = Arc::new(LockTracer { stack: Box::new(stack), waited: Box::new(waited) });
    *TRACER.write().unwrap_or_else(PoisonError::into_inner) = Some(tracer.clone());
    WATCHES.fetch_add(1, Ordering::Relaxed);
    ContentionWatch { tracer: Some(tracer) }
}

impl fmt::Debug for ContentionWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentionWatch").field("traces", &self.tracer.is_some()).finish()
    }
}

impl Drop for ContentionWatch {
    fn drop(&mut self) {
        WATCHES.fetch_sub(1, Ordering::Relaxed);
        let Some(own) = &self.tracer else { return };
        let mut tracer = TRACER.write().unwrap_or_else(PoisonError::into_inner);
        // A later tracer stays.
        if tracer.as_ref().is_some_and(|current| Arc::ptr_eq(current, own)) {
            *tracer = None;
        }
    }
}

/// Returns the locations where threads have waited since the first watch, sorted by the total time, longest first.
pub fn sites() -> Vec<LockSite> {
    let mut sites: Vec<_> = SITES.iter().chain([&OTHERS]).filter_map(Site::read).collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.total));
    sites
}

pub(super) fn is_watched() -> bool {
    WATCHES.load(Ordering::Relaxed) > 0
}

/// Finds the site of a location. The same location may exist several times, in separately compiled parts of the
/// program: their addresses differ, but their contents are equal.
fn site(location: &'static Location<'static>) -> &'static Site {
    let start = (location.line() as usize).wrapping_mul(31).wrapping_add(location.column() as usize);
    for step in 0..SITES.len() {
        let Some(site) = SITES.get((start + step) % SITES.len()) else { break };
        if *site.location.get_or_init(|| location) == location {
            return site;
        }
    }
    &OTHERS
}

/// A wait of this thread for a lock, which is recorded when this is dropped.
pub(super) struct Wait {
    location: &'static Location<'static>,
    began: Instant,
    waited: Duration,
    /// The tracer, with the stack that it captured.
    trace: Option<(Arc<LockTracer>, Box<[usize]>)>,
}

impl Wait {
    pub(super) fn begin(location: &'static Location<'static>) -> Self {
        let tracer = TRACER.read().unwrap_or_else(PoisonError::into_inner).clone();
        let trace = tracer.and_then(|tracer| (tracer.stack)().map(|stack| (tracer, stack)));
        Self { location, began: Instant::now(), waited: Duration::ZERO, trace }
    }

    pub(super) fn end(&mut self) {
        self.waited = self.began.elapsed();
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        site(self.location).add(u64::try_from(self.waited.as_nanos()).unwrap_or(u64::MAX));
        if let Some((tracer, stack)) = self.trace.take() {
            (tracer.waited)(stack, self.location, self.waited);
        }
    }
}
