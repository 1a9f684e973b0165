//! Requests handled by an external HTTP handler: the data exchanged with it, the same over HTTP/1 and HTTP/2.

use bytes::Bytes;

use polyrpc_core::Metadata;
use polyrpc_core::digits::parse_decimal;

use crate::http::field;

/// Returns the fields of a request's head as received, after `:method`, `:path` and `:authority`. Hop-by-hop fields are
/// omitted.
pub(crate) fn request(
    method: &str,
    target: Bytes,
    authority: Bytes,
    fields: Vec<(String, Bytes)>,
) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.append(":method", method.as_bytes().to_vec());
    metadata.append(":path", target);
    metadata.append(":authority", authority);
    let connection = fields.iter().filter(|(name, _)| name == "connection");
    let named = connection.flat_map(|(_, value)| field::list(value));
    let named: Vec<String> = named.map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    for (name, value) in fields {
        if !is_hop_by_hop(&name) && !named.contains(&name) {
            metadata.append(name, value);
        }
    }
    metadata
}

/// Head of a response.
#[derive(Debug)]
pub(crate) struct Response<'m> {
    pub(crate) status: u16,
    /// Length of its body, unless its fields have none, a malformed one or several.
    pub(crate) length: Option<u64>,
    fields: &'m Metadata,
}

impl<'m> Response<'m> {
    pub(crate) fn read(fields: &'m Metadata) -> Self {
        let status = fields.get(":status").and_then(|status| status.parse().ok());
        let lengths = fields.iter().filter(|(name, _)| is_length(name));
        let mut lengths =
            lengths.map(|(_, length)| std::str::from_utf8(length).ok().and_then(parse_decimal::<u64>));
        let length = lengths.next().flatten().filter(|length| lengths.all(|other| other == Some(*length)));
        // An interim status is not a valid response.
        Self { status: status.filter(|status| (200..=999).contains(status)).unwrap_or(500), length, fields }
    }

    /// Whether no body follows, whatever the fields (RFC 9110, §6.4.1).
    pub(crate) fn is_bare(&self, head_only: bool) -> bool {
        head_only || matches!(self.status, 204 | 304)
    }

    /// Iterates over its fields, without invalid and hop-by-hop ones.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'m str, &'m Bytes)> {
        // The field is sent once. Without a valid length it is omitted, and the framing marks the end of the body.
        let mut sends_length = self.status != 204 && self.length.is_some();
        end_to_end_fields(self.fields)
            .filter(move |(name, _)| !is_length(name) || std::mem::take(&mut sends_length))
    }
}

fn is_length(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-length")
}

/// Iterates over the entries that may be sent as fields.
pub(crate) fn end_to_end_fields(fields: &Metadata) -> impl Iterator<Item = (&str, &Bytes)> {
    fields.iter().filter(|(name, value)| {
        !is_hop_by_hop(name) && field::is_field_name(name) && field::is_field_value(value)
    })
}

/// Whether a field is hop-by-hop or belongs to connection management (RFC 9110, §7.6.1).
fn is_hop_by_hop(name: &str) -> bool {
    const HOP_BY_HOP: [&str; 8] = [
        "connection",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    HOP_BY_HOP.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_a_response_is_sent_once_or_not_at_all() {
        for (lengths, sent) in [
            (&["5", "5"][..], Some("5")),
            (&["5", "05"], Some("5")),
            (&["5", "5", "6"], None),
            (&["5", "five"], None),
            (&["five", "5"], None),
        ] {
            let mut fields: Metadata = [(":status", "200")].into_iter().collect();
            lengths.iter().for_each(|length| fields.append("content-length", *length));
            let response = Response::read(&fields);
            assert_eq!(response.length, sent.map(|_| 5), "{lengths:?}");
            let sent: Vec<_> = sent.into_iter().map(|length| ("content-length", length)).collect();
            let fields = response.fields().map(|(name, value)| (name, std::str::from_utf8(value).unwrap()));
            assert_eq!(fields.collect::<Vec<_>>(), sent, "{lengths:?}");
        }
        let fields: Metadata = [("Content-Length", "5"), ("content-length", "6")].into_iter().collect();
        assert_eq!(Response::read(&fields).fields().count(), 0);
    }

    #[test]
    fn malformed_length_of_a_response_is_not_sent() {
        for (length, is_sent) in [("5", true), ("+5", false), ("5, 5", false), ("five", false), ("", false)] {
            let fields: Metadata = [(":status", "200"), ("content-length", length)].into_iter().collect();
            let response = Response::read(&fields);
            assert_eq!(response.length.is_some(), is_sent, "{length}");
            assert_eq!(response.fields().count(), usize::from(is_sent), "{length}");
        }
    }
}
