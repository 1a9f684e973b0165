//! Conversion from gob to protobuf by the rules of Go's decoder: the sent types must be compatible with the struct that
//! protoc-gen-go generates for the message, whether or not they have a value (Go `encoding/gob/decode.go`, `compileDec`
//! and `compatibleType`).

use std::collections::HashMap;
use std::rc::Rc;

use polyrpc_core::protobuf::{WireType, put_tag};

use super::go_name;
use crate::gob::decode::Decoder;
use crate::gob::types::Kind as Sent;
use crate::gob::{Error as GobError, read};
use crate::schema::{Field, Kind, Message, MessageId, MessageType, Pool};
use crate::transcode::binary::{close, close_message, open, open_message, put_bytes, put_integer};
use crate::transcode::{Error, MAX_DEPTH};

pub(in crate::transcode) fn parse(message: &Message, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    read(bytes, |decoder, of| {
        let mut parser = Parser {
            pool: message.pool(),
            decoder,
            matches: HashMap::new(),
            out: Vec::with_capacity(bytes.len()),
        };
        parser.top(message, of)?;
        Ok(parser.out)
    })
}

struct Parser<'p, 't, 'de> {
    pool: &'p Pool,
    decoder: Decoder<'t, 'de>,
    /// Mapping from the fields of sent structs to those of messages.
    matches: HashMap<(MessageId, i32), Match>,
    out: Vec<u8>,
}

/// For each sent field, the index of the message's field with the same name.
type Match = Rc<[Option<u32>]>;

