#[cfg(target_os = "linux")]
use thread_priority::ThreadPriority;
#[cfg(target_os = "linux")]
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// Scheduling priority of a thread. Only Linux supports it; on other systems, or if the system refuses it, all threads
/// have the same priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Priority {
    /// Lower priority, but never without a share.
    #[default]
    Low,
    /// Only idle time of the cores.
    Idle,
}

impl Priority {
    /// Applies the priority to the current thread.
    #[cfg(target_os = "linux")]
    pub(super) fn take(self) {
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

/// With this niceness, one of two busy threads on a core gets a quarter of it.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use thread_priority::unix::thread_schedule_policy;

    use super::*;
    use crate::Cores;

    /// Runs `probe` on an I/O thread and on a blocking thread.
    fn on_both_threads<T: Send + 'static>(blocking: Priority, probe: fn() -> T) -> (T, T) {
        let cores = Cores::builder().threads(1);
        let cores = if blocking == Priority::Idle { cores.idle_priority_blocking() } else { cores };
        let cores = cores.start().unwrap();
        let handle = cores.next().clone();
        handle.clone().block_on(async move {
            let moves = handle.spawn(async move { probe() }).await.unwrap();
            (moves, handle.spawn_blocking(probe).await.unwrap())
        })
    }

    #[test]
    fn blocking_work_yields_to_io_threads() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let usual = niceness();
        assert_eq!(on_both_threads(Priority::Low, niceness), (usual, (usual + NICE).min(19)));
    }

    #[test]
    fn idle_work_runs_only_on_an_idle_core() {
        let normal = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        assert_eq!(on_both_threads(Priority::Idle, || thread_schedule_policy().unwrap()), (normal, idle));
    }

    #[test]
    fn blocking_threads_are_named() {
        let name = || std::thread::current().name().map(str::to_owned);
        let (moves, blocks) = on_both_threads(Priority::Low, name);
        assert_eq!((moves.as_deref(), blocks.as_deref()), (Some("polyrpc-0"), Some("polyrpc-0-blocking")));
    }
}
