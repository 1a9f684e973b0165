use std::collections::HashMap;

use polyrpc_core::protobuf::{Reader, WireType, put_tag, put_varint};
use polyrpc_payload::schema::{Field, Kind, Message, MessageType, Pool, WellKnown};

use super::declaration::{is_dynamic, is_whole_number, message_of};
use super::object::{PACKED, TYPE_URL, VALUE};
use super::{Action, Redaction};
use crate::path::Step;
use crate::value::{Value, accepts, default_key, scalar};

/// Removes fields of a message. `None` if it is malformed.
pub(super) fn redact(rules: &Redaction, message: &Message, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let walk = Walk { rules, pool: message.pool() };
    walk.redact_message(message, &[], bytes, &mut out, MAX_DEPTH)?;
    Some(out)
}

/// Removes fields of the message in an `Any`, whose path is `steps`. `None` if it is removed: a rule may apply in it, and
/// its type is unknown, or it is malformed.
pub(super) fn redact_packed(
    rules: &Redaction,
    message: Option<&Message>,
    steps: &[Step<'_>],
    bytes: &[u8],
) -> Option<Vec<u8>> {
    let Some(message) = message else { return rules.keeps_opaque(steps).then(|| bytes.to_vec()) };
    Walk { rules, pool: message.pool() }.redact_packed(message, steps, bytes, MAX_DEPTH)
}

struct Walk<'r> {
    rules: &'r Redaction,
    pool: &'r Pool,
}

