//! Variable-length numbers, of which all of gob consists.
//!
//! A number below 128 is one byte. Otherwise the first byte is the negated count of the following bytes, most
//! significant first. A signed number has its sign in the lowest bit; a float is its byte-reversed bits, since the low
//! ones are often zero (Go's `encoding/gob/doc.go`, "Encoding Details").

use polyrpc_core::append::append;

use super::Error;

/// Unread remainder of some bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns a copy for looking ahead.
    pub(super) fn ahead(self) -> Self {
        self
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn uint(&mut self) -> Result<u64, Error> {
        match self.rest {
            &[small @ ..=0x7f, ref rest @ ..] => {
                self.rest = rest;
                Ok(small.into())
            }
            _ => self.long_uint(),
        }
    }

    fn long_uint(&mut self) -> Result<u64, Error> {
        let (value, width) = uint(self.rest)?.ok_or_else(Error::truncated)?;
        self.take(width)?;
        Ok(value)
    }

    #[inline]
    pub(crate) fn int(&mut self) -> Result<i64, Error> {
        let bits = self.uint()?;
        let magnitude = (bits >> 1) as i64;
        Ok(if bits & 1 == 0 { magnitude } else { !magnitude })
    }

    pub(crate) fn float(&mut self) -> Result<f64, Error> {
        Ok(f64::from_bits(self.uint()?.swap_bytes()))
    }

    /// Reads the number of a type in the stream.
    pub(super) fn id(&mut self) -> Result<i32, Error> {
        i32::try_from(self.int()?).map_err(|_| Error::unknown_type())
    }

    /// Reads a count of elements of at least `min_size` bytes each: no more than the remaining bytes can hold.
    pub(crate) fn count(&mut self, min_size: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.uint()?).unwrap_or(usize::MAX);
        if count > self.rest.len() / min_size {
            return Err(Error::new("length exceeds input size"));
        }
        Ok(count)
    }

    /// Reads length-prefixed bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let count = self.count(1)?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        simdutf8::basic::from_utf8(self.bytes()?).map_err(|_| Error::new("a text is not UTF-8"))
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(Error::truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Returns the number at the start of `bytes` and its encoded length, or `None` if it is incomplete.
pub(super) fn uint(bytes: &[u8]) -> Result<Option<(u64, usize)>, Error> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    if first < 0x80 {
        return Ok(Some((first.into(), 1)));
    }
    let width = usize::from(first.wrapping_neg());
    if width > 8 {
        return Err(Error::new("encoded unsigned integer out of range"));
    }
    // Leading zeros are accepted, like in Go.
    let value = |digits: &[u8]| digits.iter().fold(0, |value, &digit| value << 8 | u64::from(digit));
    Ok(rest.get(..width).map(|digits| (value(digits), 1 + width)))
}

#[inline]
pub(crate) fn put_uint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else {
        let zeros = value.leading_zeros() as usize / 8;
        out.push((8 - zeros as u8).wrapping_neg());
        out.extend_from_slice(&value.to_be_bytes()[zeros..]);
    }
}

#[inline]
pub(crate) fn put_int(out: &mut Vec<u8>, value: i64) {
    put_uint(out, if value < 0 { !(value << 1) as u64 } else { (value as u64) << 1 });
}

pub(crate) fn put_float(out: &mut Vec<u8>, value: f64) {
    put_uint(out, value.to_bits().swap_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    append(out, bytes);
}

/// Reserves the length of the following content; [`end`] fills it in.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len() - 1
}

/// Only a length longer than the reserved byte moves the content.
pub(crate) fn end(out: &mut Vec<u8>, mark: usize) {
    let length = out.len() - mark - 1;
    recount(out, mark, 1, length as u64);
}

/// Overwrites the number at `mark`, which takes `width` bytes.
pub(crate) fn recount(out: &mut Vec<u8>, mark: usize, width: usize, count: u64) {
    if width == 1 && count < 0x80 {
        out[mark] = count as u8;
        return;
    }
    let mut digits = Vec::with_capacity(9);
    put_uint(&mut digits, count);
    out.splice(mark..mark + width, digits);
}
