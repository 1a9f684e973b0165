//! MessagePack without a schema as JSON: bytes as base64, timestamps as RFC 3339, as in Go's JSON.

use std::borrow::Cow;
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
    to_json_counting(bytes).map(|(json, _)| json)
}

/// Does the same, and counts the values that JSON cannot express: extensions other than timestamps, strings that are
/// not UTF-8, numbers that are not finite.
pub(crate) fn to_json_counting(bytes: &[u8]) -> Result<(String, u64), Error> {
    let mut reader = Reader::new(bytes);
    let mut printer = Printer { out: String::with_capacity(bytes.len() * 2), lost: 0 };
    printer.value(&mut reader, MAX_DEPTH)?;
    match reader.is_empty() {
        true => Ok((printer.out, printer.lost)),
        false => Err(Error::Trailing),
    }
}

struct Printer {
    out: String,
    lost: u64,
}

impl Printer {
    fn value(&mut self, reader: &mut Reader<'_>, depth: usize) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or(Error::TooDeep)?;
        match reader.next()? {
            Token::Array(count) => {
                self.out.push('[');
                for n in 0..count {
                    self.separate(n);
                    self.value(reader, depth)?;
                }
                self.out.push(']');
            }
            Token::Map(count) => {
                self.out.push('{');
                for n in 0..count {
                    self.separate(n);
                    self.key(reader, depth)?;
                    self.out.push(':');
                    self.value(reader, depth)?;
                }
                self.out.push('}');
            }
            Token::Str(text) => {
                let text = String::from_utf8_lossy(text);
                self.lost += u64::from(matches!(text, Cow::Owned(_)));
                self.out.push_str(&quote(&text));
            }
            Token::Bin(bytes) => self.out.push_str(&quote(&STANDARD.encode(bytes))),
            Token::Ext(kind, bytes) => self.extension(kind, bytes),
            Token::Nil => self.out.push_str("null"),
            Token::Bool(truth) => self.out.push_str(if truth { "true" } else { "false" }),
            Token::Unsigned(number) => self.out.push_str(&number.to_string()),
            Token::Negative(number) => self.out.push_str(&number.to_string()),
            Token::F32(number) => self.float(number, f64::from(number)),
            Token::F64(number) => self.float(number, number),
        }
        Ok(())
    }

    /// A member's name must be a string: other values are converted.
    fn key(&mut self, reader: &mut Reader<'_>, depth: usize) -> Result<(), Error> {
        let mut name = Self { out: String::new(), lost: 0 };
        name.value(reader, depth)?;
        self.lost += name.lost;
        match name.out.starts_with('"') {
            true => self.out.push_str(&name.out),
            false => self.out.push_str(&quote(&name.out)),
        }
        Ok(())
    }

    fn separate(&mut self, n: u32) {
        if n > 0 {
            self.out.push(',');
        }
    }

    /// Numbers that JSON cannot represent become strings.
    fn float(&mut self, shortest: impl fmt::Display, number: f64) {
        let text = shortest.to_string();
        self.lost += u64::from(!number.is_finite());
        self.out.push_str(&if number.is_finite() { text } else { quote(&text) });
    }

    fn extension(&mut self, kind: i8, bytes: &[u8]) {
        match (kind, timestamp(bytes)) {
            (-1, Some((seconds, nanos))) => self.out.push_str(&quote(&rfc3339(seconds, nanos))),
            _ => {
                self.lost += 1;
                let data = quote(&STANDARD.encode(bytes));
                self.out.push_str(&format!(r#"{{"extension":{kind},"data":{data}}}"#));
            }
        }
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
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
