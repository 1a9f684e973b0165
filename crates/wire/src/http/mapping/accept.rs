//! JSON dialect that a caller requests with its `Accept` field.
//!
//! `application/proto-json` is brpc's name for ProtoJSON. A parameter selects it for `application/json`, like
//! those of OData (`application/json;odata.metadata=none`): `application/json;dialect=proto3`, or `brpc`, or `go`.

use polyrpc_core::Json;

use super::content_type::{JSON, PROTO_JSON};
use super::request::Request;
use crate::http::field;

/// Preference expressed by an `Accept` field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptPreference {
    /// No preference.
    Any,
    /// This dialect, under this content type.
    Dialect(Json, &'static str),
    /// An unknown dialect.
    Unknown,
}

/// Returns the preference of a request.
pub(super) fn parse_accept(request: &Request) -> AcceptPreference {
    dialect(request.metadata.bytes("accept").map(|value| &value[..]))
}

/// The first type that names a dialect wins.
fn dialect(accept: Option<&[u8]>) -> AcceptPreference {
    let Some(accept) = accept else { return AcceptPreference::Any };
    field::list(accept)
        .map(preference)
        .find(|accepted| *accepted != AcceptPreference::Any)
        .unwrap_or(AcceptPreference::Any)
}

fn preference(element: &[u8]) -> AcceptPreference {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let essence = parts.next().unwrap_or_default();
    match () {
        () if essence.eq_ignore_ascii_case(PROTO_JSON.as_bytes()) => {
            AcceptPreference::Dialect(Json::Proto3, PROTO_JSON)
        }
        () if essence.eq_ignore_ascii_case(JSON.as_bytes()) => match parts.find_map(parameter) {
            None => AcceptPreference::Any,
            Some(b"proto3") => AcceptPreference::Dialect(Json::Proto3, JSON),
            Some(b"brpc") => AcceptPreference::Dialect(Json::Brpc, JSON),
            Some(b"go") => AcceptPreference::Dialect(Json::Go, JSON),
            Some(_) => AcceptPreference::Unknown,
        },
        () => AcceptPreference::Any,
    }
}

/// Returns the value of the parameter `dialect`.
fn parameter(part: &[u8]) -> Option<&[u8]> {
    let at = part.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (part.get(..at)?, part.get(at + 1..)?);
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    name.trim_ascii().eq_ignore_ascii_case(b"dialect").then(|| bare.unwrap_or(value).trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect_is_taken_from_a_parameter_or_the_brpc_media_type() {
        for (accept, want) in [
            ("", AcceptPreference::Any),
            ("*/*", AcceptPreference::Any),
            ("text/html, application/json;q=0.9", AcceptPreference::Any),
            ("application/proto-json", AcceptPreference::Dialect(Json::Proto3, PROTO_JSON)),
            (
                "text/html, Application/JSON ; Dialect=\"proto3\" ; q=1",
                AcceptPreference::Dialect(Json::Proto3, JSON),
            ),
            (
                "application/json;dialect=brpc, application/proto-json",
                AcceptPreference::Dialect(Json::Brpc, JSON),
            ),
            ("application/json;dialect=go", AcceptPreference::Dialect(Json::Go, JSON)),
            ("application/json;dialect=yaml", AcceptPreference::Unknown),
        ] {
            assert_eq!(dialect(Some(accept.as_bytes())), want, "{accept}");
        }
        assert_eq!(dialect(None), AcceptPreference::Any);
    }
}
