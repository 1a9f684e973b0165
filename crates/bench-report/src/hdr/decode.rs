//! The reader, for files of others: all lengths are checked.

use std::error::Error;
use std::fmt;
use std::io::Read;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;

use super::layout::{HEADER_BYTES, Layout, V2_COMPRESSED_COOKIE, V2_COOKIE};

/// Reads a histogram in the compressed or uncompressed V2 encoding, as base64. At most 3 significant digits are accepted, so that
/// a histogram takes at most 450 kB.
///
/// # Errors
///
/// If the text is no such histogram, or uses a normalizing offset or a conversion ratio.
pub fn decode(text: &str) -> Result<Histogram<u64>, HdrError> {
    let bytes = BASE64_STANDARD.decode(text.trim()).map_err(|_| HdrError("is not valid base64"))?;
    match word(&bytes, 0)? {
        V2_COMPRESSED_COOKIE => decode_v2(&inflate(bytes.get(8..).ok_or(CUT)?)?),
        V2_COOKIE => decode_v2(&bytes),
        _ => Err(HdrError("is not in the V2 encoding")),
    }
}

/// Why text is no histogram: what follows "it".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HdrError(&'static str);

impl fmt::Display for HdrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the HDR histogram {}", self.0)
    }
}

impl Error for HdrError {}

const CUT: HdrError = HdrError("is cut off");

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, HdrError> {
    let mut inflated = Vec::new();
    let read = ZlibDecoder::new(bytes).take(MAX_BYTES + 1).read_to_end(&mut inflated);
    read.map_err(|_| HdrError("is not compressed by zlib"))?;
    if inflated.len() as u64 > MAX_BYTES {
        return Err(HdrError("is longer than any of 3 digits"));
    }
    Ok(inflated)
}

fn decode_v2(bytes: &[u8]) -> Result<Histogram<u64>, HdrError> {
    if word(bytes, 0)? != V2_COOKIE {
        return Err(HdrError("is not in the V2 encoding"));
    }
    if word(bytes, 8)? != 0 || long(bytes, 32)? != 1.0_f64.to_bits() {
        return Err(HdrError("has a normalizing offset or a conversion ratio"));
    }
    let (digits, lowest, highest) = (word(bytes, 12)?, long(bytes, 16)?, long(bytes, 24)?);
    let digits = u8::try_from(digits).ok().filter(|digits| *digits <= MAX_DIGITS);
    let digits = digits.ok_or(HdrError("has more than 3 significant digits"))?;
    let histogram = Histogram::new_with_bounds(lowest, highest, digits);
    let mut histogram = histogram.map_err(|_| HdrError("has invalid bounds"))?;
    let end = HEADER_BYTES.saturating_add(word(bytes, 4)? as usize);
    let mut counts = bytes.get(HEADER_BYTES..end).ok_or(CUT)?;
    let layout = Layout::new(lowest, digits.into());
    let mut index = 0_u64;
    let mut total = 0_u64;
    while !counts.is_empty() {
        let number = take(&mut counts).ok_or(CUT)?;
        if number <= 0 {
            index = index.saturating_add(number.unsigned_abs().max(1));
            continue;
        }
        let beyond = HdrError("has counts beyond its bounds");
        let value = layout.value_at(index).ok_or(beyond)?;
        total = total.checked_add(number.unsigned_abs()).ok_or(HdrError("has more than 2^64 samples"))?;
        histogram.record_n(value, number.unsigned_abs()).map_err(|_| beyond)?;
        index += 1;
    }
    Ok(histogram)
}

/// ZigZag LEB128 of at most nine bytes.
fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for byte_index in 0..9 {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let is_last = byte_index == 8 || first & 0x80 == 0;
        let bits = if byte_index == 8 { *first } else { first & 0x7f };
        value |= u64::from(bits) << (7 * byte_index);
        if is_last {
            break;
        }
    }
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, HdrError> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).ok_or(CUT)?;
    Ok(u32::from_be_bytes(word))
}

