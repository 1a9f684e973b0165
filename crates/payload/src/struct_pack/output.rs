use std::fmt;

use polyrpc_core::append::append;
use polyrpc_core::protobuf::put_varint;
use serde_core::ser;

use super::Error;
use super::head::{self, Width};
use super::types::Scalar;

/// Parts of a value's header besides the code of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Nothing, like peers built for release.
    #[default]
    Bare,
    /// The type's literal, like peers built without `NDEBUG`.
    Literal,
}

/// Encodes a value of the type with this code and literal, with its header.
///
/// The largest length determines the width of all lengths, and may occur late: encoding restarts if a length does not
/// fit. A length that needs more is usually the first one, before anything was copied.
pub(super) fn write(
    code: u32,
    literal: &[u8],
    form: Form,
    value: impl Fn(&mut Output) -> Result<(), Stop>,
) -> Result<Vec<u8>, Error> {
    let literal = (form == Form::Literal).then_some(literal);
    let mut width = Width::One;
    loop {
        let mut out = Output { bytes: Vec::with_capacity(64), width, fast: Vec::new() };
        head::write(code, literal, width, &mut out.bytes);
        match value(&mut out) {
            Ok(()) => return Ok(out.bytes),
            Err(Stop::Wider(wider)) if wider > width => width = wider,
            Err(Stop::Wider(_)) => return Err(Error::value("a length is too large")),
            Err(Stop::Error(error)) => return Err(error),
        }
    }
}

/// Bytes of a value, appended in the order of serialization.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    width: Width,
    /// Members that precede the others of their struct; those of the innermost struct are last.
    pub(super) fast: Vec<i128>,
}

impl Output {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        append(&mut self.bytes, bytes);
    }

    /// Writes an integer or a character; `None` if it does not fit.
    pub(super) fn integer(&mut self, scalar: Scalar, value: i128) -> Option<()> {
        match scalar {
            Scalar::I8 => self.put(&i8::try_from(value).ok()?.to_le_bytes()),
            Scalar::I16 => self.put(&i16::try_from(value).ok()?.to_le_bytes()),
            Scalar::I32 => self.put(&i32::try_from(value).ok()?.to_le_bytes()),
            Scalar::I64 => self.put(&i64::try_from(value).ok()?.to_le_bytes()),
            Scalar::I128 => self.put(&value.to_le_bytes()),
            Scalar::U8 | Scalar::Char => self.put(&u8::try_from(value).ok()?.to_le_bytes()),
            Scalar::U16 | Scalar::Char16 => self.put(&u16::try_from(value).ok()?.to_le_bytes()),
            Scalar::U32 | Scalar::Char32 => self.put(&u32::try_from(value).ok()?.to_le_bytes()),
            Scalar::U64 => self.put(&u64::try_from(value).ok()?.to_le_bytes()),
            Scalar::U128 => self.put(&u128::try_from(value).ok()?.to_le_bytes()),
            Scalar::VarI32 => self.zigzag(i32::try_from(value).ok()?.into()),
            Scalar::VarI64 => self.zigzag(i64::try_from(value).ok()?),
            Scalar::VarU32 => put_varint(&mut self.bytes, u32::try_from(value).ok()?.into()),
            Scalar::VarU64 => put_varint(&mut self.bytes, u64::try_from(value).ok()?),
            Scalar::FastI32 => self.fast.push(i32::try_from(value).ok()?.into()),
            Scalar::FastI64 => self.fast.push(i64::try_from(value).ok()?.into()),
            Scalar::FastU32 => self.fast.push(u32::try_from(value).ok()?.into()),
            Scalar::FastU64 => self.fast.push(u64::try_from(value).ok()?.into()),
            Scalar::Bool | Scalar::F32 | Scalar::F64 => return None,
        }
        Some(())
    }

    fn zigzag(&mut self, value: i64) {
        put_varint(&mut self.bytes, (value << 1 ^ value >> 63) as u64);
    }

    pub(super) fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Writes the length of the following content.
    pub(super) fn length(&mut self, length: usize) -> Result<(), Stop> {
        let at = self.begin(Some(length))?;
        self.end(at, length)
    }

    /// Reserves a length that is known only at the end.
    pub(super) fn begin(&mut self, likely: Option<usize>) -> Result<usize, Stop> {
        self.check(likely.unwrap_or(0))?;
        let at = self.bytes.len();
        self.zeros(self.width.bytes());
        Ok(at)
    }

    /// Writes a reserved length.
    pub(super) fn end(&mut self, at: usize, length: usize) -> Result<(), Stop> {
        self.check(length)?;
        let digits = (length as u64).to_le_bytes();
        self.bytes[at..]
            .iter_mut()
            .zip(digits)
            .take(self.width.bytes())
            .for_each(|(byte, digit)| *byte = digit);
        Ok(())
    }

    fn check(&self, length: usize) -> Result<(), Stop> {
        match Width::for_length(length) {
            wider if wider > self.width => Err(Stop::Wider(wider)),
            _ => Ok(()),
        }
    }
}

/// Why encoding stops before the end.
#[derive(Debug)]
pub(super) enum Stop {
    /// A length does not fit: restart with this width.
    Wider(Width),
    Error(Error),
}

impl Stop {
    pub(super) fn value(text: impl Into<Box<str>>) -> Self {
        Self::Error(Error::value(text))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wider(_) => f.write_str("a length is too large"),
            Self::Error(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Stop {}

impl ser::Error for Stop {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::value(text.to_string())
    }
}
