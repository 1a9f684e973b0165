use std::fmt;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use super::Source;

/// A stream that is made of datagrams: KCP's, QUIC's.
///
/// A trait object, so that the types of neither stand where streams are handled; a call through it costs nothing
/// beside a datagram.
pub(crate) trait DatagramStream: Source + fmt::Debug + Send + Sync {
    /// Writes once.
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Says that nothing more will be sent.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Bytes that it keeps, received or written, where that is known.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Whether the peer hears of the end.
    fn signals_close(&self) -> bool;

    /// Parts it into a half to read from and a half that any task may write to.
    fn split(self: Box<Self>) -> (Box<dyn DatagramSource>, Box<dyn DatagramSink>);
}

/// The half of a carried stream that its own task reads from.
pub(crate) trait DatagramSource: Source + fmt::Debug + Send {}

impl<S: Source + fmt::Debug + Send> DatagramSource for S {}

/// The half of a carried stream that any task may write to.
pub(crate) trait DatagramSink: fmt::Debug + Send + Sync {
    /// Writes once, if that can be done without waiting.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until it takes more.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends the connection in both directions, whoever still holds this half.
    fn close(&self);
}
