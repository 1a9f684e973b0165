//! Writer for protobuf's binary format.

use polyrpc_core::append::append;
use polyrpc_core::protobuf::{WireType, put_tag, put_varint, varint_len};

use crate::schema::Kind;

/// Starts length-prefixed content, and returns its offset. One byte is reserved for the length; that suffices for most,
/// otherwise the content is moved.
pub(super) fn open(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len() - 1
}

/// Ends the content started with [`open`].
pub(super) fn close(out: &mut Vec<u8>, mark: usize) {
    let length = out.len() - mark - 1;
    match u8::try_from(length).ok().filter(|length| *length < 0x80) {
        Some(length) => out[mark] = length,
        None => {
            let extra = varint_len(length as u64) - 1;
            let end = out.len();
            out.resize(end + extra, 0);
            out.copy_within(mark + 1..end, mark + 1 + extra);
            let mut at = mark;
            let mut rest = length;
            while rest >= 0x80 {
                out[at] = rest as u8 | 0x80;
                rest >>= 7;
                at += 1;
            }
            out[at] = rest as u8;
        }
    }
}

/// A nested message being written.
#[derive(Clone, Copy)]
pub(super) struct NestedMessage {
    number: u32,
    /// Offset of its length; a group has none.
    mark: Option<usize>,
}

pub(super) fn open_message(out: &mut Vec<u8>, number: u32, kind: Kind) -> NestedMessage {
    put_tag(out, number, kind.wire_type());
    NestedMessage { number, mark: (!matches!(kind, Kind::Group(_))).then(|| open(out)) }
}

pub(super) fn close_message(out: &mut Vec<u8>, nested: NestedMessage) {
    match nested.mark {
        Some(mark) => close(out, mark),
        None => put_tag(out, nested.number, WireType::EndGroup),
    }
}

/// Writes an integer of `kind`; `None` if it is out of range.
pub(super) fn put_integer(out: &mut Vec<u8>, kind: Kind, value: i128) -> Option<()> {
    match kind {
        Kind::Int32 | Kind::Enum(_) => put_varint(out, i64::from(i32::try_from(value).ok()?) as u64),
        Kind::Int64 => put_varint(out, i64::try_from(value).ok()? as u64),
        Kind::Uint32 => put_varint(out, u32::try_from(value).ok()?.into()),
        Kind::Uint64 => put_varint(out, u64::try_from(value).ok()?),
        Kind::Sint32 => put_varint(out, u64::from(zigzag(i32::try_from(value).ok()?.into()) as u32)),
        Kind::Sint64 => put_varint(out, zigzag(i64::try_from(value).ok()?)),
        Kind::Fixed32 => out.extend_from_slice(&u32::try_from(value).ok()?.to_le_bytes()),
        Kind::Fixed64 => out.extend_from_slice(&u64::try_from(value).ok()?.to_le_bytes()),
        Kind::Sfixed32 => out.extend_from_slice(&i32::try_from(value).ok()?.to_le_bytes()),
        Kind::Sfixed64 => out.extend_from_slice(&i64::try_from(value).ok()?.to_le_bytes()),
        _ => return None,
    }
    Some(())
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Writes a length-prefixed string or bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    append(out, bytes);
}
