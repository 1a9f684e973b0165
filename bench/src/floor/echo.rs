//! Byte handling of both floor servers: complete requests become replies in place.
//!
//! A reply is the start of its request, as long as the reply of the compared protocol
//! (baidu_std's is shorter than its request), so nothing is copied while one call is in flight.

use std::io;

use crate::exchange::{Framing, floor};

/// The bytes of one connection: first the replies to write, then the start of a request.
///
/// `replied <= taken <= filled <= buffer.len()`: `..replied` are replies, `taken..filled` is an
/// incomplete request.
#[derive(Debug)]
pub(super) struct Echo {
    buffer: Vec<u8>,
    sent: usize,
    replied: usize,
    taken: usize,
    filled: usize,
    reply_len: usize,
}

/// Room for 1000 small requests or a few of 64 KiB by one read.
const BUFFER: usize = 256 * 1024;

impl Echo {
    pub(super) fn new(reply_len: usize) -> Self {
        Self { buffer: Vec::new(), sent: 0, replied: 0, taken: 0, filled: 0, reply_len }
    }

    /// Buffer space of the next read; a connection that never sent a byte has no buffer yet.
    pub(super) fn free_space(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            // Zeroed lazily by the kernel, page by page: unused space costs nothing.
            self.buffer = vec![0; BUFFER];
        }
        &mut self.buffer[self.filled..]
    }

    /// Accepts the `read` bytes and turns complete requests into replies.
    pub(super) fn answer(&mut self, read: usize) -> io::Result<()> {
        self.filled += read;
        while let Some(len) = self.whole_request()? {
            let reply_len = len.min(self.reply_len);
            if self.replied != self.taken {
                self.buffer.copy_within(self.taken..self.taken + reply_len, self.replied);
            }
            floor::set_len(&mut self.buffer[self.replied..self.replied + reply_len]);
            self.replied += reply_len;
            self.taken += len;
        }
        Ok(())
    }

    /// Replies still to write.
    pub(super) fn replies(&self) -> &[u8] {
        &self.buffer[self.sent..self.replied]
    }

    /// Records that this many bytes of [`replies`](Self::replies) were written; after the last, moves the
    /// rest of the stream to the front.
    pub(super) fn consume(&mut self, written: usize) {
        self.sent += written;
        if self.sent == self.replied {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            (self.sent, self.replied, self.taken) = (0, 0, 0);
        }
    }

    fn whole_request(&self) -> io::Result<Option<usize>> {
        let rest = &self.buffer[self.taken..self.filled];
        if rest.len() < Framing::Floor.header_len() {
            return Ok(None);
        }
        let len = Framing::Floor.frame_len(rest)?;
        if len > BUFFER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a request longer than the buffer"));
        }
        Ok((len <= rest.len()).then_some(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Protocol;

    #[test]
    fn any_split_of_the_requests_yields_the_same_replies() {
        let exchange = Protocol::BaiduStd.floor_exchange(32);
        let (requests, replies) = (exchange.request.repeat(3), exchange.reply.repeat(3));
        for at in 0..=requests.len() {
            let mut echo = Echo::new(exchange.reply.len());
            let mut got = Vec::new();
            for piece in [&requests[..at], &requests[at..]] {
                echo.free_space()[..piece.len()].copy_from_slice(piece);
                echo.answer(piece.len()).unwrap();
                got.extend_from_slice(echo.replies());
                echo.consume(echo.replies().len());
            }
            assert_eq!(got, replies);
        }
    }

    #[test]
    fn request_longer_than_the_buffer_is_rejected() {
        let mut echo = Echo::new(64);
        let header = b"fl\xff\xff\xff\xff\0\0\0\0\0\0";
        echo.free_space()[..header.len()].copy_from_slice(header);
        echo.answer(header.len()).unwrap_err();
    }
}
