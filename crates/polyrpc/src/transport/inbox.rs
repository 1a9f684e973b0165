use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;

use super::Source;

/// Bytes that have arrived and were not taken yet.
///
/// A connection that waits for nothing holds no buffer: the room to read into is borrowed from the thread
/// and given back when everything was taken. A body whose length is known is read straight into a buffer of
/// its size.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) bytes: BytesMut,
    /// The last read filled all the room there was: more is waiting, a larger read pays.
    flooded: bool,
}

impl Inbox {
    /// Reads what has arrived; 0 at the end of the stream. `wanted` is what the session wants to see before it
    /// goes on, 0 if it does not know.
    pub(crate) fn poll_fill(
        &mut self,
        source: &mut impl Source,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        self.reserve(wanted);
        let room = self.bytes.capacity() - self.bytes.len();
        let read = source.poll_read(cx, &mut self.bytes);
        if let Poll::Ready(Ok(n)) = read {
            self.flooded = n == room;
        }
        read
    }

    /// Bytes that it keeps. Room in which nothing lies yet is not resident, or is lent by the thread.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Gives the room back that nothing lies in.
    pub(crate) fn release_spare(&mut self) {
        if self.bytes.is_empty() {
            return_buffer(std::mem::take(&mut self.bytes));
        } else if self.bytes.capacity() >= SMALL && self.bytes.len() < SMALL / 4 {
            let rest = BytesMut::from(&self.bytes[..]);
            return_buffer(std::mem::replace(&mut self.bytes, rest));
        }
    }

    fn reserve(&mut self, wanted: usize) {
        let size = if self.flooded && wanted <= SMALL { LARGE } else { SMALL };
        if self.bytes.is_empty() {
            if self.bytes.capacity() < size && !self.bytes.try_reclaim(size) {
                self.bytes = borrow(size);
            }
        } else if size == LARGE && self.bytes.len() <= SMALL {
            // Room for the rest of this message alone would have every read end within the next one.
            let mut larger = borrow(LARGE);
            larger.extend_from_slice(&self.bytes);
            return_buffer(std::mem::replace(&mut self.bytes, larger));
        } else {
            // Memory is set aside in steps, as the bytes come, not on the word of the peer.
            let missing = wanted.saturating_sub(self.bytes.len()).clamp(SMALL / 4, STEP);
            self.bytes.reserve(missing);
        }
    }
}

/// A read's usual room: several small messages, and the beginning of a large one, whose rest is read into a
/// buffer of its size. What is read of it before costs a copy, so this must not be large.
const SMALL: usize = 16 << 10;
/// The room for a read from a peer that sends many small messages at once.
const LARGE: usize = 64 << 10;
/// How much memory is set aside for a large message at a time.
const STEP: usize = 1 << 20;

thread_local! {
    /// Of each size two: TLS reads by one and into the other.
    static SPARE: [[Cell<Option<BytesMut>>; 2]; 2] =
        const { [const { [const { Cell::new(None) }; 2] }; 2] };
}

fn slots<T>(size: usize, among: impl FnOnce(&[Cell<Option<BytesMut>>; 2]) -> T) -> T {
    SPARE.with(|spare| among(&spare[usize::from(size > SMALL)]))
}

fn borrow(size: usize) -> BytesMut {
    let spare = slots(size, |[first, second]| first.take().or_else(|| second.take()));
    spare.unwrap_or_else(|| BytesMut::with_capacity(size))
}

fn return_buffer(mut buffer: BytesMut) {
    buffer.clear();
    // With what lies before: that is free too, unless a body that someone still holds lies there.
    let _ = buffer.try_reclaim(buffer.capacity() + 1);
    let size = match buffer.capacity() {
        // Room for a large message is not kept for smaller ones.
        capacity if capacity > 4 * LARGE => return,
        capacity if capacity >= LARGE => LARGE,
        capacity if capacity >= SMALL => SMALL,
        _ => return,
    };
    // One too many is let go.
    slots(size, |[first, second]| second.set(first.replace(Some(buffer))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbox_holds_what_lies_in_it_and_room_that_no_thread_lends() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.buffered_bytes(), 0);
        inbox.reserve(0);
        assert_eq!(inbox.buffered_bytes(), 0);
        inbox.bytes.extend_from_slice(&[1; 100]);
        assert_eq!(inbox.buffered_bytes(), 100);
        inbox.bytes.extend_from_slice(&vec![1; LARGE]);
        assert!((LARGE + 100..4 * LARGE).contains(&inbox.buffered_bytes()));
        inbox.bytes.clear();
        inbox.release_spare();
        assert_eq!(inbox.buffered_bytes(), 0);
    }

    #[test]
    fn room_is_lent_again_once_nobody_holds_what_lay_in_it() {
        let mut inbox = Inbox::default();
        inbox.reserve(0);
        let place = inbox.bytes.as_ptr();
        inbox.bytes.extend_from_slice(&[1; 100]);
        drop(inbox.bytes.split_to(60).freeze());
        bytes::Buf::advance(&mut inbox.bytes, 40);
        inbox.release_spare();
        let again = borrow(SMALL);
        assert_eq!((again.as_ptr(), again.capacity()), (place, SMALL));
        return_buffer(again);

        // One that was large is not kept, however little of it is left.
        let mut large = BytesMut::zeroed(8 * LARGE);
        bytes::Buf::advance(&mut large, 8 * LARGE - SMALL);
        let place = large.as_ptr();
        return_buffer(large);
        assert_ne!(borrow(SMALL).as_ptr(), place);
    }
}