fn long(bytes: &[u8], at: usize) -> Result<u64, HdrError> {
    let long = bytes.get(at..at + 8).and_then(|long| long.try_into().ok()).ok_or(CUT)?;
    Ok(u64::from_be_bytes(long))
}

const MAX_DIGITS: u8 = 3;
/// Nine bytes for each of the 56,320 counts of a histogram of 3 digits and 64 bits, and its header.
const MAX_BYTES: u64 = 512 * 1024;

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer, V2Serializer};

    use super::super::encode;
    use super::*;

    fn sample() -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for n in 0..5000_u64 {
            histogram.record(n * n * 37 + 900).unwrap();
        }
        histogram.record_n(4_000_000_000, 1_000_000_000_000).unwrap();
        histogram.record(0).unwrap();
        histogram
    }

    #[test]
    fn reference_implementation_reads_what_is_written() {
        for histogram in [sample(), Histogram::new(3).unwrap(), Histogram::new(1).unwrap()] {
            let bytes = BASE64_STANDARD.decode(encode(&histogram)).unwrap();
            let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            assert_eq!(read, histogram);
        }
    }

    #[test]
    fn files_of_the_reference_implementation_are_read() {
        let histogram = sample();
        let (mut compressed, mut plain) = (Vec::new(), Vec::new());
        V2DeflateSerializer::new().serialize(&histogram, &mut compressed).unwrap();
        V2Serializer::new().serialize(&histogram, &mut plain).unwrap();
        for bytes in [compressed, plain] {
            assert_eq!(decode(&BASE64_STANDARD.encode(bytes)).unwrap(), histogram);
        }
        let read = decode(&encode(&histogram)).unwrap();
        assert_eq!(read, histogram);
        assert_eq!((read.min(), read.max(), read.len()), (histogram.min(), histogram.max(), histogram.len()));
    }

    #[test]
    fn malformed_input_is_an_error_with_a_message() {
        let error = |bytes: &[u8]| decode(&BASE64_STANDARD.encode(bytes)).unwrap_err().to_string();
        assert_eq!(decode("!").unwrap_err().to_string(), "the HDR histogram is not valid base64");
        assert_eq!(error(b""), "the HDR histogram is cut off");
        assert_eq!(error(b"12345678"), "the HDR histogram is not in the V2 encoding");
        let mut plain = Vec::new();
        V2Serializer::new().serialize(&sample(), &mut plain).unwrap();
        let with = |at: usize, byte: u8| {
            let mut bytes = plain.clone();
            bytes[at] = byte;
            error(&bytes)
        };
        assert_eq!(with(15, 5), "the HDR histogram has more than 3 significant digits");
        assert_eq!(with(11, 1), "the HDR histogram has a normalizing offset or a conversion ratio");
        assert_eq!(with(4, 255), "the HDR histogram is cut off");
        assert_eq!(with(23, 0), "the HDR histogram has invalid bounds");
    }

    #[test]
    fn altered_bytes_never_panic() {
        let mut plain = Vec::new();
        V2Serializer::new().serialize(&sample(), &mut plain).unwrap();
        plain.truncate(400);
        plain[4..8].copy_from_slice(&360_u32.to_be_bytes());
        for at in 0..plain.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = plain.clone();
                bytes[at] = byte;
                let _ = decode(&BASE64_STANDARD.encode(&bytes));
                let _ = decode(&BASE64_STANDARD.encode(&bytes[..at]));
            }
        }
        // The most negative number, whose negation overflows.
        let lowest = [&plain[..40], &[0xff; 9]].concat();
        let _ = decode(&BASE64_STANDARD.encode(lowest));
    }

    #[test]
    fn compressed_zeros_do_not_fill_the_memory() {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![0; 100 << 20]).unwrap();
        let bomb = encoder.finish().unwrap();
        let bytes =
            [&V2_COMPRESSED_COOKIE.to_be_bytes()[..], &(bomb.len() as u32).to_be_bytes(), &bomb].concat();
        let error = decode(&BASE64_STANDARD.encode(bytes)).unwrap_err();
        assert_eq!(error.to_string(), "the HDR histogram is longer than any of 3 digits");
    }
}
