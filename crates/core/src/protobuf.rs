//! Primitives of protobuf's binary format: varints, tags, and a reader that skips unknown fields.

/// Wire type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireType {
    /// A number in groups of seven bits.
    Varint = 0,
    /// Eight bytes, little-endian.
    Fixed64 = 1,
    /// A length as a varint, followed by that many bytes.
    Bytes = 2,
    /// The start of a group, up to the matching [`EndGroup`](Self::EndGroup).
    StartGroup = 3,
    /// The end of a group.
    EndGroup = 4,
    /// Four bytes, little-endian.
    Fixed32 = 5,
}

impl WireType {
    fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits & 7 {
            0 => Self::Varint,
            1 => Self::Fixed64,
            2 => Self::Bytes,
            3 => Self::StartGroup,
            4 => Self::EndGroup,
            5 => Self::Fixed32,
            _ => return None,
        })
    }
}

/// Reads values from the front of a byte slice. Every method returns `None` if the bytes are malformed or truncated.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader for `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads a varint. Bits beyond the 64th are dropped, as in the peers' parsers.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        match *self.rest {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.rest = rest;
                Some(byte.into())
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            // The tenth byte contributes one bit; like in the peers' parsers, the others are dropped.
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = self.rest.get(i + 1..)?;
                return Some(value);
            }
        }
        None
    }

    /// Reads a field's number and wire type.
    #[inline]
    pub fn tag(&mut self) -> Option<(u32, WireType)> {
        let tag = u32::try_from(self.varint()?).ok()?;
        let number = tag >> 3;
        if number == 0 {
            return None;
        }
        Some((number, WireType::from_bits(tag.into())?))
    }

    /// Reads a length, then as many bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.take(length)
    }

    /// Reads this many bytes.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads four bytes as a number.
    pub fn fixed32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Reads eight bytes as a number.
    pub fn fixed64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Reads the content of a group whose start tag was just read, including its end tag.
    pub fn group(&mut self, number: u32) -> Option<&'a [u8]> {
        let start = self.rest;
        let mut open = vec![number];
        loop {
            let before = self.rest.len();
            let (number, wire) = self.tag()?;
            match wire {
                WireType::StartGroup if open.len() >= MAX_GROUPS => return None,
                WireType::StartGroup => open.push(number),
                WireType::EndGroup if open.pop() != Some(number) => return None,
                WireType::EndGroup if open.is_empty() => return start.get(..start.len() - before),
                WireType::EndGroup => {}
                plain => self.skip_plain(plain)?,
            }
        }
    }

    /// Skips a value. The end of a group that was not started is an error.
    pub fn skip(&mut self, number: u32, wire: WireType) -> Option<()> {
        match wire {
            WireType::StartGroup => self.group(number).map(drop),
            plain => self.skip_plain(plain),
        }
    }

    fn skip_plain(&mut self, wire: WireType) -> Option<()> {
        match wire {
            WireType::Varint => self.varint().map(drop),
            WireType::Fixed64 => self.take(8).map(drop),
            WireType::Bytes => self.bytes().map(drop),
            WireType::Fixed32 => self.take(4).map(drop),
            WireType::StartGroup | WireType::EndGroup => None,
        }
    }
}

/// Nesting limit of groups, as in every peer's parser.
const MAX_GROUPS: usize = 100;

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the tag of a field.
#[inline]
pub fn put_tag(out: &mut Vec<u8>, number: u32, wire: WireType) {
    put_varint(out, u64::from(number) << 3 | wire as u64);
}

/// Returns the encoded length of a varint.
#[inline]
pub fn varint_len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}
