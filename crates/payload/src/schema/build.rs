//! Builds a pool from descriptors: first all declarations are parsed and registered, then names are resolved.

use std::collections::HashMap;

use polyrpc_core::digits::parse_decimal;
use polyrpc_core::protobuf::{Reader, WireType};

use super::field::{Cardinality, EnumId, EnumType, EnumValue, Field, Kind, MessageId};
use super::message::{MessageType, Names, Numbers, WellKnown};
use super::{Error, Inner, MethodType, ServiceType};

pub(super) fn pool(set: &[u8]) -> Result<Inner, Error> {
    let mut builder = Builder::default();
    // FileDescriptorSet.file = 1
    for file in fields(set)?.bytes(1) {
        builder.file(file)?;
    }
    builder.link(set)
}

#[derive(Default)]
struct Builder<'a> {
    messages: Vec<RawMessage<'a>>,
    extensions: Vec<RawExtension<'a>>,
    enums: Vec<EnumType>,
    services: Vec<(String, Vec<RawMethod<'a>>)>,
    types: HashMap<String, Type>,
}

#[derive(Clone, Copy)]
enum Type {
    Message(MessageId),
    Enum(EnumId),
    Service,
}

struct RawMessage<'a> {
    full_name: String,
    fields: Vec<RawField<'a>>,
    oneofs: usize,
    map_entry: bool,
}

struct RawExtension<'a> {
    scope: String,
    extendee: &'a str,
    field: RawField<'a>,
}

struct RawField<'a> {
    name: &'a str,
    json_name: Option<&'a str>,
    number: u64,
    label: u64,
    kind: u64,
    type_name: &'a str,
    default: Option<&'a str>,
    packed: Option<bool>,
    oneof: Option<u64>,
    proto3_optional: bool,
    features: Features,
}

struct RawMethod<'a> {
    name: &'a str,
    input: &'a str,
    output: &'a str,
    client_streaming: bool,
    server_streaming: bool,
    http_rule: Option<&'a [u8]>,
    no_side_effects: bool,
    idempotent: bool,
    deprecated: bool,
}

impl<'a> Builder<'a> {
    fn file(&mut self, file: &'a [u8]) -> Result<(), Error> {
        let file = fields(file)?;
        let features = Features::from_file(&file)?.inherit(&file, 8, 50)?;
        let package = file.text(2)?;
        if !package.is_empty() && !package.split('.').all(is_name) {
            return Err(Error::new("a file has an impossible package"));
        }
        for message in file.bytes(4) {
            self.message(package, message, features, MAX_DEPTH)?;
        }
        for data in file.bytes(5) {
            self.enumeration(package, data, features)?;
        }
        for service in file.bytes(6) {
            self.service(package, service)?;
        }
        for extension in file.bytes(7) {
            self.extension(package, extension, features)?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        scope: &str,
        message: &'a [u8],
        features: Features,
        depth: usize,
    ) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or_else(|| Error::new("messages nest too deep"))?;
        let message = fields(message)?;
        let full_name = join(scope, message.name()?)?;
        let options = fields(message.last_bytes(7))?;
        let features = features.inherit(&message, 7, 12)?;
        self.declare(&full_name, Type::Message(MessageId(self.messages.len() as u32)))?;

        let oneofs: Vec<_> = message.bytes(8).collect();
        let mut raw = RawMessage {
            full_name: full_name.clone(),
            fields: Vec::new(),
            oneofs: oneofs.len(),
            map_entry: options.flag(7),
        };
        for field in message.bytes(2) {
            let mut field = RawField::read(field, features, &oneofs)?;
            // A synthetic oneof excludes no other field.
            if field.proto3_optional {
                field.oneof = None;
            }
            raw.fields.push(field);
        }
        self.messages.push(raw);

        for nested in message.bytes(3) {
            self.message(&full_name, nested, features, depth)?;
        }
        for data in message.bytes(4) {
            self.enumeration(&full_name, data, features)?;
        }
        for extension in message.bytes(6) {
            self.extension(&full_name, extension, features)?;
        }
        Ok(())
    }