impl Walk<'_> {
    fn redact_packed(
        &self,
        message: &MessageType,
        steps: &[Step<'_>],
        bytes: &[u8],
        depth: usize,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(bytes.len());
        self.redact_message(message, steps, bytes, &mut out, depth)?;
        Some(out)
    }

    fn redact_message(
        &self,
        message: &MessageType,
        steps: &[Step<'_>],
        bytes: &[u8],
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut reader = Reader::new(bytes);
        let mut counts: HashMap<u32, usize> = HashMap::new();
        let is_any = message.well_known() == Some(WellKnown::Any);
        // The type may follow the value.
        let packed = if is_any { packed_message(self.pool, bytes) } else { None };
        while !reader.is_empty() {
            let start = reader.rest();
            let (number, wire) = reader.tag()?;
            let Some(field) = message.field(number).filter(|field| accepts(field, wire)) else {
                // No path can name it, or what is inside a value of another type than declared.
                reader.skip(number, wire)?;
                continue;
            };
            let mut steps = steps.to_vec();
            steps.push(match is_any {
                true if number == VALUE => PACKED,
                false if is_dynamic(message) => Step::Optional(field.name()),
                _ => Step::Name(field.name()),
            });
            if is_any && number == VALUE && self.rules.action(&steps) == Action::Keep {
                let value = reader.bytes()?;
                let redacted = match &packed {
                    Some(packed) => self.redact_packed(packed, &steps, value, depth),
                    None => self.rules.keeps_opaque(&steps).then(|| value.to_vec()),
                };
                if let Some(redacted) = redacted {
                    put_bytes(out, number, &redacted);
                }
                continue;
            }
            if field.is_repeated() && !field.is_map() {
                let count = counts.entry(number).or_default();
                steps.push(Step::Index(*count));
                *count += if is_packed(field, wire) { packed_count(field.kind(), reader)? } else { 1 };
            }
            self.redact_field(field, wire, &steps, (&mut reader, start), out, depth)?;
        }
        Some(())
    }

    /// Writes a value, of a wire type that the field accepts, as far as the rules keep it.
    fn redact_field(
        &self,
        field: &Field,
        wire: WireType,
        steps: &[Step<'_>],
        (reader, start): (&mut Reader<'_>, &[u8]),
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Option<()> {
        let kind = field.kind();
        let action = self.rules.action(steps);
        if field.is_map() {
            let entry = reader.bytes()?;
            return match action {
                Action::Keep => self.redact_map_entry(field, steps, entry, out, depth),
                _ => Some(()),
            };
        }
        if action == Action::Hash && !self.is_dynamic_value(kind) {
            return self.put_hash(field, wire, reader, out);
        }
        if action == Action::Drop || self.hides_packed(field, (&*reader, wire), steps) {
            return reader.skip(field.number(), wire);
        }
        match kind {
            Kind::Message(id) => {
                let inner = self.pool.message_at(id);
                let mut body = Vec::new();
                self.redact_message(&inner, steps, reader.bytes()?, &mut body, depth)?;
                put_bytes(out, field.number(), &body);
            }
            Kind::Group(id) => {
                let inner = self.pool.message_at(id);
                let mut body = Vec::new();
                self.redact_message(&inner, steps, reader.group(field.number())?, &mut body, depth)?;
                put_tag(out, field.number(), WireType::StartGroup);
                out.extend_from_slice(&body);
                put_tag(out, field.number(), WireType::EndGroup);
            }
            _ => {
                reader.skip(field.number(), wire)?;
                out.extend_from_slice(start.get(..start.len() - reader.rest().len())?);
            }
        }
        Some(())
    }

    /// Whether a rule names an element of a packed list by its position: the list is removed as a whole.
    fn hides_packed(
        &self,
        field: &Field,
        (reader, wire): (&Reader<'_>, WireType),
        steps: &[Step<'_>],
    ) -> bool {
        if !is_packed(field, wire) || !self.rules.names_positions() {
            return false;
        }
        let Some((Step::Index(first), list)) = steps.split_last() else { return false };
        let count = packed_count(field.kind(), *reader).unwrap_or(0);
        (0..count).any(|index| {
            let element = [list, &[Step::Index(first + index)]].concat();
            self.rules.action(&element) != Action::Keep
        })
    }

    fn redact_map_entry(
        &self,
        field: &Field,
        steps: &[Step<'_>],
        entry: &[u8],
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Option<()> {
        let declared = self.pool.message_at(field.kind().message()?);
        let Some(key) = self.key_of(&declared, entry)? else { return Some(()) };
        let mut steps = steps.to_vec();
        steps.push(Step::Name(&key));
        let action = self.rules.action(&steps);
        if action == Action::Drop {
            return Some(());
        }
        let mut body = Vec::new();
        let mut reader = Reader::new(entry);
        while !reader.is_empty() {
            let start = reader.rest();
            let (number, wire) = reader.tag()?;
            match declared.field(number).filter(|field| accepts(field, wire)) {
                Some(value) if number == 2 => {
                    let input = (&mut reader, start);
                    self.redact_entry_field(value, wire, action, &steps, input, &mut body, depth)?;
                }
                Some(_) => {
                    reader.skip(number, wire)?;
                    body.extend_from_slice(start.get(..start.len() - reader.rest().len())?);
                }
                None => reader.skip(number, wire)?,
            }
        }
        put_bytes(out, field.number(), &body);
        Some(())
    }

    /// Returns the key of a map's entry, as in protobuf's JSON; the inner `None` if it has another type than declared, so
    /// that no path can name the entry.
    fn key_of(&self, declared: &MessageType, entry: &[u8]) -> Option<Option<String>> {
        let kind = declared.field(1)?.kind();
        let (mut key, mut reader) = (default_key(kind).to_owned(), Reader::new(entry));
        while !reader.is_empty() {
            let (number, wire) = reader.tag()?;
            if number != 1 {
                reader.skip(number, wire)?;
                continue;
            }
            if wire != kind.wire_type() {
                return Some(None);
            }
            key = match scalar(self.pool, kind, &mut reader)? {
                Value::Text(text) => text,
                // No path can name it.
                Value::Bytes(_) => return None,
                other => other.to_string(),
            };
        }
        Some(Some(key))
    }

    #[allow(clippy::too_many_arguments, reason = "the state of the walk")]
    fn redact_entry_field(
        &self,
        value: &Field,
        wire: WireType,
        action: Action,
        steps: &[Step<'_>],
        (reader, start): (&mut Reader<'_>, &[u8]),
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Option<()> {
        match action {
            Action::Hash if !self.is_dynamic_value(value.kind()) => self.put_hash(value, wire, reader, out),
            // The path of the value is that of its key.
            _ => self.redact_field(value, wire, steps, (reader, start), out, depth),
        }
    }

    /// Whether values are a `google.protobuf.Value`, whose text is hashed.
    fn is_dynamic_value(&self, kind: Kind) -> bool {
        let well_known = kind.message().and_then(|id| self.pool.message_at(id).well_known());
        well_known == Some(WellKnown::Value)
    }

    fn put_hash(
        &self,
        field: &Field,
        wire: WireType,
        reader: &mut Reader<'_>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let (number, kind) = (field.number(), field.kind());
        match kind {
            Kind::String | Kind::Bytes => {
                let text = self.rules.digest_text(reader.bytes()?);
                put_bytes(out, number, text.as_bytes());
            }
            _ if is_whole_number(kind) && wire == kind.wire_type() => {
                // By its value, so that equal values of other formats have the same hash.
                let Value::Integer(value) = scalar(self.pool, kind, reader)? else { return None };
                let hashed = self.rules.digest_number(value);
                put_tag(out, number, wire);
                match wire {
                    WireType::Fixed32 => out.extend_from_slice(&hashed.to_le_bytes()),
                    WireType::Fixed64 => out.extend_from_slice(&u64::from(hashed).to_le_bytes()),
                    _ if matches!(kind, Kind::Sint32 | Kind::Sint64) => {
                        put_varint(out, u64::from(hashed) << 1)
                    }
                    _ => put_varint(out, hashed.into()),
                }
            }
            _ => reader.skip(number, wire)?,
        }
        Some(())
    }
}

/// Returns the message that an `Any` contains. `None` if its type is unknown, or named more than once.
fn packed_message(pool: &Pool, any: &[u8]) -> Option<Message> {
    let (mut url, mut reader) = (None, Reader::new(any));
    while !reader.is_empty() {
        match reader.tag()? {
            (TYPE_URL, WireType::Bytes) if url.is_none() => url = Some(reader.bytes()?),
            (TYPE_URL, WireType::Bytes) => return None,
            (number, wire) => reader.skip(number, wire)?,
        }
    }
    message_of(pool, std::str::from_utf8(url?).ok()?)
}

/// Whether a value of this wire type is a packed list.
fn is_packed(field: &Field, wire: WireType) -> bool {
    wire == WireType::Bytes && field.kind().is_packable()
}

/// Returns the number of elements of the packed list that follows, with an incomplete last one.
fn packed_count(kind: Kind, mut reader: Reader<'_>) -> Option<usize> {
    let list = reader.bytes()?;
    Some(match kind.wire_type() {
        WireType::Fixed32 => list.len().div_ceil(4),
        WireType::Fixed64 => list.len().div_ceil(8),
        _ => list.split_inclusive(|byte| *byte < 0x80).count(),
    })
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

const MAX_DEPTH: usize = 100;
