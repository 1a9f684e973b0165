//! What makes calls: a load runs for a window of time and tells what came of it.

mod epoll;
mod idle;
mod laps;
mod replies;

use std::io;
use std::time::Duration;

pub(crate) use epoll::Epoll;
pub(crate) use idle::Idle;
pub(crate) use laps::{Laps, SharedLaps, Tally};

/// A client with its connections open.
///
/// It is run twice, to warm up and to be measured; nothing is in flight before, between and after, so
/// that CPU time read there belongs to the calls counted.
pub(crate) trait Load {
    /// Makes calls until `window` is over and waits for the last reply.
    ///
    /// # Errors
    ///
    /// Whatever ended a connection. A reply that came but was wrong is counted in the tally instead.
    fn run(&mut self, window: Duration) -> io::Result<Tally>;
}

/// A peer that says nothing for so long is taken for dead.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