    fn enumeration(&mut self, scope: &str, data: &'a [u8], features: Features) -> Result<(), Error> {
        let data = fields(data)?;
        let full_name = join(scope, data.name()?)?;
        let features = features.inherit(&data, 3, 7)?;
        self.declare(&full_name, Type::Enum(EnumId(self.enums.len() as u32)))?;

        let mut values = Vec::new();
        for value in data.bytes(2) {
            let value = fields(value)?;
            let number = value.number(2).unwrap_or(0) as i32;
            values.push(EnumValue { name: value.name()?.into(), number });
        }
        if values.is_empty() {
            return Err(Error::new(format!("enum {full_name} has no values")));
        }
        let by_name: HashMap<_, _> = values.iter().map(|value| (value.name.clone(), value.number)).collect();
        if by_name.len() != values.len() {
            return Err(Error::new(format!("enum {full_name} has a name twice")));
        }
        let mut by_number: Vec<_> = values.iter().map(|value| value.number).zip(0_u32..).collect();
        by_number.sort_unstable();
        by_number.dedup_by_key(|&mut (number, _)| number);
        let full_name = full_name.into();
        self.enums.push(EnumType { full_name, values, closed: features.closed_enum, by_name, by_number });
        Ok(())
    }

    fn service(&mut self, scope: &str, service: &'a [u8]) -> Result<(), Error> {
        let service = fields(service)?;
        let full_name = join(scope, service.name()?)?;
        self.declare(&full_name, Type::Service)?;
        let mut methods = Vec::new();
        for method in service.bytes(2) {
            let method = fields(method)?;
            let options = fields(method.last_bytes(4))?;
            methods.push(RawMethod {
                name: method.name()?,
                input: method.text(2)?,
                output: method.text(3)?,
                client_streaming: method.flag(5),
                server_streaming: method.flag(6),
                http_rule: options.bytes(HTTP_RULE).last(),
                no_side_effects: options.number(IDEMPOTENCY_LEVEL) == Some(NO_SIDE_EFFECTS),
                idempotent: options.number(IDEMPOTENCY_LEVEL) == Some(IDEMPOTENT),
                deprecated: options.flag(DEPRECATED),
            });
        }
        self.services.push((full_name, methods));
        Ok(())
    }

    fn extension(&mut self, scope: &str, extension: &'a [u8], features: Features) -> Result<(), Error> {
        let extendee = fields(extension)?.text(2)?;
        let field = RawField::read(extension, features, &[])?;
        self.extensions.push(RawExtension { scope: scope.to_owned(), extendee, field });
        Ok(())
    }

    fn declare(&mut self, full_name: &str, kind: Type) -> Result<(), Error> {
        match self.types.insert(full_name.to_owned(), kind) {
            None => Ok(()),
            Some(_) => Err(Error::new(format!("{full_name} is declared twice"))),
        }
    }

    fn link(self, set: &[u8]) -> Result<Inner, Error> {
        let entries: Vec<_> = self.messages.iter().map(|message| message.map_entry).collect();
        let mut all = Vec::with_capacity(self.messages.len());
        for message in &self.messages {
            let mut linked = Vec::with_capacity(message.fields.len());
            for field in &message.fields {
                linked.push(self.link_field(&message.full_name, field, &entries)?);
            }
            all.push(linked);
        }
        self.link_extensions(&entries, &mut all)?;

        let mut messages = Vec::with_capacity(all.len());
        for ((raw, fields), index) in self.messages.iter().zip(all).zip(0..) {
            messages.push(self.link_message(raw, fields, MessageId(index))?);
        }
        check_map_entries(&messages)?;
        mark_map_like(&mut messages);
        mark_required(&mut messages);
        let by_name = messages.iter().map(|message| (message.full_name.clone(), message.id)).collect();
        let services = self.link_services()?;
        Ok(Inner { encoded: set.to_vec(), messages, enums: self.enums, services, by_name })
    }

