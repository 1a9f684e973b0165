//! MessagePack decoder of plain types: rmp-serde with a limit of depth that fits the stack of a thread.

use ::serde::Deserialize;
use ::serde::de::Error as _;
use polyrpc_payload::msgpack::{self, Reader, Token};
use rmp_serde::Deserializer;
use rmp_serde::decode::Error;

/// Maximum nesting depth of values. A level takes up to a few kilobytes of stack in an unoptimized build, and a thread
/// of the runtime has 2 MiB: rmp-serde's own limit of 1024 is too high.
pub(super) const MAX_DEPTH: usize = 128;

/// Decodes a value. Bytes after it are ignored.
pub(super) fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    if bytes.len() > MAX_DEPTH && may_be_too_deep(bytes) {
        check_depth(bytes)?;
    }
    let mut deserializer = Deserializer::from_read_ref(bytes);
    // It rejects the level at which its counter reaches zero.
    deserializer.set_max_depth(MAX_DEPTH + 1);
    T::deserialize(&mut deserializer)
}

/// Returns the length of a list; `None` if the bytes are no list.
pub(super) fn list_length(bytes: &[u8]) -> Option<usize> {
    let Ok(Token::Array(length)) = Reader::new(bytes).next() else { return None };
    Reader::new(bytes).skip().ok().map(|()| length as usize)
}

/// Whether enums may be nested too deeply. rmp-serde limits the depth of lists and maps, but not of enums, which are
/// maps of one entry. Most messages contain few bytes that could start one; counting them is much faster than reading
/// the tokens.
fn may_be_too_deep(bytes: &[u8]) -> bool {
    // A text or binary, however long, contains no other value.
    let is_list_or_map = matches!(bytes.first(), Some(0x80..=0x9f | 0xdc..=0xdf));
    is_list_or_map && count_map_starts(bytes) > MAX_DEPTH
}

/// Counts the bytes that could start a map of one entry: 0x81, 0xde and 0xdf.
fn count_map_starts(bytes: &[u8]) -> usize {
    // Counters of one byte, without branches: 16 bytes take as long as one would otherwise.
    let count = |chunk: &[u8]| -> u8 {
        chunk.iter().map(|&byte| u8::from((byte == 0x81) | (byte & 0xfe == 0xde))).sum()
    };
    bytes.chunks(u8::MAX.into()).map(|chunk| usize::from(count(chunk))).sum()
}

/// Checks that no value of a message is nested deeper than [`MAX_DEPTH`].
#[cold]
fn check_depth(bytes: &[u8]) -> Result<(), Error> {
    let mut reader = Reader::new(bytes);
    // Values that are missing in each list and map around the next value, outermost first.
    let (mut missing, mut depth) = ([0_u64; MAX_DEPTH], 0);
    loop {
        let inner = match reader.next().map_err(malformed)? {
            Token::Array(length) => length.into(),
            Token::Map(length) => 2 * u64::from(length),
            _ => 0,
        };
        if inner > 0 {
            *missing.get_mut(depth).ok_or(Error::DepthLimitExceeded)? = inner;
            depth += 1;
            continue;
        }
        while let Some(last) = missing.get_mut(..depth).and_then(<[u64]>::last_mut) {
            *last -= 1;
            if *last > 0 {
                break;
            }
            depth -= 1;
        }
        if depth == 0 {
            return Ok(());
        }
    }
}

#[cold]
fn malformed(error: msgpack::Error) -> Error {
    Error::custom(error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::serde::Deserialize;
    use ::serde::de::IgnoredAny;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only its depth matters")]
    enum Term {
        Zero,
        Next(Box<Self>),
        Sum(Vec<Self>),
    }

    /// A term of this depth whose levels have this encoding.
    fn term(level: &[u8], depth: usize) -> Vec<u8> {
        [level.repeat(depth), b"\xa4Zero".to_vec()].concat()
    }

    #[test]
    fn nested_enums_are_limited_as_lists_and_maps_are() {
        for (level, deepest) in [
            (&b"\x81\xa4Next"[..], MAX_DEPTH),
            (b"\xde\x00\x01\xa4Next", MAX_DEPTH),
            // An enum and a list, which count together if there are many enums.
            (b"\x81\xa3Sum\x91", MAX_DEPTH / 2),
            (b"\x81\xa3Sum\xdd\x00\x00\x00\x01", MAX_DEPTH / 2),
        ] {
            from_slice::<Term>(&term(level, deepest)).expect("the maximum depth");
            for depth in [MAX_DEPTH + 1, 100_000] {
                let error = from_slice::<Term>(&term(level, depth)).expect_err("too deep");
                assert!(matches!(error, Error::DepthLimitExceeded), "{error}");
            }
        }
    }

    #[test]
    fn values_that_only_look_nested_are_decoded() {
        let maps = [b"\xdc\x03\xe8".to_vec(), b"\x81\x01\x90".repeat(1000)].concat();
        let map = BTreeMap::from([(1, Vec::new())]);
        assert_eq!(from_slice::<Vec<BTreeMap<u8, Vec<u8>>>>(&maps).expect("a list"), vec![map; 1000]);
        let text = [b"\xda\x03\xe8".to_vec(), vec![0x81; 1000]].concat();
        from_slice::<IgnoredAny>(&text).expect("a text");
    }

    #[test]
    fn starts_of_maps_are_counted_in_long_messages() {
        assert_eq!(count_map_starts(b""), 0);
        assert_eq!(count_map_starts(&[0x81, 0x80, 0x82, 0xde, 0xdd, 0xdf, 0xdc, 0xe0, 0x5e]), 3);
        assert_eq!(count_map_starts(&[0xdf; 1000]), 1000);
    }

    #[test]
    fn malformed_value_is_not_nested_too_deeply() {
        // Announces more elements than there are bytes.
        let long = [b"\xdd\xff\xff\xff\xff".to_vec(), term(b"\x81\xa4Next", 100_000)].concat();
        let error = from_slice::<Vec<Term>>(&long).expect_err("cut short");
        assert_eq!(error.to_string(), "the MessagePack ends within a value");
    }

    #[test]
    fn length_of_a_list_is_known_at_any_depth() {
        assert_eq!(list_length(b"\x93\x01\x02\x03"), Some(3));
        assert_eq!(list_length(b"\x93\x01\x02"), None, "it is cut short");
        assert_eq!(list_length(b"\x01"), None);
        let deep = [b"\x92".to_vec(), vec![0x91; 100_000], b"\x01\x01".to_vec()].concat();
        assert_eq!(list_length(&deep), Some(2));
    }
}
