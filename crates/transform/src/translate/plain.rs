//! JSON without a schema as MessagePack, number for number.

use polyrpc::payload::msgpack::Writer;

use crate::Error;
use crate::json;

/// Converts one JSON value. Also returns the number of integers that MessagePack cannot hold, which become floats.
///
/// # Errors
///
/// If it is not JSON, or nested too deeply.
pub(super) fn to_msgpack(bytes: &[u8]) -> Result<(Vec<u8>, u64), Error> {
    let text = json::check(bytes).map_err(json::no_json)?;
    let mut converter = Converter { rest: text, out: Vec::with_capacity(text.len()), lost: 0 };
    converter.value(DEPTH)?;
    Ok((converter.out, converter.lost))
}

/// Reads text that has been checked to be JSON.
struct Converter<'a> {
    rest: &'a str,
    out: Vec<u8>,
    lost: u64,
}

impl Converter<'_> {
    fn value(&mut self, depth: usize) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
        self.skip_space();
        match self.rest.as_bytes().first() {
            Some(b'{') => self.members(depth),
            Some(b'[') => self.items(depth),
            Some(b'"') => self.string(),
            Some(b't') => self.word("true", |out| out.bool(true)),
            Some(b'f') => self.word("false", |out| out.bool(false)),
            Some(b'n') => self.word("null", |out| out.nil()),
            Some(_) => self.number(),
            None => Err(malformed()),
        }
    }

    fn members(&mut self, depth: usize) -> Result<(), Error> {
        let (start, mut count) = (self.start(), 0);
        while !self.take_close(b'}') {
            self.string()?;
            self.skip_space();
            self.advance(1);
            self.value(depth)?;
            count += 1;
        }
        self.close(start, 0x80, 0xde, count);
        Ok(())
    }

    fn items(&mut self, depth: usize) -> Result<(), Error> {
        let (start, mut count) = (self.start(), 0);
        while !self.take_close(b']') {
            self.value(depth)?;
            count += 1;
        }
        self.close(start, 0x90, 0xdc, count);
        Ok(())
    }

    /// Skips the opening bracket, and reserves a byte for the count.
    fn start(&mut self) -> usize {
        self.advance(1);
        self.out.push(0);
        self.out.len() - 1
    }

    /// Skips a comma; returns whether the list or object ends here, and skips its bracket.
    fn take_close(&mut self, bracket: u8) -> bool {
        self.skip_space();
        if self.rest.starts_with(',') {
            self.advance(1);
            self.skip_space();
        }
        let end = self.rest.as_bytes().first().is_none_or(|next| *next == bracket);
        if end {
            self.advance(1);
        }
        end
    }

    /// Writes the count at its position: within one byte, or in two or four bytes after a marker.
    fn close(&mut self, start: usize, short: u8, marker: u8, count: usize) {
        match (u8::try_from(count), u16::try_from(count)) {
            (Ok(count @ 0..=15), _) => self.out[start] = short | count,
            (_, Ok(count)) => {
                self.out.splice(start..=start, [marker].into_iter().chain(count.to_be_bytes()));
            }
            _ => {
                let count = u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
                self.out.splice(start..=start, [marker + 1].into_iter().chain(count));
            }
        }
    }

    fn string(&mut self) -> Result<(), Error> {
        self.skip_space();
        let end = json::string_end(self.rest, 0);
        let (quoted, rest) = self.rest.split_at(end);
        let plain = quoted.get(1..end.saturating_sub(1)).unwrap_or_default();
        match plain.contains('\\') {
            false => Writer::new(&mut self.out).str(plain),
            true => {
                let text: String = serde_json::from_str(quoted).map_err(json::no_json)?;
                Writer::new(&mut self.out).str(&text);
            }
        }
        self.rest = rest;
        Ok(())
    }

    fn word(&mut self, word: &str, write: impl FnOnce(&mut Writer<'_>)) -> Result<(), Error> {
        write(&mut Writer::new(&mut self.out));
        self.advance(word.len());
        Ok(())
    }

    fn number(&mut self) -> Result<(), Error> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        let mut writer = Writer::new(&mut self.out);
        let integer = !text.contains(['.', 'e', 'E']);
        match (text.parse::<i64>(), text.parse::<u64>(), text.parse::<f64>()) {
            // JSON's -0 is a float.
            (Ok(0), ..) if text.starts_with('-') => writer.f64(-0.0),
            (Ok(number), ..) if integer => writer.signed(number),
            (_, Ok(number), _) if integer => writer.unsigned(number),
            (_, _, Ok(number)) => {
                self.lost += u64::from(integer || number.is_infinite());
                writer.f64(number);
            }
            _ => return Err(malformed()),
        }
        self.rest = rest;
        Ok(())
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

#[cold]
fn too_deep() -> Error {
    Error::new(format!("nested deeper than {DEPTH} levels"))
}

#[cold]
fn malformed() -> Error {
    Error::new("the message is not JSON")
}

/// Maximum depth of lists and objects.
const DEPTH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(json: &str) -> (Vec<u8>, u64) {
        to_msgpack(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn values_are_converted_exactly() {
        for (json, bytes) in [
            (r#" {"a": [1, -1, true], "b" : null} "#, &b"\x82\xa1a\x93\x01\xff\xc3\xa1b\xc0"[..]),
            (r#""a\"\u00e9""#, b"\xa4a\"\xc3\xa9"),
            ("18446744073709551615", b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
            ("0.1", b"\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"),
            ("-0", b"\xcb\x80\0\0\0\0\0\0\0"),
            ("[]", b"\x90"),
            ("{}", b"\x80"),
        ] {
            assert_eq!(convert(json), (bytes.to_vec(), 0), "{json}");
        }
    }

    #[test]
    fn long_lists_have_their_count() {
        for count in [15, 16, 65_535, 65_536] {
            let json = format!("[{}]", vec!["0"; count].join(","));
            let (bytes, _) = convert(&json);
            assert_eq!(crate::msgpack::to_json(&bytes).unwrap(), json);
        }
    }

    #[test]
    fn integers_beyond_64_bits_are_counted() {
        assert_eq!(convert("[18446744073709551616, 1e20]").1, 1);
        assert_eq!(convert("[-9223372036854775809]").1, 1);
        assert_eq!(convert("[1e400]").1, 1);
    }

    #[test]
    fn deep_or_malformed_text_is_an_error() {
        assert!(to_msgpack(format!("{}{}", "[".repeat(99), "]".repeat(99)).as_bytes()).is_ok());
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for wrong in [deep.as_bytes(), b"", b"{", b"[1,]", b"nul", b"\"\xff\"", b"1 2"] {
            assert!(to_msgpack(wrong).is_err());
        }
    }
}
