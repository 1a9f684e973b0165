//! Limits that a small budget sets, in a process of their own.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

/// Resident memory in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Frees large allocations on a thread with an arena of its own, and returns how much of them stays resident, in KiB.
fn kept_after_large_allocations() -> usize {
    let before = resident();
    let thread = std::thread::spawn(move || {
        for size in [1, 3, 7, 15, 30] {
            drop(vec![1_u8; size << 20]);
        }
        resident()
    });
    thread.join().unwrap().saturating_sub(before)
}

#[test]
fn freed_memory_stays_below_a_small_budget() {
    polyrpc_heap::fit_to_budget(64 << 20);
    let kept = kept_after_large_allocations();
    assert!(kept < 5 << 10, "a sixteenth of 64 MiB may stay: {kept} KiB");

    // A trim does not forget it.
    polyrpc_heap::trim();
    let kept = kept_after_large_allocations();
    assert!(kept < 5 << 10, "{kept} KiB after a trim");

    // The largest budget of the process counts.
    polyrpc_heap::fit_to_budget(1 << 30);
    polyrpc_heap::fit_to_budget(64 << 20);
    let kept = kept_after_large_allocations();
    assert!(kept > 10 << 10, "as without a budget: {kept} KiB");
}
