use std::collections::HashMap;

use polyrpc_core::protobuf::WireType;

/// A field of a message, or an extension of one.
#[derive(Debug, Clone)]
pub struct Field {
    pub(super) number: u32,
    pub(super) name: Box<str>,
    pub(super) full_name: Box<str>,
    pub(super) json_name: Box<str>,
    pub(super) brpc_name: Box<str>,
    pub(super) text_name: Box<str>,
    pub(super) kind: Kind,
    pub(super) cardinality: Cardinality,
    pub(super) packed: bool,
    pub(super) presence: bool,
    pub(super) utf8: bool,
    pub(super) extension: bool,
    pub(super) map: bool,
    pub(super) map_like: bool,
    pub(super) default: Option<Box<str>>,
    pub(super) oneof: Option<u32>,
    pub(super) brpc_rank: u32,
}

impl Field {
    /// Returns the field number of the binary format.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the name as declared; for an extension, the full name in brackets: `[example.color]`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fully qualified name: `example.EchoRequest.message`.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Returns the name in ProtoJSON: in lowerCamelCase, unless declared otherwise.
    pub fn json_name(&self) -> &str {
        &self.json_name
    }

    /// Returns the name in brpc's JSON, where `_Z045_` stands for the byte with the decimal number 45.
    pub fn brpc_name(&self) -> &str {
        &self.brpc_name
    }

    /// Returns the name in the text format, which names a group by its type.
    pub(crate) fn text_name(&self) -> &str {
        &self.text_name
    }

    /// Returns the type of its values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its cardinality.
    pub fn cardinality(&self) -> Cardinality {
        self.cardinality
    }

    /// Whether it may have any number of values; maps are repeated too.
    pub fn is_repeated(&self) -> bool {
        self.cardinality == Cardinality::Repeated
    }

    /// Whether a message without it is incomplete.
    pub fn is_required(&self) -> bool {
        self.cardinality == Cardinality::Required
    }

    /// Whether its values are written packed. Both encodings are accepted.
    pub fn is_packed(&self) -> bool {
        self.packed
    }

    /// Whether "not set" differs from "set to the zero value".
    pub fn has_presence(&self) -> bool {
        self.presence
    }

    /// Whether its strings must be UTF-8.
    pub fn is_utf8_checked(&self) -> bool {
        self.utf8
    }

    /// Whether it is an extension.
    pub fn is_extension(&self) -> bool {
        self.extension
    }

    /// Whether it is a map.
    pub fn is_map(&self) -> bool {
        self.map
    }

    /// Whether brpc's JSON treats it as a map with string keys (brpc `json2pb/protobuf_map.cpp`).
    pub fn is_map_like(&self) -> bool {
        self.map_like
    }

    /// Returns the declared default in the descriptor's notation: `1.5`, `RED`.
    pub fn default_value(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// Returns the index of its `oneof` in the message, counted from 0. That of a proto3 `optional` does not count.
    pub fn oneof(&self) -> Option<usize> {
        self.oneof.map(|index| index as usize)
    }

    /// Returns its position in brpc's JSON: extensions first, maps last (brpc `json2pb/pb_to_json.cpp`).
    pub(crate) fn brpc_rank(&self) -> u32 {
        self.brpc_rank
    }
}

/// Cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cardinality {
    /// Zero or one value.
    Optional,
    /// Exactly one value.
    Required,
    /// Any number of values.
    Repeated,
}

/// Type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of the language")]
pub enum Kind {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
    Enum(EnumId),
    Message(MessageId),
    /// A message delimited by start and end tags instead of a length prefix.
    Group(MessageId),
}

impl Kind {
    /// Whether several values may be written packed.
    pub fn is_packable(self) -> bool {
        !matches!(self, Self::String | Self::Bytes | Self::Message(_) | Self::Group(_))
    }

    /// Returns the wire type of its values, unless they are packed.
    pub fn wire_type(self) -> WireType {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => WireType::Fixed64,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => WireType::Fixed32,
            Self::String | Self::Bytes | Self::Message(_) => WireType::Bytes,
            Self::Group(_) => WireType::StartGroup,
            _ => WireType::Varint,
        }
    }

    /// Returns its keyword in a `.proto`; for an enum or a message, `enum` or `message`.
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Float => "float",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Sint32 => "sint32",
            Self::Sint64 => "sint64",
            Self::Fixed32 => "fixed32",
            Self::Fixed64 => "fixed64",
            Self::Sfixed32 => "sfixed32",
            Self::Sfixed64 => "sfixed64",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Enum(_) => "enum",
            Self::Message(_) => "message",
            Self::Group(_) => "group",
        }
    }

    /// Whether its values are numbers.
    pub(crate) fn is_number(self) -> bool {
        self.is_packable() && !matches!(self, Self::Bool | Self::Enum(_))
    }

    /// Returns the message type of its values, if they are messages.
    pub fn message(self) -> Option<MessageId> {
        match self {
            Self::Message(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }
}

/// Identifies a message within its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub(super) u32);

/// Identifies an enum within its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EnumId(pub(super) u32);

/// An enum and its values.
#[derive(Debug, Clone)]
pub struct EnumType {
    pub(super) full_name: Box<str>,
    pub(super) values: Vec<EnumValue>,
    pub(super) closed: bool,
    pub(super) by_name: HashMap<Box<str>, i32>,
    /// Number and index, sorted by number; the first of several names of a number.
    pub(super) by_number: Vec<(i32, u32)>,
}

/// A named value of an enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumValue {
    pub(super) name: Box<str>,
    pub(super) number: i32,
}

impl EnumType {
    /// Returns the fully qualified name.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Returns the values in the order of their declaration; a number may have several names.
    pub fn values(&self) -> &[EnumValue] {
        &self.values
    }

    /// Whether a number without a name is treated as an unknown field (proto2).
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether its only value is JSON's null.
    pub(crate) fn is_null(&self) -> bool {
        &*self.full_name == "google.protobuf.NullValue"
    }

    /// Returns the number of a name.
    pub fn number(&self, name: &str) -> Option<i32> {
        self.by_name.get(name).copied()
    }

    /// Returns the name of a number; of several, the one declared first.
    pub fn name(&self, number: i32) -> Option<&str> {
        // Most enums count from 0 without gaps.
        let direct = usize::try_from(number).ok().and_then(|at| self.by_number.get(at));
        let (_, index) = match direct.filter(|(found, _)| *found == number) {
            Some(entry) => entry,
            None => {
                let at = self.by_number.binary_search_by_key(&number, |&(number, _)| number).ok()?;
                self.by_number.get(at)?
            }
        };
        self.values.get(*index as usize).map(|value| &*value.name)
    }

    /// Returns the value that stands for "not set": the one declared first.
    pub fn first(&self) -> i32 {
        self.values.first().map_or(0, |value| value.number)
    }
}

impl EnumValue {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number.
    pub fn number(&self) -> i32 {
        self.number
    }
}