    fn link_message(
        &self,
        raw: &RawMessage<'_>,
        fields: Vec<Field>,
        id: MessageId,
    ) -> Result<MessageType, Error> {
        let full_name = &raw.full_name;
        let twice = |what: String| Error::new(format!("message {full_name} has {what} twice"));
        if let Some(wrong) = fields.iter().find(|f| f.oneof.is_some_and(|oneof| oneof as usize >= raw.oneofs))
        {
            return Err(Error::new(format!("{} is in a oneof that does not exist", wrong.full_name)));
        }
        Ok(MessageType {
            id,
            full_name: full_name.as_str().into(),
            numbers: Numbers::new(&fields).map_err(|number| twice(format!("number {number}")))?,
            names: Names::new(&fields).map_err(|name| twice(format!("field {name}")))?,
            oneofs: fields.iter().filter_map(|field| field.oneof).max().map_or(0, |last| last + 1),
            map_entry: raw.map_entry,
            has_required: fields.iter().any(Field::is_required),
            well_known: WellKnown::from_full_name(full_name),
            fields,
        })
    }

    fn link_field(&self, scope: &str, raw: &RawField<'a>, entries: &[bool]) -> Result<Field, Error> {
        let full_name = join(scope, raw.name)?;
        let number = u32::try_from(raw.number).ok().filter(|number| (1..=MAX_NUMBER).contains(number));
        let number = number.ok_or_else(|| Error::new(format!("{full_name} has an impossible number")))?;
        let kind = self.kind(scope, raw).ok_or_else(|| {
            Error::new(format!("{full_name} has an unknown type {}", raw.type_name.escape_debug()))
        })?;
        let repeated = raw.label == LABEL_REPEATED;
        let required = raw.label == LABEL_REQUIRED || raw.features.presence == Presence::Required;
        let map = repeated
            && matches!(kind, Kind::Message(id) if entries.get(id.0 as usize).copied().unwrap_or(false));
        Ok(Field {
            number,
            name: raw.name.into(),
            json_name: raw.json_name.map_or_else(|| lower_camel_case(raw.name), str::to_owned).into(),
            brpc_name: brpc_name(raw.name).into(),
            text_name: self.text_name(raw.name, kind).into(),
            full_name: full_name.into(),
            kind,
            cardinality: match (repeated, required) {
                (true, _) => Cardinality::Repeated,
                (_, true) => Cardinality::Required,
                _ => Cardinality::Optional,
            },
            packed: repeated && kind.is_packable() && raw.packed.unwrap_or(raw.features.packed),
            presence: !repeated
                && (raw.features.presence != Presence::Implicit
                    || raw.oneof.is_some()
                    || raw.proto3_optional
                    || kind.message().is_some()),
            utf8: raw.features.utf8 && kind == Kind::String,
            extension: false,
            map,
            map_like: false,
            default: raw.default.map(Into::into),
            oneof: raw.oneof.map(|oneof| u32::try_from(oneof).unwrap_or(u32::MAX)),
            brpc_rank: 0,
        })
    }

    fn kind(&self, scope: &str, raw: &RawField<'a>) -> Option<Kind> {
        let named = || self.resolve(scope, raw.type_name);
        Some(match (raw.kind, raw.features.delimited) {
            (1, _) => Kind::Double,
            (2, _) => Kind::Float,
            (3, _) => Kind::Int64,
            (4, _) => Kind::Uint64,
            (5, _) => Kind::Int32,
            (6, _) => Kind::Fixed64,
            (7, _) => Kind::Fixed32,
            (8, _) => Kind::Bool,
            (9, _) => Kind::String,
            (10 | 0 | 11 | 14, delimited) => match named()? {
                Type::Message(id) if raw.kind == 10 || delimited && !self.is_map_entry(id) => Kind::Group(id),
                Type::Message(id) if raw.kind != 14 => Kind::Message(id),
                Type::Enum(id) if matches!(raw.kind, 0 | 14) => Kind::Enum(id),
                _ => return None,
            },
            (12, _) => Kind::Bytes,
            (13, _) => Kind::Uint32,
            (15, _) => Kind::Sfixed32,
            (16, _) => Kind::Sfixed64,
            (17, _) => Kind::Sint32,
            (18, _) => Kind::Sint64,
            _ => return None,
        })
    }

    /// Returns the field's name in the text format: a group's field, named after its type in lower case, appears under
    /// the type's own name.
    fn text_name<'n>(&'n self, name: &'n str, kind: Kind) -> &'n str {
        let Kind::Group(id) = kind else { return name };
        let full_name = self.messages.get(id.0 as usize).map_or("", |message| &message.full_name);
        let type_name = full_name.rsplit('.').next().unwrap_or_default();
        if type_name.eq_ignore_ascii_case(name) { type_name } else { name }
    }

