//! Computes, before a translation of protobuf is written, what it would lose and how large its result may become.

use polyrpc::payload::schema::{Field, Kind, Message, MessageType, Pool};
use polyrpc_core::protobuf::{Reader, WireType};

/// Result of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Fields and enum values that the schema does not declare, and strings that are not UTF-8.
    pub(super) lost: u64,
    /// Upper bound of the length in any text format or MessagePack, in bytes.
    pub(super) max_size: usize,
}

/// Scans a message in protobuf's binary format; `None` if it is malformed or nested too deeply.
pub(super) fn scan(message: &Message, bytes: &[u8]) -> Option<Scan> {
    let mut scan = Scan::default();
    scan.message(message.pool(), message, bytes, DEPTH)?;
    Some(scan)
}

impl Scan {
    fn message(&mut self, pool: &Pool, message: &MessageType, bytes: &[u8], depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        // Go's JSON and MessagePack contain fields that are not set.
        let unset = message.fields().iter().map(|field| field.name().len() + SCALAR).sum::<usize>();
        self.add(unset + SCALAR);
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (number, wire) = reader.tag()?;
            match message.field(number).filter(|field| fits(field, wire)) {
                Some(field) => self.field(pool, field, wire, &mut reader, depth)?,
                None => {
                    self.lost += 1;
                    reader.skip(number, wire)?;
                }
            }
        }
        Some(())
    }

    fn field(
        &mut self,
        pool: &Pool,
        field: &Field,
        wire: WireType,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Option<()> {
        self.add(field.name().len() + SCALAR);
        match wire {
            WireType::Varint => {
                let value = reader.varint()?;
                self.varint(pool, field.kind(), value);
            }
            WireType::Fixed32 => drop(reader.fixed32()?),
            WireType::Fixed64 => drop(reader.fixed64()?),
            WireType::StartGroup => self.scan_nested(pool, field, reader.group(field.number())?, depth)?,
            WireType::Bytes => match field.kind() {
                Kind::Message(_) => self.scan_nested(pool, field, reader.bytes()?, depth)?,
                Kind::String | Kind::Bytes => {
                    let bytes = reader.bytes()?;
                    if field.kind() == Kind::String && std::str::from_utf8(bytes).is_err() {
                        self.lost += 1;
                    }
                    // A control character takes six bytes in JSON.
                    self.add(bytes.len().saturating_mul(6));
                }
                kind => self.scan_packed(pool, kind, reader.bytes()?)?,
            },
            WireType::EndGroup => return None,
        }
        Some(())
    }

    fn scan_nested(&mut self, pool: &Pool, field: &Field, bytes: &[u8], depth: usize) -> Option<()> {
        let id = field.kind().message()?;
        self.message(pool, &pool.message_at(id), bytes, depth)
    }

    fn scan_packed(&mut self, pool: &Pool, kind: Kind, bytes: &[u8]) -> Option<()> {
        if wire_type(kind) != WireType::Varint {
            self.add(bytes.len().saturating_mul(SCALAR / 4));
            return Some(());
        }
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let value = reader.varint()?;
            self.add(SCALAR);
            self.varint(pool, kind, value);
        }
        Some(())
    }

    fn varint(&mut self, pool: &Pool, kind: Kind, value: u64) {
        let Kind::Enum(id) = kind else { return };
        let of = pool.enum_type(id);
        match of.name(value as i32) {
            Some(name) => self.add(name.len()),
            None if of.is_closed() => self.lost += 1,
            None => {}
        }
    }

    fn add(&mut self, bytes: usize) {
        self.max_size = self.max_size.saturating_add(bytes);
    }
}

fn fits(field: &Field, wire: WireType) -> bool {
    let packed = wire == WireType::Bytes && field.is_repeated() && field.kind().is_packable();
    wire_type(field.kind()) == wire || packed
}

fn wire_type(kind: Kind) -> WireType {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => WireType::Fixed64,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => WireType::Fixed32,
        Kind::String | Kind::Bytes | Kind::Message(_) => WireType::Bytes,
        Kind::Group(_) => WireType::StartGroup,
        _ => WireType::Varint,
    }
}

/// Longest scalar with its quotes, colon and comma.
const SCALAR: usize = 32;

/// The limit of the conversion itself, plus one for the message.
const DEPTH: usize = 101;
