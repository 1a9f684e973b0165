//! Load clients: a load runs for a window of time and returns its result.

mod callers;
mod epoll;
mod idle;
mod latencies;
mod replies;

use std::io;
use std::time::Duration;

pub(crate) use callers::{CALLERS, PAYLOAD, call_echo, to_io_error};
pub(crate) use epoll::Epoll;
pub(crate) use idle::Idle;
pub(crate) use latencies::{LatencyRecorder, SharedLatencyRecorder, Tally};

/// A client with its connections open.
///
/// It runs twice, for the warm-up and the measurement; nothing is in flight before, between and after, so
/// that CPU time read there belongs to the counted calls.
pub(crate) trait Load {
    /// Makes calls until `window` is over and waits for the last reply.
    ///
    /// # Errors
    ///
    /// The error that ended a connection. A wrong reply is counted in the tally instead.
    fn run(&mut self, window: Duration) -> io::Result<Tally>;
}

/// A peer silent for this long is considered dead.
pub(crate) const IO_TIMEOUT: Duration = Duration::from_secs(10);
