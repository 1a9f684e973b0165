use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Evictable, Source};

/// A stream over datagrams: KCP's or QUIC's.
///
/// A trait object, so that the code for streams does not depend on their types; the cost of a dynamic call is
/// negligible next to a datagram.
pub(crate) trait DatagramStream: Source + fmt::Debug + Send + Sync {
    /// Writes once.
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Shuts down the write side.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Returns the bytes that it buffers, received or written, if known.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Sets the connection that the stream carries, for a transport with a limit of its own on their number.
    fn set_connection(&self, _: Arc<dyn Evictable>) {}

    /// Returns whether the peer is notified of the end.
    fn signals_close(&self) -> bool;

    /// Splits it into a read half and a write half that any task may use.
    fn split(self: Box<Self>) -> (Box<dyn DatagramSource>, Box<dyn DatagramSink>);
}

/// The read half of a stream over datagrams, used by its own task.
pub(crate) trait DatagramSource: Source + fmt::Debug + Send {}

impl<S: Source + fmt::Debug + Send> DatagramSource for S {}

/// The write half of a stream over datagrams, which any task may use.
pub(crate) trait DatagramSink: fmt::Debug + Send + Sync {
    /// Writes once without waiting.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until it accepts more.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sets whether the peer owes replies. A client then probes it when it is silent, since nothing else is sent.
    fn expect_replies(&self, are_expected: bool);

    /// Closes the connection in both directions, even if this half is still shared.
    fn close(&self);
}
