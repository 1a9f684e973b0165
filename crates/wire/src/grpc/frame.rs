//! Message framing: a compression flag, a length, and the bytes of the message (PROTOCOL-HTTP2.md,
//! "Length-Prefixed-Message").

use bytes::{Buf, Bytes};

use polyrpc_core::append::append;

/// Length of the prefix of each message in bytes.
pub(crate) const PREFIX: usize = 5;

/// Returns the prefix of a message of this length.
pub(crate) fn prefix(compressed: bool, length: usize) -> [u8; PREFIX] {
    // A message of 4 GiB is rejected before it gets here.
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [u8::from(compressed), a, b, c, d]
}

/// A received prefix.
struct Prefix {
    flag: u8,
    length: usize,
}

impl Prefix {
    fn read([flag, a, b, c, d]: [u8; PREFIX]) -> Self {
        Self { flag, length: u32::from_be_bytes([a, b, c, d]) as usize }
    }

    /// Checks the flag and the length limit.
    fn check(&self, limit: usize) -> Result<(), MalformedFrame> {
        match self.flag {
            0 | 1 if self.length <= limit => Ok(()),
            0 | 1 => Err(MalformedFrame::TooLong { length: self.length, limit }),
            flag => Err(MalformedFrame::Flag(flag)),
        }
    }

    fn is_compressed(&self) -> bool {
        self.flag == 1
    }
}

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) compressed: bool,
    pub(crate) body: Bytes,
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MalformedFrame {
    /// The compression flag is neither 0 nor 1.
    Flag(u8),
    /// The message is longer than the limit.
    TooLong { length: usize, limit: usize },
}

/// Takes the only message out of a complete body. If the body holds anything else, it stays as it is.
pub(crate) fn single_message(body: &mut Bytes, limit: usize) -> Option<ReceivedMessage> {
    let prefix = Prefix::read(*body.first_chunk()?);
    if prefix.check(limit).is_err() || body.len() != PREFIX + prefix.length {
        return None;
    }
    // Moved rather than sliced, which would count another reference to the read.
    let mut message = std::mem::take(body);
    message.advance(PREFIX);
    Some(ReceivedMessage { compressed: prefix.is_compressed(), body: message })
}

/// Whether a body may be the start of the only message of its request, without further bytes after it.
pub(crate) fn may_be_sole(body: &[u8], limit: usize) -> bool {
    body.first_chunk().is_none_or(|prefix| {
        let prefix = Prefix::read(*prefix);
        prefix.check(limit).is_ok() && body.len() <= PREFIX + prefix.length
    })
}

/// Assembles messages from the pieces in which they arrive.
///
/// A message that lies within one piece is not copied. Any other message is gathered in its own buffer: a piece is a
/// slice of a whole read, which it would keep alive, and small pieces would hold far more memory than their length.
/// Large pieces are reads of their own: they are kept, and copied once, when the message is complete. Small messages in
/// a large piece are copied, for the same reason as small pieces.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// Start of an incomplete message, its prefix included. It grows with the received bytes, whatever length was
    /// announced, to at most twice their size.
    gathered: Vec<u8>,
    /// Large pieces of the message after it.
    large: Vec<Bytes>,
    /// Bytes in `large`.
    kept: usize,
    /// Bytes after it that were not parsed yet.
    piece: Bytes,
    /// Length of the piece when it was pushed.
    pushed: usize,
}

