//! rest_rpc: the protocol of the C++ framework of the same name in all its versions, both sides.
#![doc = include_str!("README.md")]

mod version;

mod frame;

mod body;
mod functions;
mod status;

mod client;
mod server;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientConfig};
pub use functions::{Functions, function_name, number};
pub use server::{Server, ServerConfig, Ticket};
pub use status::wrong_count;
pub use version::{ByteOrder, UnknownVersion, Version};

use std::time::Duration;

use polyrpc_core::protocol::{Capabilities, Dialect, Parameter, Parameters, Scheme};
use polyrpc_core::{Descriptor, Detection};

/// Descriptor of the protocol.
pub static DESCRIPTOR: Descriptor = Descriptor {
    schemes: &[Scheme::new("rest-rpc")],
    parameters: &[
        Parameter::new(
            "version",
            &VERSIONS,
            "release tag of rest_rpc, or the date of a commit between two tags",
        ),
        Parameter::new("byte_order", &["little", "big"], "byte order of the header; big needs version 0.21"),
    ],
    dialect,
    capabilities: Capabilities { push: true, topics: true, positional_arguments: true, ..Capabilities::NONE },
    keepalive: Some(HEARTBEAT),
    ..Descriptor::new("rest_rpc", recognise)
};

/// The peer's servers close a connection that is silent for 15 s (`rpc_server.h`); its clients send a heartbeat every 5
/// s (`rpc_client.hpp`).
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Tags of rest_rpc, and days between tags, the newest first.
const VERSIONS: [&str; 16] = [
    "0.21",
    "0.20",
    "0.12",
    "2023-02-16",
    "2022-12-23",
    "0.11",
    "0.10",
    "0.09",
    "0.08",
    "0.07",
    "0.06",
    "0.05",
    "0.04",
    "0.03",
    "0.02",
    "0.01",
];

fn dialect(scheme: &'static str, parameters: &Parameters) -> Result<Dialect, String> {
    let version = Version::selected_by(parameters)?;
    Ok(Dialect {
        one_at_a_time: version.is_one_at_a_time(),
        format: Some(version.format()),
        settling: version.settle_time(),
        ..Dialect::new(scheme)
    })
}

/// Whether a connection that starts with `start` uses this protocol, in a version that [`version()`] detects.
pub fn recognise(start: &[u8]) -> Detection {
    detect_header(start).map(|_| ())
}

/// Detects the version of a connection that starts with `start`, if its first bytes are specific: [v0.20] or
/// little-endian [v0.21]. The [README](self) contains the rule.
///
/// [v0.20]: Version::V0_20
/// [v0.21]: Version::V0_21
pub fn version(start: &[u8]) -> Option<Version> {
    match detect_header(start) {
        Detection::Is(version) => Some(version),
        Detection::NeedMore | Detection::Unknown => None,
    }
}

/// The first bytes of both headers decide, together with bytes 8 to 15: up to v0.20 an id, which calls have but
/// heartbeats and subscriptions do not; since then a sequence number, which is always 0.
fn detect_header(start: &[u8]) -> Detection<Version> {
    // Byte 1 is the kind up to v0.20, and a version, 0, since then.
    let begins = [|byte| byte == frame::MAGIC, |byte| byte <= 1];
    if !start.iter().zip(begins).all(|(byte, fits)| fits(*byte)) {
        return Detection::Unknown;
    }
    let Some((&[_, first, second, third, n0, n1, n2, n3], rest)) = start.split_first_chunk() else {
        return Detection::NeedMore;
    };
    // The length of the body up to v0.20, the number of the function since then.
    let number = u32::from_le_bytes([n0, n1, n2, n3]);
    let Some(&id) = rest.first_chunk() else { return Detection::NeedMore };
    match ([first, second, third], u64::from_le_bytes(id)) {
        ([0, 0, 0], 0) if number != 0 => detect_newest(start),
        ([0, 0, 1], 0) => detect_newest(start),
        // The peer's compiler does not initialize the padding: then only the id identifies a call.
        ([_, 0, 0], _) | (_, 1..) => detect_older(start, number as usize),
        _ => Detection::Unknown,
    }
}

/// Detects v0.20 among the versions whose header has the `length` of the body at its fifth byte: its body, a list,
/// starts at byte 20, where December 2022 has a part of the name and February 2023 has padding.
///
/// A heartbeat has no body, so the next message starts there.
fn detect_older(start: &[u8], length: usize) -> Detection<Version> {
    if length >= frame::MAX_BODY {
        return Detection::Unknown;
    }
    let Some(body) = start.get(Version::V0_20.header()..).filter(|body| !body.is_empty()) else {
        return Detection::NeedMore;
    };
    let fits = match length {
        0 => body.first() == Some(&frame::MAGIC),
        _ => matches!(body.first(), Some(0x90..=0x9f | 0xdc | 0xdd)),
    };
    if fits { Detection::Is(Version::V0_20) } else { Detection::Unknown }
}

/// Detects v0.21 by the header fields that are always 0, and by a plausible length.
fn detect_newest(start: &[u8]) -> Detection<Version> {
    let unused =
        |range: std::ops::Range<usize>| start.iter().take(range.end).skip(range.start).all(|byte| *byte == 0);
    // Sequence number, upper half of the length, length of the attachment.
    if !unused(8..16) || !unused(20..32) {
        return Detection::Unknown;
    }
    let newest = Version::default();
    if start.len() < newest.header() { Detection::NeedMore } else { Detection::Is(newest) }
}
