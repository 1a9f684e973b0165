use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polyrpc::contention;
use polyrpc::layers::label_stacks;

use super::samples::{RawStack, Samples};

/// How many stacks are taken each second, and how many different ones are kept.
const MAX_STACKS_PER_SECOND: u32 = 1_000;
const MAX_DISTINCT_WAITS: usize = 10_000;

/// How many frames a stack may have.
const MAX_DEPTH: usize = 128;

/// Stacks of waits, with their numbers and durations.
#[derive(Default)]
struct Waits {
    /// How many more may be taken in this second.
    left: AtomicU32,
    missed: AtomicU64,
    stacks: Mutex<HashMap<Wait, Sum>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Wait {
    addresses: Box<[usize]>,
    location: &'static Location<'static>,
    thread: String,
}

#[derive(Default)]
struct Sum {
    count: u64,
    nanos: u64,
}

impl Waits {
    /// Returns the stack of this thread, unless too many were taken in this second.
    fn stack(&self) -> Option<Box<[usize]>> {
        let take = |left: u32| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(own_stack())
    }

    /// Adds a wait that is over.
    fn add_wait(&self, addresses: Box<[usize]>, location: &'static Location<'static>, waited: Duration) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let mut stacks = self.stacks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = stacks.len() >= MAX_DISTINCT_WAITS;
        let wait = Wait { addresses, location, thread };
        if is_full && !stacks.contains_key(&wait) {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let sum = stacks.entry(wait).or_default();
        sum.count += 1;
        sum.nanos = sum.nanos.saturating_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Collects the stacks of waits for locks for some time. Blocks its thread.
pub(super) fn sample(duration: Duration) -> Samples {
    let (waits, began) = (Arc::new(Waits::default()), Instant::now());
    let (stacks, ended) = (waits.clone(), waits.clone());
    let traced = contention::trace(
        move || stacks.stack(),
        move |stack, location, waited| ended.add_wait(stack, location, waited),
    );
    let labels = label_stacks();
    while let Some(left) = duration.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        waits.left.store(MAX_STACKS_PER_SECOND, Ordering::Relaxed);
        std::thread::sleep(left.min(Duration::from_secs(1)));
    }
    drop((labels, traced));
    let stacks = std::mem::take(&mut *waits.stacks.lock().unwrap_or_else(PoisonError::into_inner));
    let stack = |(wait, sum): (Wait, Sum)| RawStack {
        addresses: wait.addresses.into_vec(),
        thread: wait.thread,
        count: sum.count,
        weight: sum.nanos,
        location: Some(wait.location),
    };
    Samples {
        stacks: stacks.into_iter().map(stack).collect(),
        missed: waits.missed.load(Ordering::Relaxed),
        took: began.elapsed(),
        ..Samples::default()
    }
}

/// Returns the stack of this thread, the innermost function first.
#[cfg(all(
    any(target_os = "linux", target_os = "macos"),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn own_stack() -> Box<[usize]> {
    let mut addresses = Vec::with_capacity(MAX_DEPTH);
    backtrace::trace(|frame| {
        addresses.push(frame.ip() as usize);
        addresses.len() < MAX_DEPTH
    });
    addresses.into()
}

#[cfg(not(all(
    any(target_os = "linux", target_os = "macos"),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn own_stack() -> Box<[usize]> {
    Box::default()
}
