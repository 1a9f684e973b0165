use super::error::Mismatch;
use super::head::{self, Width};
use super::types::Scalar;
use super::{Error, MAX_DEPTH};

/// Bytes of a value, read from the front within limits.
#[derive(Debug)]
pub(super) struct Input<'de> {
    rest: &'de [u8],
    width: Width,
    /// Current nesting depth.
    depth: usize,
    /// How many more zero-size items are allowed.
    empty_items_left: usize,
}

impl<'de> Input<'de> {
    /// Opens a value of the type with this code and literal, after its header.
    pub(super) fn open(code: u32, literal: &[u8], bytes: &'de [u8]) -> Result<Self, Error> {
        let head = head::read(bytes)?;
        if head.code != code || head.literal.is_some_and(|received| received != literal) {
            return Err(mismatch(literal, head.code, head.literal));
        }
        Ok(Self { rest: head.rest, width: head.width, depth: 0, empty_items_left: MAX_EMPTY_ITEMS })
    }

    /// Enters a composite value. Every `enter` is matched by a leave, except after an error.
    pub(super) fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(Error::TooDeep) } else { Ok(()) }
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Reads the number of items of a string or container, each of at least `min_size` bytes: never more than the
    /// remaining bytes can hold.
    pub(super) fn count(&mut self, min_size: usize) -> Result<usize, Error> {
        let (count, rest) = self.width.read(self.rest)?;
        self.rest = rest;
        let count = usize::try_from(count).map_err(|_| Error::Truncated)?;
        self.admit(count, min_size)?;
        Ok(count)
    }

    /// Rejects a count that exceeds what the remaining bytes can hold.
    pub(super) fn admit(&mut self, count: usize, min_size: usize) -> Result<(), Error> {
        match self.rest.len().checked_div(min_size) {
            Some(max_count) if count <= max_count => Ok(()),
            Some(_) => Err(Error::Truncated),
            None => {
                let left = self.empty_items_left.checked_sub(count);
                self.empty_items_left = left.ok_or(Error::Invalid("too many items that hold nothing"))?;
                Ok(())
            }
        }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'de [u8], Error> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn take_chunk<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        self.take_chunk().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Error> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Invalid("a bool is neither 0 nor 1")),
        }
    }

    /// Reads an integer or a character of any width; `None` if the scalar is neither, or too large.
    pub(super) fn integer(&mut self, scalar: Scalar) -> Result<Option<i128>, Error> {
        Ok(Some(match scalar {
            Scalar::I8 => i8::from_le_bytes(self.take_chunk()?).into(),
            Scalar::I16 => i16::from_le_bytes(self.take_chunk()?).into(),
            Scalar::I32 => i32::from_le_bytes(self.take_chunk()?).into(),
            Scalar::I64 => i64::from_le_bytes(self.take_chunk()?).into(),
            Scalar::I128 => i128::from_le_bytes(self.take_chunk()?),
            Scalar::U8 | Scalar::Char => self.byte()?.into(),
            Scalar::U16 | Scalar::Char16 => u16::from_le_bytes(self.take_chunk()?).into(),
            Scalar::U32 | Scalar::Char32 => u32::from_le_bytes(self.take_chunk()?).into(),
            Scalar::U64 => u64::from_le_bytes(self.take_chunk()?).into(),
            Scalar::U128 => return Ok(u128::from_le_bytes(self.take_chunk()?).try_into().ok()),
            Scalar::VarI32 | Scalar::VarI64 => self.zigzag()?.into(),
            Scalar::VarU32 | Scalar::VarU64 => self.varint()?.into(),
            Scalar::Bool | Scalar::F32 | Scalar::F64 => return Ok(None),
            Scalar::FastI32 | Scalar::FastI64 | Scalar::FastU32 | Scalar::FastU64 => return Ok(None),
        }))
    }

    pub(super) fn zigzag(&mut self) -> Result<i64, Error> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads seven bits per byte, lowest first; bits beyond the 64th are dropped, as by peers (struct_pack/varint.hpp).
    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Invalid("a number of variable width has no end"))
    }
}

/// Maximum number of zero-size items in a message, such as those of a `std::list` of `std::monostate`.
const MAX_EMPTY_ITEMS: usize = 1 << 16;

#[cold]
fn mismatch(wanted: &[u8], code: u32, literal: Option<&[u8]>) -> Error {
    let literal = literal.map(Box::from);
    Error::Mismatch(Box::new(Mismatch { wanted: wanted.into(), code, literal }))
}
