#[cfg(target_os = "linux")]
use thread_priority::ThreadPriority;
#[cfg(target_os = "linux")]
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// When a thread gets a core that others want too.
///
/// Only Linux tells threads apart like this; elsewhere all are alike, and so they are where the system refuses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Priority {
    /// After others, but never without its part: a [niceness](https://man7.org/linux/man-pages/man2/nice.2.html) of 5
    /// more than theirs, which is a quarter of a core that both want as much of as they can get.
    ///
    /// Who moves bytes may still have to wait for the end of a time slice, some milliseconds, now and then.
    #[default]
    Low,
    /// Only what nobody else wants: [`SCHED_IDLE`](https://man7.org/linux/man-pages/man7/sched.7.html).
    ///
    /// For handlers that compute for long beside methods that must be quick: these never wait for them. In return the
    /// handlers stand still for as long as the cores are taken by the threads that move bytes, or by other programs, unless
    /// these are of another container with a share of its own. Not for what must be answered in time on a busy machine, nor
    /// for handlers that mostly wait, since there are few threads
    /// ([`Builder::blocking_threads`](super::Builder::blocking_threads)).
    Idle,
}

impl Priority {
    /// Puts the thread that calls it there.
    #[cfg(target_os = "linux")]
    pub(super) fn take(self) {
        // Where the system refuses, all are alike.
        let _ = match self {
            Self::Low => rustix::process::nice(NICE).is_ok(),
            Self::Idle => {
                let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
                set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle).is_ok()
            }
        };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn take(self) {}
}

/// One of two threads on a core gets a quarter of it then, if the other wants as much as it can get.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use thread_priority::unix::thread_schedule_policy;

    use super::*;
    use crate::Cores;

    /// What a thread that moves bytes and one for blocking work are to the system.
    fn told<T: Send + 'static>(blocking: Priority, ask: fn() -> T) -> (T, T) {
        let cores = Cores::builder().threads(1).blocking(blocking).start().unwrap();
        let handle = cores.next().clone();
        handle.clone().block_on(async move {
            let moves = handle.spawn(async move { ask() }).await.unwrap();
            (moves, handle.spawn_blocking(ask).await.unwrap())
        })
    }

    #[test]
    fn blocking_work_comes_after_what_moves_bytes() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let usual = niceness();
        assert_eq!(told(Priority::Low, niceness), (usual, (usual + NICE).min(19)));
    }

    #[test]
    fn idle_work_waits_until_nobody_else_wants_the_core() {
        let normal = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        assert_eq!(told(Priority::Idle, || thread_schedule_policy().unwrap()), (normal, idle));
    }

    #[test]
    fn blocking_threads_bear_their_name() {
        let name = || std::thread::current().name().map(str::to_owned);
        let (moves, blocks) = told(Priority::Low, name);
        assert_eq!((moves.as_deref(), blocks.as_deref()), (Some("polyrpc-0"), Some("polyrpc-0-blocking")));
    }
}