impl<'p, 't> Parser<'p, 't, '_> {
    fn top(&mut self, message: &'p MessageType, of: i32) -> Result<(), Error> {
        let sent = match self.decoder.kind(of)? {
            Sent::Struct(fields) => fields,
            other => return Err(self.decoder.mismatch(other, message.name()).into()),
        };
        self.compile(message, of, MAX_DEPTH)?;
        let none = self.matches.get(&(message.id(), of)).is_none_or(|all| all.iter().all(Option::is_none));
        if none && sent.len() > 0 && !message.fields().is_empty() {
            let name = message.name();
            return Err(Error::new(format!("type mismatch: no fields matched compiling decoder for {name}")));
        }
        self.message(message, of, MAX_DEPTH + 1)
    }

    /// Matches a struct with a message, including all nested ones.
    fn compile(&mut self, message: &'p MessageType, of: i32, depth: usize) -> Result<(), Error> {
        if self.matches.contains_key(&(message.id(), of)) {
            return Ok(());
        }
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        let Sent::Struct(fields) = self.decoder.kind(of)? else {
            return Err(GobError::unknown_type().into());
        };
        let known: HashMap<_, _> = (0..)
            .zip(message.fields())
            .filter(|(_, field)| !field.is_extension())
            .map(|(index, field)| (go_name(field.name()), index))
            .collect();
        let sent: Vec<(&'t str, i32)> = self.decoder.fields(fields).collect();
        let matches: Match = sent.iter().map(|(name, _)| known.get(*name).copied()).collect();
        // Recorded before nested types are checked, which may recurse to it.
        self.matches.insert((message.id(), of), matches.clone());
        for (&(name, of), index) in sent.iter().zip(&*matches) {
            if let Some(field) = index.and_then(|index| message.fields().get(index as usize)) {
                self.decoder.field = name;
                self.check(field, of, depth)?;
            }
        }
        self.decoder.field = "";
        Ok(())
    }

    /// Checks that a field accepts values of this type.
    fn check(&mut self, field: &'p Field, of: i32, depth: usize) -> Result<(), Error> {
        match (self.decoder.kind(of)?, entry(self.pool, field)) {
            (Sent::Map { key, elem }, Some((own_key, own_elem))) => {
                self.check_one(own_key, key, depth)?;
                self.check_one(own_elem, elem, depth)
            }
            (other, Some(_)) => Err(self.decoder.mismatch(other, "map").into()),
            (Sent::Slice { elem }, None) if field.is_repeated() => self.check_one(field, elem, depth),
            (other, None) if field.is_repeated() => Err(self.decoder.mismatch(other, "slice").into()),
            (_, None) => self.check_one(field, of, depth),
        }
    }

    fn check_one(&mut self, field: &'p Field, of: i32, depth: usize) -> Result<(), Error> {
        let sent = self.decoder.kind(of)?;
        let (fits, wanted) = match field.kind() {
            Kind::Bool => (sent == Sent::Bool, "bool"),
            Kind::Float => (sent == Sent::Float, "float32"),
            Kind::Double => (sent == Sent::Float, "float64"),
            Kind::String => (sent == Sent::String, "string"),
            Kind::Bytes => (sent == Sent::Bytes, "bytes"),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Enum(_) => (sent == Sent::Int, "int32"),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => (sent == Sent::Int, "int64"),
            Kind::Uint32 | Kind::Fixed32 => (sent == Sent::Uint, "uint32"),
            Kind::Uint64 | Kind::Fixed64 => (sent == Sent::Uint, "uint64"),
            Kind::Message(id) | Kind::Group(id) => {
                let message = self.pool.message_type(id);
                if matches!(sent, Sent::Struct(_)) {
                    return self.compile(message, of, depth);
                }
                (false, message.name())
            }
        };
        if fits { Ok(()) } else { Err(self.decoder.mismatch(sent, wanted).into()) }
    }

    /// Decodes a struct whose types match.
    fn message(&mut self, message: &'p MessageType, of: i32, depth: usize) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        let (Sent::Struct(fields), Some(matches)) =
            (self.decoder.kind(of)?, self.matches.get(&(message.id(), of)).cloned())
        else {
            return Err(GobError::unknown_type().into());
        };
        let mut last = -1;
        while let Some(sent_index) = self.decoder.next_field(fields, last)? {
            last = sent_index;
            let (name, of) = self.decoder.named_field(fields, sent_index)?;
            let index = matches.get(sent_index as usize).copied().flatten();
            match index.and_then(|index| message.fields().get(index as usize)) {
                Some(field) => {
                    self.decoder.field = name;
                    self.field(field, of, depth)?;
                }
                None => self.decoder.skip(of)?,
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &'p Field, of: i32, depth: usize) -> Result<(), Error> {
        match (self.decoder.kind(of)?, entry(self.pool, field)) {
            (Sent::Map { key, elem }, Some((own_key, own_elem))) => {
                for _ in 0..self.decoder.cursor.count(2)? {
                    let nested = open_message(&mut self.out, field.number(), field.kind());
                    self.single(own_key, key, depth)?;
                    self.single(own_elem, elem, depth)?;
                    close_message(&mut self.out, nested);
                }
                Ok(())
            }
            (kind @ Sent::Slice { .. }, None) if field.is_repeated() => {
                let (elem, count) = self.decoder.elements(kind)?;
                match field.is_packed() && count > 0 {
                    true => self.packed_list(field, count),
                    false => (0..count).try_for_each(|_| self.single(field, elem, depth)),
                }
            }
            _ => self.single(field, of, depth),
        }
    }

    fn packed_list(&mut self, field: &Field, count: usize) -> Result<(), Error> {
        put_tag(&mut self.out, field.number(), WireType::Bytes);
        let mark = open(&mut self.out);
        (0..count).try_for_each(|_| self.scalar(field))?;
        close(&mut self.out, mark);
        Ok(())
    }

    /// Decodes one value and writes it after its tag.
    fn single(&mut self, field: &'p Field, of: i32, depth: usize) -> Result<(), Error> {
        if let Some(id) = field.kind().message() {
            let nested = open_message(&mut self.out, field.number(), field.kind());
            self.message(self.pool.message_type(id), of, depth)?;
            close_message(&mut self.out, nested);
            return Ok(());
        }
        put_tag(&mut self.out, field.number(), field.kind().wire_type());
        self.scalar(field)
    }

    fn scalar(&mut self, field: &Field) -> Result<(), Error> {
        let (cursor, out) = (&mut self.decoder.cursor, &mut self.out);
        let in_range = match field.kind() {
            Kind::Bool => {
                out.push((cursor.uint()? != 0).into());
                true
            }
            Kind::Double => {
                out.extend_from_slice(&cursor.float()?.to_le_bytes());
                true
            }
            Kind::Float => {
                let value = cursor.float()?;
                out.extend_from_slice(&(value as f32).to_le_bytes());
                !value.is_finite() || value.abs() <= f32::MAX.into()
            }
            Kind::String if field.is_utf8_checked() => {
                put_bytes(out, cursor.text()?.as_bytes());
                true
            }
            Kind::String | Kind::Bytes => {
                put_bytes(out, cursor.bytes()?);
                true
            }
            kind @ (Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64) => {
                put_integer(out, kind, cursor.uint()?.into()).is_some()
            }
            kind => put_integer(out, kind, cursor.int()?.into()).is_some(),
        };
        if in_range { Ok(()) } else { Err(GobError::out_of_range(self.decoder.field).into()) }
    }
}

/// Returns the key and value fields of a map.
fn entry<'p>(pool: &'p Pool, field: &Field) -> Option<(&'p Field, &'p Field)> {
    let entry = pool.message_type(field.kind().message().filter(|_| field.is_map())?);
    Some((entry.field(1)?, entry.field(2)?))
}
