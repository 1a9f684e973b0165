use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;

/// Something to read from.
pub(crate) trait Source {
    /// Appends what has arrived to `inbox`, into the room it has; 0 at the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>>;
}
