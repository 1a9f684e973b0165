//! MessagePack reader and writer, one token at a time.
//!
//! No values are built in memory: a [`Reader`] returns one [`Token`] after the other from a slice, and its user knows
//! from a schema what to expect; a [`Writer`] appends one value after the other.
//!
//! ```
//! use polyrpc_payload::msgpack::{Reader, Token, Writer};
//!
//! let mut bytes = Vec::new();
//! let mut writer = Writer::new(&mut bytes);
//! writer.map(1);
//! writer.str("C");
//! writer.unsigned(56);
//!
//! let mut reader = Reader::new(&bytes);
//! assert_eq!(reader.next(), Ok(Token::Map(1)));
//! assert_eq!(reader.next(), Ok(Token::Str(b"C")));
//! assert_eq!(reader.next(), Ok(Token::Unsigned(56)));
//! assert!(reader.is_empty());
//! ```

use std::fmt;

use polyrpc_core::append::append;

/// One MessagePack token. Its content is borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// nil.
    Nil,
    /// A boolean.
    Bool(bool),
    /// A non-negative integer of any width.
    Unsigned(u64),
    /// A negative integer of any width.
    Negative(i64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// A text; not checked to be UTF-8, since peers older than the bin family store binary data here.
    Str(&'a [u8]),
    /// Binary data.
    Bin(&'a [u8]),
    /// An array with this number of values, which follow.
    Array(u32),
    /// A map with this number of key/value pairs, which follow.
    Map(u32),
    /// An extension of this type; type -1 is a timestamp.
    Ext(i8, &'a [u8]),
}

/// Reads tokens from a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next token.
    ///
    /// The count of an array or a map never exceeds what the remaining bytes can hold, so that it may be used to
    /// allocate memory.
    ///
    /// # Errors
    ///
    /// [`Error`] if the bytes are truncated or malformed; the reader must not be used afterwards.
    // Not an `Iterator`: the end of the bytes is an error wherever a value is expected.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Token<'a>, Error> {
        let [marker] = self.take_chunk()?;
        Ok(match marker {
            0x00..=0x7f => Token::Unsigned(marker.into()),
            0x80..=0x8f => self.map((marker & 0x0f).into())?,
            0x90..=0x9f => self.array((marker & 0x0f).into())?,
            0xa0..=0xbf => Token::Str(self.take((marker & 0x1f).into())?),
            0xc0 => Token::Nil,
            0xc1 => return Err(Error::Reserved),
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                Token::Bin(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.ext(length)?
            }
            0xca => Token::F32(f32::from_be_bytes(self.take_chunk()?)),
            0xcb => Token::F64(f64::from_be_bytes(self.take_chunk()?)),
            0xcc => Token::Unsigned(u8::from_be_bytes(self.take_chunk()?).into()),
            0xcd => Token::Unsigned(u16::from_be_bytes(self.take_chunk()?).into()),
            0xce => Token::Unsigned(u32::from_be_bytes(self.take_chunk()?).into()),
            0xcf => Token::Unsigned(u64::from_be_bytes(self.take_chunk()?)),
            0xd0 => signed_token(i8::from_be_bytes(self.take_chunk()?).into()),
            0xd1 => signed_token(i16::from_be_bytes(self.take_chunk()?).into()),
            0xd2 => signed_token(i32::from_be_bytes(self.take_chunk()?).into()),
            0xd3 => signed_token(i64::from_be_bytes(self.take_chunk()?)),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                Token::Str(self.take(length)?)
            }
            0xdc => {
                let count = u16::from_be_bytes(self.take_chunk()?);
                self.array(count.into())?
            }
            0xdd => {
                let count = u32::from_be_bytes(self.take_chunk()?);
                self.array(count)?
            }
            0xde => {
                let count = u16::from_be_bytes(self.take_chunk()?);
                self.map(count.into())?
            }
            0xdf => {
                let count = u32::from_be_bytes(self.take_chunk()?);
                self.map(count)?
            }
            0xe0..=0xff => Token::Negative((marker as i8).into()),
        })
    }

    /// Skips the next value with all its content, at any depth: nesting uses no stack.
    ///
    /// # Errors
    ///
    /// See [`Reader::next`].
    pub fn skip(&mut self) -> Result<(), Error> {
        let mut missing_values: u64 = 1;
        while missing_values > 0 {
            missing_values -= 1;
            missing_values += match self.next()? {
                Token::Array(count) => count.into(),
                Token::Map(count) => 2 * u64::from(count),
                _ => 0,
            };
        }
        Ok(())
    }

    /// Reads a length of 1, 2 or 4 bytes; the last bits of the marker select the width.
    fn length(&mut self, width: u8) -> Result<usize, Error> {
        Ok(match width {
            0 => u8::from_be_bytes(self.take_chunk()?).into(),
            1 => u16::from_be_bytes(self.take_chunk()?).into(),
            _ => u32::from_be_bytes(self.take_chunk()?) as usize,
        })
    }

    /// Every value takes at least one byte, so that a larger count is malformed.
    fn array(&self, count: u32) -> Result<Token<'a>, Error> {
        match count as usize <= self.rest.len() {
            true => Ok(Token::Array(count)),
            false => Err(Error::Truncated),
        }
    }

    fn map(&self, count: u32) -> Result<Token<'a>, Error> {
        match count as usize <= self.rest.len() / 2 {
            true => Ok(Token::Map(count)),
            false => Err(Error::Truncated),
        }
    }

    fn ext(&mut self, length: usize) -> Result<Token<'a>, Error> {
        let kind = i8::from_be_bytes(self.take_chunk()?);
        Ok(Token::Ext(kind, self.take(length)?))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_chunk<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }
}

