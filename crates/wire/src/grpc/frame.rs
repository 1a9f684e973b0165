//! A message on its stream: a flag that says whether it is compressed, its length, its bytes
//! (PROTOCOL-HTTP2.md, "Length-Prefixed-Message").

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};

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
    fn check(&self, limit: usize) -> Result<(), Malformed> {
        match self.flag {
            0 | 1 if self.length <= limit => Ok(()),
            0 | 1 => Err(Malformed::TooLong { length: self.length, limit }),
            flag => Err(Malformed::Flag(flag)),
        }
    }

    fn is_compressed(&self) -> bool {
        self.flag == 1
    }
}

/// One message as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Framed {
    pub(crate) compressed: bool,
    pub(crate) body: Bytes,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The flag is neither 0 nor 1.
    Flag(u8),
    /// The message is longer than the limit.
    TooLong { length: usize, limit: usize },
}

/// The only message of a body that is here whole; `None` if it holds anything else.
pub(crate) fn sole(body: &Bytes, limit: usize) -> Option<Framed> {
    let prefix = Prefix::read(*body.first_chunk()?);
    (prefix.check(limit).is_ok() && body.len() == PREFIX + prefix.length)
        .then(|| Framed { compressed: prefix.is_compressed(), body: body.slice(PREFIX..) })
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
/// What lies whole in one piece is not copied. A longer one is gathered in a buffer that grows with what has
/// come, whatever length was announced.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// Pieces that no message was taken from yet.
    pieces: VecDeque<Bytes>,
    /// Bytes in `pieces`.
    held: usize,
}

impl Assembler {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.held += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Bytes of messages that are not whole yet.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Whether nothing of a message is left over.
    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// The next message, if all of it is here.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<Framed>, Malformed> {
        let Some(prefix) = self.peek_prefix().map(Prefix::read) else { return Ok(None) };
        prefix.check(limit)?;
        if self.held < PREFIX + prefix.length {
            self.join_if_many();
            return Ok(None);
        }
        self.skip(PREFIX);
        Ok(Some(Framed { compressed: prefix.is_compressed(), body: self.take(prefix.length) }))
    }

    fn peek_prefix(&self) -> Option<[u8; PREFIX]> {
        if let Some(prefix) = self.pieces.front().and_then(|piece| piece.first_chunk()) {
            return Some(*prefix);
        }
        let mut prefix = [0; PREFIX];
        let mut bytes = self.pieces.iter().flat_map(|piece| piece.iter());
        for slot in &mut prefix {
            *slot = *bytes.next()?;
        }
        Some(prefix)
    }

    /// Each piece keeps the whole read alive that it came by: many small ones would hold far more memory than
    /// they are long.
    fn join_if_many(&mut self) {
        if self.pieces.len() >= 16 && self.held < self.pieces.len() * 1024 {
            let all = self.take(self.held);
            self.push(all);
        }
    }

    fn skip(&mut self, mut n: usize) {
        self.held -= n;
        while let Some(front) = self.pieces.front_mut() {
            if n < front.len() {
                return front.advance(n);
            }
            n -= front.len();
            self.pieces.pop_front();
        }
    }

    /// The next `n` bytes, of which there must be as many.
    fn take(&mut self, n: usize) -> Bytes {
        if let Some(front) = self.pieces.front_mut().filter(|front| front.len() >= n) {
            let taken = front.split_to(n);
            self.held -= n;
            if front.is_empty() {
                self.pieces.pop_front();
            }
            return taken;
        }
        let mut joined = BytesMut::with_capacity(n);
        while joined.len() < n {
            let Some(mut front) = self.pieces.pop_front() else { break };
            let part = front.split_to(front.len().min(n - joined.len()));
            self.held -= part.len();
            joined.put(part);
            if !front.is_empty() {
                self.pieces.push_front(front);
            }
        }
        joined.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn framed(body: &[u8]) -> Vec<u8> {
        [&prefix(false, body.len())[..], body].concat()
    }

    fn all(pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, Malformed> {
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
    fn a_flag_or_a_length_that_cannot_be_is_told_at_once() {
        assert_eq!(all(&[&[2, 0, 0, 0, 0]]), Err(Malformed::Flag(2)));
        let mut assembler = Assembler::default();
        assembler.push(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]));
        let length = u32::MAX as usize;
        assert_eq!(assembler.next(10), Err(Malformed::TooLong { length, limit: 10 }));
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