    /// Maps are never encoded as groups, even if the file's features select that.
    fn is_map_entry(&self, id: MessageId) -> bool {
        self.messages.get(id.0 as usize).is_some_and(|message| message.map_entry)
    }

    /// Resolves a name: one with a leading dot is a full name; another is searched from the innermost scope outwards.
    fn resolve(&self, scope: &str, name: &str) -> Option<Type> {
        if let Some(full_name) = name.strip_prefix('.') {
            return self.types.get(full_name).copied();
        }
        let mut scope = scope;
        loop {
            if let Some(&found) = self.types.get(&join(scope, name).ok()?) {
                return Some(found);
            }
            scope = match scope.rsplit_once('.') {
                Some((outer, _)) => outer,
                None if scope.is_empty() => return None,
                None => "",
            };
        }
    }

    fn link_extensions(&self, entries: &[bool], all: &mut [Vec<Field>]) -> Result<(), Error> {
        let mut extensions = Vec::new();
        for raw in &self.extensions {
            let mut field = self.link_field(&raw.scope, &raw.field, entries)?;
            let Some(Type::Message(extended)) = self.resolve(&raw.scope, raw.extendee) else {
                return Err(Error::new(format!("{} extends an unknown message", field.full_name)));
            };
            field.name = format!("[{}]", field.full_name).into();
            field.json_name = field.name.clone();
            field.text_name = field.name.clone();
            field.extension = true;
            field.presence = !field.is_repeated();
            extensions.push((extended, field));
        }
        extensions.sort_by_key(|(_, field)| field.number);
        for (extended, field) in extensions {
            if let Some(fields) = all.get_mut(extended.0 as usize) {
                fields.push(field);
            }
        }
        Ok(())
    }

    fn link_services(&self) -> Result<Vec<ServiceType>, Error> {
        let message = |service: &str, name: &str| match self.resolve(service, name) {
            Some(Type::Message(id)) => Ok(id),
            _ => {
                let name = name.escape_debug();
                Err(Error::new(format!("service {service} has a method of an unknown message {name}")))
            }
        };
        let mut services = Vec::with_capacity(self.services.len());
        for (full_name, raw) in &self.services {
            let mut methods = Vec::with_capacity(raw.len());
            for method in raw {
                methods.push(MethodType {
                    name: method.name.into(),
                    input: message(full_name, method.input)?,
                    output: message(full_name, method.output)?,
                    client_streaming: method.client_streaming,
                    server_streaming: method.server_streaming,
                    http_rule: method.http_rule.map(Into::into),
                    no_side_effects: method.no_side_effects,
                    idempotent: method.idempotent,
                    deprecated: method.deprecated,
                });
            }
            services.push(ServiceType { full_name: full_name.as_str().into(), methods });
        }
        Ok(services)
    }
}

/// Option `deprecated` of a method (`google/protobuf/descriptor.proto`).
const DEPRECATED: u32 = 33;

/// Option `idempotency_level` and its values for methods that may be repeated.
const IDEMPOTENCY_LEVEL: u32 = 34;
const NO_SIDE_EFFECTS: u64 = 1;
const IDEMPOTENT: u64 = 2;

/// Option `google.api.http` (`google/api/annotations.proto` of googleapis).
const HTTP_RULE: u32 = 72_295_728;

/// Checks that a map's entry has only a key and a value: no format defines the meaning of another field.
fn check_map_entries(messages: &[MessageType]) -> Result<(), Error> {
    for entry in messages.iter().filter(|message| message.map_entry) {
        let key = entry.field(1).map(Field::kind);
        let sound = entry.fields.len() == 2
            && entry.fields.iter().all(|field| !field.is_repeated())
            && entry.field(2).is_some_and(|value| !matches!(value.kind, Kind::Group(_)))
            && !matches!(key, None | Some(Kind::Double | Kind::Float | Kind::Bytes | Kind::Enum(_)))
            && key.is_some_and(|key| key.message().is_none());
        if !sound {
            return Err(Error::new(format!("{} is no entry of a map", entry.full_name)));
        }
    }
    Ok(())
}

