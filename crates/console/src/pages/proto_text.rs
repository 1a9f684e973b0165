//! Declarations of a `.proto`, in the form of protobuf's `DebugString`.

use std::fmt::Write;

use polyrpc::payload::schema::{Cardinality, EnumType, Field, Kind, Message, Pool, Service};

/// Writes a message. Nested declarations are written on their own.
pub(super) fn message(message: &Message) -> String {
    let mut text = format!("message {} {{\n", message.name());
    for field in message.fields() {
        let (name, number) = (field.name(), field.number());
        let label = label(field);
        let kind = type_of(message.pool(), field);
        // Writing to a string does not fail.
        let _ = match field.default_value() {
            Some(default) => writeln!(text, "  {label}{kind} {name} = {number} [default = {default:?}];"),
            None => writeln!(text, "  {label}{kind} {name} = {number};"),
        };
    }
    text + "}\n"
}

/// Writes a service.
pub(super) fn service(service: &Service<'_>) -> String {
    let name = service.full_name().rsplit('.').next().unwrap_or_default();
    let mut text = format!("service {name} {{\n");
    for method in service.methods() {
        let stream = |streams: bool| if streams { "stream " } else { "" };
        let (there, back) = (stream(method.client_streaming()), stream(method.server_streaming()));
        let (input, output) = (method.input(), method.output());
        let _ = writeln!(
            text,
            "  rpc {}({there}.{}) returns ({back}.{});",
            method.name(),
            input.full_name(),
            output.full_name()
        );
    }
    text + "}\n"
}

/// Writes an enum.
pub(super) fn enumeration(declared: &EnumType) -> String {
    let name = declared.full_name().rsplit('.').next().unwrap_or_default();
    let mut text = format!("enum {name} {{\n");
    for value in declared.values() {
        let _ = writeln!(text, "  {} = {};", value.name(), value.number());
    }
    text + "}\n"
}

fn label(field: &Field) -> &'static str {
    match field.cardinality() {
        Cardinality::Required => "required ",
        _ if field.is_map() => "",
        Cardinality::Repeated => "repeated ",
        Cardinality::Optional if field.oneof().is_some() => "",
        Cardinality::Optional if field.has_presence() => "optional ",
        Cardinality::Optional => "",
    }
}

fn type_of(pool: &Pool, field: &Field) -> String {
    if field.is_map()
        && let Some(id) = field.kind().message()
    {
        let entry = pool.message_at(id);
        let part = |number| entry.field(number).map_or_else(String::new, |part| kind(pool, part.kind()));
        return format!("map<{}, {}>", part(1), part(2));
    }
    kind(pool, field.kind())
}

fn kind(pool: &Pool, kind: Kind) -> String {
    let word = match kind {
        Kind::Double => "double",
        Kind::Float => "float",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Uint32 => "uint32",
        Kind::Uint64 => "uint64",
        Kind::Sint32 => "sint32",
        Kind::Sint64 => "sint64",
        Kind::Fixed32 => "fixed32",
        Kind::Fixed64 => "fixed64",
        Kind::Sfixed32 => "sfixed32",
        Kind::Sfixed64 => "sfixed64",
        Kind::Bool => "bool",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Enum(id) => return format!(".{}", pool.enum_type(id).full_name()),
        Kind::Message(id) | Kind::Group(id) => return format!(".{}", pool.message_at(id).full_name()),
    };
    word.to_owned()
}
