use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A place in the program that takes a lock, with the waits of threads there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSite {
    /// The source file; empty for the sum of the places that found no room in the table.
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

/// Counters of the waits at one place.
struct Site {
    place: OnceLock<&'static Location<'static>>,
    waits: AtomicU64,
    nanos: AtomicU64,
    longest: AtomicU64,
}

impl Site {
    const fn new() -> Self {
        Self {
            place: OnceLock::new(),
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
            file: self.place.get().map_or("", |place| place.file()),
            line: self.place.get().map_or(0, |place| place.line()),
            waits,
            total: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
            longest: Duration::from_nanos(self.longest.load(Ordering::Relaxed)),
        })
    }
}

/// Size of the hash table of places; programs have fewer places.
static SITES: [Site; 512] = [const { Site::new() }; 512];

/// The places for which there was no room.
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
/// collected. `waited` receives the stack of a wait that is over, its place and its duration; the thread has acquired
/// the lock and released it again. Neither may take the locks that are watched.
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

/// Returns the places where threads have waited since the first watch, sorted by the total time, longest first.
pub fn sites() -> Vec<LockSite> {
    let mut sites: Vec<_> = SITES.iter().chain([&OTHERS]).filter_map(Site::read).collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.total));
    sites
}

pub(super) fn is_watched() -> bool {
    WATCHES.load(Ordering::Relaxed) > 0
}

/// Finds the site of a place. The same place may have several locations, in separately compiled parts of the program:
/// their addresses differ, but their contents are equal.
fn site(place: &'static Location<'static>) -> &'static Site {
    let start = (place.line() as usize).wrapping_mul(31).wrapping_add(place.column() as usize);
    for step in 0..SITES.len() {
        let Some(site) = SITES.get((start + step) % SITES.len()) else { break };
        if *site.place.get_or_init(|| place) == place {
            return site;
        }
    }
    &OTHERS
}

/// A wait of this thread for a lock, which is recorded when this is dropped.
pub(super) struct Wait {
    place: &'static Location<'static>,
    began: Instant,
    waited: Duration,
    /// The tracer, with the stack that it captured.
    trace: Option<(Arc<LockTracer>, Box<[usize]>)>,
}

impl Wait {
    pub(super) fn begin(place: &'static Location<'static>) -> Self {
        let tracer = TRACER.read().unwrap_or_else(PoisonError::into_inner).clone();
        let trace = tracer.and_then(|tracer| (tracer.stack)().map(|stack| (tracer, stack)));
        Self { place, began: Instant::now(), waited: Duration::ZERO, trace }
    }

    pub(super) fn end(&mut self) {
        self.waited = self.began.elapsed();
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        site(self.place).add(u64::try_from(self.waited.as_nanos()).unwrap_or(u64::MAX));
        if let Some((tracer, stack)) = self.trace.take() {
            (tracer.waited)(stack, self.place, self.waited);
        }
    }
}
