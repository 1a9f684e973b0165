//! Programs that end with this one, together with what they have started.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// A child and what it has started, a process group of its own, so that Ctrl-C does not reach it.
pub(super) struct ProcessGroup(i32);

/// The groups that still run.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

impl ProcessGroup {
    pub(super) fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.process_group(0).spawn()?;
        let id = Pid::from_child(&child).as_raw_pid();
        groups.insert(id);
        Ok((child, Self(id)))
    }

    /// Kills its processes, once. To be called before the child is waited for: afterwards its number may be another's.
    pub(super) fn kill(&self) {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.remove(&self.0) {
            kill(self.0);
        }
    }
}

/// Kills all groups. Nothing is started while the guard lives.
pub(super) fn kill_all() -> MutexGuard<'static, BTreeSet<i32>> {
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    groups.iter().copied().for_each(kill);
    groups
}

fn kill(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        // They may have ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}
