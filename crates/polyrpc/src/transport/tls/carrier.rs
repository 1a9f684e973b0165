use std::io;
use std::task::{Context, Poll};

use crate::transport::Source;

/// A stream that TLS goes over. It is known when the program is compiled, so that the layers cost nothing.
pub(crate) trait Carrier: Source {
    /// The half that its own task reads from.
    type Read: Source;
    /// The half that any task may write to.
    type Write: CarrierSink;

    /// Writes once.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Says that nothing more will be sent.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Lets the peer see an error instead of the end, once it is closed.
    fn reset(&self);

    /// Bytes that it keeps between the socket and who reads and writes.
    fn held(&self) -> usize;

    fn split(self) -> (Self::Read, Self::Write);
}

/// The half of a [`Carrier`] that any task may write to.
pub(crate) trait CarrierSink {
    /// Writes once, if that can be done without waiting.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until it takes more.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends the connection in both directions, whoever still holds this half.
    fn close(&self);
}