/// brpc treats a repeated message as a map if it has two fields, the first a string called `key`, the other called
/// `value` (brpc `json2pb/protobuf_map.cpp`). It writes maps after all other fields.
fn mark_map_like(messages: &mut [MessageType]) {
    let like: Vec<_> = messages
        .iter()
        .map(|message| match &*message.fields {
            [key, value] => {
                &*key.name == "key"
                    && key.kind == Kind::String
                    && !key.is_repeated()
                    && &*value.name == "value"
            }
            _ => false,
        })
        .collect();
    for message in messages {
        for (field, index) in message.fields.iter_mut().zip(0..) {
            let inner = field.kind.message();
            field.map_like = field.is_repeated()
                && inner.is_some_and(|id| like.get(id.0 as usize).copied().unwrap_or(false));
            field.brpc_rank = match (field.extension, field.map_like) {
                (true, _) => index,
                (false, false) => RANK_STEP + index,
                (false, true) => 2 * RANK_STEP + index,
            };
        }
    }
}

/// Propagates "has a required field" from a message to every message that contains it.
fn mark_required(messages: &mut [MessageType]) {
    let mut holders = vec![Vec::new(); messages.len()];
    for message in messages.iter() {
        for inner in message.fields.iter().filter_map(|field| field.kind.message()) {
            if let Some(holders) = holders.get_mut(inner.0 as usize) {
                holders.push(message.id);
            }
        }
    }
    let mut marked: Vec<_> = messages.iter().filter(|m| m.has_required).map(|m| m.id).collect();
    while let Some(id) = marked.pop() {
        for holder in holders.get_mut(id.0 as usize).map(std::mem::take).unwrap_or_default() {
            if let Some(message) = messages.get_mut(holder.0 as usize).filter(|holder| !holder.has_required) {
                message.has_required = true;
                marked.push(holder);
            }
        }
    }
}

impl<'a> RawField<'a> {
    fn read(field: &'a [u8], features: Features, oneofs: &[&'a [u8]]) -> Result<Self, Error> {
        let field = fields(field)?;
        let options = fields(field.last_bytes(8))?;
        let oneof = field.number(9);
        let oneof_options = oneof.and_then(|index| oneofs.get(usize::try_from(index).ok()?));
        let features = match oneof_options {
            Some(oneof) => features.inherit(&fields(oneof)?, 2, 1)?,
            None => features,
        };
        Ok(Self {
            name: field.name()?,
            json_name: field.optional_text(10)?,
            number: field.number(3).unwrap_or(0),
            label: field.number(4).unwrap_or(0),
            kind: field.number(5).unwrap_or(0),
            type_name: field.text(6)?,
            default: field.optional_text(7)?,
            packed: options.number(2).map(|packed| packed != 0),
            oneof,
            proto3_optional: field.flag(17),
            features: features.inherit(&field, 8, 21)?,
        })
    }
}

/// Features selected by syntax and edition. Inherited from the outside in.
#[derive(Clone, Copy)]
struct Features {
    presence: Presence,
    closed_enum: bool,
    packed: bool,
    utf8: bool,
    delimited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Explicit,
    Implicit,
    Required,
}

impl Features {
    /// Returns the features selected by the file's syntax or edition (descriptor.proto, `edition_defaults` of
    /// `FeatureSet`).
    fn from_file(file: &Fields<'_>) -> Result<Self, Error> {
        let proto2 = Self {
            presence: Presence::Explicit,
            closed_enum: true,
            packed: false,
            utf8: false,
            delimited: false,
        };
        let edition = Self { closed_enum: false, packed: true, utf8: true, ..proto2 };
        let proto3 = Self { presence: Presence::Implicit, ..edition };
        match file.text(12)? {
            "" | "proto2" => Ok(proto2),
            "proto3" => Ok(proto3),
            "editions" => Ok(edition),
            _ => Err(Error::new("a file has an unknown syntax")),
        }
    }

    /// Applies the features in the options of `holder`: its field number `options` contains the options, whose field
    /// number `features` contains the features.
    fn inherit(mut self, holder: &Fields<'_>, options: u32, features: u32) -> Result<Self, Error> {
        let options = holder.last_bytes(options);
        if options.is_empty() {
            return Ok(self);
        }
        for set in fields(options)?.bytes(features) {
            let set = fields(set)?;
            match set.number(1) {
                Some(1) => self.presence = Presence::Explicit,
                Some(2) => self.presence = Presence::Implicit,
                Some(3) => self.presence = Presence::Required,
                _ => {}
            }
            self.closed_enum = set.number(2).map_or(self.closed_enum, |kind| kind == 2);
            self.packed = set.number(3).map_or(self.packed, |encoding| encoding == 1);
            self.utf8 = set.number(4).map_or(self.utf8, |validation| validation == 2);
            self.delimited = set.number(5).map_or(self.delimited, |encoding| encoding == 2);
        }
        Ok(self)
    }
}

