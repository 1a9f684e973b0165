use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync;

use super::sites::Wait;

/// Guard of a locked [`Mutex`](super::Mutex); dropping it unlocks.
///
/// If its thread had to wait, and a watch exists, dropping the guard records the wait after the lock was released, so
/// that other threads do not wait for the record.
#[must_use = "the mutex is locked for as long as this exists"]
pub struct MutexGuard<'m, T: ?Sized> {
    held: sync::MutexGuard<'m, T>,
    // Fields are dropped in order, so this comes after the lock. Boxed, since guards are moved and few have waited.
    _wait: Option<Box<Wait>>,
}

impl<'m, T: ?Sized> MutexGuard<'m, T> {
    pub(super) fn new(held: sync::MutexGuard<'m, T>, wait: Option<Box<Wait>>) -> Self {
        Self { held, _wait: wait }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}
