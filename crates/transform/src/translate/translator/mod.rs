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

use super::impossible::{Impossible, Reason};
use super::losses;
use super::method::MethodSchema;
use super::plain;
use super::positional;
use super::same_names;
use crate::direction::Direction;
use crate::flatbuffers::{self, Style};
use crate::struct_pack::Signature;
use crate::{Error, json, msgpack};

/// Limits and rules of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to do with parts that the other format or schema cannot represent.
    pub on_loss: OnLoss,
    /// Maximum length of a translated message, in bytes. Default: 64 MiB.
    pub max_size: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { on_loss: OnLoss::Refuse, max_size: 64 << 20 }
    }
}

/// Treatment of parts that a translation loses: unknown fields and enum values, integers beyond 64 bits, extensions of
/// MessagePack, strings that are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// The message is refused.
    #[default]
    Refuse,
    /// The rest is translated, and the lost parts are counted.
    Count,
}

/// A translated message.
#[derive(Debug)]
pub struct Translated {
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
    /// The bytes stay as they are.
    Same,
    /// By a `.proto`.
    Typed(Message),
    /// Self-describing formats without a schema.
    Plain,
    /// By a `.fbs`, and a `.proto` if the other format needs one.
    Flatbuffers { schema: Arc<fbs::Schema>, table: usize, message: Option<Message> },
    /// By the types of a function, and a `.proto` if the other format needs one.
    Positional { signature: Signature, message: Option<Message> },
}

impl Translator {
    /// Plans the translation of a method's messages.
    ///
    /// # Errors
    ///
    /// If there is none, and what is missing.
    pub fn new(
        direction: Direction,
        from: Format,
        to: Format,
        schema: &MethodSchema,
        options: Options,
    ) -> Result<Self, Impossible> {
        let planned = plan(direction, from, to, schema);
        let plan = planned.map_err(|reason| Impossible { from, to, reason })?;
        Ok(Self { direction, from, to, plan, options })
    }

    /// Whether messages pass without being read.
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
    /// [`OnLoss::Refuse`] applies.
    pub fn translate(&self, body: Body) -> Result<Translated, Error> {
        let translated = match &self.plan {
            Plan::Same => {
                return Ok(Translated { body: Body { format: self.to, ..body }, lost: 0 });
            }
            Plan::Typed(message) => self.typed(message, &body)?,
            Plan::Plain => self.plain(&body)?,
            Plan::Flatbuffers { schema, table, message } => {
                self.flatbuffers(schema, *table, message.as_ref(), &body)?
            }
            Plan::Positional { signature, message } => self.positional(signature, message.as_ref(), &body)?,
        };
        if translated.lost > 0 && self.options.on_loss == OnLoss::Refuse {
            return Err(lossy(translated.lost, self.to));
        }
        if translated.body.bytes.len() > self.options.max_size {
            return Err(too_large(self.options.max_size));
        }
        Ok(translated)
    }

    fn typed(&self, message: &Message, body: &Body) -> Result<Translated, Error> {
        let (protobuf, unknown) = self.to_protobuf(message, self.from, body)?;
        let (bytes, lost) = self.print_protobuf(message, self.to, &protobuf)?;
        // What is unknown in the binary format is counted while writing.
        Ok(Translated { body: Body::new(self.to, bytes), lost: unknown + lost })
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
        if scan.most / 8 > self.options.max_size {
            return Err(too_large(self.options.max_size));
        }
        let written = transcode::from_protobuf(message, to, bytes);
        Ok((written.map_err(|error| mismatch(message, &error))?.into(), scan.lost))
    }

    fn plain(&self, body: &Body) -> Result<Translated, Error> {
        let (json, lost) = to_json(self.from, &body.bytes)?;
        let (bytes, more) = from_json(self.to, json.as_bytes())?;
        let positional = body.positional;
        Ok(Translated { body: Body { positional, ..Body::new(self.to, bytes) }, lost: lost + more })
    }

    fn flatbuffers(
        &self,
        schema: &Arc<fbs::Schema>,
        table: usize,
        message: Option<&Message>,
        body: &Body,
    ) -> Result<Translated, Error> {
        // Names and numbers as in the .proto, which are those of the .fbs.
        let style = if message.is_some() { Style::Protobuf } else { Style::Flatc };
        if self.from == Format::FlatBuffers {
            let json = flatbuffers::to_json(schema, table, &body.bytes, style, self.options.max_size)?;
            let (bytes, lost) = match message {
                None => from_json(self.to, json.as_bytes())?,
                Some(message) => {
                    let json = Body::new(NAMES, json);
                    let (protobuf, unknown) = self.to_protobuf(message, NAMES, &json)?;
                    let (bytes, lost) = self.print_protobuf(message, self.to, &protobuf)?;
                    (bytes, lost + unknown)
                }
            };
            return Ok(Translated { body: Body::new(self.to, bytes), lost });
        }
        let (json, mut lost) = match message {
            None => {
                to_json(self.from, &body.bytes).map(|(json, lost)| (Bytes::from(json.into_owned()), lost))?
            }
            Some(message) => {
                let (protobuf, unknown) = self.to_protobuf(message, self.from, body)?;
                let (json, lost) = self.print_protobuf(message, NAMES, &protobuf)?;
                (json, lost + unknown)
            }
        };
        let mut value: Value = match json.is_empty() {
            true => Value::Object(serde_json::Map::new()),
            false => serde_json::from_slice(&json).map_err(json::no_json)?,
        };
        if self.options.on_loss == OnLoss::Count {
            lost += flatbuffers::prune(schema, table, &mut value);
        }
        let bytes = flatbuffers::from_json(schema, table, &value, style)?;
        Ok(Translated { body: Body::new(Format::FlatBuffers, bytes), lost })
    }

