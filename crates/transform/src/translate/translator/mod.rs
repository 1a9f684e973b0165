use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc::codec::Body;
use polyrpc::payload::schema::Message;
use polyrpc::payload::{gob, transcode};
use polyrpc::{Format, Json};
use polyrpc_build::fbs;
use serde_json::Value;
use serde_json::value::RawValue;

use super::losses;
use super::method::MethodSchema;
use super::plain;
use super::positional;
use super::same_names;
use super::translator_error::{Reason, TranslatorError};
use crate::direction::Direction;
use crate::flatbuffers::{self, Style};
use crate::struct_pack::Signature;
use crate::{Error, json, msgpack, strict};

/// Limits and rules of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Treatment of parts that the other format or schema cannot represent.
    pub on_loss: OnLoss,
    /// Maximum length of a translated message, in bytes. Default: 64 MiB.
    pub max_size: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { on_loss: OnLoss::Reject, max_size: 64 << 20 }
    }
}

/// Treatment of parts that a translation loses: unknown fields and enum values, integers beyond 64 bits, extensions of
/// MessagePack, strings that are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// The message is rejected.
    #[default]
    Reject,
    /// The rest is translated, and the lost parts are counted.
    Count,
}

/// A translated message.
#[derive(Debug)]
pub struct Translation {
    /// The message in the new format.
    pub body: Body,
    /// Number of lost parts.
    pub lost: u64,
}

/// Translates the messages of one method and direction from one format to another.
///
/// ```
/// use polyrpc::{Bytes, Format, Json, codec::Body};
/// use polyrpc_transform::{Direction, MethodSchema, Options, Translator};
///
/// let plain = MethodSchema::default();
/// let (json, msgpack) = (Format::Json(Json::Go), Format::MessagePack);
/// let translator = Translator::new(Direction::Request, json, msgpack, &plain, Options::default())?;
/// let message = translator.translate(Body::new(json, Bytes::from_static(b"[1, true]")))?;
/// assert_eq!(message.body.bytes, &b"\x92\x01\xc3"[..]);
///
/// let refused = Translator::new(Direction::Request, json, Format::Protobuf, &plain, Options::default());
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     "json cannot become protobuf without a .proto that declares the method",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Translator {
    direction: Direction,
    from: Format,
    to: Format,
    plan: Plan,
    options: Options,
}

#[derive(Debug)]
enum Plan {
    /// The bytes are unchanged.
    Same,
    /// By a `.proto`.
    Typed(Message),
    /// Self-describing formats without a schema.
    Plain,
    /// By a `.fbs`, and a `.proto` if the other format needs one.
    Flatbuffers { table: Table, message: Option<Message> },
    /// By the types of a function, a `.proto` that names them, and a `.fbs` if the other format needs one.
    Positional { signature: Signature, message: Option<Message>, table: Option<Table> },
}

/// A table of a `.fbs`.
#[derive(Debug)]
struct Table {
    schema: Arc<fbs::Schema>,
    index: usize,
}

impl Translator {
    /// Plans the translation of a method's messages.
    ///
    /// # Errors
    ///
    /// What is missing, if it is impossible.
    pub fn new(
        direction: Direction,
        from: Format,
        to: Format,
        schema: &MethodSchema,
        options: Options,
    ) -> Result<Self, TranslatorError> {
        let planned = plan(direction, from, to, schema);
        let plan = planned.map_err(|reason| TranslatorError { from, to, reason })?;
        Ok(Self { direction, from, to, plan, options })
    }

    /// Whether messages are passed on without decoding.
    pub fn is_identity(&self) -> bool {
        matches!(self.plan, Plan::Same)
    }

    /// Returns the format of translated messages.
    pub fn to(&self) -> Format {
        self.to
    }

