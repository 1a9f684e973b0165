//! A method as brpc writes it: `Echo (EchoRequest) returns (EchoResponse)`.

use polyrpc::payload::TypeSchema;
use polyrpc::service::MethodInfo;

/// Returns a method's name and the names of its messages, without packages.
pub(crate) fn signature(info: &MethodInfo) -> String {
    let (request, reply) = match &info.messages {
        Some((request, reply)) => (short_name(request).to_owned(), short_name(reply).to_owned()),
        None => (type_name(&info.schemas.0), type_name(&info.schemas.1)),
    };
    let stream = |streams: bool| if streams { "stream " } else { "" };
    let (there, back) =
        (stream(info.stream_type.client_streaming), stream(info.stream_type.server_streaming));
    format!("{} ({there}{request}) returns ({back}{reply})", info.name)
}

pub(crate) fn short_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn type_name(schema: &TypeSchema) -> String {
    match schema {
        TypeSchema::Bool => "bool".into(),
        TypeSchema::Int(bits) => format!("int{bits}"),
        TypeSchema::Uint(bits) => format!("uint{bits}"),
        TypeSchema::Float(bits) => format!("float{bits}"),
        TypeSchema::String => "string".into(),
        TypeSchema::Bytes => "bytes".into(),
        TypeSchema::Optional(inner) => format!("optional {}", type_name(inner)),
        TypeSchema::List(item) => format!("list of {}", type_name(item)),
        TypeSchema::Tuple(items) => items.iter().map(type_name).collect::<Vec<_>>().join(", "),
        TypeSchema::Map(key, value) => format!("map of {} to {}", type_name(key), type_name(value)),
        TypeSchema::Struct { name, .. } => name.clone(),
        _ => "any".into(),
    }
}
