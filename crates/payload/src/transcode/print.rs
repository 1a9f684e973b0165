//! Conversion from protobuf's binary format to another.
//!
//! A message's fields may be in any order, a field may occur several times, and a nested message may be split over
//! several occurrences. Each message is therefore first scanned into records, one for each uninterrupted run of
//! occurrences of a field; the records are sorted into the order of the output, and each field is then written from its
//! records. The records of all levels share one stack, so that no field or message needs an allocation.
//!
//! A record is many times longer than the two bytes of an empty value. Their number is limited by the length of the
//! message: encoders write the occurrences of a field one after the other, which are one record, and of a scalar only the
//! last occurrence is kept.

use std::borrow::Cow;
use std::ops::Range;

use polyrpc_core::protobuf::{Reader, WireType};

use super::{Error, MAX_DEPTH};
use crate::schema::{EnumType, Field, Kind, Message, MessageType, Pool};

/// Output format. A list or a map is a value; its items are values, too.
pub(super) trait Sink: Sized {
    /// Returns the number of bytes written so far.
    fn written(&self) -> usize;

    /// Returns the field's position in the output.
    fn rank(&self, index: u32, field: &Field) -> u32;
    /// Whether the format can represent the field.
    fn has(&self, _field: &Field) -> bool {
        true
    }
    /// Whether the field is written even if it is not set.
    fn shows_unset(&self, _field: &Field) -> bool {
        false
    }
    /// Whether the field is written as a map.
    fn is_map(&self, field: &Field) -> bool {
        field.is_map()
    }

    /// Starts a message; the result is passed back at its end.
    fn open_message(&mut self) -> usize;
    /// Starts the value of a field, the one at `index` of its message.
    fn key(&mut self, index: u32, field: &Field, first: bool);
    fn close_message(&mut self, mark: usize, members: usize);

    fn open_list(&mut self) -> usize;
    fn item(&mut self, field: &Field, first: bool);
    fn close_list(&mut self, mark: usize, items: usize);

    fn open_map(&mut self) -> usize;
    fn entry(&mut self, field: &Field, key: MapKey<'_>, first: bool);
    fn close_entry(&mut self) {}
    fn close_map(&mut self, mark: usize, entries: usize);

    fn bool(&mut self, value: bool);
    fn int32(&mut self, value: i32);
    fn int64(&mut self, value: i64);
    fn uint32(&mut self, value: u32);
    fn uint64(&mut self, value: u64);
    fn float(&mut self, value: f32) -> Result<(), Error>;
    fn double(&mut self, value: f64) -> Result<(), Error>;
    fn string(&mut self, value: &str);
    fn bytes(&mut self, value: &[u8]);
    fn enumeration(&mut self, of: &EnumType, value: i32);

    /// Writes a message in its special representation, if it has one.
    fn special<'a>(
        _printer: &mut Printer<'a, Self>,
        _message: &'a MessageType,
        _parts: Range<usize>,
        _depth: usize,
    ) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MapKey<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(Cow<'a, str>),
}

/// Converts a message, unless more than `max` bytes are written.
pub(super) fn print<S: Sink>(message: &Message, bytes: &[u8], sink: S, max: usize) -> Result<S, Error> {
    let mut printer = Printer { max, ..Printer::new(message, bytes, sink) };
    printer.root(message, bytes)?;
    Ok(printer.sink)
}

/// Prints a message; also returns for how many records there was room at the end.
#[cfg(test)]
pub(super) fn print_counting<S: Sink>(message: &Message, bytes: &[u8], sink: S) -> (Result<S, Error>, usize) {
    let mut printer = Printer::new(message, bytes, sink);
    let printed = printer.root(message, bytes);
    let records = printer.records.capacity();
    (printed.map(|()| printer.sink), records)
}

pub(super) struct Printer<'a, S> {
    pub(super) pool: &'a Pool,
    records: Vec<Record<'a>>,
    max_records: usize,
    /// Maximum number of bytes to write.
    max: usize,
    pub(super) sink: S,
}