impl Assembler {
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.piece = if self.piece.is_empty() { piece } else { join(&self.piece, &piece) };
        self.pushed = self.piece.len();
    }

    /// Number of bytes that are not part of a returned message yet.
    pub(crate) fn held(&self) -> usize {
        self.gathered.len() + self.kept + self.piece.len()
    }

    /// Whether no bytes are left over.
    pub(crate) fn is_empty(&self) -> bool {
        self.held() == 0
    }

    /// Returns the next message, if it is complete. If it is not, no slice of the received pieces is kept.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<ReceivedMessage>, MalformedFrame> {
        if !self.gathered.is_empty() {
            return self.gather(limit);
        }
        let Some(prefix) = self.piece.first_chunk().map(|prefix| Prefix::read(*prefix)) else {
            return self.gather(limit);
        };
        prefix.check(limit)?;
        let whole = PREFIX + prefix.length;
        if self.piece.len() < whole {
            return self.gather(limit);
        }
        let mut body = match self.pushed > LARGE && whole < self.pushed / 2 {
            true => self.copy_out(whole),
            false => self.piece.split_to(whole),
        };
        body.advance(PREFIX);
        Ok(Some(ReceivedMessage { compressed: prefix.is_compressed(), body }))
    }

    /// Takes a small message out of a large piece, which the message does not keep alive.
    #[cold]
    fn copy_out(&mut self, whole: usize) -> Bytes {
        let message = Bytes::copy_from_slice(&self.piece[..whole]);
        self.skip(whole);
        message
    }

    /// Returns the next frame, whatever its flag, if it is complete; its length is limited to `limit` bytes.
    #[cold]
    pub(crate) fn frame(&mut self, limit: usize) -> Result<Option<Bytes>, MalformedFrame> {
        self.take(PREFIX);
        let Some(Prefix { length, .. }) = self.gathered.first_chunk().map(|prefix| Prefix::read(*prefix))
        else {
            return Ok(None);
        };
        if length > limit {
            return Err(MalformedFrame::TooLong { length, limit });
        }
        let whole = PREFIX + length;
        self.take(whole);
        if self.gathered.len() < whole {
            return Ok(None);
        }
        Ok(Some(Bytes::from(std::mem::take(&mut self.gathered)).slice(PREFIX..)))
    }

    /// Moves bytes from the piece to the message being gathered, or starts gathering one.
    fn gather(&mut self, limit: usize) -> Result<Option<ReceivedMessage>, MalformedFrame> {
        self.take(PREFIX);
        let Some(prefix) = self.gathered.first_chunk().map(|prefix| Prefix::read(*prefix)) else {
            return Ok(None);
        };
        prefix.check(limit)?;
        let whole = PREFIX + prefix.length;
        // The short rest of a piece would keep the memory of the messages before it alive.
        let is_own_read = self.piece.len() > LARGE && self.piece.len() >= self.pushed / 2;
        if is_own_read && self.held() < whole {
            self.kept += self.piece.len();
            self.large.push(std::mem::take(&mut self.piece));
            return Ok(None);
        }
        if !self.large.is_empty() && !self.piece.is_empty() {
            self.join(whole);
        }
        self.take(whole);
        if self.gathered.len() < whole {
            return Ok(None);
        }
        let body = Bytes::from(std::mem::take(&mut self.gathered)).slice(PREFIX..);
        Ok(Some(ReceivedMessage { compressed: prefix.is_compressed(), body }))
    }

    /// Appends the large pieces to the bytes before them, with room for what has arrived of `whole` bytes.
    fn join(&mut self, whole: usize) {
        self.reserve(self.held().min(whole), whole);
        for piece in self.large.drain(..) {
            append(&mut self.gathered, &piece);
        }
        self.kept = 0;
    }

    /// Gathers bytes until there are `whole`, as far as they are available.
    fn take(&mut self, whole: usize) {
        let length = self.gathered.len();
        let more = self.piece.len().min(whole.saturating_sub(length));
        self.reserve(length + more, whole);
        append(&mut self.gathered, &self.piece[..more]);
        self.skip(more);
    }

    /// Removes bytes from the start of the piece.
    fn skip(&mut self, length: usize) {
        self.piece.advance(length);
        if self.piece.is_empty() {
            // An empty slice would keep the read alive as well.
            self.piece = Bytes::new();
        }
    }

    /// Makes room for `needed` bytes, and for as many again, but no more than the whole message, whose end may be near.
    fn reserve(&mut self, needed: usize, whole: usize) {
        if needed > self.gathered.capacity() {
            let room = (2 * needed).min(whole).max(needed);
            self.gathered.reserve_exact(room - self.gathered.len());
        }
    }
}

