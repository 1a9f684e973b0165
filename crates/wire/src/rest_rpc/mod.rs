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

use crate::sniff::{Guess, Protocol};

/// Whether a connection that begins with `start` speaks this protocol, in a generation that
/// [`generation`] tells.
pub fn recognise(start: &[u8]) -> Guess {
    match told(start) {
        Told::Is(_) => Guess::Is(Protocol::RestRpc),
        Told::NeedMore => Guess::NeedMore,
        Told::Unknown => Guess::Unknown,
    }
}

/// The generation of a connection that begins with `start`, where the first bytes tell it: [v0.20] or
/// little-endian [v0.21]. The [README](self) has the rule.
///
/// [v0.20]: Generation::V0_20
/// [v0.21]: Generation::V0_21
pub fn generation(start: &[u8]) -> Option<Generation> {
    match told(start) {
        Told::Is(generation) => Some(generation),
        Told::NeedMore | Told::Unknown => None,
    }
}

/// What the first bytes say.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Is(Generation),
    NeedMore,
    Unknown,
}

/// The magic byte, the kind of message and what lies around it are looked at as they come, so that other
/// protocols need not wait.
fn told(start: &[u8]) -> Told {
    // Byte 1 is the kind up to v0.20 and a version, 0, since; byte 3 padding up to v0.20 and the kind since.
    let fits = [|b| b == frame::MAGIC, |b| b <= 1, |b| b == 0, |b| b <= 1];
    if !start.iter().zip(fits).all(|(byte, fits)| fits(*byte)) {
        return Told::Unknown;
    }
    let Some(&[_, old_kind, _, new_kind, n0, n1, n2, n3]) = start.first_chunk() else {
        return Told::NeedMore;
    };
    match (old_kind, new_kind) {
        (0, 0) => {}
        (1, 0) => return older(start, u32::from_le_bytes([n0, n1, n2, n3]) as usize),
        (0, 1) => return newest(start),
        _ => return Told::Unknown,
    }
    // A call has an id other than 0 up to v0.20 and none since; a heartbeat has nothing but the magic byte.
    let Some(rest) = start.get(4..16) else { return Told::NeedMore };
    let (number, id) = rest.split_at(4);
    match (id.iter().all(|byte| *byte == 0), number.iter().all(|byte| *byte == 0)) {
        (true, false) => newest(start),
        _ => older(start, u32::from_le_bytes([n0, n1, n2, n3]) as usize),
    }
}

/// Whether it is v0.20 among those whose header has `length`, the body's, at its fifth byte: its body, a list,
/// begins at byte 20. There, in December 2022 is a part of the name and in February 2023 padding.
///
/// A heartbeat has no body: what follows it begins there.
fn older(start: &[u8], length: usize) -> Told {
    if length >= frame::MAX_BODY {
        return Told::Unknown;
    }
    let Some(body) = start.get(Generation::V0_20.header()..).filter(|body| !body.is_empty()) else {
        return Told::NeedMore;
    };
    let fits = match length {
        0 => body.first() == Some(&frame::MAGIC),
        _ => matches!(body.first(), Some(0x90..=0x9f | 0xdc | 0xdd)),
    };
    if fits { Told::Is(Generation::V0_20) } else { Told::Unknown }
}

/// Whether it is v0.21, by the parts of its header that are always 0 and a length that is no larger than memory.
fn newest(start: &[u8]) -> Told {
    let unused =
        |range: std::ops::Range<usize>| start.iter().take(range.end).skip(range.start).all(|byte| *byte == 0);
    // The sequence number, the length's upper half, the attachment's length.
    if !unused(8..16) || !unused(20..32) {
        return Told::Unknown;
    }
    let newest = Generation::default();
    if start.len() < newest.header() { Told::NeedMore } else { Told::Is(newest) }
}
