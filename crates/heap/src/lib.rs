//! Gives memory that is free back to the system.
//!
//! A crate of its own, since it is the only place of PolyRPC with `unsafe` code.

/// Gives the free pages of the heap back to the system.
///
/// glibc keeps what was freed for later allocations, often for ever: an arena ends where its last live allocation is.
/// With another C library, or on another system, this does nothing; it does nothing either for a program with an
/// allocator of its own, all of which give memory back by themselves.
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
    use super::*;

    /// Pages that are resident.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn memory_freed_below_a_live_allocation_goes_back() {
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
}
