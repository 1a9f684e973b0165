//! A message on its stream: a flag that says whether it is compressed, its length, its bytes
//! (PROTOCOL-HTTP2.md, "Length-Prefixed-Message").

use bytes::{Buf, Bytes};

use polyrpc_core::append::append;

/// Bytes before each message.
pub(crate) const PREFIX: usize = 5;

/// The prefix of a message of this length.
pub(crate) fn prefix(compressed: bool, length: usize) -> [u8; PREFIX] {
    // A message of 4 GiB is refused before it comes here.
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [u8::from(compressed), a, b, c, d]
}

/// A prefix as it came.
struct Prefix {
    flag: u8,
    length: usize,
}

impl Prefix {
    fn read([flag, a, b, c, d]: [u8; PREFIX]) -> Self {
        Self { flag, length: u32::from_be_bytes([a, b, c, d]) as usize }
    }

    /// Whether it is one of a message that is taken.
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

/// One message as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) compressed: bool,
    pub(crate) body: Bytes,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MalformedFrame {
    /// The flag is neither 0 nor 1.
    Flag(u8),
    /// The message is longer than the limit.
    TooLong { length: usize, limit: usize },
}

/// The only message of a body that is here whole; `None` if it holds anything else.
pub(crate) fn sole(body: &Bytes, limit: usize) -> Option<ReceivedMessage> {
    let prefix = Prefix::read(*body.first_chunk()?);
    (prefix.check(limit).is_ok() && body.len() == PREFIX + prefix.length)
        .then(|| ReceivedMessage { compressed: prefix.is_compressed(), body: body.slice(PREFIX..) })
}

/// Whether a body may become the only message of its request: it is no more than the beginning of one.
pub(crate) fn may_be_sole(body: &[u8], limit: usize) -> bool {
    body.first_chunk().is_none_or(|prefix| {
        let prefix = Prefix::read(*prefix);
        prefix.check(limit).is_ok() && body.len() <= PREFIX + prefix.length
    })
}

/// Puts messages together from the pieces in which they come.
///
/// What lies whole in one piece is not copied. A message that does not is gathered in memory of its own: a piece is a slice
/// of a whole read, which it would keep alive, and small pieces would hold far more memory than they are long.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// The beginning of a message that is not whole, its prefix included. It grows with what has come, whatever length
    /// was announced, to no more than twice of it.
    gathered: Vec<u8>,
    /// What came behind it, and was not looked at yet.
    piece: Bytes,
}

impl Assembler {
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.piece = if self.piece.is_empty() { piece } else { joined(&self.piece, &piece) };
    }

    /// Bytes that no message was made of yet.
    pub(crate) fn held(&self) -> usize {
        self.gathered.len() + self.piece.len()
    }

    /// Whether nothing of a message is left over.
    pub(crate) fn is_empty(&self) -> bool {
        self.held() == 0
    }

    /// The next message, if all of it is here. If none is, nothing is left of the pieces in which they came.
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
        let mut body = self.piece.split_to(whole);
        body.advance(PREFIX);
        Ok(Some(ReceivedMessage { compressed: prefix.is_compressed(), body }))
    }

    /// The frame that comes next, whatever its flag, if all of it is here; it may have `limit` bytes.
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

    /// Takes what belongs to the message that is being gathered, or begins to be, out of the piece.
    fn gather(&mut self, limit: usize) -> Result<Option<ReceivedMessage>, MalformedFrame> {
        self.take(PREFIX);
        let Some(prefix) = self.gathered.first_chunk().map(|prefix| Prefix::read(*prefix)) else {
            return Ok(None);
        };
        prefix.check(limit)?;
        let whole = PREFIX + prefix.length;
        self.take(whole);
        if self.gathered.len() < whole {
            return Ok(None);
        }
        let body = Bytes::from(std::mem::take(&mut self.gathered)).slice(PREFIX..);
        Ok(Some(ReceivedMessage { compressed: prefix.is_compressed(), body }))
    }

    /// Gathers bytes until there are `whole`, as far as they are here.
    fn take(&mut self, whole: usize) {
        let length = self.gathered.len();
        let more = self.piece.len().min(whole.saturating_sub(length));
        let needed = length + more;
        if needed > self.gathered.capacity() {
            // No more than the whole message, whose end may be near.
            let room = (2 * needed).min(whole).max(needed);
            self.gathered.reserve_exact(room - length);
        }
        append(&mut self.gathered, &self.piece.split_to(more));
        if self.piece.is_empty() {
            // An empty slice would keep the read alive as well.
            self.piece = Bytes::new();
        }
    }
}

/// Two pieces that come at once, as those of a request that was kept back.
#[cold]
fn joined(first: &[u8], second: &[u8]) -> Bytes {
    [first, second].concat().into()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn framed(body: &[u8]) -> Vec<u8> {
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
    fn however_they_are_cut_the_messages_are_the_same() {
        let stream = [framed(b""), framed(b"one"), framed(&[7; 300]), framed(b"")].concat();
        let want = vec![vec![], b"one".to_vec(), vec![7; 300], vec![]];
        assert_eq!(all(&[&stream]).unwrap(), want);
        assert_eq!(all(&stream.chunks(1).collect::<Vec<_>>()).unwrap(), want);
        for at in 1..stream.len() {
            let (a, b) = stream.split_at(at);
            assert_eq!(all(&[a, b]).unwrap(), want, "cut at {at}");
        }
    }

    #[test]
    fn a_message_in_one_piece_is_not_copied() {
        let stream = Bytes::from(framed(b"body"));
        let mut assembler = Assembler::default();
        assembler.push(stream.clone());
        let message = assembler.next(LIMIT).unwrap().unwrap();
        assert_eq!(message.body.as_ptr(), stream[PREFIX..].as_ptr());
        assert_eq!(sole(&stream, LIMIT).unwrap(), message);
    }

    #[test]
    fn incomplete_message_holds_at_most_twice_its_bytes() {
        let (whole, mut assembler) = (framed(&[7; 100_000]), Assembler::default());
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
    fn announced_length_sets_no_memory_aside() {
        let mut assembler = Assembler::default();
        assembler.push(Bytes::from_static(&[0, 0, 15, 0, 0, 1, 2, 3]));
        assert_eq!(assembler.next(LIMIT), Ok(None));
        assert!(assembler.gathered.capacity() <= 64);
    }

    #[test]
    fn a_flag_or_a_length_that_cannot_be_is_told_at_once() {
        assert_eq!(all(&[&[2, 0, 0, 0, 0]]), Err(MalformedFrame::Flag(2)));
        let mut assembler = Assembler::default();
        assembler.push(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]));
        let length = u32::MAX as usize;
        assert_eq!(assembler.next(10), Err(MalformedFrame::TooLong { length, limit: 10 }));
    }

    #[test]
    fn only_a_single_whole_message_is_sole() {
        let one = framed(b"one");
        assert!(sole(&Bytes::from(one.clone()), LIMIT).is_some());
        assert!(sole(&Bytes::from(one[..7].to_vec()), LIMIT).is_none());
        assert!(sole(&Bytes::from([one.clone(), one.clone()].concat()), LIMIT).is_none());
        assert!(sole(&Bytes::from(one), 2).is_none());
        assert!(sole(&Bytes::from_static(&[2, 0, 0, 0, 0]), LIMIT).is_none());
        assert!(sole(&Bytes::new(), LIMIT).is_none());
    }
}
