use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

use bytes::BytesMut;

use super::Source;

/// Bytes received but not consumed yet.
///
/// An idle connection holds no buffer: the room to read into is borrowed from the thread and returned when everything
/// was consumed. A body of known length is read straight into a buffer of its size, which holds nothing behind it: a
/// small message there would keep all of it alive for as long as its handler runs.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) bytes: BytesMut,
    /// The last read filled all free space: more is waiting, so a larger read pays off.
    flooded: bool,
    /// Address of the first byte of the buffer, before anything was taken from it.
    start: usize,
    /// Distance from there to the end of the buffer.
    extent: usize,
    /// Bytes of the buffer that were used before `start` was last moved: they remain resident.
    touched: usize,
    /// The buffer is that of a large message.
    is_large: bool,
    /// A free buffer of a large message, for the next one of the same turn, and how many of its bytes were used.
    spare_large: Option<(BytesMut, usize)>,
    /// Whether buffers to which messages still refer are counted.
    counts_pinned: bool,
    /// These buffers. Boxed: most connections never have any.
    pinned: Option<Box<PinnedBuffers>>,
}

impl Inbox {
    /// Creates an inbox that counts the [buffers pinned](Self::pinned_bytes) by messages taken from it.
    pub(crate) fn counting_pinned_buffers() -> Self {
        Self { counts_pinned: true, ..Self::default() }
    }