    fn positional(
        &self,
        signature: &Signature,
        message: Option<&Message>,
        body: &Body,
    ) -> Result<Translated, Error> {
        let mut lost = 0;
        let value = if positional::is_positional(self.from) {
            positional::decode(self.from, signature, self.direction, &body.bytes)?
        } else {
            match message {
                None => {
                    let (json, dropped) = to_json(self.from, &body.bytes)?;
                    lost += dropped;
                    self.listed(signature, json.as_bytes())?
                }
                Some(message) => {
                    let (protobuf, unknown) = self.to_protobuf(message, self.from, body)?;
                    let (json, dropped) = self.print_protobuf(message, MEMBERS, &protobuf)?;
                    lost += unknown + dropped;
                    let object = serde_json::from_slice(&json).map_err(json::no_json)?;
                    positional::from_object(message, self.direction, object)
                }
            }
        };
        let body = if positional::is_positional(self.to) {
            positional::encode(self.to, signature, self.direction, &value)?
        } else {
            let (bytes, dropped) = match message {
                None => from_json(self.to, value.to_string().as_bytes())?,
                Some(message) => {
                    let object = positional::to_object(message, self.direction, value)?;
                    let json = Body::new(MEMBERS, object.to_string().into_bytes());
                    let (protobuf, unknown) = self.to_protobuf(message, MEMBERS, &json)?;
                    let (bytes, dropped) = self.print_protobuf(message, self.to, &protobuf)?;
                    (bytes, unknown + dropped)
                }
            };
            lost += dropped;
            Body { positional: self.direction == Direction::Request, ..Body::new(self.to, bytes) }
        };
        Ok(Translated { body, lost })
    }

    /// Reads arguments, of which a sole one needs no list, or a result.
    fn listed(&self, signature: &Signature, json: &[u8]) -> Result<Value, Error> {
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
        return by_position(direction, formats, schema, message());
    }
    if formats.contains(&Format::FlatBuffers) {
        let Some(method) = &schema.flatbuffers else { return Err(Reason::NeedsFbs) };
        let table = method.table(direction);
        // Gob's types must be those of the peer, which plain values do not show.
        let needs_proto =
            formats.into_iter().any(|format| matches!(format, Format::Protobuf | Format::ProtoText))
                || to == Format::Gob;
        let message = match needs_proto {
            true => Some(message().ok_or(Reason::NeedsProto)?),
            false => None,
        };
        if let Some(message) = &message {
            same_names::check(method.schema(), table, message).map_err(Reason::Mismatch)?;
        }
        return Ok(Plan::Flatbuffers { schema: method.schema().clone(), table, message });
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

fn by_position(
    direction: Direction,
    formats: [Format; 2],
    schema: &MethodSchema,
    message: Option<Message>,
) -> Result<Plan, Reason> {
    if formats.iter().any(|format| matches!(format, Format::FlatBuffers | Format::Gob)) {
        return Err(Reason::Never);
    }
    let signature = schema.signature.clone().ok_or(Reason::NeedsTypes)?;
    if direction == Direction::Response
        && signature.answer.is_none()
        && formats.iter().any(|format| matches!(format, Format::RestRpc | Format::StructPack))
    {
        return Err(Reason::NeedsTypes);
    }
    let needs_proto = formats.iter().any(|format| matches!(format, Format::Protobuf | Format::ProtoText));
    let message = match needs_proto {
        true => Some(message.ok_or(Reason::NeedsProto)?),
        false => None,
    };
    if let Some(message) = &message {
        positional::check(message, &signature, direction).map_err(Reason::Mismatch)?;
    }
    Ok(Plan::Positional { signature, message })
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
        _ => json::checked(bytes).map(|json| (Cow::Borrowed(json), 0)).map_err(json::no_json),
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
fn lossy(lost: u64, to: Format) -> Error {
    let parts = if lost == 1 { "part" } else { "parts" };
    Error::new(format!("{lost} {parts} of the message cannot be expressed in {}", to.as_str()))
}

#[cold]
fn too_large(most: usize) -> Error {
    Error::new(format!("the translated message is larger than {most} bytes"))
}

#[cfg(test)]
mod tests;
