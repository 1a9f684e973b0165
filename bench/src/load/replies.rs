//! Counts the replies in a byte stream, and compares them with the verified first one, without keeping them.

use std::io;

use crate::exchange::{Framing, LONGEST_HEADER};

/// State of a connection's reader.
#[derive(Debug)]
pub(super) struct Replies {
    framing: Framing,
    /// Every reply, byte by byte: all requests are equal.
    expected: Vec<u8>,
    /// Whether the current one differs.
    differs: bool,
    awaiting: Awaiting,
}

#[derive(Debug)]
enum Awaiting {
    /// The rest of a header, of which `held` bytes have arrived.
    Header { bytes: [u8; LONGEST_HEADER], held: usize },
    /// This many more bytes of a body.
    Body(usize),
}

/// The replies completed by a piece of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReplyCounts {
    /// Complete replies.
    pub(super) replies: u64,
    /// Replies that differ from the verified first one.
    pub(super) wrong: u64,
}

impl Replies {
    pub(super) fn new(framing: Framing, expected: Vec<u8>) -> Self {
        Self { framing, expected, differs: false, awaiting: Awaiting::START }
    }

    /// Processes the next bytes of the stream.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> io::Result<ReplyCounts> {
        let mut counted = ReplyCounts::default();
        while !bytes.is_empty() {
            match &mut self.awaiting {
                Awaiting::Header { bytes: header, held } => {
                    let wanted = self.framing.header_len() - *held;
                    let (piece, rest) = bytes.split_at(wanted.min(bytes.len()));
                    header[*held..*held + piece.len()].copy_from_slice(piece);
                    *held += piece.len();
                    bytes = rest;
                    if piece.len() == wanted {
                        let length = self.framing.frame_len(header)?;
                        let header = &header[..self.framing.header_len()];
                        self.differs = length != self.expected.len() || !self.expected.starts_with(header);
                        self.awaiting = Awaiting::Body(length - header.len());
                    }
                }
                Awaiting::Body(left) => {
                    let (piece, rest) = bytes.split_at((*left).min(bytes.len()));
                    // A reply of another length cannot be compared.
                    let at = self.expected.len().saturating_sub(*left);
                    self.differs |= !self.expected[at..].starts_with(piece);
                    *left -= piece.len();
                    bytes = rest;
                }
            }
            if let Awaiting::Body(0) = self.awaiting {
                counted.replies += 1;
                counted.wrong += u64::from(std::mem::take(&mut self.differs));
                self.awaiting = Awaiting::START;
            }
        }
        Ok(counted)
    }
}

impl Awaiting {
    const START: Self = Self::Header { bytes: [0; LONGEST_HEADER], held: 0 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Protocol;

    #[test]
    fn any_split_of_the_stream_yields_the_same_reply_count() {
        for exchange in [Protocol::BaiduStd.exchange(32), Protocol::Rpcx.floor_exchange(32)] {
            let stream = exchange.reply.repeat(3);
            for at in 0..=stream.len() {
                let mut replies = Replies::new(exchange.framing, exchange.reply.clone());
                let first = replies.count(&stream[..at]).unwrap();
                let second = replies.count(&stream[at..]).unwrap();
                assert_eq!(first.replies + second.replies, 3);
                assert_eq!(first.wrong + second.wrong, 0);
            }
        }
    }

    #[test]
    fn reply_of_another_length_is_wrong() {
        let expected = Protocol::Rpcx.exchange(32);
        let mut replies = Replies::new(expected.framing, expected.reply.clone());
        for other in [31, 33] {
            let counted = replies.count(&Protocol::Rpcx.exchange(other).reply).unwrap();
            assert_eq!(counted, ReplyCounts { replies: 1, wrong: 1 });
        }
        assert_eq!(replies.count(&expected.reply).unwrap(), ReplyCounts { replies: 1, wrong: 0 });
    }

    #[test]
    fn reply_with_any_other_byte_is_wrong() {
        let expected = Protocol::Rpcx.exchange(32);
        let header = expected.framing.header_len();
        for at in (0..expected.reply.len()).filter(|at| !(header - 4..header).contains(at)) {
            let mut reply = expected.reply.clone();
            reply[at] ^= 1;
            let mut replies = Replies::new(expected.framing, expected.reply.clone());
            // A frame of another protocol is an error already.
            let Ok(counted) = replies.count(&reply) else { continue };
            assert_eq!(counted, ReplyCounts { replies: 1, wrong: 1 }, "byte {at}");
        }
    }

    #[test]
    fn stream_of_another_protocol_is_an_error() {
        let mut replies = Replies::new(Framing::Rpcx, vec![0; 100]);
        replies.count(b"HTTP/1.1 400 Bad Request\r\n").unwrap_err();
    }
}