/// Fields of one descriptor.
struct Fields<'a>(Vec<(u32, Raw<'a>)>);

#[derive(Clone, Copy)]
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn fields(bytes: &[u8]) -> Result<Fields<'_>, Error> {
    read_fields(bytes).map(Fields).ok_or_else(|| Error::new("not a set of file descriptors"))
}

fn read_fields(bytes: &[u8]) -> Option<Vec<(u32, Raw<'_>)>> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while !reader.is_empty() {
        match reader.tag()? {
            (number, WireType::Varint) => found.push((number, Raw::Number(reader.varint()?))),
            (number, WireType::Bytes) => found.push((number, Raw::Bytes(reader.bytes()?))),
            (number, other) => reader.skip(number, other)?,
        }
    }
    Some(found)
}

impl<'a> Fields<'a> {
    fn bytes(&self, number: u32) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |&(found, raw)| match raw {
            Raw::Bytes(bytes) if found == number => Some(bytes),
            _ => None,
        })
    }

    fn last_bytes(&self, number: u32) -> &'a [u8] {
        self.bytes(number).next_back().unwrap_or_default()
    }

    fn optional_text(&self, number: u32) -> Result<Option<&'a str>, Error> {
        let text = self.bytes(number).next_back().map(std::str::from_utf8).transpose();
        text.map_err(|_| Error::new("a descriptor holds text that is not UTF-8"))
    }

    fn text(&self, number: u32) -> Result<&'a str, Error> {
        self.optional_text(number).map(Option::unwrap_or_default)
    }

    /// Returns the name, field 1 of every descriptor.
    fn name(&self) -> Result<&'a str, Error> {
        let name = self.text(1)?;
        if is_name(name) { Ok(name) } else { Err(Error::new("a descriptor has an impossible name")) }
    }

    fn number(&self, number: u32) -> Option<u64> {
        self.0.iter().rev().find_map(|&(found, raw)| match raw {
            Raw::Number(value) if found == number => Some(value),
            _ => None,
        })
    }

    fn flag(&self, number: u32) -> bool {
        self.number(number).is_some_and(|value| value != 0)
    }
}

fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(letter)
}

/// Returns a name within its scope. Its length is bounded, so that long nested names do not add up.
fn join(scope: &str, name: &str) -> Result<String, Error> {
    if scope.len() + name.len() > MAX_NAME {
        return Err(Error::new("a name is too long"));
    }
    Ok(if scope.is_empty() { name.to_owned() } else { [scope, name].join(".") })
}

/// protoc's own conversion, for sets created without it (protobuf `descriptor.cc`, `ToJsonName`).
fn lower_camel_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns brpc's name of a field in JSON: `_Z045_` stands for the character with that number (brpc
/// `json2pb/encode_decode.cpp`). Non-ASCII bytes are kept, since single ones are not valid UTF-8.
fn brpc_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("_Z") {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        match parse_escape(escape) {
            Some((c, after)) => {
                out.push(c);
                rest = after;
            }
            None => {
                out.push('_');
                rest = escape.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

fn parse_escape(text: &str) -> Option<(char, &str)> {
    let (digits, rest) = text.strip_prefix("_Z")?.split_at_checked(3)?;
    let number: u8 = parse_decimal(digits)?;
    number.is_ascii().then_some((char::from(number), rest.strip_prefix('_')?))
}

/// Nesting limit of declarations, as in protobuf's own parsers.
const MAX_DEPTH: usize = 100;
const MAX_NAME: usize = 1024;
const MAX_NUMBER: u32 = (1 << 29) - 1;
const LABEL_REQUIRED: u64 = 2;
const LABEL_REPEATED: u64 = 3;
/// Exceeds the number of fields of any message.
const RANK_STEP: u32 = 1 << 30;
