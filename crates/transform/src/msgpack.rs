//! MessagePack without a schema as JSON: bytes as base64, timestamps as RFC 3339, as in Go's JSON.

use std::fmt::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc::payload::calendar::{DAY, date};
use polyrpc::payload::msgpack::{self, Reader, Token};

/// Writes one value as JSON.
///
/// # Errors
///
/// If the bytes are not one value, or nested too deeply.
pub fn to_json(bytes: &[u8]) -> Result<String, Error> {
    let mut reader = Reader::new(bytes);
    let mut out = String::with_capacity(bytes.len() * 2);
    value(&mut reader, &mut out, MAX_DEPTH)?;
    match reader.is_empty() {
        true => Ok(out),
        false => Err(Error::Trailing),
    }
}

fn value(reader: &mut Reader<'_>, out: &mut String, depth: usize) -> Result<(), Error> {
    let depth = depth.checked_sub(1).ok_or(Error::TooDeep)?;
    match reader.next()? {
        Token::Array(count) => {
            out.push('[');
            for n in 0..count {
                separate(out, n);
                value(reader, out, depth)?;
            }
            out.push(']');
        }
        Token::Map(count) => {
            out.push('{');
            for n in 0..count {
                separate(out, n);
                key(reader, out, depth)?;
                out.push(':');
                value(reader, out, depth)?;
            }
            out.push('}');
        }
        Token::Str(text) => out.push_str(&quoted(&String::from_utf8_lossy(text))),
        Token::Bin(bytes) => out.push_str(&quoted(&STANDARD.encode(bytes))),
        Token::Ext(kind, bytes) => extension(kind, bytes, out),
        Token::Nil => out.push_str("null"),
        Token::Bool(truth) => out.push_str(if truth { "true" } else { "false" }),
        Token::Unsigned(number) => out.push_str(&number.to_string()),
        Token::Negative(number) => out.push_str(&number.to_string()),
        Token::F32(number) => float(number, f64::from(number), out),
        Token::F64(number) => float(number, number, out),
    }
    Ok(())
}

/// A member's name must be a string: other values are converted.
fn key(reader: &mut Reader<'_>, out: &mut String, depth: usize) -> Result<(), Error> {
    let mut name = String::new();
    value(reader, &mut name, depth)?;
    match name.starts_with('"') {
        true => out.push_str(&name),
        false => out.push_str(&quoted(&name)),
    }
    Ok(())
}

fn separate(out: &mut String, n: u32) {
    if n > 0 {
        out.push(',');
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Numbers that JSON does not have become strings.
fn float(shortest: impl fmt::Display, number: f64, out: &mut String) {
    let text = shortest.to_string();
    out.push_str(&if number.is_finite() { text } else { quoted(&text) });
}

fn extension(kind: i8, bytes: &[u8], out: &mut String) {
    match (kind, timestamp(bytes)) {
        (-1, Some((seconds, nanos))) => out.push_str(&quoted(&rfc3339(seconds, nanos))),
        _ => {
            let data = quoted(&STANDARD.encode(bytes));
            out.push_str(&format!(r#"{{"extension":{kind},"data":{data}}}"#));
        }
    }
}

/// Seconds and nanoseconds of a timestamp in one of its three sizes (MessagePack spec, "Timestamp extension
/// type").
fn timestamp(bytes: &[u8]) -> Option<(i64, u32)> {
    if let Ok(seconds) = bytes.try_into().map(u32::from_be_bytes) {
        return Some((seconds.into(), 0));
    }
    if let Ok(both) = bytes.try_into().map(u64::from_be_bytes) {
        return Some(((both & 0x3_ffff_ffff) as i64, (both >> 34) as u32));
    }
    let (nanos, seconds) = bytes.split_first_chunk::<4>()?;
    let seconds = i64::from_be_bytes(seconds.try_into().ok()?);
    Some((seconds, u32::from_be_bytes(*nanos)))
}

fn rfc3339(seconds: i64, nanos: u32) -> String {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if nanos > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, ".{}", format!("{nanos:09}").trim_end_matches('0'));
    }
    text.push('Z');
    text
}

const MAX_DEPTH: usize = 100;

/// Why a value cannot be converted.
#[derive(Debug)]
pub enum Error {
    /// The bytes are not MessagePack.
    Broken(msgpack::Error),
    /// There are bytes after the value.
    Trailing,
    /// Lists and maps are nested too deeply.
    TooDeep,
}

impl From<msgpack::Error> for Error {
    fn from(error: msgpack::Error) -> Self {
        Self::Broken(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => error.fmt(f),
            Self::Trailing => f.write_str("more than one value"),
            Self::TooDeep => write!(f, "nested deeper than {MAX_DEPTH} levels"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_kind_is_printed_as_json() {
        for (bytes, json) in [
            (&b"\x82\xa1A\x07\xa1B\xd0\xfd"[..], r#"{"A":7,"B":-3}"#),
            (b"\x93\xc0\xc3\xca\x3f\xc0\x00\x00", "[null,true,1.5]"),
            (b"\x81\x01\xa1x", r#"{"1":"x"}"#),
            (b"\xc4\x03\x01\x02\x03", r#""AQID""#),
            (b"\xa3a\"b", r#""a\"b""#),
            (b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", r#""NaN""#),
            (b"\xd7\xff\x00\x00\x00\x14\x65\x53\xf1\x00", r#""2023-11-14T22:13:20.000000005Z""#),
            (b"\xd6\xff\x00\x00\x00\x00", r#""1970-01-01T00:00:00Z""#),
            (b"\xc7\x0c\xff\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", r#""1969-12-31T23:59:59Z""#),
            (b"\xd6\x05\x01\x02\x03\x04", r#"{"extension":5,"data":"AQIDBA=="}"#),
        ] {
            assert_eq!(to_json(bytes).unwrap(), json);
        }
        assert_eq!(rfc3339(951_782_400, 0), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(i64::MAX, 0), "292277026596-12-04T15:30:07Z");
        assert_eq!(rfc3339(i64::MIN, 0), "-292277022657-01-27T08:29:52Z");
    }

    #[test]
    fn malformed_and_deeply_nested_values_are_rejected() {
        assert!(matches!(to_json(b"\x82\xa1A"), Err(Error::Broken(_))));
        assert!(matches!(to_json(b"\x01\x01"), Err(Error::Trailing)));
        assert!(matches!(to_json(&[0x91; 1000]), Err(Error::TooDeep | Error::Broken(_))));
    }
}
