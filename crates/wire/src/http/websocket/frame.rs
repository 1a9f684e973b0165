//! Frame format (RFC 6455 §5.2).

use super::CloseCode;

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// It is the last frame of its message.
    pub(super) fin: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<Mask>,
    /// Length of the payload in bytes.
    pub(super) length: u64,
}

impl Header {
    /// Parses a header and returns it with its length; `None` if it is incomplete.
    ///
    /// # Errors
    ///
    /// If the header is malformed (§5.2): a bit or an opcode without a negotiated meaning, a length that is not in its
    /// shortest form or has its highest bit set, a control frame that is too long or fragmented (§5.5).
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, CloseCode> {
        let Some((&[first, second], rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let opcode = Opcode::read(first & 0x0f).filter(|_| first & RESERVED == 0);
        let opcode = opcode.ok_or(CloseCode::PROTOCOL_ERROR)?;
        let fin = first & FIN != 0;
        let short = second & !MASKED;
        if opcode.is_control() && (!fin || usize::from(short) > MAX_CONTROL) {
            return Err(CloseCode::PROTOCOL_ERROR);
        }
        let Some((length, rest)) = length(short, rest) else { return Ok(None) };
        let min = match short {
            TWO_BYTES => 126,
            EIGHT_BYTES => 1 << 16,
            _ => 0,
        };
        if length < min || length > i64::MAX as u64 {
            return Err(CloseCode::PROTOCOL_ERROR);
        }
        let (mask, rest) = match second & MASKED {
            0 => (None, rest),
            _ => match rest.split_first_chunk() {
                Some((key, rest)) => (Some(Mask(*key)), rest),
                None => return Ok(None),
            },
        };
        Ok(Some((Self { fin, opcode, mask, length }, bytes.len() - rest.len())))
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.push(if self.fin { FIN } else { 0 } | self.opcode.bits());
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        match self.length {
            0..126 => into.push(masked | self.length as u8),
            126..=0xffff => {
                into.push(masked | TWO_BYTES);
                into.extend_from_slice(&(self.length as u16).to_be_bytes());
            }
            _ => {
                into.push(masked | EIGHT_BYTES);
                into.extend_from_slice(&self.length.to_be_bytes());
            }
        }
        if let Some(Mask(key)) = &self.mask {
            into.extend_from_slice(key);
        }
    }
}

/// Returns the payload length from the seven bits or the extended length field; `None` if it is incomplete.
fn length(short: u8, rest: &[u8]) -> Option<(u64, &[u8])> {
    match short {
        TWO_BYTES => {
            let (length, rest) = rest.split_first_chunk()?;
            Some((u64::from(u16::from_be_bytes(*length)), rest))
        }
        EIGHT_BYTES => {
            let (length, rest) = rest.split_first_chunk()?;
            Some((u64::from_be_bytes(*length), rest))
        }
        short => Some((u64::from(short), rest)),
    }
}

/// Type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn read(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Masking key (§5.3), with the position of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mask(pub(super) [u8; 4]);

impl Mask {
    /// Masks or unmasks the next part of a payload.
    pub(super) fn apply(&mut self, payload: &mut [u8]) {
        let Self(key) = self;
        let [a, b, c, d] = *key;
        let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let (words, rest) = payload.as_chunks_mut();
        for word in words {
            *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
        }
        rest.iter_mut().zip(key.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        key.rotate_left(rest.len() % 4);
    }
}

const FIN: u8 = 0x80;
/// Reserved bits: no negotiated extension sets them.
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
/// The length is in the next two bytes.
const TWO_BYTES: u8 = 126;
/// The length is in the next eight bytes.
const EIGHT_BYTES: u8 = 127;

/// Maximum payload of a control frame in bytes (§5.5).
pub(super) const MAX_CONTROL: usize = 125;
