//! Returns free memory to the system.
//!
//! A crate of its own, since it is the only part of PolyRPC with `unsafe` code.
//!
//! glibc keeps freed memory for later allocations: what lies between live allocations forever, and at the end of each arena
//! (every thread may have one) up to a limit that it raises to twice the largest allocation it has seen freed, 64 MiB at
//! most. A low limit would cost a page fault for every 4 KiB of every large message; so the limit stays high under load,
//! and [`trim`] lowers it for a moment. Where the whole budget is small, [`fit_to_budget`] lowers it for good.
//!
//! With another C library, on another system, or in a program with an allocator of its own, nothing here has an effect.

// Here, since it is compiled before `polyrpc`, whose many errors on such a system would hide this one.
#[cfg(not(unix))]
compile_error!(
    "PolyRPC runs on Linux and macOS. It does not support this system: it needs Unix sockets and poll(2)"
);

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use glibc as imp;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
use other as imp;

/// Marks the current thread's arena: the next [`trim`] returns what is free at its end. For threads that have allocated much.
///
/// Costs a comparison, or once after each [`trim`] an allocation of 64 KiB that is not touched.
#[inline]
pub fn mark_arena() {
    imp::mark_arena();
}

/// Returns free pages to the system: those between live allocations, and those at the end of each
/// [marked](mark_arena) arena.
///
/// It walks through the free memory of the process and holds the lock of one arena after the other. Call it seldom, from
/// a thread that may block. If the environment configures glibc's thresholds (`MALLOC_TRIM_THRESHOLD_`,
/// `MALLOC_MMAP_THRESHOLD_` or `GLIBC_TUNABLES`), it leaves them, and the ends of the arenas, as they are.
pub fn trim() {
    imp::trim();
}

