//! Ctrl-C and SIGTERM while a load runs.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use polyrpc::signal;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::failure::Failure;

/// Notifies the callers of an interrupt.
pub(super) struct Interrupt {
    callers: Arc<Mutex<Callers>>,
}

/// The callers to notify; `None` afterwards. Each has its own channel, so that polling it does not contend for
/// a cache line.
type Callers = Option<Vec<oneshot::Sender<()>>>;

impl Interrupt {
    /// Installs the signal handlers. The first signal is an interrupt, the second ends the program.
    pub(super) fn watch() -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::system("start a runtime", &error))?;
        let first = {
            let _inside = runtime.enter();
            signal::shutdown()
        };
        let callers = Arc::new(Mutex::new(Some(Vec::new())));
        let waiting = callers.clone();
        thread::spawn(move || {
            runtime.block_on(async {
                first.await;
                // Dropping the senders notifies them.
                drop(locked(&waiting).take());
                signal::shutdown().await;
            });
            process::exit(INTERRUPTED);
        });
        Ok(Self { callers })
    }

    /// Disconnected by an interrupt.
    pub(super) fn subscribe(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        if let Some(callers) = &mut *locked(&self.callers) {
            callers.push(sender);
        }
        receiver
    }

    pub(super) fn is_interrupted(&self) -> bool {
        locked(&self.callers).is_none()
    }
}

fn locked(callers: &Mutex<Callers>) -> MutexGuard<'_, Callers> {
    callers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exit code that shells report for a program ended by Ctrl-C.
const INTERRUPTED: i32 = 130;
