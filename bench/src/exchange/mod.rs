//! The bytes of one echo call, built in advance: the request and the expected reply.
//!
//! The raw load client sends the same request repeatedly, so that it costs as little as possible
//! and is the same client for the floor and for PolyRPC. The floor's frames have the same length as the
//! frames of the compared protocol, in both directions.

mod baidu_std;
pub(crate) mod floor;
mod rpcx;

use std::io;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The measured core protocols, each with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    /// `example.EchoService/Echo`, a protobuf message with one string.
    BaiduStd,
    /// `Echo.Raw`, raw bytes.
    Rpcx,
}

impl Protocol {
    /// An echo of `message_len` bytes in the frames of this protocol.
    pub(crate) fn exchange(self, message_len: usize) -> Exchange {
        let message = letters(message_len);
        match self {
            Self::BaiduStd => Exchange {
                request: baidu_std::request(&message),
                reply: baidu_std::reply(&message),
                framing: Framing::BaiduStd,
                message,
            },
            Self::Rpcx => Exchange {
                request: rpcx::request(&message),
                reply: rpcx::reply(&message),
                framing: Framing::Rpcx,
                message,
            },
        }
    }

    /// An echo in the floor's frames, each as long as the frame of this protocol.
    pub(crate) fn floor_exchange(self, message_len: usize) -> Exchange {
        let like = self.exchange(message_len);
        let request = floor::frame(&letters(like.request.len() - floor::HEADER));
        let reply = floor::frame(&letters(like.reply.len() - floor::HEADER));
        let message = reply[floor::HEADER..].to_vec();
        Exchange { request, reply, framing: Framing::Floor, message }
    }
}

/// One call on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// The complete request.
    pub(crate) request: Vec<u8>,
    /// The complete reply as written by peers of this protocol; a measured server may differ by a few
    /// bytes of optional fields.
    pub(crate) reply: Vec<u8>,
    /// Where a frame ends.
    pub(crate) framing: Framing,
    /// The echoed message; every reply ends with it.
    message: Vec<u8>,
}

impl Exchange {
    /// Checks that a reply contains the message.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the reply ends with anything else.
    pub(crate) fn verify(&self, reply: &[u8]) -> io::Result<()> {
        if reply.ends_with(&self.message) {
            Ok(())
        } else {
            Err(invalid("the reply is not the message sent"))
        }
    }
}

/// How a reader finds the end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The floor's 12-byte header.
    Floor,
    /// `PRPC`, body size, meta size.
    BaiduStd,
    /// rpcx's 12-byte header and the total that follows it.
    Rpcx,
}

impl Framing {
    /// Number of bytes that determine the length of a frame.
    pub(crate) fn header_len(self) -> usize {
        match self {
            Self::Floor => floor::HEADER,
            Self::BaiduStd => baidu_std::HEADER,
            Self::Rpcx => rpcx::HEADER,
        }
    }

    /// The length of the complete frame whose first bytes are `header`, which holds at least
    /// [`header_len`](Self::header_len) bytes.
    ///
    /// # Errors
    ///
    /// `InvalidData` if no frame of this protocol starts like this.
    pub(crate) fn frame_len(self, header: &[u8]) -> io::Result<usize> {
        let body = match self {
            Self::Floor => floor::body_len(header),
            Self::BaiduStd => baidu_std::body_len(header),
            Self::Rpcx => rpcx::body_len(header),
        };
        let body = body.ok_or_else(|| invalid("not a frame of the protocol measured"))?;
        Ok(self.header_len() + body)
    }
}

/// The longest header of any framing.
pub(crate) const LONGEST_HEADER: usize = 16;

/// Text, so that it can be a protobuf string; not one repeated letter, so that a shifted reply is detected.
fn letters(len: usize) -> Vec<u8> {
    (b'a'..=b'z').cycle().take(len).collect()
}

/// The big-endian u32 at `at`, if there are enough bytes.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_length_is_read_from_its_header() {
        for exchange in all_exchanges() {
            for frame in [&exchange.request, &exchange.reply] {
                assert_eq!(exchange.framing.frame_len(frame).unwrap(), frame.len());
            }
        }
    }

    #[test]
    fn reply_is_verified_by_its_trailing_message() {
        for exchange in all_exchanges() {
            exchange.verify(&exchange.reply).unwrap();
            exchange.verify(&exchange.reply[..exchange.reply.len() - 1]).unwrap_err();
        }
    }

    #[test]
    fn floor_frames_are_as_long_as_protocol_frames() {
        for protocol in Protocol::value_variants() {
            for len in [32, 1024, 65536] {
                let (real, floor) = (protocol.exchange(len), protocol.floor_exchange(len));
                assert_eq!(real.request.len(), floor.request.len());
                assert_eq!(real.reply.len(), floor.reply.len());
            }
        }
    }

    #[test]
    fn header_of_another_protocol_is_rejected() {
        for framing in [Framing::Floor, Framing::BaiduStd, Framing::Rpcx] {
            framing.frame_len(b"GET / HTTP/1.1\r\n").unwrap_err();
        }
    }

    fn all_exchanges() -> impl Iterator<Item = Exchange> {
        Protocol::value_variants()
            .iter()
            .flat_map(|protocol| [protocol.exchange(32), protocol.floor_exchange(32)])
    }
}
