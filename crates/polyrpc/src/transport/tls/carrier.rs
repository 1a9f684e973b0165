use std::io;
use std::task::{Context, Poll};

use crate::transport::Source;

/// A stream below TLS. Its type is static, so that the layers cost nothing.
pub(crate) trait Carrier: Source {
    /// The read half, used by its own task.
    type Read: Source;
    /// The write half, which any task may use.
    type Write: CarrierSink;

    /// Writes once.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Shuts down the write side.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Makes the peer see an error instead of the end, once it is closed.
    fn reset(&self);

    /// Returns the bytes that it buffers between the socket and its user.
    fn buffered_bytes(&self) -> usize;

    fn split(self) -> (Self::Read, Self::Write);
}

/// The write half of a [`Carrier`], which any task may use.
pub(crate) trait CarrierSink {
    /// Writes once without waiting.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until it accepts more.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Closes the connection in both directions, even if this half is still shared.
    fn close(&self);
}
