use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;

/// A source of bytes.
pub(crate) trait Source {
    /// Appends what has arrived to `inbox`, within its free capacity; 0 at the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>>;
}