/// A run of occurrences of a field.
#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    rank: u32,
    /// Counts the records of all fields of a message.
    sequence: u32,
    index: u32,
    value: Value<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// The field is not set, but written.
    Unset,
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    /// A string, a message, a group without its tags, or packed values.
    Bytes(&'a [u8]),
    /// Successive occurrences of a repeated field, or of a message in several parts, with their tags.
    Run(&'a [u8]),
}

/// The occurrences of a field in one record.
struct Occurrences<'a> {
    single: Option<Value<'a>>,
    run: Reader<'a>,
}

impl<'a> Occurrences<'a> {
    fn new(value: Value<'a>) -> Self {
        match value {
            Value::Run(bytes) => Self { single: None, run: Reader::new(bytes) },
            single => Self { single: Some(single), run: Reader::new(&[]) },
        }
    }
}

impl<'a> Iterator for Occurrences<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        if self.run.is_empty() {
            return self.single.take();
        }
        let (number, wire) = self.run.tag()?;
        read_value(&mut self.run, number, wire)
    }
}

/// Reads the value after a tag.
#[inline]
fn read_value<'a>(reader: &mut Reader<'a>, number: u32, wire: WireType) -> Option<Value<'a>> {
    Some(match wire {
        WireType::Varint => Value::Varint(reader.varint()?),
        WireType::Fixed32 => Value::Fixed32(reader.fixed32()?),
        WireType::Fixed64 => Value::Fixed64(reader.fixed64()?),
        WireType::Bytes => Value::Bytes(reader.bytes()?),
        WireType::StartGroup => Value::Bytes(reader.group(number)?),
        WireType::EndGroup => return None,
    })
}

/// State of the scan of one message.
struct Scan {
    /// Where its records start.
    start: usize,
    /// Number of records so far, including those that were replaced.
    sequence: u32,
    /// Number of records at which those that were replaced are removed.
    compact_at: usize,
}

/// Number of records that are never too many.
const FEW_RECORDS: usize = 1 << 16;

/// Bytes of a message for each further record. An encoder needs a record for each field only.
const BYTES_PER_RECORD: usize = 8;

/// Number of records, or of entries of a map, from which on replaced ones are removed.
const COMPACTED: usize = 1 << 10;

impl<'a, S: Sink> Printer<'a, S> {
    fn new(message: &'a Message, bytes: &'a [u8], sink: S) -> Self {
        let max_records = FEW_RECORDS.max(bytes.len() / BYTES_PER_RECORD);
        Self { pool: message.pool(), records: Vec::with_capacity(16), max_records, max: usize::MAX, sink }
    }

    /// Writes the outermost message.
    fn root(&mut self, message: &'a Message, bytes: &'a [u8]) -> Result<(), Error> {
        let root = self.push(Value::Bytes(bytes));
        self.message(message, root, MAX_DEPTH + 1)
    }

