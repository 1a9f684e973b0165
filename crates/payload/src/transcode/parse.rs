//! Conversion from JSON or MessagePack to protobuf's binary format.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc_core::protobuf::{WireType, put_tag, put_varint};

use super::binary::{close, close_message, open, open_message, put_bytes, put_integer};
use super::{Error, MAX_DEPTH, ParsedMessage};
use crate::lenient_base64;
use crate::schema::{Field, FieldSet, Kind, Message, MessageType, Pool, Spelling, WellKnown};

/// Source of tokens.
pub(super) trait Source<'a>: Clone {
    /// Whether binary data is base64 text.
    const BASE64: bool;

    /// Returns the next value: a complete scalar, or the start of a list or an object.
    fn value(&mut self) -> Result<Token<'a>, Error>;
    /// Whether a list has another item; its value follows.
    fn item(&mut self, left: &mut RemainingItems) -> Result<bool, Error>;
    /// Returns the next key of an object, if there is another; its value follows.
    fn key(&mut self, left: &mut RemainingItems) -> Result<Option<Token<'a>>, Error>;
    /// Checks that nothing follows the message.
    fn end(&mut self) -> Result<(), Error>;
    /// Parses text as a number, in the source's own notation.
    fn number(text: &str) -> Option<Token<'_>>;

    /// Parses a message from its special representation, which starts with `token`.
    fn special<'p>(
        parser: &mut Parser<'p, Self>,
        kind: WellKnown,
        message: &'p MessageType,
        token: Token<'a>,
        depth: usize,
    ) -> Result<(), Error>;
}

/// A value, or the start of one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that does not fit an `Int`.
    Uint(u64),
    /// With its notation, if it has one.
    Float(f64, &'a str),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    /// A value that no field accepts.
    Opaque,
    List(RemainingItems),
    Object(RemainingItems),
}

/// Remainder of a list or an object: the number of items if the source announces it; otherwise, whether it has just
/// started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemainingItems(pub(super) usize);

/// Conventions of the message's writer, beyond the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonDialect {
    /// brpc's JSON as brpc parses it (brpc `json2pb/json_to_pb.cpp`): mismatched values are ignored.
    Lenient,
    /// brpc's JSON, without ignoring values.
    Brpc,
    /// ProtoJSON.
    Proto3,
    /// Go's JSON or MessagePack.
    Go,
}

impl JsonDialect {
    /// Returns the naming convention that is tried first.
    fn spelling(self) -> Spelling {
        match self {
            Self::Lenient | Self::Brpc => Spelling::Brpc,
            Self::Proto3 => Spelling::Json,
            Self::Go => Spelling::Go,
        }
    }

    /// Returns the naming convention that is tried next: all writers but brpc know a field by its name in the `.proto`
    /// and by its name in ProtoJSON.
    fn other_spelling(self) -> Option<Spelling> {
        match self {
            Self::Lenient => None,
            Self::Brpc | Self::Go => Some(Spelling::Json),
            Self::Proto3 => Some(Spelling::Brpc),
        }
    }

    /// Whether values may have any form that ProtoJSON allows.
    fn is_canonical(self) -> bool {
        matches!(self, Self::Brpc | Self::Proto3)
    }
}

pub(super) fn parse<'a, S: Source<'a>>(
    message: &Message,
    source: S,
    dialect: JsonDialect,
    size: usize,
) -> Result<ParsedMessage, Error> {
    let mut parser =
        Parser { pool: message.pool(), source, dialect, unknown: 0, out: Vec::with_capacity(size) };
    let token = parser.source.value()?;
    parser.message(message, token, MAX_DEPTH + 1)?;
    parser.source.end()?;
    Ok(ParsedMessage { protobuf: parser.out, unknown: parser.unknown })
}

pub(super) struct Parser<'p, S> {
    pub(super) pool: &'p Pool,
    pub(super) source: S,
    pub(super) dialect: JsonDialect,
    /// Number of values without a field.
    unknown: u64,
    pub(super) out: Vec<u8>,
}

