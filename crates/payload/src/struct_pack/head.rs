//! Header of a value: the code of its type, and optional parts (struct_pack/packer.hpp, `serialize_metainfo`).

use super::Error;

/// A parsed header.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) code: u32,
    pub(super) literal: Option<&'a [u8]>,
    pub(super) width: Width,
    /// The value, up to the end of the bytes, or to the total length in the header.
    pub(super) rest: &'a [u8],
}

/// Parses the header.
pub(super) fn read(bytes: &[u8]) -> Result<Head<'_>, Error> {
    let (code, rest) = bytes.split_first_chunk().ok_or(Error::Truncated)?;
    let code = u32::from_le_bytes(*code);
    if code & MORE == 0 {
        return Ok(Head { code, literal: None, width: Width::One, rest });
    }
    let (&meta, rest) = rest.split_first().ok_or(Error::Truncated)?;
    let rest = within_total(bytes, meta & TOTAL, rest)?;
    let (literal, rest) = match meta & LITERAL {
        0 => (None, rest),
        _ => {
            let end = rest.iter().position(|byte| *byte == 0).ok_or(Error::Truncated)?;
            let (literal, rest) = rest.split_at(end);
            (Some(literal), rest.get(1..).unwrap_or_default())
        }
    };
    Ok(Head { code: code & !MORE, literal, width: Width::from_meta(meta), rest })
}

/// Returns the bytes after the total length, limited to that length.
fn within_total<'a>(bytes: &'a [u8], form: u8, rest: &'a [u8]) -> Result<&'a [u8], Error> {
    let width = match form {
        0 => return Ok(rest),
        1 => Width::Two,
        2 => Width::Four,
        _ => Width::Eight,
    };
    let (total, rest) = width.read(rest)?;
    let behind = usize::try_from(total).ok().and_then(|total| bytes.len().checked_sub(total));
    let length = rest.len().checked_sub(behind.ok_or(Error::Truncated)?);
    rest.get(..length.ok_or(Error::Truncated)?).ok_or(Error::Truncated)
}

/// Writes the header.
pub(super) fn write(code: u32, literal: Option<&[u8]>, width: Width, out: &mut Vec<u8>) {
    if literal.is_none() && width == Width::One {
        out.extend(code.to_le_bytes());
        return;
    }
    out.extend((code | MORE).to_le_bytes());
    out.push(width.meta() | literal.map_or(0, |_| LITERAL));
    if let Some(literal) = literal {
        out.extend(literal);
        out.push(0);
    }
}

/// Flag in the code: a byte of meta information follows.
const MORE: u32 = 1;

/// Mask in the meta information: width of the total length that follows.
const TOTAL: u8 = 0b11;

/// Flag in the meta information: the literal of the type follows.
const LITERAL: u8 = 0b100;

/// Width of the lengths of strings and containers: all as wide as the largest requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Width {
    One = 1,
    Two = 2,
    Four = 4,
    Eight = 8,
}

impl Width {
    /// Returns the smallest width for a length.
    pub(super) fn for_length(length: usize) -> Self {
        match length as u64 {
            0..0x100 => Self::One,
            0x100..0x1_0000 => Self::Two,
            0x1_0000..0x1_0000_0000 => Self::Four,
            _ => Self::Eight,
        }
    }

    pub(super) fn bytes(self) -> usize {
        self as usize
    }

    /// Reads a length from the front of `bytes`.
    pub(super) fn read(self, bytes: &[u8]) -> Result<(u64, &[u8]), Error> {
        let (length, rest) = bytes.split_at_checked(self.bytes()).ok_or(Error::Truncated)?;
        Ok((length.iter().rev().fold(0, |length, byte| length << 8 | u64::from(*byte)), rest))
    }

    fn from_meta(meta: u8) -> Self {
        match meta >> 3 & 0b11 {
            0 => Self::One,
            1 => Self::Two,
            2 => Self::Four,
            _ => Self::Eight,
        }
    }

    fn meta(self) -> u8 {
        let form = match self {
            Self::One => 0,
            Self::Two => 1,
            Self::Four => 2,
            Self::Eight => 3,
        };
        form << 3
    }
}
