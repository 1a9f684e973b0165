//! Names of formats in recordings; unlike those of the library they distinguish the dialects of JSON.

use polyrpc_core::{Format, Json};

/// Returns the name of a format.
pub(crate) fn name(format: Format) -> String {
    match format {
        Format::Json(Json::Proto3) => "json".to_owned(),
        Format::Json(Json::Brpc) => "json-brpc".to_owned(),
        Format::Json(Json::BrpcLenient) => "json-brpc-lenient".to_owned(),
        Format::Json(Json::Go) => "json-go".to_owned(),
        Format::Other(number) => format!("other-{number}"),
        plain => plain.as_str().to_owned(),
    }
}

/// Returns the format of this name; `None` if there is none.
pub(crate) fn parse(name: &str) -> Option<Format> {
    if let Some(number) = name.strip_prefix("other-") {
        return number.parse().ok().map(Format::Other);
    }
    Some(match name {
        "json-brpc" => Format::Json(Json::Brpc),
        "json-brpc-lenient" => Format::Json(Json::BrpcLenient),
        "json-go" => Format::Json(Json::Go),
        "json" => Format::Json(Json::Proto3),
        name => PLAIN.into_iter().find(|format| format.as_str() == name)?,
    })
}

const PLAIN: [Format; 9] = [
    Format::Protobuf,
    Format::ProtoText,
    Format::MessagePack,
    Format::MessagePackArray,
    Format::RestRpc,
    Format::StructPack,
    Format::FlatBuffers,
    Format::Gob,
    Format::Raw,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_a_name_of_its_own() {
        let json = [Json::Proto3, Json::Brpc, Json::BrpcLenient, Json::Go].map(Format::Json);
        for format in PLAIN.into_iter().chain(json).chain([Format::Other(4)]) {
            assert_eq!(parse(&name(format)), Some(format));
        }
        assert_eq!(parse("yaml"), None);
    }
}