    /// Moves what was received to another inbox, which unwraps it for this one.
    pub(crate) fn take(&mut self) -> Self {
        let emptied = Self { counts_pinned: self.counts_pinned, ..Self::default() };
        Self { counts_pinned: false, pinned: None, ..std::mem::replace(self, emptied) }
    }

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
            self.install(BytesMut::with_capacity(BRIEF));
            return self.read(source, cx);
        }
        self.flooded &= size == ReadSize::Large;
        self.reserve(wanted);
        let room = self.bytes.capacity() - self.bytes.len();
        let read = self.read(source, cx);
        if let Poll::Ready(Ok(n)) = read {
            // The space for a large message ends with that message, whether or not more is waiting.
            self.flooded = n == room && wanted <= LARGE;
        }
        read
    }

    /// Returns the bytes that it buffers. Other free room than that of a large message is not resident, or lent by the
    /// thread.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.bytes.len() + self.spare_large.as_ref().map_or(0, |(_, used)| *used)
    }

    /// Returns the bytes of its buffer that were used before those that it buffers. They remain resident until the buffer
    /// is replaced, whether or not a message still refers to them. Of a buffer of usual size half of them count: a
    /// connection that just reads must not exceed the bytes that each may hold regardless of others.
    pub(crate) fn consumed_bytes(&self) -> usize {
        if self.bytes.is_empty() {
            return 0;
        }
        let used = self.used_bytes();
        let consumed = used - self.bytes.len();
        if used <= LARGE { consumed / 2 } else { consumed }
    }

    /// Returns the number of bytes in replaced buffers to which messages still refer, as far as it is known: only a few
    /// of those in use are checked in each call, so that many cost little.
    ///
    /// A message is a slice of its buffer, and so are the parts that a session keeps for the response. Counting whole
    /// buffers instead of slices costs nothing for each call, and misses no slice, wherever it is kept.
    pub(crate) fn pinned_bytes(&mut self) -> usize {
        self.pinned.as_mut().map_or(0, |pinned| pinned.update())
    }

    /// Forgets the pinned buffers: no call of the connection is left, and data that handlers have stored is not
    /// counted.
    pub(crate) fn forget_pinned(&mut self) {
        self.pinned = None;
    }

    /// Returns whether messages refer to replaced buffers, as far as it is known.
    pub(crate) fn has_pinned(&self) -> bool {
        self.pinned.as_ref().is_some_and(|pinned| !pinned.buffers.is_empty())
    }

    /// Returns unused room to the thread. A small rest of a buffer moves into one of its size, so that a peer that always
    /// leaves an incomplete message behind does not keep the whole buffer.
    pub(crate) fn release_spare(&mut self) {
        if self.bytes.is_empty() {
            self.install(BytesMut::new());
        } else if self.bytes.len() < self.largest_moved_rest() {
            self.install(BytesMut::from(&self.bytes[..]));
        }
        if let Some((spare, _)) = self.spare_large.take() {
            return_buffer(spare);
        }
    }

    /// Returns the size from which a rest stays in its buffer. Of a large buffer it is a quarter of what was used, so that
    /// moving costs little for each byte received. A spare buffer is not given up for the message that has just begun in
    /// it.
    fn largest_moved_rest(&self) -> usize {
        let used = if self.is_large { self.taken_bytes() + self.bytes.len() } else { self.used_bytes() };
        let whole = self.taken_bytes() + self.bytes.capacity();
        match used {
            used if used > MAX_KEPT_CAPACITY => used / 4,
            _ if self.bytes.capacity() >= SMALL || whole > SMALL => SMALL / 4,
            _ => 0,
        }
    }

    /// Returns how many bytes of its buffer were used.
    fn used_bytes(&self) -> usize {
        self.touched.max(self.taken_bytes() + self.bytes.len())
    }

    /// Continues with another buffer, which contains the same bytes.
    fn install(&mut self, buffer: BytesMut) {
        if self.has_no_buffer() {
            self.bytes = buffer;
            self.start = self.bytes.as_ptr().addr();
            (self.touched, self.is_large) = (0, false);
            return self.record_extent();
        }
        let (taken, before) = (self.taken_bytes(), self.start);
        let mut replaced = std::mem::replace(&mut self.bytes, buffer);
        let was_large = std::mem::take(&mut self.is_large);
        self.start = self.bytes.as_ptr().addr();
        self.record_extent();
        let used = taken + replaced.len();
        let touched = std::mem::take(&mut self.touched).max(used);
        replaced.clear();
        let is_pinned = taken > 0 && !is_free(&mut replaced);
        match is_pinned {
            true if self.counts_pinned => self.pinned.get_or_insert_default().push(replaced, touched),
            // One lent by the thread goes back to it.
            false if was_large && is_whole(&mut replaced, used, before) && replaced.capacity() > LARGE => {
                self.spare_large = Some((replaced, touched));
            }
            _ => return_buffer(replaced),
        }
    }

    /// Whether it has returned its buffer, as after every call of an otherwise idle connection.
    fn has_no_buffer(&self) -> bool {
        self.bytes.capacity() == 0 && self.taken_bytes() == 0
    }

    /// Returns how many bytes were taken from the front of the buffer, to which messages may still refer; 0 if a
    /// session has exchanged the buffer.
    fn taken_bytes(&self) -> usize {
        let taken = self.bytes.as_ptr().addr().wrapping_sub(self.start);
        if taken.checked_add(self.bytes.capacity()) == Some(self.extent) { taken } else { 0 }
    }

    /// Records where the buffer ends, after bytes or free space were added.
    fn record_extent(&mut self) {
        self.extent = self.bytes.as_ptr().addr().wrapping_sub(self.start).wrapping_add(self.bytes.capacity());
    }

    fn reserve(&mut self, wanted: usize) {
        if self.taken_bytes() == 0 && self.start != self.bytes.as_ptr().addr() {
            // A session has exchanged the buffer.
            (self.start, self.touched) = (self.bytes.as_ptr().addr(), 0);
        }
        self.make_room(wanted);
        self.record_extent();
    }

    fn make_room(&mut self, wanted: usize) {
        let size = if self.flooded && wanted <= SMALL { LARGE } else { SMALL };
        if self.has_no_buffer() {
            self.install(borrow(size));
        } else if self.bytes.is_empty() {
            // The buffer of a large message would be kept alive by small ones.
            let is_large = self.is_large || self.bytes.capacity() > MAX_KEPT_CAPACITY;
            if is_large || self.bytes.capacity() < size && !self.reclaim(size) {
                self.is_large = is_large;
                self.install(borrow(size));
            }
        } else if size == LARGE && self.bytes.len() <= SMALL {
            // With room for just the rest of this message, every read would end within the next one.
            self.grow_into(borrow(LARGE));
        } else {
            // Memory is reserved in steps, as bytes arrive, instead of trusting the length that the peer announces.
            let step = if self.bytes.len() < SMALL { SMALL } else { RESERVE_STEP };
            let missing = wanted.saturating_sub(self.bytes.len()).clamp(SMALL / 4, step);
            let is_large = wanted > LARGE && wanted > self.bytes.len();
            let spare = if is_large { self.spare_large.take() } else { None };
            // A much shorter message would keep all of it alive.
            let fits =
                |(spare, _): &(BytesMut, usize)| spare.capacity() >= wanted && spare.capacity() / 2 <= wanted;
            match spare.filter(fits) {
                Some((spare, used)) => {
                    self.grow_into(spare);
                    self.touched = used;
                }
                None => self.reserve_missing(missing),
            }
            if is_large {
                self.is_large = true;
                if self.bytes.capacity() > wanted {
                    // No room behind the message, so that the next one gets a buffer of its own.
                    drop(self.bytes.split_off(wanted));
                }
            }
        }
    }

    /// Reserves room for the missing bytes once less room is left than a usual read has. Earlier growth would copy
    /// memory that was never written, since an allocator moves the whole buffer: the kernel would map its pages twice.
    fn reserve_missing(&mut self, missing: usize) {
        if self.bytes.capacity() - self.bytes.len() >= missing.min(SMALL) {
            return;
        }
        if self.taken_bytes() == 0 {
            // No message refers to it: it may grow in place.
            self.bytes.reserve(missing);
            self.start = self.bytes.as_ptr().addr();
        } else if !self.reclaim(missing) {
            self.grow_into(BytesMut::with_capacity(self.bytes.len() + missing));
        }
    }

    /// Makes room in the same buffer, if no message refers to it.
    fn reclaim(&mut self, room: usize) -> bool {
        let used = self.taken_bytes() + self.bytes.len();
        let is_reclaimed = self.bytes.try_reclaim(room);
        if is_reclaimed {
            self.start = self.bytes.as_ptr().addr();
            self.touched = self.touched.max(used);
        }
        is_reclaimed
    }

    fn grow_into(&mut self, mut larger: BytesMut) {
        larger.extend_from_slice(&self.bytes);
        self.install(larger);
    }

    /// Reads into the free room. A source that unwraps records may exceed the room, so that the bytes move.
    fn read(&mut self, source: &mut impl Source, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (before, taken) = (self.bytes.as_ptr(), self.taken_bytes());
        let probe = (self.counts_pinned && taken > 0).then(|| self.bytes.split_to(0));
        let read = source.poll_read(cx, &mut self.bytes);
        if self.bytes.as_ptr() != before {
            self.start = self.bytes.as_ptr().addr();
            let used = std::mem::take(&mut self.touched).max(taken);
            if let Some(mut probe) = probe {
                match is_free(&mut probe) {
                    true => return_buffer(probe),
                    false => self.pinned.get_or_insert_default().push(probe, used),
                }
            }
        }
        self.record_extent();
        read
    }
}

