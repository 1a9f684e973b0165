//! Recognizes long messages that decode as fast as their bytes are copied: those that consist of a few long texts.

use polyrpc_core::protobuf::{Reader, WireType};
use polyrpc_payload::msgpack;
use polyrpc_payload::schema::{Field, Kind, Message};

/// Bytes of a message, apart from long texts, that are decoded in place.
const MAX_SMALL: usize = 64 << 10;

/// Number of bytes that are copied in place.
const MAX_COPIED: usize = 4 << 20;

/// Maximum depth of messages that are searched.
const MAX_DEPTH: usize = 8;

/// Whether a message in MessagePack has few values.
pub(super) fn is_bulk_message_pack(bytes: &[u8]) -> bool {
    let mut reader = msgpack::Reader::new(bytes);
    // Every value takes at least a byte.
    let has_ended = (0..MAX_SMALL).any(|_| reader.is_empty() || reader.next().is_err());
    bytes.len() <= MAX_COPIED && has_ended
}

/// Whether a message in protobuf's binary format consists of texts and bytes for the most part.
pub(super) fn is_bulk_protobuf(message: &Message, bytes: &[u8]) -> bool {
    bytes.len() <= MAX_COPIED && Scan { small: MAX_SMALL }.message(message, bytes, MAX_DEPTH).is_some()
}

struct Scan {
    /// How many more bytes may be anything but texts.
    small: usize,
}

impl Scan {
    /// Returns `None` if the message has too many other bytes, is malformed, or contains a group.
    fn message(&mut self, message: &Message, bytes: &[u8], depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let before = reader.rest().len();
            let (number, wire) = reader.tag()?;
            let content = match wire {
                WireType::StartGroup => return None,
                WireType::Bytes => reader.bytes()?,
                wire => reader.skip(number, wire).map(|()| &[][..])?,
            };
            let kind = message.field(number).map(Field::kind);
            let counted = match kind {
                Some(Kind::String | Kind::Bytes | Kind::Message(_)) => content.len(),
                _ => 0,
            };
            self.small = self.small.checked_sub(before - reader.rest().len() - counted)?;
            if let Some(Kind::Message(id)) = kind {
                self.message(&message.pool().message_at(id), content, depth)?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_in_message_pack_are_bulk_and_many_values_are_not() {
        let text = [b"\x92\x01\xdb\x00\x10\x00\x00".to_vec(), vec![b'x'; 1 << 20]].concat();
        assert!(is_bulk_message_pack(&text));
        let numbers = [b"\xdd\x00\x10\x00\x00".to_vec(), vec![1; 1 << 20]].concat();
        assert!(!is_bulk_message_pack(&numbers));
        assert!(is_bulk_message_pack(b"\xc1"), "decoding it fails at once");
        let long = [b"\xdb\x00\x80\x00\x00".to_vec(), vec![b'x'; 8 << 20]].concat();
        assert!(!is_bulk_message_pack(&long));
    }
}
