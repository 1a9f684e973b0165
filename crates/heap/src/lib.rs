//! Returns free memory to the system.
//!
//! A crate of its own, since it is the only place of PolyRPC with `unsafe` code.

/// Limits how much free memory glibc keeps at the end of each arena, once per process.
///
/// By default glibc adapts to the largest allocation that was freed: after one of 32 MiB an arena, of which every thread
/// may have one, keeps up to 64 MiB at its end, and [`trim`] does not reach them. From now on an arena keeps 8 MiB at
/// most, and an allocation of 1 MiB or more is a mapping of its own, which is returned when it is freed.
///
/// Does nothing if the environment sets one of the two (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`,
/// `GLIBC_TUNABLES`): the operator decides then. Like [`trim`], it has no effect with another allocator.
pub fn limit_retained() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        let is_configured = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        if is_configured {
            return;
        }
        #[expect(unsafe_code, reason = "glibc offers it to C only")]
        // SAFETY: `mallopt` takes two numbers and no pointer, and changes no live allocation. Its manual calls it
        // MT-Unsafe, since other threads read the two words that it writes; `free` writes the same words, equally
        // without a lock, whenever glibc adapts them.
        ONCE.call_once(|| unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_THE_END);
            libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
        });
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_AT_THE_END: libc::c_int = 8 << 20;
/// A message that grows beyond it is remapped instead of copied, which keeps others of the thread waiting for less.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const OWN_MAPPING: libc::c_int = 1 << 20;

/// Returns the free pages of the heap to the system, except those at the end of an arena ([`limit_retained`]).
///
/// glibc keeps freed memory for later allocations, often forever: an arena ends where its last live allocation is. With
/// another C library, or on another system, this does nothing; neither does it for a program with an allocator of its
/// own, all of which return memory by themselves.
///
/// It walks through the free memory of the process and holds the lock of one arena after the other. Call it seldom,
/// from a thread that may block.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "glibc offers it to C only")]
    // SAFETY: `malloc_trim` takes a number and no pointer, changes no live allocation, and is MT-Safe by its manual.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// The tests look at the memory of the whole process: one at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Pages that are resident.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn memory_freed_below_a_live_allocation_is_returned() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = resident();
        let freed: Vec<_> = (0..32_768).map(|n| vec![n as u8; 1024]).collect();
        // It lies behind the others, so that glibc by itself gives nothing back.
        let live = vec![1_u8; 1024];
        drop(freed);
        let kept = resident();
        trim();
        assert!(kept > before + 4096, "{before} {kept}");
        assert!(resident() < before + 2048, "{before} {kept} {}", resident());
        drop(live);
    }

    #[test]
    fn a_large_allocation_is_returned_when_it_is_freed() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // In a thread, whose arena is not the main one: `trim` returns the end of the main one only.
        let resident_after_free = || {
            std::thread::spawn(|| {
                for _ in 0..3 {
                    drop(vec![1_u8; 30 << 20]);
                }
                resident()
            })
            .join()
            .unwrap()
        };
        let before = resident();
        let kept = resident_after_free();
        limit_retained();
        let limited = resident_after_free();
        assert!(kept > before + 4096, "glibc keeps it by default: {before} {kept}");
        assert!(limited < before + 2048, "{before} {kept} {limited}");
    }
}
