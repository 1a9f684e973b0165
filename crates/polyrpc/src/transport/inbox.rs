use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;

use super::Source;

/// Bytes received but not consumed yet.
///
/// An idle connection holds no buffer: the room to read into is borrowed from the thread and returned when everything
/// was consumed. A body of known length is read straight into a buffer of its size.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) bytes: BytesMut,
    /// The last read filled the whole room: more is waiting, so a larger read pays off.
    flooded: bool,
}

impl Inbox {
    /// Reads what has arrived; 0 at the end of the stream. `wanted` is the number of bytes that the session needs
    /// before it continues, 0 if unknown.
    pub(crate) fn poll_fill(
        &mut self,
        source: &mut impl Source,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill_up_to(ReadSize::Large, source, cx, wanted)
    }

    /// As [`poll_fill`](Self::poll_fill), but limits the size of a read of small messages.
    pub(crate) fn poll_fill_up_to(
        &mut self,
        size: ReadSize,
        source: &mut impl Source,
        cx: &mut Context<'_>,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        if size == ReadSize::Brief && self.bytes.is_empty() {
            self.release_spare();
            self.bytes = BytesMut::with_capacity(BRIEF);
            return source.poll_read(cx, &mut self.bytes);
        }
        self.flooded &= size == ReadSize::Large;
        self.reserve(wanted);
        let room = self.bytes.capacity() - self.bytes.len();
        let read = source.poll_read(cx, &mut self.bytes);
        if let Poll::Ready(Ok(n)) = read {
            self.flooded = n == room;
        }
        read
    }

    /// Returns the bytes that it buffers. Free room is not resident, or lent by the thread.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns unused room to the thread.
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
            // With room for just the rest of this message, every read would end within the next one.
            let mut larger = borrow(LARGE);
            larger.extend_from_slice(&self.bytes);
            return_buffer(std::mem::replace(&mut self.bytes, larger));
        } else {
            // Memory is reserved in steps, as bytes arrive, instead of trusting the length that the peer announces.
            let step = if self.bytes.len() < SMALL { SMALL } else { STEP };
            let missing = wanted.saturating_sub(self.bytes.len()).clamp(SMALL / 4, step);
            self.bytes.reserve(missing);
        }
    }
}

/// Size of a read of small messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadSize {
    /// 4 KiB: enough for the requests of most peers, and little work if thousands of them send at the same time.
    Brief,
    /// 16 KiB: about as much as is handled in one turn, so that little is buffered until the next one.
    Small,
    /// 64 KiB if the last read filled its room.
    Large,
}

/// The room of a brief read.
const BRIEF: usize = 4 << 10;
/// A read's usual room: several small messages, or the start of a large one, whose rest is read into a buffer of its
/// size. The part that is read here costs a copy, so this must not be large.
const SMALL: usize = 16 << 10;
/// The room for a read from a peer that sends many small messages at once.
const LARGE: usize = 64 << 10;
/// Step in which memory is reserved for a large message once more than a few bytes have arrived.
const STEP: usize = 1 << 20;

thread_local! {
    /// Two of each size: TLS reads from one and into the other.
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
    // Including the consumed part in front: that is free too, unless a body that is still in use refers to it.
    let _ = buffer.try_reclaim(buffer.capacity() + 1);
    let size = match buffer.capacity() {
        // Room for a large message is not kept for smaller ones.
        capacity if capacity > 4 * LARGE => return,
        capacity if capacity >= LARGE => LARGE,
        capacity if capacity >= SMALL => SMALL,
        _ => return,
    };
    // A surplus buffer is dropped.
    slots(size, |[first, second]| second.set(first.replace(Some(buffer))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbox_counts_its_bytes_and_unborrowed_capacity() {
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
    fn buffer_is_lent_again_once_its_bytes_are_dropped() {
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

        // A buffer that was large is not kept, however little of it is left.
        let mut large = BytesMut::zeroed(8 * LARGE);
        bytes::Buf::advance(&mut large, 8 * LARGE - SMALL);
        let place = large.as_ptr();
        return_buffer(large);
        assert_ne!(borrow(SMALL).as_ptr(), place);
    }

    /// A source with unlimited data.
    struct Endless;

    impl Source for Endless {
        fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
            let room = buffer.capacity() - buffer.len();
            buffer.resize(buffer.capacity(), 0);
            Poll::Ready(Ok(room))
        }
    }

    #[test]
    fn read_fills_the_room_of_its_size() {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut read = |inbox: &mut Inbox, size| match inbox.poll_fill_up_to(size, &mut Endless, cx, 0) {
            Poll::Ready(Ok(read)) => read,
            other => panic!("{other:?}"),
        };
        let mut inbox = Inbox::default();
        assert_eq!(read(&mut inbox, ReadSize::Brief), BRIEF);
        inbox.bytes.clear();
        for expected in [SMALL, LARGE] {
            inbox.release_spare();
            assert_eq!(read(&mut inbox, ReadSize::Large), expected);
            inbox.bytes.clear();
        }
        inbox.release_spare();
        assert_eq!(read(&mut inbox, ReadSize::Small), SMALL);
    }

    #[test]
    fn large_message_is_reserved_in_steps_as_it_arrives() {
        let mut inbox = Inbox::default();
        inbox.bytes.extend_from_slice(&[0; 10]);
        inbox.reserve(64 << 20);
        assert!(inbox.bytes.capacity() <= 2 * SMALL, "{}", inbox.bytes.capacity());
        inbox.bytes.resize(SMALL, 0);
        inbox.reserve(64 << 20);
        assert!(inbox.bytes.capacity() >= STEP, "{}", inbox.bytes.capacity());
    }
}