    /// Translates a message.
    ///
    /// # Errors
    ///
    /// If it is malformed, does not match the schema, is too large or nested too deeply, or would lose a part and
    /// [`OnLoss::Reject`] applies.
    pub fn translate(&self, body: Body) -> Result<Translation, Error> {
        let translated = match &self.plan {
            Plan::Same => {
                return Ok(Translation { body: Body { format: self.to, ..body }, lost: 0 });
            }
            Plan::Typed(message) => self.translate_typed(message, &body)?,
            Plan::Plain => self.translate_plain(&body)?,
            Plan::Flatbuffers { table, message } => {
                self.translate_flatbuffers(table, message.as_ref(), &body)?
            }
            Plan::Positional { signature, message: None, .. } => self.translate_list(signature, &body)?,
            Plan::Positional { signature, message: Some(message), table } => {
                self.translate_positional(signature, message, table.as_ref(), &body)?
            }
        };
        if translated.lost > 0 && self.options.on_loss == OnLoss::Reject {
            return Err(lossy(translated.lost, self.to, self.first_undeclared(&body)));
        }
        if translated.body.bytes.len() > self.options.max_size {
            return Err(too_large(self.options.max_size));
        }
        Ok(translated)
    }

    /// Says what JSON has that its message does not declare.
    #[cold]
    fn first_undeclared(&self, body: &Body) -> Option<String> {
        let (Plan::Typed(message), Format::Json(_)) = (&self.plan, self.from) else { return None };
        let argument = if body.positional { sole_argument(&body.bytes).ok()? } else { &body.bytes[..] };
        strict::find_undeclared(message, argument)
    }

    fn translate_typed(&self, message: &Message, body: &Body) -> Result<Translation, Error> {
        let (protobuf, unknown) = self.to_protobuf(message, self.from, body)?;
        let (bytes, lost) = self.print_protobuf(message, self.to, &protobuf)?;
        // Unknown parts of the binary format are counted while writing.
        Ok(Translation { body: Body::new(self.to, bytes), lost: unknown + lost })
    }