    /// Writes the message whose parts are the records `parts`.
    pub(super) fn message(
        &mut self,
        message: &'a MessageType,
        parts: Range<usize>,
        depth: usize,
    ) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        if message.well_known().is_some() && S::special(self, message, parts.clone(), depth)? {
            return Ok(());
        }
        let mark = self.sink.open_message();
        let members = self.members(message, parts, 0, depth)?;
        self.sink.close_message(mark, members);
        Ok(())
    }

    /// Writes the fields of a message after `members` others, and returns the new number of members.
    pub(super) fn members(
        &mut self,
        message: &'a MessageType,
        parts: Range<usize>,
        mut members: usize,
        depth: usize,
    ) -> Result<usize, Error> {
        let from = self.scan(message, parts)?;
        let mut at = from;
        while let Some((field, group)) = self.group(message, at) {
            let index = self.records.get(at).map_or(0, |record| record.index);
            at = group.end;
            if self.is_shown(field, group.clone())? {
                self.sink.key(index, field, members == 0);
                self.field(field, group, depth)?;
                members += 1;
                self.check_length()?;
            }
        }
        self.records.truncate(from);
        Ok(members)
    }

    #[inline]
    fn check_length(&self) -> Result<(), Error> {
        if self.sink.written() > self.max { Err(Error::TooLong(self.max)) } else { Ok(()) }
    }

    /// Returns the records of the field that starts at `at`.
    pub(super) fn group(&self, message: &'a MessageType, at: usize) -> Option<(&'a Field, Range<usize>)> {
        let index = self.records.get(at)?.index;
        let same = self.records.get(at..)?.iter().take_while(|record| record.index == index).count();
        Some((message.fields().get(index as usize)?, at..at + same))
    }

    fn is_shown(&self, field: &Field, group: Range<usize>) -> Result<bool, Error> {
        if self.sink.shows_unset(field) {
            return Ok(true);
        }
        if field.is_repeated() {
            for value in self.values(group) {
                let dropped = field.is_map() && self.holds_unknown_enum(field, value)?;
                if !dropped && self.items(field, value).next().transpose()?.is_some() {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        Ok(field.has_presence() || !is_zero(field.kind(), self.last(group)))
    }

    /// Writes a field's value, which may be a list, a map or a single value.
    pub(super) fn field(&mut self, field: &'a Field, group: Range<usize>, depth: usize) -> Result<(), Error> {
        if self.sink.is_map(field) {
            self.map(field, group, depth)
        } else if field.is_repeated() {
            self.list(field, group, depth)
        } else {
            self.single(field, group, depth)
        }
    }

    fn list(&mut self, field: &'a Field, group: Range<usize>, depth: usize) -> Result<(), Error> {
        let mark = self.sink.open_list();
        let mut count = 0;
        for record in group {
            for value in Occurrences::new(self.value(record)) {
                for item in self.items(field, value) {
                    let item = item?;
                    self.sink.item(field, count == 0);
                    count += 1;
                    match field.kind().message() {
                        Some(_) => self.with(item, |printer, part| printer.single(field, part, depth))?,
                        None => self.scalar(field, item)?,
                    }
                    self.check_length()?;
                }
            }
        }
        self.sink.close_list(mark, count);
        Ok(())
    }

    /// Writes a value that may occur several times: the last scalar wins, messages are merged.
    pub(super) fn single(
        &mut self,
        field: &'a Field,
        group: Range<usize>,
        depth: usize,
    ) -> Result<(), Error> {
        match field.kind().message() {
            Some(id) => self.message(self.pool.message_type(id), group, depth),
            None => self.scalar(field, self.last(group)),
        }
    }

    fn map(&mut self, field: &'a Field, group: Range<usize>, depth: usize) -> Result<(), Error> {
        let Some(entry) = field.kind().message().map(|id| self.pool.message_type(id)) else {
            return Err(Error::not_protobuf());
        };
        let mark = self.sink.open_map();
        let mut count = 0;
        let mut write = |printer: &mut Self, key: MapKey<'a>, value: &'a [u8]| {
            printer.sink.entry(field, key, count == 0);
            count += 1;
            printer.with(Value::Bytes(value), |printer, part| printer.entry_value(entry, part, depth))?;
            printer.sink.close_entry();
            printer.check_length()
        };
        if field.is_map() {
            for (key, value) in self.entries(entry, field, group)? {
                write(self, key, value)?;
            }
        } else {
            // A field that only brpc treats as a map keeps its order, and equal keys.
            for record in group {
                for value in Occurrences::new(self.value(record)) {
                    if let Some((key, value)) = self.entry(entry, value)? {
                        write(self, key, value)?;
                    }
                }
            }
        }
        self.sink.close_map(mark, count);
        Ok(())
    }

    /// Returns the entries of a map, sorted by key; the last one of equal keys wins.
    fn entries(
        &mut self,
        entry: &'a MessageType,
        field: &Field,
        group: Range<usize>,
    ) -> Result<Vec<(MapKey<'a>, &'a [u8])>, Error> {
        let mut entries = Vec::new();
        let mut compact_at = COMPACTED;
        for record in group {
            for value in Occurrences::new(self.value(record)) {
                let Some(new) = self.entry(entry, value)? else { continue };
                if !self.holds_unknown_enum(field, value)? {
                    entries.push(new);
                }
                if entries.len() >= compact_at {
                    sort_entries(&mut entries);
                    compact_at = COMPACTED.max(2 * entries.len());
                }
            }
        }
        sort_entries(&mut entries);
        Ok(entries)
    }

    /// Returns the key of an entry, and its bytes.
    fn entry(
        &mut self,
        entry: &'a MessageType,
        value: Value<'a>,
    ) -> Result<Option<(MapKey<'a>, &'a [u8])>, Error> {
        let Value::Bytes(bytes) = value else { return Ok(None) };
        self.with(value, |printer, part| {
            let from = printer.scan(entry, part)?;
            printer.map_key(entry, from)
        })
        .map(|key| Some((key, bytes)))
    }

    /// Runs `work` with a value on the stack, and removes it and everything above it.
    fn with<T>(
        &mut self,
        value: Value<'a>,
        work: impl FnOnce(&mut Self, Range<usize>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let part = self.push(value);
        let from = part.start;
        let done = work(self, part)?;
        self.pop(from);
        Ok(done)
    }

    fn map_key(&self, entry: &'a MessageType, from: usize) -> Result<MapKey<'a>, Error> {
        let (key, _) = key_and_value(entry)?;
        let value = match self.group_of(entry, from, key) {
            Some(group) => self.last(group),
            None => Value::Unset,
        };
        Ok(match scalar(key.kind(), value) {
            Scalar::Bool(value) => MapKey::Bool(value),
            Scalar::Int32(value) => MapKey::Int(value.into()),
            Scalar::Int64(value) => MapKey::Int(value),
            Scalar::Uint32(value) => MapKey::Uint(value.into()),
            Scalar::Uint64(value) => MapKey::Uint(value),
            Scalar::String(value) => MapKey::Text(text(key, value)?),
            _ => return Err(Error::not_protobuf()),
        })
    }

    /// An entry whose value is an unknown number of a closed enum counts as an unknown field.
    fn holds_unknown_enum(&self, map: &Field, value: Value<'a>) -> Result<bool, Error> {
        let Some(entry) = map.kind().message() else { return Ok(false) };
        let (_, field) = key_and_value(self.pool.message_type(entry))?;
        let Kind::Enum(id) = field.kind() else { return Ok(false) };
        let Value::Bytes(bytes) = value else { return Ok(false) };
        if !self.pool.enum_type(id).is_closed() {
            return Ok(false);
        }
        let mut reader = Reader::new(bytes);
        let mut last = None;
        while let Some((number, wire)) = reader.tag() {
            match wire {
                WireType::Varint if number == field.number() => last = reader.varint(),
                _ => reader.skip(number, wire).ok_or_else(Error::not_protobuf)?,
            }
        }
        Ok(last.is_some_and(|last| self.pool.enum_type(id).name(last as i32).is_none()))
    }

    fn entry_value(&mut self, entry: &'a MessageType, part: Range<usize>, depth: usize) -> Result<(), Error> {
        let (_, value) = key_and_value(entry)?;
        let from = self.scan(entry, part)?;
        match self.group_of(entry, from, value) {
            Some(group) => self.field(value, group, depth)?,
            None => self.unset(value, depth)?,
        }
        self.records.truncate(from);
        Ok(())
    }

    /// Writes a value for a field that is not set.
    pub(super) fn unset(&mut self, field: &'a Field, depth: usize) -> Result<(), Error> {
        let from = self.records.len();
        if field.is_repeated() {
            return self.field(field, from..from, depth);
        }
        match field.kind().message() {
            Some(id) => self.message(self.pool.message_type(id), from..from, depth),
            None => self.scalar(field, Value::Unset),
        }
    }

    fn scalar(&mut self, field: &'a Field, value: Value<'a>) -> Result<(), Error> {
        let sink = &mut self.sink;
        match scalar(field.kind(), value) {
            Scalar::Bool(value) => sink.bool(value),
            Scalar::Int32(value) => sink.int32(value),
            Scalar::Int64(value) => sink.int64(value),
            Scalar::Uint32(value) => sink.uint32(value),
            Scalar::Uint64(value) => sink.uint64(value),
            Scalar::Float(value) => sink.float(value)?,
            Scalar::Double(value) => sink.double(value)?,
            Scalar::String(value) => sink.string(&text(field, value)?),
            Scalar::Bytes(value) => sink.bytes(value),
            Scalar::Enum(value) => {
                if let Kind::Enum(id) = field.kind() {
                    let of = self.pool.enum_type(id);
                    // In a closed enum, not 0 but the first value stands for "not set".
                    sink.enumeration(of, value.unwrap_or_else(|| of.first()));
                }
            }
        }
        Ok(())
    }

    /// Scans the records `parts`, which hold one message, onto the stack, and returns the start of its records: sorted,
    /// and without those that were replaced by a later member of their oneof.
    pub(super) fn scan(&mut self, message: &'a MessageType, parts: Range<usize>) -> Result<usize, Error> {
        let from = self.records.len();
        for (index, field) in (0..).zip(message.fields()) {
            if self.sink.shows_unset(field) {
                let rank = self.sink.rank(index, field);
                self.records.push(Record { rank, sequence: 0, index, value: Value::Unset });
            }
        }
        let start = self.records.len();
        let mut scan = Scan { start, sequence: 0, compact_at: start + COMPACTED };
        for part in parts {
            for value in Occurrences::new(self.value(part)) {
                if let Value::Bytes(bytes) = value {
                    self.scan_part(message, bytes, &mut scan)?;
                }
            }
        }
        if message.oneofs() > 0 {
            self.resolve_oneofs(message, start);
        }
        let records = self.records.get_mut(from..).unwrap_or_default();
        let order = |record: &Record<'_>| (record.rank, record.sequence);
        if !records.is_sorted_by_key(order) {
            records.sort_unstable_by_key(order);
        }
        Ok(from)
    }

    fn scan_part(&mut self, message: &'a MessageType, bytes: &'a [u8], scan: &mut Scan) -> Result<(), Error> {
        let mut reader = Reader::new(bytes);
        // The field of the last record, and where its run starts.
        let mut run = None;
        while !reader.is_empty() {
            let before = reader.rest();
            let (number, wire) = reader.tag().ok_or_else(Error::not_protobuf)?;
            let known = message.index_of(number).and_then(|index| {
                let field = message.fields().get(index as usize)?;
                let packed = wire == WireType::Bytes && field.is_repeated() && field.kind().is_packable();
                let fits = field.kind().wire_type() == wire || packed;
                (fits && self.sink.has(field)).then_some((index, field))
            });
            let Some((index, field)) = known else {
                reader.skip(number, wire).ok_or_else(Error::not_protobuf)?;
                run = None;
                continue;
            };
            let value = read_value(&mut reader, number, wire).ok_or_else(Error::not_protobuf)?;
            if !self.is_known(field, value) {
                run = None;
                continue;
            }
            match (run, self.records.last_mut()) {
                (Some((same, start)), Some(record)) if same == index => {
                    record.value = if is_replaced_by_the_next(field) {
                        value
                    } else {
                        let start: &'a [u8] = start;
                        Value::Run(&start[..start.len() - reader.rest().len()])
                    };
                }
                _ => {
                    scan.sequence += 1;
                    let (rank, sequence) = (self.sink.rank(index, field), scan.sequence);
                    self.records.push(Record { rank, sequence, index, value });
                    run = Some((index, before));
                    if self.records.len() >= scan.compact_at {
                        self.compact(message, scan)?;
                        run = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes records that later ones replace.
    #[cold]
    fn compact(&mut self, message: &MessageType, scan: &mut Scan) -> Result<(), Error> {
        self.resolve_oneofs(message, scan.start);
        let records = self.records.get_mut(scan.start..).unwrap_or_default();
        let mut seen = vec![false; message.fields().len()];
        let mut kept = records.len();
        for at in (0..records.len()).rev() {
            let record = records[at];
            let field = message.fields().get(record.index as usize);
            let seen = seen.get_mut(record.index as usize).map(|seen| std::mem::replace(seen, true));
            if seen != Some(true) || !field.is_some_and(is_replaced_by_the_next) {
                kept -= 1;
                records[kept] = record;
            }
        }
        drop(self.records.drain(scan.start..scan.start + kept));
        if self.records.len() > self.max_records {
            return Err(Error::new("the fields of the message alternate too often"));
        }
        scan.compact_at = scan.start + COMPACTED.max(2 * (self.records.len() - scan.start));
        Ok(())
    }

    /// A number without a name in a closed enum counts as an unknown field.
    fn is_known(&self, field: &Field, value: Value<'_>) -> bool {
        match (field.kind(), value) {
            (Kind::Enum(id), Value::Varint(number)) => {
                let of = self.pool.enum_type(id);
                !of.is_closed() || of.name(number as i32).is_some()
            }
            _ => true,
        }
    }

    /// The last member of a oneof on the wire wins; earlier values of other members are discarded.
    fn resolve_oneofs(&mut self, message: &MessageType, from: usize) {
        let Some(records) = self.records.get_mut(from..) else { return };
        let oneof_of = |record: &Record<'_>| message.fields().get(record.index as usize)?.oneof();
        // The last member seen, and the start of its most recent uninterrupted run.
        let mut runs = vec![(u32::MAX, 0); message.oneofs()];
        for (at, record) in records.iter().enumerate() {
            if let Some(run) = oneof_of(record).and_then(|oneof| runs.get_mut(oneof))
                && run.0 != record.index
            {
                *run = (record.index, at);
            }
        }
        let mut at = 0;
        let mut kept = 0;
        while let Some(&record) = records.get(at) {
            let run = oneof_of(&record).and_then(|oneof| runs.get(oneof));
            if run.is_none_or(|&(_, start)| at >= start) {
                records[kept] = record;
                kept += 1;
            }
            at += 1;
        }
        self.records.truncate(from + kept);
    }

    /// Returns the values in an occurrence of a repeated field: one, or the packed ones.
    fn items(&self, field: &Field, value: Value<'a>) -> Items<'a> {
        let of = match field.kind() {
            Kind::Enum(id) if self.pool.enum_type(id).is_closed() => Some(self.pool.enum_type(id)),
            _ => None,
        };
        match value {
            Value::Unset => Items::Single(None),
            Value::Bytes(bytes) if field.kind().is_packable() => {
                Items::Packed { reader: Reader::new(bytes), wire: field.kind().wire_type(), of }
            }
            single => Items::Single(Some(single)),
        }
    }

    /// Returns the records of one field of a scanned message.
    pub(super) fn group_of(
        &self,
        message: &'a MessageType,
        from: usize,
        field: &Field,
    ) -> Option<Range<usize>> {
        let mut at = from;
        while let Some((found, group)) = self.group(message, at) {
            if found.number() == field.number() {
                return Some(group);
            }
            at = group.end;
        }
        None
    }

    /// Returns the last value of the field with this number in a scanned message.
    pub(super) fn last_of(&self, message: &'a MessageType, from: usize, number: u32) -> Value<'a> {
        let field = message.field(number);
        field
            .and_then(|field| self.group_of(message, from, field))
            .map_or(Value::Unset, |group| self.last(group))
    }

    /// Pushes a value onto the stack and returns its range.
    pub(super) fn push(&mut self, value: Value<'a>) -> Range<usize> {
        let at = self.records.len();
        self.records.push(Record { rank: 0, sequence: 0, index: 0, value });
        at..at + 1
    }

    /// Pops everything from `from` on.
    pub(super) fn pop(&mut self, from: usize) {
        self.records.truncate(from);
    }

    fn last(&self, group: Range<usize>) -> Value<'a> {
        if group.is_empty() {
            return Value::Unset;
        }
        Occurrences::new(self.value(group.end - 1)).last().unwrap_or(Value::Unset)
    }

    /// Returns all values of a field.
    pub(super) fn values(&self, group: Range<usize>) -> impl Iterator<Item = Value<'a>> {
        group.flat_map(move |record| Occurrences::new(self.value(record)))
    }

    fn value(&self, record: usize) -> Value<'a> {
        self.records.get(record).map_or(Value::Unset, |record| record.value)
    }
}

/// Whether only the last occurrence of a field counts.
fn is_replaced_by_the_next(field: &Field) -> bool {
    !field.is_repeated() && field.kind().message().is_none()
}

/// Sorts entries by key and removes those that a later one with the same key replaces.
fn sort_entries(entries: &mut Vec<(MapKey<'_>, &[u8])>) {
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries.reverse();
    entries.dedup_by(|a, b| a.0 == b.0);
    entries.reverse();
}

/// Returns the key and value fields of a map's entry, or of what brpc treats as one.
fn key_and_value(entry: &MessageType) -> Result<(&Field, &Field), Error> {
    match (entry.is_map_entry(), entry.fields()) {
        (true, _) => entry.field(1).zip(entry.field(2)),
        (false, [key, value]) => Some((key, value)),
        _ => None,
    }
    .ok_or_else(Error::not_protobuf)
}

enum Items<'a> {
    Single(Option<Value<'a>>),
    Packed { reader: Reader<'a>, wire: WireType, of: Option<&'a EnumType> },
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Value<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (reader, wire, of) = match self {
            Self::Single(value) => return value.take().map(Ok),
            Self::Packed { reader, wire, of } => (reader, wire, of),
        };
        while !reader.is_empty() {
            let value = match wire {
                WireType::Fixed32 => reader.fixed32().map(Value::Fixed32),
                WireType::Fixed64 => reader.fixed64().map(Value::Fixed64),
                _ => reader.varint().map(Value::Varint),
            };
            match (value, &of) {
                (None, _) => {
                    *self = Items::Single(None);
                    return Some(Err(Error::not_protobuf()));
                }
                (Some(Value::Varint(number)), Some(of)) if of.name(number as i32).is_none() => {}
                (Some(value), _) => return Some(Ok(value)),
            }
        }
        None
    }
}

/// A value, interpreted by its kind.
enum Scalar<'a> {
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Uint32(u32),
    Uint64(u64),
    Float(f32),
    Double(f64),
    String(&'a [u8]),
    Bytes(&'a [u8]),
    Enum(Option<i32>),
}

fn scalar(kind: Kind, value: Value<'_>) -> Scalar<'_> {
    let (bits, bytes) = match value {
        Value::Unset => (0, [].as_slice()),
        Value::Varint(bits) | Value::Fixed64(bits) => (bits, [].as_slice()),
        Value::Fixed32(bits) => (bits.into(), [].as_slice()),
        Value::Bytes(bytes) => (0, bytes),
        // Of a field without runs.
        Value::Run(_) => (0, [].as_slice()),
    };
    match kind {
        Kind::Bool => Scalar::Bool(bits != 0),
        Kind::Int32 | Kind::Sfixed32 => Scalar::Int32(bits as i32),
        Kind::Int64 | Kind::Sfixed64 => Scalar::Int64(bits as i64),
        Kind::Uint32 | Kind::Fixed32 => Scalar::Uint32(bits as u32),
        Kind::Uint64 | Kind::Fixed64 => Scalar::Uint64(bits),
        Kind::Sint32 => Scalar::Int32(zigzag(u64::from(bits as u32)) as i32),
        Kind::Sint64 => Scalar::Int64(zigzag(bits)),
        Kind::Float => Scalar::Float(f32::from_bits(bits as u32)),
        Kind::Double => Scalar::Double(f64::from_bits(bits)),
        Kind::String => Scalar::String(bytes),
        Kind::Bytes | Kind::Message(_) | Kind::Group(_) => Scalar::Bytes(bytes),
        Kind::Enum(_) => Scalar::Enum((!matches!(value, Value::Unset)).then_some(bits as i32)),
    }
}

fn zigzag(bits: u64) -> i64 {
    (bits >> 1) as i64 ^ -((bits & 1) as i64)
}

fn is_zero(kind: Kind, value: Value<'_>) -> bool {
    match (kind, value) {
        (_, Value::Unset) => true,
        // These use only the low 32 bits of a varint, so that a large one may be zero for them.
        (Kind::Int32 | Kind::Uint32 | Kind::Sint32 | Kind::Enum(_), Value::Varint(bits)) => bits as u32 == 0,
        (_, Value::Varint(bits) | Value::Fixed64(bits)) => bits == 0,
        (_, Value::Fixed32(bits)) => bits == 0,
        (_, Value::Bytes(bytes) | Value::Run(bytes)) => bytes.is_empty(),
    }
}

/// Returns a string's text. proto3 requires UTF-8; proto2 does not, and there malformed UTF-8 is replaced, since no
/// other format can represent it.
fn text<'a>(field: &Field, bytes: &'a [u8]) -> Result<Cow<'a, str>, Error> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Ok(Cow::Borrowed(text)),
        Err(_) if field.is_utf8_checked() => {
            Err(Error::new(format!("string field {} is not UTF-8", field.full_name())))
        }
        Err(_) => Ok(String::from_utf8_lossy(bytes)),
    }
}
