use std::fmt;

use polyrpc_core::protobuf::{Reader, WireType};

use super::{Field, FieldSet, MessageType, Pool};

/// A required field that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingField {
    full_name: Box<str>,
}

impl MissingField {
    /// Returns the field's full name: `example.EchoRequest.message`.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }
}

/// brpc's text (brpc `json2pb/json_to_pb.cpp`).
impl fmt::Display for MissingField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Missing required field: {}", self.full_name)
    }
}

impl std::error::Error for MissingField {}

pub(super) fn check(pool: &Pool, message: &MessageType, bytes: &[u8]) -> Result<(), MissingField> {
    // Most messages contain no message that must be checked: then nothing is allocated.
    let mut walk = Walk { pool, found: Vec::new() };
    let mut present = FieldSet::default();
    walk.scan(message, bytes, &mut present);
    complete(message, &present)?;
    walk.inner(message, 0, MAX_DEPTH)
}

/// Checks that every required field is among the present ones.
fn complete(message: &MessageType, present: &FieldSet) -> Result<(), MissingField> {
    let missing = |&(index, field): &(u32, &Field)| field.is_required() && !present.contains(index);
    match (0..).zip(&message.fields).find(missing) {
        Some((_, missing)) => Err(MissingField { full_name: missing.full_name().into() }),
        None => Ok(()),
    }
}

/// Nested messages, on one stack for all levels, with the index of their field.
struct Walk<'a> {
    pool: &'a Pool,
    found: Vec<(u32, &'a [u8])>,
}

impl<'a> Walk<'a> {
    /// Checks the message whose parts are on the stack from `from` on. It may have several parts, since a repeated
    /// occurrence of a field is merged with earlier ones.
    fn message(&mut self, message: &'a MessageType, from: usize, depth: usize) -> Result<(), MissingField> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
        let to = self.found.len();
        let mut present = FieldSet::default();
        for part in from..to {
            if let Some(&(_, bytes)) = self.found.get(part) {
                self.scan(message, bytes, &mut present);
            }
        }
        complete(message, &present)?;
        self.inner(message, to, depth)?;
        self.found.truncate(to);
        Ok(())
    }

    fn inner(&mut self, message: &'a MessageType, from: usize, depth: usize) -> Result<(), MissingField> {
        if self.found.len() <= from {
            return Ok(());
        }
        if let Some(found) = self.found.get_mut(from..) {
            // The sort is stable: the parts of one message keep their order.
            found.sort_by_key(|&(index, _)| index);
        }
        let all = self.found.split_off(from);
        for parts in all.chunk_by(|a, b| a.0 == b.0) {
            let Some(field) = parts.first().and_then(|&(index, _)| message.fields.get(index as usize)) else {
                continue;
            };
            let Some(inner) = field.kind.message().map(|id| self.pool.message_type(id)) else { continue };
            let one_at_a_time = if field.is_repeated() { 1 } else { parts.len() };
            for parts in parts.chunks(one_at_a_time) {
                self.found.extend_from_slice(parts);
                self.message(inner, from, depth)?;
                self.found.truncate(from);
            }
        }
        Ok(())
    }

    fn scan(&mut self, message: &MessageType, bytes: &'a [u8], present: &mut FieldSet) {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag() {
            let Some(index) = message.index_of(number) else {
                match reader.skip(number, wire) {
                    Some(()) => continue,
                    None => return,
                }
            };
            present.insert(index);
            let inner = match wire {
                WireType::Bytes => reader.bytes(),
                WireType::StartGroup => reader.group(number),
                _ => reader.skip(number, wire).map(|()| [].as_slice()),
            };
            let Some(inner) = inner else { return };
            if self.is_checked(message, index) {
                self.found.push((index, inner));
            }
        }
    }

    fn is_checked(&self, message: &MessageType, index: u32) -> bool {
        let kind = message.fields.get(index as usize).map(Field::kind);
        kind.and_then(|kind| kind.message()).is_some_and(|id| self.pool.message_type(id).has_required)
    }
}

/// Nesting limit of messages; decoders reject deeper ones.
const MAX_DEPTH: usize = 100;