    /// Also returns the number of values that the schema does not declare.
    fn to_protobuf<'b>(
        &self,
        message: &Message,
        from: Format,
        body: &'b Body,
    ) -> Result<(Cow<'b, [u8]>, u64), Error> {
        let bytes: &[u8] = &body.bytes;
        if from == Format::Protobuf || bytes.is_empty() {
            return Ok((Cow::Borrowed(bytes), 0));
        }
        let argument = if body.positional { sole_argument(bytes)? } else { bytes };
        let parsed = transcode::parse(message, from, argument).map_err(|error| mismatch(message, &error))?;
        Ok((Cow::Owned(parsed.protobuf), parsed.unknown))
    }

    fn print_protobuf(&self, message: &Message, to: Format, bytes: &[u8]) -> Result<(Bytes, u64), Error> {
        if to == Format::Protobuf {
            return Ok((Bytes::copy_from_slice(bytes), 0));
        }
        let scan = losses::scan(message, bytes).ok_or_else(|| {
            Error::new(format!("the message is not {} in protobuf's binary format", message.full_name()))
        })?;
        // The scan overestimates.
        if scan.max_size / 8 > self.options.max_size {
            return Err(too_large(self.options.max_size));
        }
        let written = transcode::from_protobuf_within(message, to, bytes, self.options.max_size);
        let written = written.map_err(|error| match error {
            transcode::Error::TooLong(max_size) => too_large(max_size),
            error => mismatch(message, &error),
        })?;
        Ok((written.into(), scan.lost))
    }

    fn translate_plain(&self, body: &Body) -> Result<Translation, Error> {
        let (json, lost) = to_json(self.from, &body.bytes)?;
        let (bytes, more) = from_json(self.to, json.as_bytes())?;
        let positional = body.positional;
        Ok(Translation { body: Body { positional, ..Body::new(self.to, bytes) }, lost: lost + more })
    }

    fn translate_flatbuffers(
        &self,
        table: &Table,
        message: Option<&Message>,
        body: &Body,
    ) -> Result<Translation, Error> {
        let (bytes, lost) = match (message, self.from) {
            (Some(message), Format::FlatBuffers) => {
                let (protobuf, unknown) = self.flatbuffers_to_protobuf(table, message, body)?;
                let (bytes, lost) = self.print_protobuf(message, self.to, &protobuf)?;
                (bytes, lost + unknown)
            }
            (Some(message), _) => {
                let (protobuf, unknown) = self.to_protobuf(message, self.from, body)?;
                let (bytes, lost) = self.protobuf_to_flatbuffers(table, message, &protobuf)?;
                (bytes, lost + unknown)
            }
            (None, Format::FlatBuffers) => {
                let max = self.options.max_size;
                let json = flatbuffers::to_json(&table.schema, table.index, &body.bytes, Style::Flatc, max)?;
                from_json(self.to, json.as_bytes())?
            }
            (None, _) => {
                let (json, lost) = to_json(self.from, &body.bytes)?;
                let (bytes, more) = self.write_table(table, json.as_bytes(), Style::Flatc)?;
                (bytes, lost + more)
            }
        };
        Ok(Translation { body: Body::new(self.to, bytes), lost })
    }

    /// Names and numbers are those of the `.proto`, which are those of the `.fbs`.
    fn flatbuffers_to_protobuf(
        &self,
        table: &Table,
        message: &Message,
        body: &Body,
    ) -> Result<(Vec<u8>, u64), Error> {
        let max_size = self.options.max_size;
        let json = flatbuffers::to_json(&table.schema, table.index, &body.bytes, Style::Protobuf, max_size)?;
        let json = Body::new(NAMES, json);
        self.to_protobuf(message, NAMES, &json).map(|(protobuf, unknown)| (protobuf.into_owned(), unknown))
    }

    fn protobuf_to_flatbuffers(
        &self,
        table: &Table,
        message: &Message,
        protobuf: &[u8],
    ) -> Result<(Bytes, u64), Error> {
        let (json, lost) = self.print_protobuf(message, NAMES, protobuf)?;
        let (bytes, more) = self.write_table(table, &json, Style::Protobuf)?;
        Ok((bytes, lost + more))
    }

    fn write_table(&self, table: &Table, json: &[u8], style: Style) -> Result<(Bytes, u64), Error> {
        let mut value: Value = match json.is_empty() {
            true => Value::Object(serde_json::Map::new()),
            false => serde_json::from_slice(json).map_err(json::no_json)?,
        };
        let lost = match self.options.on_loss {
            OnLoss::Count => flatbuffers::prune(&table.schema, table.index, &mut value),
            OnLoss::Reject => 0,
        };
        Ok((flatbuffers::from_json(&table.schema, table.index, &value, style)?, lost))
    }

    /// Translates arguments or a result that have no names: lists on both sides.
    fn translate_list(&self, signature: &Signature, body: &Body) -> Result<Translation, Error> {
        let (value, lost) = match positional::is_positional(self.from) {
            true => (positional::decode(self.from, signature, self.direction, &body.bytes)?, 0),
            false => {
                let (json, lost) = to_json(self.from, &body.bytes)?;
                (self.read_list(signature, json.as_bytes())?, lost)
            }
        };
        if positional::is_positional(self.to) {
            let body = positional::encode(self.to, signature, self.direction, &value)?;
            return Ok(Translation { body, lost });
        }
        let (bytes, more) = from_json(self.to, value.to_string().as_bytes())?;
        let positional = self.direction == Direction::Request;
        Ok(Translation { body: Body { positional, ..Body::new(self.to, bytes) }, lost: lost + more })
    }

    /// Translates arguments or a result to or from the fields of a message.
    fn translate_positional(
        &self,
        signature: &Signature,
        message: &Message,
        table: Option<&Table>,
        body: &Body,
    ) -> Result<Translation, Error> {
        if positional::is_positional(self.from) {
            let value = positional::decode(self.from, signature, self.direction, &body.bytes)?;
            let object = positional::to_object(message, self.direction, value)?;
            let json = Body::new(MEMBERS, object.to_string().into_bytes());
            let (protobuf, unknown) = self.to_protobuf(message, MEMBERS, &json)?;
            let (bytes, lost) = match table {
                Some(table) => self.protobuf_to_flatbuffers(table, message, &protobuf)?,
                None => self.print_protobuf(message, self.to, &protobuf)?,
            };
            return Ok(Translation { body: Body::new(self.to, bytes), lost: lost + unknown });
        }
        // Callers may send a list where names are declared.
        if is_list(self.from, body) {
            return self.translate_list(signature, body);
        }
        let (protobuf, unknown) = match table {
            Some(table) => self.flatbuffers_to_protobuf(table, message, body)?,
            None => {
                let (protobuf, unknown) = self.to_protobuf(message, self.from, body)?;
                (protobuf.into_owned(), unknown)
            }
        };
        let (json, lost) = self.print_protobuf(message, MEMBERS, &protobuf)?;
        let object = serde_json::from_slice(&json).map_err(json::no_json)?;
        let value = positional::from_object(message, self.direction, object);
        let body = positional::encode(self.to, signature, self.direction, &value)?;
        Ok(Translation { body, lost: lost + unknown })
    }

    /// Reads arguments or a result. A sole argument does not have to be in a list.
    fn read_list(&self, signature: &Signature, json: &[u8]) -> Result<Value, Error> {
        if json.is_empty() {
            return Ok(if self.direction == Direction::Request {
                Value::Array(Vec::new())
            } else {
                Value::Null
            });
        }
        let value: Value = serde_json::from_slice(json).map_err(json::no_json)?;
        let count = signature.arguments.len();
        match (self.direction, value) {
            (Direction::Response, value) => Ok(value),
            (Direction::Request, Value::Array(list)) if list.len() == count => Ok(Value::Array(list)),
            (Direction::Request, Value::Null) if count == 0 => Ok(Value::Array(Vec::new())),
            (Direction::Request, sole) if count == 1 => Ok(Value::Array(vec![sole])),
            _ => Err(Error::new(format!("the function takes a list of {count} arguments"))),
        }
    }
}

