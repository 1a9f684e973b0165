//! rest_rpc: the protocol of the C++ framework of the same name in all its generations, both sides.
#![doc = include_str!("README.md")]

mod generation;

mod frame;

mod body;
mod functions;
mod status;

mod client;
mod server;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientConfig};
pub use functions::{Functions, number, qualified};
pub use generation::{ByteOrder, Generation, UnknownGeneration};
pub use server::{Server, ServerConfig, Ticket};
pub use status::wrong_count;

use std::time::Duration;

use polyrpc_core::protocol::{Capabilities, Dialect, Scheme};
use polyrpc_core::{Descriptor, Detected};

/// What is known of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme::new("rest-rpc")],
    dialect,
    capabilities: Capabilities { push: true, topics: true, positional_arguments: true, ..Capabilities::NONE },
    keepalive: Some(HEARTBEAT),
    ..Descriptor::new("rest_rpc", recognise)
};

/// The peer's servers close a connection that says nothing for 15 s (`rpc_server.h`), and its clients tell them every 5 s
/// (`rpc_client.hpp`).
const HEARTBEAT: Duration = Duration::from_secs(5);

fn dialect(scheme: &'static str, words: &[&str]) -> Result<Dialect, String> {
    let generation = Generation::named(words)?;
    Ok(Dialect {
        one_at_a_time: generation.is_one_at_a_time(),
        format: Some(generation.format()),
        settling: generation.settle_time(),
        ..Dialect::new(scheme).with_words(words)
    })
}

/// Whether a connection that begins with `start` speaks this protocol, in a generation that
/// [`generation`] tells.
pub fn recognise(start: &[u8]) -> Detected {
    detect_header(start).map(|_| ())
}

/// The generation of a connection that begins with `start`, where the first bytes tell it: [v0.20] or
/// little-endian [v0.21]. The [README](self) has the rule.
///
/// [v0.20]: Generation::V0_20
/// [v0.21]: Generation::V0_21
pub fn generation(start: &[u8]) -> Option<Generation> {
    match detect_header(start) {
        Detected::Is(generation) => Some(generation),
        Detected::NeedMore | Detected::Unknown => None,
    }
}

/// What both headers begin with decides, together with what stands at bytes 8 to 15: an id up to v0.20, which calls have
/// and heartbeats and subscriptions do not, and a sequence number since, which is always 0.
fn detect_header(start: &[u8]) -> Detected<Generation> {
    // Byte 1 is the kind up to v0.20 and a version, 0, since.
    let begins = [|byte| byte == frame::MAGIC, |byte| byte <= 1];
    if !start.iter().zip(begins).all(|(byte, fits)| fits(*byte)) {
        return Detected::Unknown;
    }
    let Some((&[_, first, second, third, n0, n1, n2, n3], rest)) = start.split_first_chunk() else {
        return Detected::NeedMore;
    };
    // The length of the body up to v0.20, the number of the function since.
    let number = u32::from_le_bytes([n0, n1, n2, n3]);
    let Some(&id) = rest.first_chunk() else { return Detected::NeedMore };
    match ([first, second, third], u64::from_le_bytes(id)) {
        ([0, 0, 0], 0) if number != 0 => newest(start),
        ([0, 0, 1], 0) => newest(start),
        // The peer's compiler leaves in the padding whatever was there: then a call is told by its id alone.
        ([_, 0, 0], _) | (_, 1..) => older(start, number as usize),
        _ => Detected::Unknown,
    }
}

/// Whether it is v0.20 among those whose header has `length`, the body's, at its fifth byte: its body, a list,
/// begins at byte 20. There, in December 2022 is a part of the name and in February 2023 padding.
///
/// A heartbeat has no body: what follows it begins there.
fn older(start: &[u8], length: usize) -> Detected<Generation> {
    if length >= frame::MAX_BODY {
        return Detected::Unknown;
    }
    let Some(body) = start.get(Generation::V0_20.header()..).filter(|body| !body.is_empty()) else {
        return Detected::NeedMore;
    };
    let fits = match length {
        0 => body.first() == Some(&frame::MAGIC),
        _ => matches!(body.first(), Some(0x90..=0x9f | 0xdc | 0xdd)),
    };
    if fits { Detected::Is(Generation::V0_20) } else { Detected::Unknown }
}

/// Whether it is v0.21, by the parts of its header that are always 0 and a length that is no larger than memory.
fn newest(start: &[u8]) -> Detected<Generation> {
    let unused =
        |range: std::ops::Range<usize>| start.iter().take(range.end).skip(range.start).all(|byte| *byte == 0);
    // The sequence number, the length's upper half, the attachment's length.
    if !unused(8..16) || !unused(20..32) {
        return Detected::Unknown;
    }
    let newest = Generation::default();
    if start.len() < newest.header() { Detected::NeedMore } else { Detected::Is(newest) }
}