/// Whether a value was converted to its field's type.
pub(super) enum FieldFit<'a> {
    /// It was written.
    Written,
    /// It is treated as absent.
    Ignored,
    /// It does not match; contains the part that was read.
    Mismatch(Token<'a>),
}

/// State of a message while its fields are read.
#[derive(Default)]
struct SeenFields {
    fields: FieldSet,
    /// Fields that have a value.
    set: FieldSet,
    oneofs: FieldSet,
}

impl<'p, 'a, S: Source<'a>> Parser<'p, S> {
    /// Parses a message that starts with `token`.
    pub(super) fn message(
        &mut self,
        message: &'p MessageType,
        token: Token<'a>,
        depth: usize,
    ) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
        if self.dialect != JsonDialect::Lenient
            && let Some(kind) = message.well_known()
            && kind.has_own_form()
            && !self.is_declared_form(kind, message, &token)
        {
            return S::special(self, kind, message, token, depth);
        }
        match token {
            Token::Object(left) => self.members(message, left, depth, &[]),
            // Go leaves a struct unchanged.
            Token::Null if self.dialect == JsonDialect::Go => Ok(()),
            _ if self.dialect == JsonDialect::Lenient => Err(not_an_object(message)),
            token => Err(Error::wrong_type("object", &token)),
        }
    }

    /// Whether a message with a special representation in ProtoJSON has the ordinary form: an object of its
    /// fields.
    ///
    /// If an object could be either, ProtoJSON always treats it as the special representation. brpc and Go, which
    /// have only the ordinary form, treat it as fields if all its names are those of fields.
    fn is_declared_form(&self, kind: WellKnown, message: &MessageType, token: &Token<'a>) -> bool {
        let Token::Object(left) = token else {
            // Go writes null for an absent message.
            return self.dialect == JsonDialect::Go && *token == Token::Null && kind != WellKnown::Value;
        };
        match kind {
            WellKnown::Timestamp | WellKnown::Duration | WellKnown::FieldMask | WellKnown::Wrapper => true,
            WellKnown::ListValue => {
                self.dialect != JsonDialect::Proto3 || self.has_only_fields(message, left.clone())
            }
            WellKnown::Any => self.has_only_fields(message, left.clone()),
            WellKnown::Struct | WellKnown::Value => {
                self.dialect != JsonDialect::Proto3 && self.has_only_fields(message, left.clone())
            }
            WellKnown::Empty => false,
        }
    }

    /// Whether the object that starts here has members, all with names of fields.
    fn has_only_fields(&self, message: &MessageType, mut left: RemainingItems) -> bool {
        let mut ahead = Self { source: self.source.clone(), out: Vec::new(), ..*self };
        let mut any = false;
        while let Ok(Some(key)) = ahead.source.key(&mut left) {
            let Token::Text(key) = &key else { return false };
            let known = ahead.index_of(message, key, usize::MAX).is_some();
            if !known || ahead.source.value().and_then(|value| ahead.skip(value, MAX_DEPTH)).is_err() {
                return false;
            }
            any = true;
        }
        any
    }

    fn index_of(&self, message: &MessageType, key: &str, hint: usize) -> Option<u32> {
        message.index_spelled(self.dialect.spelling(), key, hint).or_else(|| {
            let other = self.dialect.other_spelling()?;
            message.index_spelled(other, key, usize::MAX)
        })
    }

    /// Parses the members of an object as the fields of a message, except those with the names `besides`.
    pub(super) fn members(
        &mut self,
        message: &'p MessageType,
        mut left: RemainingItems,
        depth: usize,
        besides: &[&str],
    ) -> Result<(), Error> {
        let mut seen = SeenFields::default();
        let mut hint = 0;
        while let Some(key) = self.source.key(&mut left)? {
            let index = match &key {
                Token::Text(key) if besides.contains(&&**key) => {
                    let token = self.source.value()?;
                    self.skip(token, depth)?;
                    continue;
                }
                Token::Text(key) => self.index_of(message, key, hint),
                _ => None,
            };
            let token = self.source.value()?;
            match index.and_then(|index| Some((index, message.fields().get(index as usize)?))) {
                Some((index, field)) => {
                    hint = index as usize + 1;
                    if let Err(error) = self.member(message, index, field, token, &mut seen, depth) {
                        return Err(error.within_field(field.name()));
                    }
                }
                None => {
                    self.unknown += 1;
                    self.skip(token, depth)?;
                }
            }
        }
        Ok(())
    }

    fn member(
        &mut self,
        message: &'p MessageType,
        index: u32,
        field: &'p Field,
        token: Token<'a>,
        seen: &mut SeenFields,
        depth: usize,
    ) -> Result<(), Error> {
        if !seen.fields.insert(index) {
            match self.dialect {
                JsonDialect::Lenient => return self.skip(token, depth),
                JsonDialect::Brpc | JsonDialect::Proto3 => {
                    return Err(Error::mismatch("the field comes twice"));
                }
                JsonDialect::Go => {}
            }
        }
        if token == Token::Null && !self.takes_null(field) {
            return Ok(());
        }
        if field.is_extension() && self.dialect == JsonDialect::Go {
            return self.skip(token, depth);
        }
        let start = self.out.len();
        self.field(message, field, token, depth)?;
        if let Some(oneof) = field.oneof() {
            self.check_oneof(message, index, oneof, start, seen)?;
        }
        Ok(())
    }

    /// Checks that only one member of a oneof is set. In brpc, which looks up the fields in the order of their
    /// declaration, the last one declared wins.
    fn check_oneof(
        &mut self,
        message: &MessageType,
        index: u32,
        oneof: usize,
        start: usize,
        seen: &mut SeenFields,
    ) -> Result<(), Error> {
        let was_set = self.out.len() > start;
        match self.dialect {
            JsonDialect::Brpc | JsonDialect::Proto3 | JsonDialect::Go
                if was_set && !seen.oneofs.insert(oneof as u32) =>
            {
                return Err(Error::mismatch("another member of its oneof is set too"));
            }
            JsonDialect::Lenient if was_set => {
                let later = (0..).zip(message.fields()).skip(index as usize + 1);
                if later.into_iter().any(|(at, other)| other.oneof() == Some(oneof) && seen.set.contains(at))
                {
                    self.out.truncate(start);
                }
                seen.set.insert(index);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether null is a value of the field rather than its absence.
    fn takes_null(&self, field: &Field) -> bool {
        self.dialect.is_canonical()
            && !field.is_repeated()
            && match field.kind() {
                Kind::Message(id) => self.pool.message_type(id).takes_null(),
                Kind::Enum(id) => self.pool.enum_type(id).is_null(),
                _ => false,
            }
    }

    /// Parses the value of a field, which may be a list, a map or a single value, and writes it after its tag.
    pub(super) fn field(
        &mut self,
        message: &'p MessageType,
        field: &'p Field,
        token: Token<'a>,
        depth: usize,
    ) -> Result<(), Error> {
        match token {
            Token::Object(left) if self.is_map(field) => self.map(field, left, depth),
            Token::List(left) if field.is_repeated() && (!field.is_map() || self.is_map_as_list()) => {
                self.list(message, field, left, depth)
            }
            _ if field.is_repeated() && self.dialect == JsonDialect::Lenient => {
                Err(Error::new(format!("Invalid value for repeated field: {}", field.full_name())))
            }
            Token::Object(_) if field.is_map() => Err(self.keyed_by_no_text(field)),
            token if field.is_map() => Err(Error::wrong_type("object", &token)),
            token if field.is_repeated() => Err(Error::wrong_type("array", &token)),
            token => match self.single(message, field, token, depth)? {
                FieldFit::Mismatch(token) if self.dialect == JsonDialect::Lenient && !field.is_required() => {
                    self.skip(token, depth)
                }
                FieldFit::Mismatch(token) => Err(self.mismatch(field, &token)),
                FieldFit::Written | FieldFit::Ignored => Ok(()),
            },
        }
    }

    fn is_map(&self, field: &Field) -> bool {
        match self.dialect {
            JsonDialect::Lenient => field.is_map_like(),
            // proto3's forms are accepted, too: maps whose keys are numbers or booleans.
            JsonDialect::Brpc => field.is_map() || field.is_map_like(),
            JsonDialect::Proto3 | JsonDialect::Go => field.is_map(),
        }
    }

    /// Whether the entries of a map may be a list of messages.
    fn is_map_as_list(&self) -> bool {
        matches!(self.dialect, JsonDialect::Lenient | JsonDialect::Brpc)
    }

    /// Returns the error of an object for a map whose keys are not strings, which brpc accepts only as a list.
    #[cold]
    fn keyed_by_no_text(&self, field: &Field) -> Error {
        let entry = field.kind().message().map(|id| self.pool.message_type(id));
        let key = entry.and_then(|entry| entry.field(1)).map_or("no texts", |key| key.kind().keyword());
        Error::mismatch(format!("expected a list of entries, since its keys are {key}, found object"))
    }

    #[cold]
    fn mismatch(&self, field: &Field, token: &Token<'_>) -> Error {
        match (self.dialect, field.kind()) {
            (JsonDialect::Lenient, _) => mismatch_in_brpc(field, token),
            (_, Kind::Enum(id)) => Error::wrong_enum(self.pool.enum_type(id).full_name(), token),
            (_, kind) => Error::wrong_scalar(kind, S::BASE64, token),
        }
    }

    /// Parses one value and writes it after its tag. A message that does not match is an error at once.
    fn single(
        &mut self,
        message: &MessageType,
        field: &'p Field,
        token: Token<'a>,
        depth: usize,
    ) -> Result<FieldFit<'a>, Error> {
        if let Some(id) = field.kind().message() {
            let nested = open_message(&mut self.out, field.number(), field.kind());
            self.message(self.pool.message_type(id), token, depth)?;
            close_message(&mut self.out, nested);
            return Ok(FieldFit::Written);
        }
        let start = self.out.len();
        put_tag(&mut self.out, field.number(), field.kind().wire_type());
        let value = self.out.len();
        let fit = self.scalar(message, field, token)?;
        // If zero is the same as not set, it need not be written.
        let optional = !field.has_presence() && !field.is_repeated() && !message.is_map_entry();
        let spared =
            || optional && self.out.get(value..).is_some_and(|value| value.iter().all(|&byte| byte == 0));
        if !matches!(fit, FieldFit::Written) || spared() {
            self.out.truncate(start);
        }
        Ok(fit)
    }

    fn list(
        &mut self,
        message: &'p MessageType,
        field: &'p Field,
        mut left: RemainingItems,
        depth: usize,
    ) -> Result<(), Error> {
        let start = self.out.len();
        let packed = field.is_packed().then(|| {
            put_tag(&mut self.out, field.number(), WireType::Bytes);
            open(&mut self.out)
        });
        let first = self.out.len();
        let mut items = 0;
        while self.source.item(&mut left)? {
            let token = self.source.value()?;
            if let Err(error) = self.list_item(message, field, token, packed.is_some(), depth) {
                return Err(error.within_item(items));
            }
            items += 1;
        }
        match packed {
            Some(_) if self.out.len() == first => self.out.truncate(start),
            Some(mark) => close(&mut self.out, mark),
            None => {}
        }
        Ok(())
    }

    fn list_item(
        &mut self,
        message: &'p MessageType,
        field: &'p Field,
        token: Token<'a>,
        packed: bool,
        depth: usize,
    ) -> Result<(), Error> {
        let is_message = field.kind().message().is_some();
        let fit = match token {
            Token::Null if self.dialect == JsonDialect::Go => self.zero_item(field, packed),
            Token::Null if !self.is_null_item(field) => FieldFit::Mismatch(Token::Null),
            // The field accepts an object, and brpc's error text for this differs from that elsewhere.
            token
                if is_message
                    && self.dialect == JsonDialect::Lenient
                    && !matches!(token, Token::Object(_)) =>
            {
                FieldFit::Mismatch(token)
            }
            token if packed => self.scalar(message, field, token)?,
            token => self.single(message, field, token, depth)?,
        };
        match fit {
            FieldFit::Mismatch(token) => Err(self.mismatch(field, &token)),
            FieldFit::Written | FieldFit::Ignored => Ok(()),
        }
    }

    fn is_null_item(&self, field: &Field) -> bool {
        self.dialect.is_canonical()
            && match field.kind() {
                Kind::Message(id) => self.pool.message_type(id).takes_null(),
                Kind::Enum(id) => self.pool.enum_type(id).is_null(),
                _ => false,
            }
    }

    /// Go reads null in a list as the zero value.
    fn zero_item(&mut self, field: &Field, packed: bool) -> FieldFit<'a> {
        let nested = match packed {
            true => None,
            false if field.kind().message().is_some() => {
                Some(open_message(&mut self.out, field.number(), field.kind()))
            }
            false => {
                put_tag(&mut self.out, field.number(), field.kind().wire_type());
                None
            }
        };
        match (nested, field.kind().wire_type()) {
            (Some(nested), _) => close_message(&mut self.out, nested),
            (None, WireType::Fixed32) => self.out.extend_from_slice(&[0; 4]),
            (None, WireType::Fixed64) => self.out.extend_from_slice(&[0; 8]),
            (None, _) => self.out.push(0),
        }
        FieldFit::Written
    }

    fn map(&mut self, field: &'p Field, mut left: RemainingItems, depth: usize) -> Result<(), Error> {
        let entry = field.kind().message().map(|id| self.pool.message_type(id));
        let fields = entry.and_then(|entry| match (entry.is_map_entry(), entry.fields()) {
            (true, _) => Some((entry, entry.field(1)?, entry.field(2)?)),
            (false, [key, value]) => Some((entry, key, value)),
            _ => None,
        });
        let Some((entry, key, value)) = fields else { return Err(Error::new("not a map")) };
        while let Some(name) = self.source.key(&mut left)? {
            let start = self.out.len();
            let nested = open_message(&mut self.out, field.number(), field.kind());
            put_tag(&mut self.out, key.number(), key.kind().wire_type());
            self.map_key(key, &name).map_err(|error| error.within_entry(&name))?;
            let before_value = self.out.len();
            let token = self.source.value()?;
            let put = match token == Token::Null && !self.takes_null(value) {
                true if self.dialect.is_canonical() => Err(self.mismatch(value, &token)),
                true => Ok(()),
                false => self.field(entry, value, token, depth),
            };
            if let Err(error) = put {
                return Err(error.within_entry(&name));
            }
            // ProtoJSON drops an entry whose enum value has an unknown name.
            if self.dialect == JsonDialect::Proto3 && self.out.len() == before_value {
                self.out.truncate(start);
            } else {
                close_message(&mut self.out, nested);
            }
        }
        Ok(())
    }

    fn map_key(&mut self, key: &Field, token: &Token<'a>) -> Result<(), Error> {
        let out = &mut self.out;
        let put = match (key.kind(), token) {
            (Kind::String, Token::Text(text)) => put_delimited(out, text.as_bytes()),
            (Kind::Bool, Token::Bool(value)) => put(out, &[(*value).into()]),
            (Kind::Bool, Token::Text(text)) => match &**text {
                "true" => put(out, &[1]),
                "false" => put(out, &[0]),
                _ => None,
            },
            (kind, &Token::Int(value)) => put_integer(out, kind, value.into()),
            (kind, &Token::Uint(value)) => put_integer(out, kind, value.into()),
            (kind, Token::Text(text)) => match S::number(text) {
                Some(Token::Int(value)) => put_integer(out, kind, value.into()),
                Some(Token::Uint(value)) => put_integer(out, kind, value.into()),
                _ => None,
            },
            _ => None,
        };
        put.ok_or_else(|| match self.dialect {
            JsonDialect::Lenient => mismatch_in_brpc(key, token),
            _ => Error::mismatch(format!("the key is no {}", key.kind().keyword())),
        })
    }

    /// Parses a scalar and writes it without its tag.
    fn scalar(
        &mut self,
        message: &MessageType,
        field: &Field,
        token: Token<'a>,
    ) -> Result<FieldFit<'a>, Error> {
        let written = match field.kind() {
            Kind::Bool => match token {
                Token::Bool(value) => put(&mut self.out, &[value.into()]),
                _ => None,
            },
            Kind::String => match &token {
                Token::Text(text) => put_delimited(&mut self.out, text.as_bytes()),
                Token::Bytes(bytes) if std::str::from_utf8(bytes).is_ok() => {
                    put_delimited(&mut self.out, bytes)
                }
                _ => None,
            },
            Kind::Bytes => match &token {
                Token::Text(text) if S::BASE64 => {
                    return self.base64(message, text).map(|()| FieldFit::Written);
                }
                Token::Text(text) => put_delimited(&mut self.out, text.as_bytes()),
                Token::Bytes(bytes) => put_delimited(&mut self.out, bytes),
                _ => None,
            },
            Kind::Float => self.float(&token),
            Kind::Double => self.double(&token),
            Kind::Enum(_) => return Ok(self.enumeration(field, token)),
            kind => self.integer(&token, kind).and_then(|value| put_integer(&mut self.out, kind, value)),
        };
        Ok(written.map_or(FieldFit::Mismatch(token), |()| FieldFit::Written))
    }

    fn integer(&self, token: &Token<'_>, kind: Kind) -> Option<i128> {
        match *token {
            Token::Int(value) => Some(value.into()),
            Token::Uint(value) => Some(value.into()),
            Token::Float(_, "-0") => Some(0),
            Token::Float(value, text) if self.dialect.is_canonical() || text.is_empty() => integral(value),
            Token::Text(ref text) => match self.dialect {
                JsonDialect::Brpc | JsonDialect::Proto3 => match S::number(text)? {
                    Token::Text(_) => None,
                    number => self.integer(&number, kind),
                },
                JsonDialect::Lenient if is_64_bit(kind) => {
                    text.parse().ok().filter(|_| is_plain_decimal(text))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn float(&mut self, token: &Token<'_>) -> Option<()> {
        let value = match *token {
            Token::Int(value) => value as f32,
            Token::Uint(value) => value as f32,
            // Parsed from its notation, to avoid double rounding.
            Token::Float(value, text) => text.parse().unwrap_or(value as f32),
            Token::Text(ref text) => match self.special_float(text) {
                Some(value) => return put(&mut self.out, &(value as f32).to_le_bytes()),
                None if self.dialect.is_canonical() => return self.float(&number_only(S::number(text)?)?),
                None => return None,
            },
            _ => return None,
        };
        let too_large = value.is_infinite() && self.dialect != JsonDialect::Lenient && !is_infinite(token);
        if too_large { None } else { put(&mut self.out, &value.to_le_bytes()) }
    }

    fn double(&mut self, token: &Token<'_>) -> Option<()> {
        let value = match *token {
            Token::Int(value) => value as f64,
            Token::Uint(value) => value as f64,
            Token::Float(value, _) => value,
            Token::Text(ref text) => match self.special_float(text) {
                Some(value) => value,
                None if self.dialect.is_canonical() => return self.double(&number_only(S::number(text)?)?),
                None => return None,
            },
            _ => return None,
        };
        put(&mut self.out, &value.to_le_bytes())
    }

    /// Parses the words for non-finite numbers. brpc accepts them in any case (`strcasecmp`); Go has none, but a
    /// client's message of a `.proto` is ProtoJSON.
    fn special_float(&self, text: &str) -> Option<f64> {
        let is = |word: &str| match self.dialect {
            JsonDialect::Lenient | JsonDialect::Brpc => text.eq_ignore_ascii_case(word),
            JsonDialect::Proto3 | JsonDialect::Go => text == word,
        };
        match text {
            _ if is("NaN") => Some(f64::NAN),
            _ if is("Infinity") => Some(f64::INFINITY),
            _ if is("-Infinity") => Some(f64::NEG_INFINITY),
            _ => None,
        }
    }

    fn enumeration(&mut self, field: &Field, token: Token<'a>) -> FieldFit<'a> {
        let Kind::Enum(id) = field.kind() else { return FieldFit::Mismatch(token) };
        let of = self.pool.enum_type(id);
        let number = match &token {
            Token::Text(name) => match of.number(name) {
                // Like protobuf's parser when it ignores unknown fields (its conformance test
                // `IgnoreUnknownEnumStringValue`).
                None if self.dialect == JsonDialect::Proto3 => return self.unknown_enum(),
                number => number.map(i128::from),
            },
            Token::Null if of.is_null() => Some(0),
            number => self.integer(number, field.kind()),
        };
        let Some(number) = number.and_then(|number| i32::try_from(number).ok()) else {
            return FieldFit::Mismatch(token);
        };
        match of.name(number) {
            // An undeclared value does not match the field (brpc `json2pb/json_to_pb.cpp`, "SHOULD be enum").
            None if self.dialect == JsonDialect::Lenient => return FieldFit::Mismatch(token),
            None if of.is_closed() && self.dialect == JsonDialect::Brpc => return FieldFit::Mismatch(token),
            None if of.is_closed() => return self.unknown_enum(),
            _ => put_varint(&mut self.out, i64::from(number) as u64),
        }
        FieldFit::Written
    }

    /// An undeclared value counts as an unknown field.
    fn unknown_enum(&mut self) -> FieldFit<'a> {
        self.unknown += 1;
        FieldFit::Ignored
    }

    fn base64(&mut self, message: &MessageType, text: &str) -> Result<(), Error> {
        let mark = open(&mut self.out);
        let decoded = match self.dialect {
            JsonDialect::Brpc | JsonDialect::Proto3 => lenient_base64::decode_into(text, &mut self.out),
            JsonDialect::Lenient | JsonDialect::Go => STANDARD.decode_vec(text, &mut self.out).ok(),
        };
        decoded.ok_or_else(|| match self.dialect {
            JsonDialect::Lenient => {
                Error::new(format!("Fail to decode base64 string={text} [{}]", message.name()))
            }
            _ => Error::mismatch("expected bytes in base64, found another string"),
        })?;
        close(&mut self.out, mark);
        Ok(())
    }

    /// Skips a value that starts with `token`.
    pub(super) fn skip(&mut self, token: Token<'a>, depth: usize) -> Result<(), Error> {
        match token {
            Token::List(mut left) => {
                let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
                while self.source.item(&mut left)? {
                    let token = self.source.value()?;
                    self.skip(token, depth)?;
                }
            }
            Token::Object(mut left) => {
                let depth = depth.checked_sub(1).ok_or_else(Error::too_deep)?;
                while let Some(key) = self.source.key(&mut left)? {
                    self.skip(key, depth)?;
                    let token = self.source.value()?;
                    self.skip(token, depth)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Writes a value that matches.
fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend_from_slice(bytes);
    Some(())
}

/// Writes a value that matches, with its length prefix.
fn put_delimited(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    put_bytes(out, bytes);
    Some(())
}

/// Returns the exact integer value of a float.
fn integral(value: f64) -> Option<i128> {
    (value.fract() == 0.0 && value.abs() < 2e19).then_some(value as i128)
}

fn is_64_bit(kind: Kind) -> bool {
    matches!(kind, Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64)
}

/// Rust's `parse` accepts a plus sign, which `butil::StringToInt64` does not.
fn is_plain_decimal(text: &str) -> bool {
    !text.starts_with('+')
}

fn number_only(token: Token<'_>) -> Option<Token<'_>> {
    matches!(token, Token::Int(_) | Token::Uint(_) | Token::Float(..)).then_some(token)
}

fn is_infinite(token: &Token<'_>) -> bool {
    matches!(token, Token::Float(value, "") if value.is_infinite())
}

#[cold]
fn not_an_object(message: &MessageType) -> Error {
    Error::new(format!("The input is not a json object [{}]", message.name()))
}

impl Error {
    /// Creates the error of a value whose type differs from its field's.
    #[cold]
    pub(super) fn wrong_type(expected: &str, found: &Token<'_>) -> Self {
        Self::mismatch(format!("expected {expected}, found {}", found.type_name()))
    }

    /// The error contains the undeclared name, unless it is far longer than names are.
    #[cold]
    fn wrong_enum(full_name: &str, found: &Token<'_>) -> Self {
        match found {
            Token::Text(name) if name.len() <= LONGEST_ENUM_NAME => {
                Self::mismatch(format!("expected enum {full_name}, found {name:?}"))
            }
            Token::Int(value) => Self::mismatch(format!("expected enum {full_name}, found {value}")),
            Token::Uint(value) => Self::mismatch(format!("expected enum {full_name}, found {value}")),
            _ => Self::wrong_type(&format!("enum {full_name}"), found),
        }
    }

    #[cold]
    fn wrong_scalar(kind: Kind, base64: bool, found: &Token<'_>) -> Self {
        let expected = match kind {
            Kind::Bytes if base64 => "bytes in base64",
            Kind::Message(_) | Kind::Group(_) => "object",
            kind => kind.keyword(),
        };
        match (kind.is_number(), found) {
            // The type matches, but not the value.
            (true, Token::Int(value)) => Self::mismatch(format!("expected {expected}, found {value}")),
            (true, Token::Uint(value)) => Self::mismatch(format!("expected {expected}, found {value}")),
            (true, Token::Float(value, "")) => Self::mismatch(format!("expected {expected}, found {value}")),
            (true, Token::Float(_, text)) => Self::mismatch(format!("expected {expected}, found {text}")),
            _ => Self::wrong_type(expected, found),
        }
    }

    fn within_entry(self, key: &Token<'_>) -> Self {
        self.within(|| match key {
            Token::Text(text) => format!("[\"{}\"]", text.escape_debug()),
            Token::Int(value) => format!("[{value}]"),
            Token::Uint(value) => format!("[{value}]"),
            Token::Bool(value) => format!("[{value}]"),
            _ => "[]".to_owned(),
        })
    }
}

impl Token<'_> {
    fn type_name(&self) -> &'static str {
        match self {
            Token::Null => "null",
            Token::Bool(_) => "bool",
            Token::Int(_) | Token::Uint(_) | Token::Float(..) => "number",
            Token::Text(_) => "string",
            Token::Bytes(_) => "bytes",
            Token::Opaque => "extension",
            Token::List(_) => "array",
            Token::Object(_) => "object",
        }
    }
}

/// Creates the error of a value with the wrong type, with brpc's text.
#[cold]
fn mismatch_in_brpc(field: &Field, token: &Token<'_>) -> Error {
    let kind = match (field.kind(), token) {
        (Kind::Double, Token::Text(_)) => "d",
        (Kind::Float, Token::Text(_)) => "f",
        (Kind::Double, _) => "double",
        (Kind::Float, _) => "float",
        (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, _) => "INT32",
        (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, _) => "INT64",
        (Kind::Uint32 | Kind::Fixed32, _) => "UINT32",
        (Kind::Uint64 | Kind::Fixed64, _) => "UINT64",
        (Kind::Bool, _) => "BOOL",
        (Kind::String | Kind::Bytes, _) => "string",
        (Kind::Enum(_), _) => "enum",
        (Kind::Message(_) | Kind::Group(_), _) => "message",
    };
    let value = match token {
        Token::Null => "null".to_owned(),
        Token::Bool(value) => value.to_string(),
        Token::Int(value) => value.to_string(),
        Token::Uint(value) => value.to_string(),
        Token::Float(value, _) => format!("{value:.6}"),
        Token::Text(text) => format!("\"{text}\""),
        Token::Bytes(_) => "bytes".to_owned(),
        Token::Opaque => "extension".to_owned(),
        Token::List(_) => "array".to_owned(),
        Token::Object(_) => "object".to_owned(),
    };
    Error::new(format!("Invalid value `{value}' for field `{}' which SHOULD be {kind}", field.full_name()))
}

/// Maximum length in bytes of an enum value's name in an error.
const LONGEST_ENUM_NAME: usize = 100;