/// Whether a self-describing message is a list or a single value, not an object.
fn is_list(format: Format, body: &Body) -> bool {
    let first = body.bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match (format, body.bytes.first()) {
        (Format::Json(_), _) => first.is_some_and(|byte| *byte != b'{'),
        (Format::MessagePack, Some(byte)) => !matches!(byte, 0x80..=0x8f | 0xde | 0xdf),
        _ => false,
    }
}

fn plan(direction: Direction, from: Format, to: Format, schema: &MethodSchema) -> Result<Plan, Reason> {
    let types = schema.proto.as_ref();
    let message = || {
        types.map(|types| match direction {
            Direction::Request => types.input.clone(),
            Direction::Response => types.output.clone(),
        })
    };
    let formats = [from, to];
    if from == to || dialect(from).is_some() && dialect(from) == dialect(to) {
        return Ok(Plan::Same);
    }
    if formats.iter().any(|format| matches!(format, Format::Raw | Format::Other(_))) {
        return Err(Reason::Never);
    }
    if formats.into_iter().any(positional::is_positional) {
        return plan_by_position(direction, formats, schema, message());
    }
    if formats.contains(&Format::FlatBuffers) {
        let Some(method) = &schema.flatbuffers else { return Err(Reason::NeedsFbs) };
        let table = method.table(direction);
        // Gob's types must be those of the peer, which plain values do not show.
        let needs_proto =
            formats.into_iter().any(|format| matches!(format, Format::Protobuf | Format::ProtoText))
                || to == Format::Gob;
        let message = match message() {
            None if needs_proto => return Err(Reason::NeedsProto),
            // Go's names differ from those of a .fbs.
            message if needs_proto || from == Format::Gob => message,
            _ => None,
        };
        if let Some(message) = &message {
            same_names::check(method.schema(), table, message).map_err(Reason::Mismatch)?;
        }
        return Ok(Plan::Flatbuffers {
            table: Table { schema: method.schema().clone(), index: table },
            message,
        });
    }
    match (message(), from, to) {
        (Some(message), ..) => Ok(Plan::Typed(message)),
        // Plain values are the same in every dialect.
        (None, Format::Json(_), Format::Json(_)) => Ok(Plan::Same),
        (None, Format::Json(_) | Format::Gob, Format::MessagePack) => Ok(Plan::Plain),
        (None, Format::MessagePack | Format::Gob, Format::Json(_)) => Ok(Plan::Plain),
        _ => Err(Reason::NeedsProto),
    }
}

