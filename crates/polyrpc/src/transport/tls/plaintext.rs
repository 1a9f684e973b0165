use std::io;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};

use super::failure;
use super::session::{Opened, record_length};
use crate::transport::{Inbox, Source};

/// Reads until there is plaintext; 0 after the peer's close_notify.
pub(super) fn poll_plaintext(
    source: &mut impl Source,
    incoming: &mut Inbox,
    plain: &mut BytesMut,
    cx: &mut Context<'_>,
    mut open: impl FnMut(&mut [u8], &mut BytesMut, usize) -> io::Result<(Opened, bool)>,
) -> Poll<io::Result<usize>> {
    let room = plain.capacity() - plain.len();
    loop {
        let (opened, ended) = open(&mut incoming.bytes, plain, room)?;
        incoming.bytes.advance(opened.discard);
        if opened.plain > 0 || ended {
            if incoming.bytes.is_empty() {
                incoming.release_spare();
            }
            return Poll::Ready(Ok(opened.plain));
        }
        let wanted = record_length(&incoming.bytes).unwrap_or(0);
        match incoming.poll_fill(source, cx, wanted) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(failure::truncated())),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                incoming.release_spare();
                return Poll::Pending;
            }
        }
    }
}
