//! Locks that record how long threads waited for them, while a [watch] exists.
//!
//! The locks that calls share within this crate are of this kind, and [`Mutex`] is one for programs. A free lock is
//! taken by one attempt, without reading the clock.

mod guard;
mod sites;

use std::panic::Location;
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use self::sites::Wait;

pub use self::guard::MutexGuard;
pub use self::sites::{LockSite, sites, trace, watch};

/// A [`std::sync::Mutex`] whose contention is counted by the locations in the program that lock it, while a [watch]
/// exists.
///
/// ```
/// use polyrpc::contention::Mutex;
///
/// let orders = Mutex::new(Vec::new());
/// orders.lock().unwrap().push("book");
/// assert_eq!(orders.into_inner().unwrap(), ["book"]);
/// ```
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// If a thread panicked while it held the lock.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex; blocks the thread until it is free. As with the standard library's mutex, a thread that holds
    /// the lock must not lock it again.
    ///
    /// # Errors
    ///
    /// If a thread panicked while it held the lock.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => self.wait(Location::caller()),
        }
    }

    /// Locks the mutex if it is free. This is never counted as contention.
    ///
    /// # Errors
    ///
    /// If it is held, or if a thread panicked while it held the lock.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Ok(MutexGuard::new(held, None)),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(wrap_poisoned(poisoned, None)))
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// Returns the value. No lock is needed, since the mutex is borrowed exclusively.
    ///
    /// # Errors
    ///
    /// If a thread panicked while it held the lock.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    #[cold]
    fn wait(&self, location: &'static Location<'static>) -> LockResult<MutexGuard<'_, T>> {
        // Its stack is taken before the wait, when this thread does not hold the lock yet.
        let mut wait = sites::is_watched().then(|| Box::new(Wait::begin(location)));
        let locked = self.0.lock();
        if let Some(wait) = &mut wait {
            wait.end();
        }
        match locked {
            Ok(held) => Ok(MutexGuard::new(held, wait)),
            Err(poisoned) => Err(wrap_poisoned(poisoned, wait)),
        }
    }
}

fn wrap_poisoned<'m, T: ?Sized>(
    poisoned: PoisonError<sync::MutexGuard<'m, T>>,
    wait: Option<Box<Wait>>,
) -> PoisonError<MutexGuard<'m, T>> {
    PoisonError::new(MutexGuard::new(poisoned.into_inner(), wait))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, OnceLock, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Lets one thread wait for another for at least this long, and returns the line that waits.
    fn contend(mutex: &Arc<Mutex<u32>>, long: Duration) -> u32 {
        let held = mutex.lock().unwrap();
        let (waits, is_waiting) = mpsc::channel();
        let waiting = mutex.clone();
        let line = line!() + 3;
        let other = thread::spawn(move || {
            waits.send(()).unwrap();
            *waiting.lock().unwrap() += 1;
        });
        is_waiting.recv().unwrap();
        // The wait itself cannot be seen from here; it is longer than this if the thread got so far.
        thread::sleep(long);
        drop(held);
        other.join().unwrap();
        line
    }

    fn site(line: u32) -> Option<LockSite> {
        sites().into_iter().find(|site| site.file.ends_with("contention/mod.rs") && site.line == line)
    }

    /// The watch belongs to the process, so one test checks everything.
    #[test]
    fn waits_are_counted_by_location_while_they_are_watched() {
        let mutex = Arc::new(Mutex::new(0));
        let line = contend(&mutex, Duration::from_millis(30));
        assert!(site(line).is_none(), "nobody watches");
        let watch = watch();
        let waits = (0..50).find_map(|_| {
            contend(&mutex, Duration::from_millis(30));
            site(line)
        });
        let waits = waits.expect("a wait is counted");
        assert!(waits.waits >= 1 && waits.total >= waits.longest, "{waits:?}");

        static WAITED: AtomicU64 = AtomicU64::new(0);
        static LOCK: OnceLock<Arc<Mutex<u32>>> = OnceLock::new();
        LOCK.set(mutex.clone()).unwrap();
        let waited = |stack: Box<[usize]>, location: &'static Location<'static>, waited: Duration| {
            if stack[..] == [1, 2]
                && location.file().ends_with("contention/mod.rs")
                && waited > Duration::ZERO
                // No other thread wants the lock now: it is free again.
                && LOCK.get().unwrap().try_lock().is_ok()
            {
                WAITED.fetch_add(1, Ordering::Relaxed);
            }
        };
        let traced = trace(|| Some(Box::new([1, 2])), waited);
        assert!((0..50).any(|_| {
            contend(&mutex, Duration::from_millis(30));
            WAITED.load(Ordering::Relaxed) > 0
        }));
        drop(traced);
        let (waited, counted) = (WAITED.load(Ordering::Relaxed), site(line).unwrap().waits);
        drop(watch);
        contend(&mutex, Duration::from_millis(30));
        assert_eq!((WAITED.load(Ordering::Relaxed), site(line).unwrap().waits), (waited, counted));
    }

    #[test]
    fn poison_and_values_are_those_of_the_standard_mutex() {
        let mutex = Arc::new(Mutex::new(1));
        let poisoning = mutex.clone();
        let panicked = thread::spawn(move || {
            let _held = poisoning.lock().unwrap();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err() && mutex.lock().is_err() && mutex.try_lock().is_err());
        let mut own = Mutex::new(5);
        *own.get_mut().unwrap() += 1;
        assert_eq!(*own.try_lock().unwrap(), 6);
        let held = own.lock().unwrap();
        assert!(matches!(own.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(format!("{held:?} {held}"), "6 6");
    }
}