fn plan_by_position(
    direction: Direction,
    formats: [Format; 2],
    schema: &MethodSchema,
    message: Option<Message>,
) -> Result<Plan, Reason> {
    let signature = schema.signature.clone().ok_or(Reason::NeedsTypes)?;
    if direction == Direction::Response
        && signature.answer.is_none()
        && formats.iter().any(|format| matches!(format, Format::RestRpc | Format::StructPack))
    {
        return Err(Reason::NeedsTypes);
    }
    if formats.into_iter().all(positional::is_positional) {
        return Ok(Plan::Positional { signature, message: None, table: None });
    }
    let named =
        |format| matches!(format, Format::Protobuf | Format::ProtoText | Format::Gob | Format::FlatBuffers);
    let needs_proto = formats.into_iter().any(named);
    let table = match (&schema.flatbuffers, formats.contains(&Format::FlatBuffers)) {
        (_, false) => None,
        (None, true) => return Err(Reason::NeedsFbs),
        (Some(method), true) => {
            Some(Table { schema: method.schema().clone(), index: method.table(direction) })
        }
    };
    let message = match message {
        None if needs_proto => return Err(Reason::NeedsProto),
        None => None,
        Some(message) => match positional::check(&message, &signature, direction) {
            Ok(()) => Some(message),
            Err(difference) if needs_proto => return Err(Reason::Mismatch(difference)),
            // The values of JSON and MessagePack need no names.
            Err(_) => None,
        },
    };
    if let (Some(table), Some(message)) = (&table, &message) {
        same_names::check(&table.schema, table.index, message).map_err(Reason::Mismatch)?;
    }
    Ok(Plan::Positional { signature, message, table })
}

/// The dialect in which JSON is written.
fn dialect(format: Format) -> Option<Json> {
    match format {
        Format::Json(Json::BrpcLenient) => Some(Json::Brpc),
        Format::Json(dialect) => Some(dialect),
        _ => None,
    }
}

/// Converts a self-describing format. Also returns the number of lost parts.
fn to_json(from: Format, bytes: &[u8]) -> Result<(Cow<'_, str>, u64), Error> {
    match from {
        Format::MessagePack if bytes.is_empty() => Ok((Cow::Borrowed("null"), 0)),
        Format::MessagePack => {
            let (json, lost) =
                msgpack::to_json_counting(bytes).map_err(|error| Error::new(error.to_string()))?;
            Ok((Cow::Owned(json), lost))
        }
        Format::Gob => {
            let json = gob::to_json(bytes).map_err(|error| Error::new(error.to_string()))?;
            Ok((Cow::Owned(json), 0))
        }
        _ if bytes.is_empty() => Ok((Cow::Borrowed("{}"), 0)),
        _ => json::check(bytes).map(|json| (Cow::Borrowed(json), 0)).map_err(json::no_json),
    }
}

fn from_json(to: Format, json: &[u8]) -> Result<(Bytes, u64), Error> {
    match to {
        Format::MessagePack => plain::to_msgpack(json).map(|(bytes, lost)| (bytes.into(), lost)),
        _ => Ok((Bytes::copy_from_slice(json), 0)),
    }
}

/// The only element of a list of arguments (JSON-RPC).
fn sole_argument(bytes: &[u8]) -> Result<&[u8], Error> {
    let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(bytes) else { return Ok(bytes) };
    match list.as_slice() {
        [] => Ok(b"{}"),
        [sole] => Ok(sole.get().as_bytes()),
        _ => Err(Error::new("the method takes one message, not a list of arguments")),
    }
}

/// Names as declared, 64-bit integers as numbers, enums by name, bytes in base64.
const NAMES: Format = Format::Json(Json::Brpc);

/// The same with every field, and enums as numbers.
const MEMBERS: Format = Format::Json(Json::Go);

#[cold]
fn mismatch(message: &Message, error: &transcode::Error) -> Error {
    Error::new(format!("the message does not match {}: {error}", message.full_name()))
}

#[cold]
fn lossy(lost: u64, to: Format, first: Option<String>) -> Error {
    let parts = if lost == 1 { "part" } else { "parts" };
    let text = format!("{lost} {parts} of the message cannot be expressed in {}", to.as_str());
    Error::new(match first {
        Some(first) => format!("{text}: {first}"),
        None => text,
    })
}

#[cold]
fn too_large(max_size: usize) -> Error {
    Error::new(format!("the translated message is larger than {max_size} bytes"))
}

#[cfg(test)]
mod tests;