/// Replaced buffers to which messages still refer.
#[derive(Debug, Default)]
struct PinnedBuffers {
    /// The unused end of each buffer, and how much of it was used.
    buffers: Vec<(BytesMut, usize)>,
    bytes: usize,
    /// Index of the buffer that is checked next.
    next: usize,
}

impl PinnedBuffers {
    /// Adds a buffer, `used` bytes of which were used.
    fn push(&mut self, buffer: BytesMut, used: usize) {
        let used = used.max(PAGE);
        self.bytes += used;
        self.buffers.push((buffer, used));
    }

    /// Removes free buffers, until it has found a few that are in use. Returns the bytes of the remaining ones.
    fn update(&mut self) -> usize {
        let mut in_use = 0;
        for _ in 0..MAX_PINNED_REMOVALS {
            let Some(last) = self.buffers.len().checked_sub(1) else { break };
            self.next = self.next.checked_sub(1).unwrap_or(last).min(last);
            if is_free(&mut self.buffers[self.next].0) {
                let (buffer, used) = self.buffers.swap_remove(self.next);
                self.bytes -= used;
                return_buffer(buffer);
                continue;
            }
            in_use += 1;
            if in_use >= MAX_PINNED_CHECKS.min(self.buffers.len()) {
                break;
            }
        }
        if self.buffers.is_empty() {
            *self = Self::default();
        }
        self.bytes
    }
}

/// Returns whether this empty handle is the only reference to a buffer from which bytes were taken.
fn is_free(buffer: &mut BytesMut) -> bool {
    buffer.try_reclaim(buffer.capacity() + 1)
}

