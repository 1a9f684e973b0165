//! Test helpers shared by all protocols: vectors captured from real peers, every split of the bytes, damaged bytes, a
//! client and a server connected without sockets. Not part of the public API.

use std::fmt::Debug;

use bytes::Bytes;

mod damage;
mod pair;
mod split;

pub use damage::{assert_client_survives_damage, assert_survives_damage, damage};
pub use pair::{Pair, sole_reply};
pub use split::{RecordedEvents, assert_any_split, describe_call, describe_event, record_events};

/// Parses hexadecimal digits; blanks are skipped.
///
/// # Panics
///
/// If `text` is not hexadecimal.
pub fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks_exact(2);
    assert!(pairs.remainder().is_empty(), "an odd number of digits");
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hexadecimal digits")
        })
        .collect()
}

/// Asserts that two byte strings are equal, and shows differing ones as text.
#[track_caller]
pub fn assert_bytes(got: impl AsRef<[u8]>, want: impl AsRef<[u8]>) {
    let (got, want) = (got.as_ref(), want.as_ref());
    assert_eq!(got, want, "\n got {}\nwant {}", got.escape_ascii(), want.escape_ascii());
}

/// Asserts that two values are equal, and names the case on failure.
#[track_caller]
pub fn assert_case<T: PartialEq + Debug>(case: &str, got: T, want: T) {
    assert_eq!(got, want, "{case}");
}