/// Keeps less free memory for later allocations than usual, in proportion to a memory budget in bytes: at the end of
/// each arena a sixteenth of it, and at most 64 MiB. Allocations of a 128th of it have a mapping of their own, which is
/// returned as soon as they are freed, and which grows without a copy and without holes between others.
///
/// The largest budget of the process counts. From 1 GiB on, glibc's own limits stay. A smaller budget costs a page fault
/// for every 4 KiB of a large message.
pub fn fit_to_budget(bytes: usize) {
    imp::fit_to_budget(bytes);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
    use std::sync::{Mutex, PoisonError};

    /// An allocation in each marked arena. Freeing one makes glibc look at the end of its arena, whichever thread frees it:
    /// it does so for every chunk from 64 KiB on (`malloc.c`, `FASTBIN_CONSOLIDATION_THRESHOLD`).
    static MARKS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    const MARK: usize = 64 << 10;

    /// Number of calls of [`trim`]. A thread's mark belongs to one of these rounds.
    static ROUND: AtomicU32 = AtomicU32::new(1);

    thread_local! {
        static MARKED: Cell<u32> = const { Cell::new(0) };
    }

    /// What stays free at the end of an arena while it is trimmed.
    const LOW: libc::c_int = 128 << 10;
    /// glibc's largest limits, to which it adapts by itself if large allocations are freed. Setting one limit ends that
    /// adaptation, so both are set.
    const KEPT_UNDER_LOAD: libc::c_int = 64 << 20;
    /// The least that [`fit_to_budget`] keeps.
    const KEPT_AT_LEAST: libc::c_int = 1 << 20;

    /// Bytes that may stay free at the end of an arena under load; 0 before [`fit_to_budget`] is called.
    static KEPT: AtomicI32 = AtomicI32::new(0);

    #[inline]
    pub(super) fn mark_arena() {
        let round = ROUND.load(Ordering::Relaxed);
        if MARKED.replace(round) != round {
            add_mark();
        }
    }

    #[cold]
    fn add_mark() {
        MARKS.lock().unwrap_or_else(PoisonError::into_inner).push(Vec::with_capacity(MARK));
    }

    /// Held during a [`trim`]: another one that ended first would raise the limits again before this one frees its marks.
    static TRIMMING: Mutex<()> = Mutex::new(());

    pub(super) fn trim() {
        let _trimming = TRIMMING.lock().unwrap_or_else(PoisonError::into_inner);
        ROUND.fetch_add(1, Ordering::Relaxed);
        let marks = std::mem::take(&mut *MARKS.lock().unwrap_or_else(PoisonError::into_inner));
        if are_thresholds_configured() {
            malloc_trim();
            return;
        }
        let kept = match KEPT.load(Ordering::Relaxed) {
            0 => KEPT_UNDER_LOAD,
            kept => kept,
        };
        set_thresholds(LOW, kept);
        malloc_trim();
        drop(marks);
        set_thresholds(kept, kept);
    }

    pub(super) fn fit_to_budget(bytes: usize) {
        let _trimming = TRIMMING.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = libc::c_int::try_from(bytes / 16)
            .unwrap_or(KEPT_UNDER_LOAD)
            .clamp(KEPT_AT_LEAST, KEPT_UNDER_LOAD);
        let before = KEPT.fetch_max(kept, Ordering::Relaxed);
        let is_adapted_by_glibc = before == 0 && kept == KEPT_UNDER_LOAD;
        if before < kept && !is_adapted_by_glibc && !are_thresholds_configured() {
            set_thresholds(kept, kept);
        }
    }

    fn are_thresholds_configured() -> bool {
        let configured = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"];
        configured.iter().any(|name| std::env::var_os(name).is_some())
    }

    #[expect(unsafe_code, reason = "glibc offers it to C only")]
    fn malloc_trim() {
        // SAFETY: `malloc_trim` takes a number and no pointer, changes no live allocation, and is MT-Safe by its manual.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    /// Sets what stays free at the end of an arena from now on, and what size has a mapping of its own.
    #[expect(unsafe_code, reason = "glibc offers it to C only")]
    fn set_thresholds(kept: libc::c_int, kept_under_load: libc::c_int) {
        // SAFETY: `mallopt` takes two numbers and no pointer, and changes no live allocation. Its manual calls it
        // MT-Unsafe, since other threads read the words that it writes; `free` writes the same words, equally without a
        // lock, whenever glibc adapts them.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, kept);
            libc::mallopt(libc::M_MMAP_THRESHOLD, own_mapping(kept_under_load));
        }
    }

    /// Returns the size from which an allocation has a mapping of its own: half of what stays free under load, as glibc
    /// chooses it, and less with a small budget, of which buffers that grow beside each other would waste a fifth.
    fn own_mapping(kept_under_load: libc::c_int) -> libc::c_int {
        if kept_under_load == KEPT_UNDER_LOAD { KEPT_UNDER_LOAD / 2 } else { kept_under_load / 8 }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod other {
    #[inline]
    pub(super) fn mark_arena() {}

    pub(super) fn trim() {}

    pub(super) fn fit_to_budget(_: usize) {}
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Mutex, PoisonError};
    use std::thread::JoinHandle;

    use super::*;

    /// Lets one test run at a time, since they measure the memory of the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Resident memory in KiB.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    #[test]
    fn memory_freed_below_a_live_allocation_is_returned() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = resident();
        let freed: Vec<_> = (0..32_768).map(|n| vec![n as u8; 1024]).collect();
        // Follows the other allocations in memory, so that glibc returns nothing by itself.
        let live = vec![1_u8; 1024];
        drop(freed);
        let kept = resident();
        trim();
        assert!(kept > before + (16 << 10), "{before} {kept}");
        assert!(resident() < before + (8 << 10), "{before} {kept} {}", resident());
        drop(live);
    }

    /// Starts a thread that frees large allocations of its arena, which is not the main one, and keeps running.
    fn thread_with_a_large_free_end(until: Receiver<()>, mark: bool) -> JoinHandle<()> {
        let (freed, has_freed) = channel();
        let thread = std::thread::spawn(move || {
            for _ in 0..3 {
                drop(vec![1_u8; 30 << 20]);
            }
            if mark {
                mark_arena();
            }
            freed.send(()).unwrap();
            let _ = until.recv();
        });
        has_freed.recv().unwrap();
        thread
    }

    #[test]
    fn the_free_end_of_a_marked_arena_is_returned() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // The second thread takes over the arena of the first.
        for (mark, is_returned) in [(true, true), (false, false)] {
            let before = resident();
            let (end, until) = channel();
            let thread = thread_with_a_large_free_end(until, mark);
            let kept = resident();
            trim();
            let after = resident();
            assert!(kept > before + (16 << 10), "glibc keeps it under load: {before} {kept}");
            assert_eq!(after < before + (8 << 10), is_returned, "{before} {kept} {after}");
            drop(end);
            thread.join().unwrap();
        }
    }
}