/// Reclaims the empty handle of a free buffer, `used` bytes of which, from `start` on, were used. Returns whether it
/// then covers the whole buffer, so that its capacity is the memory that a message in it would keep alive.
fn is_whole(buffer: &mut BytesMut, used: usize, start: usize) -> bool {
    buffer.try_reclaim(used) && buffer.as_ptr().addr() <= start
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
/// Step in which memory is reserved for a large message once more than a few bytes have arrived. Most messages fit into one,
/// so that their buffer never moves: what it leaves behind stays resident. With a memory budget up to 256 MiB glibc gives so
/// much a mapping of its own, which grows without a copy (`polyrpc_heap::fit_to_budget`).
const RESERVE_STEP: usize = 4 << 20;
/// Largest buffer that is kept for small messages.
const MAX_KEPT_CAPACITY: usize = 4 * LARGE;
/// Least memory of a buffer in use.
const PAGE: usize = 4 << 10;
/// Number of pinned buffers in use that are checked in a turn of the connection.
const MAX_PINNED_CHECKS: usize = 8;
/// Maximum number of pinned buffers that are removed in a turn.
const MAX_PINNED_REMOVALS: usize = 256;

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
        capacity if capacity > MAX_KEPT_CAPACITY => return,
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
        let buffer = inbox.bytes.as_ptr();
        inbox.bytes.extend_from_slice(&[1; 100]);
        drop(inbox.bytes.split_to(60).freeze());
        bytes::Buf::advance(&mut inbox.bytes, 40);
        inbox.release_spare();
        let again = borrow(SMALL);
        assert_eq!((again.as_ptr(), again.capacity()), (buffer, SMALL));
        return_buffer(again);

        // A buffer that was large is not kept, however little of it is left.
        let mut large = BytesMut::zeroed(8 * LARGE);
        bytes::Buf::advance(&mut large, 8 * LARGE - SMALL);
        let buffer = large.as_ptr();
        return_buffer(large);
        assert_ne!(borrow(SMALL).as_ptr(), buffer);
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
        assert!(inbox.bytes.capacity() >= RESERVE_STEP, "{}", inbox.bytes.capacity());
    }

    /// Reads until the inbox holds `wanted` bytes.
    fn read_message(inbox: &mut Inbox, wanted: usize) {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        while inbox.bytes.len() < wanted {
            assert!(inbox.poll_fill(&mut Endless, cx, wanted).is_ready());
        }
    }

    #[test]
    fn buffer_of_a_large_message_holds_nothing_behind_it() {
        let mut inbox = Inbox::default();
        read_message(&mut inbox, 1);
        // Also a second time, when the buffer of the first one is free, and a third time, when that of the second is
        // not.
        let mut second = None;
        for n in 0..3 {
            read_message(&mut inbox, 6 << 20);
            assert_eq!(inbox.bytes.len(), 6 << 20);
            let message = inbox.bytes.split_to(6 << 20).freeze();
            second = (n == 1).then_some(message);
            read_message(&mut inbox, 1);
            assert!(
                inbox.bytes.capacity() <= MAX_KEPT_CAPACITY,
                "{} bytes for small messages",
                inbox.bytes.capacity()
            );
        }
        drop(second);
    }

    #[test]
    fn message_of_a_few_bytes_does_not_pin_the_buffer_of_a_large_one() {
        let mut inbox = Inbox::counting_pinned_buffers();
        let mut small = Vec::new();
        for _ in 0..20 {
            read_message(&mut inbox, 6 << 20);
            drop(inbox.bytes.split_to(6 << 20));
            read_message(&mut inbox, 100);
            small.push(inbox.bytes.split_to(100).freeze());
            inbox.release_spare();
        }
        // 120 MiB before the fix.
        assert!(inbox.pinned_bytes() <= 20 * 2 * LARGE, "{}", inbox.pinned_bytes());
    }

    #[test]
    fn smaller_message_does_not_pin_the_buffer_of_the_message_before() {
        let mut inbox = Inbox::default();
        let mut kept = Vec::new();
        for wanted in
            [6 << 20, 100 << 10, 6 << 20, 4 << 20, 2 << 20, 1 << 20, 512 << 10, 256 << 10, 128 << 10]
        {
            // In the same turn.
            read_message(&mut inbox, wanted);
            let message = inbox.bytes.split_to(wanted).freeze();
            if wanted <= 128 << 10 {
                kept.push(message);
            }
        }
        inbox.bytes.clear();
        inbox.release_spare();
        for message in kept {
            let whole = message.try_into_mut().expect("its only handle").capacity();
            assert!(whole <= 4 * (128 << 10), "{whole} bytes");
        }
    }

    #[test]
    fn rest_behind_a_consumed_message_does_not_keep_its_buffer() {
        // As of a protocol without a length in front: the buffer grows by doubling, and holds the next message's start.
        let mut inbox = Inbox::default();
        inbox.bytes.resize((6 << 20) + 5000, 1);
        inbox.start = inbox.bytes.as_ptr().addr();
        inbox.record_extent();
        drop(inbox.bytes.split_to(6 << 20));
        assert_eq!((inbox.buffered_bytes(), inbox.consumed_bytes()), (5000, 6 << 20));
        inbox.release_spare();
        assert!(inbox.bytes.capacity() <= 2 * 5000, "{}", inbox.bytes.capacity());
        assert_eq!((inbox.buffered_bytes(), inbox.consumed_bytes()), (5000, 0));

        // Nor does one byte at the very end of a lent buffer.
        let mut inbox = Inbox::default();
        read_message(&mut inbox, 1);
        read_message(&mut inbox, SMALL + 1);
        let all = inbox.bytes.len();
        drop(inbox.bytes.split_to(all - 1));
        inbox.release_spare();
        assert!(inbox.bytes.capacity() < SMALL, "{}", inbox.bytes.capacity());
        assert_eq!((inbox.buffered_bytes(), inbox.consumed_bytes()), (1, 0));
    }

    #[test]
    fn message_in_a_spare_buffer_counts_with_all_of_it() {
        let mut inbox = Inbox::default();
        read_message(&mut inbox, 60 << 20);
        drop(inbox.bytes.split_to(60 << 20));
        read_message(&mut inbox, 1);
        inbox.bytes.truncate(5000);
        assert!(inbox.spare_large.is_some());
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let read = inbox.poll_fill(&mut Endless, cx, 33 << 20);
        assert!(read.is_ready() && inbox.spare_large.is_none() && inbox.bytes.len() == 33 << 20);
        // Its sender may also stop here, with a message of which little has arrived.
        inbox.bytes.truncate(5000);
        let counted = inbox.buffered_bytes() + inbox.consumed_bytes();
        assert!(counted >= 60 << 20, "{counted} bytes");
        inbox.release_spare();
        assert_eq!(inbox.buffered_bytes() + inbox.consumed_bytes(), counted);
    }

    #[test]
    fn earlier_bytes_of_a_buffer_count_with_a_message_that_pins_it() {
        let mut inbox = Inbox::counting_pinned_buffers();
        // A full read, and after it others, each in the whole buffer again.
        for _ in 0..4 {
            read_message(&mut inbox, 1);
            drop(inbox.bytes.split());
        }
        read_message(&mut inbox, 1);
        let message = inbox.bytes.split_to(10).freeze();
        inbox.bytes.clear();
        inbox.release_spare();
        let pinned = inbox.pinned_bytes();
        assert!(pinned >= LARGE, "{pinned}");
        drop(message);
        assert_eq!(inbox.pinned_bytes(), 0);
    }

    #[test]
    fn pinned_buffer_is_counted_until_its_last_message_is_dropped() {
        let mut inbox = Inbox::counting_pinned_buffers();
        let mut messages = Vec::new();
        for n in 1..=50 {
            read_message(&mut inbox, 1);
            messages.push([inbox.bytes.split_to(10).freeze(), inbox.bytes.split_to(10).freeze()]);
            inbox.bytes.clear();
            inbox.release_spare();
            // The cleared part may have been used too, but only by the connection itself.
            assert_eq!(inbox.pinned_bytes(), n * PAGE);
        }
        let seconds: Vec<_> = messages.into_iter().map(|[_, second]| second).collect();
        (0..50).for_each(|_| assert_eq!(inbox.pinned_bytes(), 50 * PAGE));
        drop(seconds);
        assert_eq!(inbox.pinned_bytes(), 0);

        read_message(&mut inbox, 1);
        let message = inbox.bytes.split_to(10).freeze();
        inbox.bytes.clear();
        inbox.release_spare();
        assert!(inbox.pinned_bytes() > 0);
        inbox.forget_pinned();
        assert_eq!(inbox.pinned_bytes(), 0);
        drop(message);
    }

    #[test]
    fn filler_behind_a_small_message_counts_as_pinned_with_it() {
        let mut inbox = Inbox::counting_pinned_buffers();
        let small: Vec<_> = (0..100)
            .map(|_| {
                read_message(&mut inbox, 10);
                let small = inbox.bytes.split_to(10).freeze();
                drop(inbox.bytes.split());
                small
            })
            .collect();
        let pinned = inbox.pinned_bytes();
        assert!(pinned >= 98 * SMALL, "{pinned} bytes for {}", small.len());
    }
}