fn signed_token(value: i64) -> Token<'static> {
    u64::try_from(value).map_or(Token::Negative(value), Token::Unsigned)
}

/// Why bytes are not MessagePack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The bytes end within a value.
    Truncated,
    /// The bytes contain the unused marker 0xc1.
    Reserved,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the MessagePack ends within a value",
            Self::Reserved => "0xc1 is no MessagePack",
        })
    }
}

impl std::error::Error for Error {}

/// Appends values to a buffer, each in its shortest form.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Writes nil.
    pub fn nil(&mut self) {
        self.out.push(0xc0);
    }

    /// Writes a boolean.
    pub fn bool(&mut self, value: bool) {
        self.out.push(0xc2 + u8::from(value));
    }

    /// Writes a non-negative integer.
    pub fn unsigned(&mut self, value: u64) {
        match value {
            0..=0x7f => self.out.push(value as u8),
            0x80..=0xff => self.put(0xcc, [value as u8]),
            0x100..=0xffff => self.put(0xcd, (value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.put(0xce, (value as u32).to_be_bytes()),
            _ => self.put(0xcf, value.to_be_bytes()),
        }
    }

    /// Writes an integer.
    pub fn signed(&mut self, value: i64) {
        const I8: i64 = i8::MIN as i64;
        const I16: i64 = i16::MIN as i64;
        const I32: i64 = i32::MIN as i64;
        match value {
            0.. => self.unsigned(value as u64),
            -32..0 => self.out.push(value as u8),
            I8..-32 => self.put(0xd0, (value as i8).to_be_bytes()),
            I16..I8 => self.put(0xd1, (value as i16).to_be_bytes()),
            I32..I16 => self.put(0xd2, (value as i32).to_be_bytes()),
            _ => self.put(0xd3, value.to_be_bytes()),
        }
    }

    /// Writes a single-precision number.
    pub fn f32(&mut self, value: f32) {
        self.put(0xca, value.to_be_bytes());
    }

    /// Writes a double-precision number.
    pub fn f64(&mut self, value: f64) {
        self.put(0xcb, value.to_be_bytes());
    }

    /// Writes a text.
    ///
    /// # Panics
    ///
    /// If it is longer than 4 GiB.
    pub fn str(&mut self, value: &str) {
        self.raw_str(value.as_bytes());
    }

    /// Writes a text that need not be UTF-8: neither MessagePack nor peers in C++ and Go require it.
    ///
    /// # Panics
    ///
    /// If it is longer than 4 GiB.
    pub fn raw_str(&mut self, value: &[u8]) {
        self.str_head(value.len());
        append(self.out, value);
    }

    /// Writes the header of a text; `length` bytes must follow.
    ///
    /// # Panics
    ///
    /// If it is longer than 4 GiB.
    pub fn str_head(&mut self, length: usize) {
        match length {
            0..=0x1f => self.out.push(0xa0 | length as u8),
            _ => self.length(0xd9, length),
        }
    }

    /// Writes binary data.
    ///
    /// # Panics
    ///
    /// If it is longer than 4 GiB.
    pub fn bin(&mut self, value: &[u8]) {
        self.length(0xc4, value.len());
        append(self.out, value);
    }

    /// Starts an array; `count` values must follow.
    pub fn array(&mut self, count: u32) {
        let mark = self.begin();
        self.end_array(mark, count as usize);
    }

    /// Starts a map; `count` key/value pairs must follow.
    pub fn map(&mut self, count: u32) {
        let mark = self.begin();
        self.end_map(mark, count as usize);
    }

    /// Starts an array or a map whose count is not known yet; the result is passed to the end function.
    pub(crate) fn begin(&mut self) -> usize {
        self.out.push(0);
        self.out.len() - 1
    }

    /// Ends an array with `count` values since `mark`.
    pub(crate) fn end_array(&mut self, mark: usize, count: usize) {
        self.end(mark, 0x90, 0xdc, count);
    }

    /// Ends a map with `count` key/value pairs since `mark`.
    pub(crate) fn end_map(&mut self, mark: usize, count: usize) {
        self.end(mark, 0x80, 0xde, count);
    }

    /// Writes an extension of this type.
    ///
    /// # Panics
    ///
    /// If it is longer than 4 GiB.
    pub fn ext(&mut self, kind: i8, value: &[u8]) {
        match value.len() {
            length @ (1 | 2 | 4 | 8 | 16) => self.out.push(0xd4 + length.ilog2() as u8),
            length => self.length(0xc7, length),
        }
        self.out.extend_from_slice(&kind.to_be_bytes());
        self.out.extend_from_slice(value);
    }

    /// Writes a length of 1, 2 or 4 bytes after the first, second or third marker from `marker` on.
    fn length(&mut self, marker: u8, length: usize) {
        match u32::try_from(length).expect("nothing longer than 4 GiB is written") {
            length @ 0..=0xff => self.put(marker, [length as u8]),
            length @ 0x100..=0xffff => self.put(marker + 1, (length as u16).to_be_bytes()),
            length => self.put(marker + 2, length.to_be_bytes()),
        }
    }

    /// Only a count longer than the reserved byte moves the content.
    fn end(&mut self, mark: usize, fixed: u8, marker: u8, count: usize) {
        let [a, b, c, d] = u32::try_from(count).expect("no more than 2^32 values are written").to_be_bytes();
        match count {
            0..=0x0f => self.out[mark] = fixed | d,
            0x10..=0xffff => drop(self.out.splice(mark..=mark, [marker, c, d])),
            _ => drop(self.out.splice(mark..=mark, [marker + 1, a, b, c, d])),
        }
    }

    fn put<const N: usize>(&mut self, marker: u8, bytes: [u8; N]) {
        self.out.push(marker);
        self.out.extend_from_slice(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_core::testing::{assert_bytes, damage, hex};

    use super::*;

    fn write_to_vec(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes));
        bytes
    }

    #[test]
    fn integers_are_written_in_their_shortest_form() {
        for (value, bytes) in [
            (0, "00"),
            (7, "07"),
            (127, "7f"),
            (128, "cc80"),
            (255, "ccff"),
            (256, "cd0100"),
            (300, "cd012c"),
            (65536, "ce00010000"),
            (1 << 32, "cf0000000100000000"),
            (i64::MAX, "cf7fffffffffffffff"),
            (-1, "ff"),
            (-5, "fb"),
            (-32, "e0"),
            (-33, "d0df"),
            (-128, "d080"),
            (-129, "d1ff7f"),
            (-32768, "d18000"),
            (-32769, "d2ffff7fff"),
            (-(1 << 31), "d280000000"),
            (-(1 << 31) - 1, "d3ffffffff7fffffff"),
            (i64::MIN, "d38000000000000000"),
        ] {
            assert_bytes(write_to_vec(|writer| writer.signed(value)), hex(bytes));
            assert_eq!(Reader::new(&hex(bytes)).next(), Ok(signed_token(value)), "{value}");
        }
        assert_bytes(write_to_vec(|writer| writer.unsigned(u64::MAX)), hex("cf ffffffffffffffff"));
    }

    #[test]
    fn integers_of_every_width_and_sign_are_read() {
        // rpcx writes Go's int8, int16, int32, int64 and uint32 at their full width.
        for (bytes, want) in [
            ("d0fd", Token::Negative(-3)),
            ("d007", Token::Unsigned(7)),
            ("d10007", Token::Unsigned(7)),
            ("d200000007", Token::Unsigned(7)),
            ("d3000000000000000a", Token::Unsigned(10)),
            ("ce00000001", Token::Unsigned(1)),
            ("cf0000000000000001", Token::Unsigned(1)),
        ] {
            assert_eq!(Reader::new(&hex(bytes)).next(), Ok(want), "{bytes}");
        }
    }

    #[test]
    fn every_value_kind_round_trips_at_every_length_width() {
        for length in [0, 1, 2, 4, 5, 8, 15, 16, 17, 31, 32, 255, 256, 65535, 65536] {
            let (bytes, count) = (vec![b'x'; length], length as u32);
            let text = String::from_utf8(bytes.clone()).expect("ASCII");
            let all = write_to_vec(|writer| {
                writer.nil();
                writer.bool(true);
                writer.bool(false);
                writer.f32(1.5);
                writer.f64(2.25);
                writer.str(&text);
                writer.raw_str(&vec![0xff; length]);
                writer.bin(&bytes);
                writer.ext(-1, &bytes);
                writer.map(count);
                (0..2 * length).for_each(|_| writer.array(0));
                writer.array(count);
                (0..length).for_each(|_| writer.nil());
            });
            let mut reader = Reader::new(&all);
            for want in [
                Token::Nil,
                Token::Bool(true),
                Token::Bool(false),
                Token::F32(1.5),
                Token::F64(2.25),
                Token::Str(&bytes),
                Token::Str(&vec![0xff; length]),
                Token::Bin(&bytes),
                Token::Ext(-1, &bytes),
            ] {
                assert_eq!(reader.next(), Ok(want));
            }
            assert_eq!(reader.clone().next(), Ok(Token::Map(count)));
            assert_eq!(reader.skip(), Ok(()));
            assert_eq!(reader.clone().next(), Ok(Token::Array(count)));
            assert_eq!(reader.skip(), Ok(()));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn count_can_be_filled_in_after_its_items() {
        for count in [0, 1, 15, 16, 65535, 65536] {
            let before = write_to_vec(|writer| {
                writer.array(count);
                (0..count).for_each(|_| writer.nil());
                writer.map(count);
                (0..2 * count).for_each(|_| writer.nil());
            });
            let after = write_to_vec(|writer| {
                let mark = writer.begin();
                (0..count).for_each(|_| writer.nil());
                writer.end_array(mark, count as usize);
                let mark = writer.begin();
                (0..2 * count).for_each(|_| writer.nil());
                writer.end_map(mark, count as usize);
            });
            assert_bytes(after, before);
        }
    }

    #[test]
    fn rpcx_struct_is_a_map_keyed_by_field_name() {
        let bytes = hex("82 a141 cd03e8 a142 fb");
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.next(), Ok(Token::Map(2)));
        assert_eq!(reader.next(), Ok(Token::Str(b"A")));
        assert_eq!(reader.next(), Ok(Token::Unsigned(1000)));
        assert_eq!(reader.next(), Ok(Token::Str(b"B")));
        assert_eq!(reader.next(), Ok(Token::Negative(-5)));
        assert_eq!(reader.next(), Err(Error::Truncated));
    }

    #[test]
    fn count_or_length_beyond_the_input_is_truncated() {
        for bytes in ["91", "dc0001", "dd7fffffff00", "81c0", "de0002c0c0c0", "dfffffffffc0", "a2c0", "d901"]
        {
            assert_eq!(Reader::new(&hex(bytes)).next(), Err(Error::Truncated), "{bytes}");
        }
        for bytes in ["c4ff00", "c6ffffffff00", "dbffffffff", "c9ffffffff01", "d8010000", "cb00", "c7"] {
            assert_eq!(Reader::new(&hex(bytes)).next(), Err(Error::Truncated), "{bytes}");
        }
        assert_eq!(Reader::new(&[0xc1]).next(), Err(Error::Reserved));
    }

    #[test]
    fn nesting_of_any_depth_is_skipped() {
        let mut deep = vec![0x91; 1_000_000];
        assert_eq!(Reader::new(&deep).skip(), Err(Error::Truncated));
        deep.push(0xc0);
        assert_eq!(Reader::new(&deep).skip(), Ok(()));
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let bytes = hex("84 a141 cd03e8 a142 93c40101ca3fc00000d7ff0000001465536f00 a143 c0 a144 dc0001c3");
        damage(&bytes, |damaged| {
            let mut reader = Reader::new(damaged);
            while !reader.is_empty() && reader.next().is_ok() {}
            let _ = Reader::new(damaged).skip();
        });
    }
}
