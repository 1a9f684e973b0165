//! Fields of protobuf's binary format, as `proto/recording.proto` declares them.

use polyrpc_core::protobuf::{Reader, WireType, put_tag, put_varint};

/// Appends fields to a message; a value that is the default is left out.
pub(crate) struct Fields<'a>(pub(crate) &'a mut Vec<u8>);

impl Fields<'_> {
    pub(crate) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        if value != 0 {
            self.number_or_zero(field, value);
        }
        self
    }

    /// Appends a number even if it is 0.
    pub(crate) fn number_or_zero(&mut self, field: u32, value: u64) -> &mut Self {
        put_tag(self.0, field, WireType::Varint);
        put_varint(self.0, value);
        self
    }

    pub(crate) fn flag(&mut self, field: u32, value: bool) -> &mut Self {
        self.number(field, value.into())
    }

    pub(crate) fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        if value != 0 {
            put_tag(self.0, field, WireType::Fixed64);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
        self
    }

    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        if !value.is_empty() {
            put_tag(self.0, field, WireType::Bytes);
            put_varint(self.0, value.len() as u64);
            self.0.extend_from_slice(value);
        }
        self
    }

    pub(crate) fn text(&mut self, field: u32, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    /// Appends a message even if it is empty.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Fields<'_>)) -> &mut Self {
        let mut inner = Vec::new();
        write(&mut Fields(&mut inner));
        put_tag(self.0, field, WireType::Bytes);
        put_varint(self.0, inner.len() as u64);
        self.0.extend_from_slice(&inner);
        self
    }
}

/// A value as it is in the message.
#[derive(Clone, Copy)]
pub(crate) enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Raw<'a> {
    pub(crate) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Bytes(_) => None,
        }
    }

    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    pub(crate) fn text(self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }
}

/// Calls `field` with every field of a message. `None` if the message is malformed, or `field` returns it.
pub(crate) fn read<'a>(bytes: &'a [u8], mut field: impl FnMut(u32, Raw<'a>) -> Option<()>) -> Option<()> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let (number, wire) = reader.tag()?;
        let value = match wire {
            WireType::Varint => Raw::Number(reader.varint()?),
            WireType::Fixed64 => Raw::Number(reader.fixed64()?),
            WireType::Fixed32 => Raw::Number(reader.fixed32()?.into()),
            WireType::Bytes => Raw::Bytes(reader.bytes()?),
            WireType::StartGroup | WireType::EndGroup => {
                reader.skip(number, wire)?;
                continue;
            }
        };
        field(number, value)?;
    }
    Some(())
}
