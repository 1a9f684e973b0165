//! The writer.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use hdrhistogram::Histogram;

use super::layout::{HEADER_BYTES, V2_COMPRESSED_COOKIE, V2_COOKIE};

/// The histogram in the compressed V2 encoding, as base64. This is what HDR logs hold.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let compressed = compress(&encode_v2(histogram));
    let mut bytes = Vec::with_capacity(8 + compressed.len());
    bytes.extend(V2_COMPRESSED_COOKIE.to_be_bytes());
    bytes.extend((compressed.len() as u32).to_be_bytes());
    bytes.extend(compressed);
    BASE64_STANDARD.encode(bytes)
}

fn encode_v2(histogram: &Histogram<u64>) -> Vec<u8> {
    let counts = counts(histogram);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + counts.len());
    bytes.extend(V2_COOKIE.to_be_bytes());
    bytes.extend((counts.len() as u32).to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend(u32::from(histogram.sigfig()).to_be_bytes());
    bytes.extend(histogram.low().to_be_bytes());
    bytes.extend(histogram.high().to_be_bytes());
    bytes.extend(1.0_f64.to_be_bytes());
    bytes.extend(counts);
    bytes
}

/// Counts up to the last that is not zero. A run of zeros is its negated length.
fn counts(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut zeros = 0_i64;
    for step in histogram.iter_all() {
        match i64::try_from(step.count_at_value()).unwrap_or(i64::MAX) {
            0 => zeros += 1,
            count => {
                match zeros {
                    0 => {}
                    // As the reference implementations write it.
                    1 => put(&mut bytes, 0),
                    _ => put(&mut bytes, -zeros),
                }
                zeros = 0;
                put(&mut bytes, count);
            }
        }
    }
    bytes
}

/// ZigZag LEB128 of at most nine bytes: the ninth holds eight bits.
fn put(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    for _ in 0..8 {
        if rest < 0x80 {
            break;
        }
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
}