/// A longer piece fills most of the buffer that it is a slice of: frames of that length are read into buffers of their
/// own.
const LARGE: usize = 64 << 10;

/// Joins two pieces that arrive together, such as those of a held request.
#[cold]
fn join(first: &[u8], second: &[u8]) -> Bytes {
    [first, second].concat().into()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn frame(body: &[u8]) -> Vec<u8> {
        [&prefix(false, body.len())[..], body].concat()
    }

    fn all(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, MalformedFrame> {
        let (mut assembler, mut messages) = (Assembler::default(), Vec::new());
        for piece in pieces {
            assembler.push(Bytes::copy_from_slice(piece));
            while let Some(message) = assembler.next(LIMIT)? {
                messages.push(message.body.to_vec());
            }
        }
        assert!(assembler.is_empty());
        Ok(messages)
    }

    #[test]
    fn any_split_yields_the_same_messages() {
        let stream = [frame(b""), frame(b"one"), frame(&[7; 300]), frame(b"")].concat();
        let want = vec![vec![], b"one".to_vec(), vec![7; 300], vec![]];
        assert_eq!(all(&[&stream]).unwrap(), want);
        assert_eq!(all(&stream.chunks(1).collect::<Vec<_>>()).unwrap(), want);
        for at in 1..stream.len() {
            let (a, b) = stream.split_at(at);
            assert_eq!(all(&[a, b]).unwrap(), want, "cut at {at}");
        }
    }

    #[test]
    fn contiguous_message_is_not_copied() {
        let stream = Bytes::from(frame(b"body"));
        let mut assembler = Assembler::default();
        assembler.push(stream.clone());
        let message = assembler.next(LIMIT).unwrap().unwrap();
        assert_eq!(message.body.as_ptr(), stream[PREFIX..].as_ptr());
        let mut whole = stream;
        assert_eq!(single_message(&mut whole, LIMIT).unwrap(), message);
    }

    #[test]
    fn incomplete_message_holds_at_most_twice_its_bytes() {
        let (whole, mut assembler) = (frame(&[7; 100_000]), Assembler::default());
        for piece in whole.chunks(333) {
            let read = BytesMut::from(&[&[0; 16_384], piece].concat()[..]).freeze();
            assembler.push(read.slice(16_384..));
            drop(read);
            if let Some(message) = assembler.next(LIMIT).unwrap() {
                assert_eq!(message.body, &[7; 100_000][..]);
                break;
            }
            assert!(assembler.piece.is_empty(), "the read may be freed");
            assert!(assembler.gathered.capacity() <= 2 * assembler.held() + 64, "{}", assembler.held());
        }
        assert_eq!((assembler.held(), assembler.gathered.capacity()), (0, 0));
    }

    #[test]
    fn message_of_large_and_small_pieces_in_any_order_is_complete() {
        const LIMIT: usize = 16 << 20;
        let body: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let bytes = [frame(&body), frame(b"next")].concat();
        let (large, small) = (LARGE + 7, 1000);
        for sizes in
            [&[large][..], &[small, large], &[large, small], &[5, large], &[large, large, small], &[3, large]]
        {
            let (mut assembler, mut messages, mut rest) = (Assembler::default(), Vec::new(), &bytes[..]);
            for size in sizes.iter().cycle() {
                let (piece, behind) = rest.split_at(rest.len().min(*size));
                assembler.push(Bytes::copy_from_slice(piece));
                rest = behind;
                while let Some(message) = assembler.next(LIMIT).unwrap() {
                    messages.push(message.body);
                }
                let sent = bytes.len() - rest.len();
                let taken: usize = messages.iter().map(|body| PREFIX + body.len()).sum();
                assert_eq!(assembler.held(), sent - taken);
                assert!(assembler.gathered.capacity() <= 2 * assembler.held() + 64);
                if rest.is_empty() {
                    break;
                }
            }
            assert!(messages == [&body[..], b"next"], "{sizes:?}");
            assert_eq!((assembler.held(), assembler.large.len()), (0, 0));
        }
    }

    #[test]
    fn large_pieces_are_kept_without_a_copy_until_the_message_is_complete() {
        let piece = 2 * LARGE;
        let bytes = Bytes::from(frame(&vec![7; 3 * piece]));
        let mut assembler = Assembler::default();
        for at in 0..2 {
            assembler.push(bytes.slice(at * piece..(at + 1) * piece));
            assert_eq!(assembler.next(16 << 20), Ok(None));
        }
        assert_eq!((assembler.gathered.len(), assembler.held()), (PREFIX, 2 * piece));
        assembler.push(bytes.slice(2 * piece..));
        let message = assembler.next(16 << 20).unwrap().unwrap();
        assert!(message.body == bytes[PREFIX..]);
    }

    #[test]
    fn small_message_does_not_keep_a_large_piece_alive() {
        let stream = Bytes::from([frame(b"one"), frame(&vec![1; 4 * LARGE]), frame(b"two")].concat());
        let mut assembler = Assembler::default();
        assembler.push(stream.clone());
        let messages = [(); 3].map(|()| assembler.next(16 << 20).unwrap().unwrap().body);
        assert_eq!(
            (&messages[0][..], messages[1].len(), &messages[2][..]),
            (&b"one"[..], 4 * LARGE, &b"two"[..])
        );
        let within = messages.each_ref().map(|body| stream.as_ptr_range().contains(&body.as_ptr()));
        assert_eq!(within, [false, true, false], "only the large one is a slice");
        drop(messages);
        assert!(stream.is_unique(), "nothing that is left keeps it alive");
    }

    #[test]
    fn start_of_a_message_does_not_keep_the_large_message_before_it_alive() {
        let next = frame(&vec![2; 8 * LARGE]);
        let stream = Bytes::from([frame(&vec![1; 8 * LARGE]), next[..2 * LARGE].to_vec()].concat());
        let mut assembler = Assembler::default();
        assembler.push(stream.clone());
        assert_eq!(assembler.next(16 << 20).unwrap().map(|message| message.body.len()), Some(8 * LARGE));
        assert_eq!(assembler.next(16 << 20), Ok(None));
        assert_eq!(assembler.held(), 2 * LARGE);
        assert!(stream.is_unique(), "what has arrived of the next one was copied");
        assembler.push(Bytes::from(next[2 * LARGE..].to_vec()));
        assert!(assembler.next(16 << 20).unwrap().unwrap().body == next[PREFIX..]);
    }

    #[test]
    fn announced_length_allocates_no_memory() {
        let mut assembler = Assembler::default();
        assembler.push(Bytes::from_static(&[0, 0, 15, 0, 0, 1, 2, 3]));
        assert_eq!(assembler.next(LIMIT), Ok(None));
        assert!(assembler.gathered.capacity() <= 64);
    }

    #[test]
    fn invalid_flag_or_length_is_rejected_at_once() {
        assert_eq!(all(&[&[2, 0, 0, 0, 0]]), Err(MalformedFrame::Flag(2)));
        let mut assembler = Assembler::default();
        assembler.push(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]));
        let length = u32::MAX as usize;
        assert_eq!(assembler.next(10), Err(MalformedFrame::TooLong { length, limit: 10 }));
    }

    #[test]
    fn single_message_requires_one_complete_message() {
        let one = frame(b"one");
        let message = single_message(&mut Bytes::from(one.clone()), LIMIT).unwrap();
        assert_eq!(message, ReceivedMessage { compressed: false, body: Bytes::from_static(b"one") });
        let others =
            [(&one[..7], LIMIT), (&[&one[..], &one].concat(), LIMIT), (&one, 2), (&[2, 0, 0, 0, 0], LIMIT)];
        for (other, limit) in others.into_iter().chain([(&b""[..], LIMIT)]) {
            let mut body = Bytes::copy_from_slice(other);
            assert_eq!(single_message(&mut body, limit), None);
            assert_eq!(body, other, "it is left");
        }
    }
}
