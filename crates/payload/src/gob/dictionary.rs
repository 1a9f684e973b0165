use std::collections::HashSet;

use super::number::{Cursor, put_uint};
use super::types::{Definition, Table, id};
use super::{Error, Limits};

/// Types defined in one direction of a stream, with the bytes of their definitions.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    table: Table,
}

impl Dictionary {
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the bytes from which the table was parsed: messages, each of which defines a type.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the approximate number of bytes held.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.table.held()
    }

    /// Parses a definition with `cursor` at the type's number, which is negative, and advances it past the definition.
    pub(super) fn define(&mut self, cursor: &mut Cursor<'_>, limits: &Limits) -> Result<(), Error> {
        let room = limits.definitions.saturating_sub(self.bytes.len());
        let within = cursor.rest().get(..room).map_or(*cursor, Cursor::new);
        let length = match definition_length(within) {
            // The end of the bytes may coincide with that of the definition.
            Ok(length) if length < within.len() || within.len() == cursor.len() => length,
            Err(error) if within.len() == cursor.len() => return Err(error),
            _ => return Err(too_long(limits)),
        };
        let start = self.bytes.len();
        put_uint(&mut self.bytes, length as u64);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(cursor.take(length)?);
        let mut kept = Cursor::new(&self.bytes[at..]);
        let id = read_defined_id(&mut kept)?;
        self.table.define(id, &self.bytes, start, &mut kept, limits)
    }

    /// Returns the definitions of all types reachable from `of`, in order of arrival, and whether they are complete:
    /// decoding a value of an undefined type reports the error.
    pub(super) fn closure(&self, of: &[i32]) -> (Vec<u8>, bool) {
        let (reached, complete) = self.collect_reachable(of);
        let mut messages: Vec<_> = reached.iter().map(Table::message).collect();
        messages.sort_unstable_by_key(|message| message.start);
        let parts = messages.into_iter().filter_map(|message| self.bytes.get(message));
        (parts.flatten().copied().collect(), complete)
    }

    fn collect_reachable(&self, of: &[i32]) -> (Vec<Definition>, bool) {
        let (mut reached, mut complete) = (Vec::new(), true);
        let mut seen: HashSet<_> = of.iter().copied().collect();
        let mut waiting: Vec<_> = seen.iter().copied().collect();
        while let Some(next) = waiting.pop() {
            match self.table.find(next) {
                Some(definition) => {
                    let inner = self.table.inner(definition.kind);
                    waiting.extend(inner.filter(|&inner| seen.insert(inner)));
                    reached.push(*definition);
                }
                None => complete = complete && (id::BOOL..=id::INTERFACE).contains(&next),
            }
        }
        (reached, complete)
    }
}

#[cold]
pub(super) fn too_long(limits: &Limits) -> Error {
    Error::new(format!("definitions of types take more than {} bytes", limits.definitions))
}

/// Reads the number of a type that is about to be defined.
pub(super) fn read_defined_id(cursor: &mut Cursor<'_>) -> Result<i32, Error> {
    cursor.id()?.checked_neg().ok_or_else(Error::unknown_type)
}

/// Returns the length of a definition, including the number before it.
fn definition_length(mut cursor: Cursor<'_>) -> Result<usize, Error> {
    let before = cursor.len();
    let bytes = cursor.rest();
    let _ = read_defined_id(&mut cursor)?;
    // Any type number will do: only the end of the definition matters.
    Table::default().define(id::FIRST, bytes, 0, &mut cursor, &Limits::default())?;
    Ok(before - cursor.len())
}
