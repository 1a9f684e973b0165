use std::io;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};

use super::failure;
use super::session::{DecryptedRecords, record_length};
use crate::transport::{Inbox, Source};

/// Reads until there is plaintext; 0 after the peer's close_notify.
///
/// A peer may send records without plaintext as fast as they are decrypted: other tasks run after some reads of them.
pub(super) fn poll_plaintext(
    source: &mut impl Source,
    incoming: &mut Inbox,
    plain: &mut BytesMut,
    cx: &mut Context<'_>,
    mut open: impl FnMut(&mut [u8], &mut BytesMut, usize) -> io::Result<(DecryptedRecords, bool)>,
) -> Poll<io::Result<usize>> {
    let room = plain.capacity() - plain.len();
    for _ in 0..MAX_READS {
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
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Maximum number of reads without plaintext before other tasks run.
const MAX_READS: usize = 8;

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::BufMut;

    use super::*;

    /// A peer that always sends more.
    struct Endless(usize);

    impl Source for Endless {
        fn poll_read(&mut self, _: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
            self.0 += 1;
            inbox.put_slice(b"a record without content");
            Poll::Ready(Ok(24))
        }
    }

    #[test]
    fn endless_records_without_content_let_other_tasks_run() {
        let (mut source, mut incoming, mut plain) = (Endless(0), Inbox::default(), BytesMut::new());
        let mut cx = Context::from_waker(Waker::noop());
        for turn in 1..10 {
            let read = poll_plaintext(&mut source, &mut incoming, &mut plain, &mut cx, |bytes, _, _| {
                Ok((DecryptedRecords { discard: bytes.len(), plain: 0 }, false))
            });
            assert!(read.is_pending());
            assert_eq!(source.0, turn * MAX_READS);
        }
    }
}
