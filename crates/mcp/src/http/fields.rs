//! Header fields of requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polyrpc::Metadata;
use polyrpc::fallback::HttpRequest;
use polyrpc_core::Carrier;

pub(super) const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Checks that a request has JSON, and accepts it. The error is a status of HTTP with a text.
pub(super) fn check(fields: &Metadata) -> Result<(), (u16, &'static str)> {
    let essence = |value: &str| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // A web page cannot send this type to another origin without asking first.
    if fields.get("content-type").map(essence).as_deref() != Some("application/json") {
        return Err((415, "the content type is not application/json"));
    }
    let accepts = |value: &str| {
        value.split(',').any(|part| matches!(&*essence(part), "application/json" | "application/*" | "*/*"))
    };
    match fields.get("accept") {
        Some(accept) if !accepts(accept) => {
            Err((406, "the answer is application/json, which Accept does not name"))
        }
        _ => Ok(()),
    }
}

/// Checks that fields that repeat parts of the message equal these parts.
pub(super) fn check_mirrored(fields: &Metadata, method: &str, name: Option<&str>) -> Result<(), String> {
    match fields.get(METHOD) {
        Some(field) if field == method => {}
        Some(_) => return Err("the field Mcp-Method differs from the message".into()),
        None => return Err("the field Mcp-Method is missing".into()),
    }
    if method != "tools/call" {
        return Ok(());
    }
    match fields.get(NAME).map(decode_field) {
        Some(Some(field)) if Some(field.as_str()) == name => Ok(()),
        Some(_) => Err("the field Mcp-Name differs from the message".into()),
        None => Err("the field Mcp-Name is missing".into()),
    }
}

/// Decodes a value; one that is not allowed in a field is sent as `=?base64?…?=`.
fn decode_field(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

/// Returns the credential of a request, which is that of the calls that it makes.
pub(super) fn credential(fields: &Metadata) -> Option<Bytes> {
    fields.bytes("authorization").cloned()
}

/// Returns the metadata of the calls that a request makes: every field that does not belong to HTTP, to browsers, or to
/// this protocol, and the address of the caller.
pub(super) fn metadata(request: &HttpRequest) -> Metadata {
    let mut metadata = Metadata::new();
    for (name, value) in request.headers.iter().filter(|(name, _)| is_passed_on(name)) {
        metadata.append(name.to_owned(), value.clone());
    }
    if let Some(address) = request.context.peer().address() {
        let before = request.headers.get(FORWARDED).map(|before| format!("{before}, ")).unwrap_or_default();
        metadata.insert(FORWARDED, format!("{before}{}", address.ip()));
    }
    metadata
}

fn is_passed_on(name: &str) -> bool {
    let own = ["authorization", "accept", "origin", "referer", "host", "cookie", "last-event-id", FORWARDED];
    let families = ["content-", "accept-", "mcp-", "sec-", "if-", "access-control-"];
    !own.contains(&name)
        && !families.iter().any(|family| name.starts_with(family))
        && !Carrier::reserves(name)
}

const FORWARDED: &str = "x-forwarded-for";

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Metadata {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn request_needs_json_and_accepts_it() {
        for (content_type, accept, status) in [
            ("application/json", "application/json, text/event-stream", None),
            ("Application/JSON; charset=utf-8", "*/*", None),
            ("text/plain", "*/*", Some(415)),
            ("application/json", "text/event-stream", Some(406)),
        ] {
            let checked = check(&fields(&[("content-type", content_type), ("accept", accept)]));
            assert_eq!(checked.err().map(|(status, _)| status), status, "{content_type} {accept}");
        }
        assert_eq!(check(&fields(&[("content-type", "application/json")])), Ok(()));
        assert!(check(&fields(&[])).is_err());
    }

    #[test]
    fn mirrored_fields_must_be_those_of_the_message() {
        for (pairs, method, name, fits) in [
            (&[("mcp-method", "tools/list")][..], "tools/list", None, true),
            (&[("mcp-method", "ping")], "tools/list", None, false),
            (&[], "tools/list", None, false),
            (&[("mcp-method", "tools/call"), ("mcp-name", "add")], "tools/call", Some("add"), true),
            (
                &[("mcp-method", "tools/call"), ("mcp-name", "=?base64?YWRk?=")],
                "tools/call",
                Some("add"),
                true,
            ),
            (&[("mcp-method", "tools/call"), ("mcp-name", "=?base64?!?=")], "tools/call", Some("add"), false),
            (&[("mcp-method", "tools/call"), ("mcp-name", "sub")], "tools/call", Some("add"), false),
            (&[("mcp-method", "tools/call")], "tools/call", Some("add"), false),
        ] {
            assert_eq!(check_mirrored(&fields(pairs), method, name).is_ok(), fits, "{pairs:?}");
        }
    }

    #[test]
    fn fields_of_http_and_of_the_protocol_are_not_passed_on() {
        for name in ["traceparent", "x-tenant", "user-agent"] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in
            ["content-type", "accept", "mcp-name", "origin", "cookie", "host", "connection", "grpc-timeout"]
        {
            assert!(!is_passed_on(name), "{name}");
        }
    }
}
