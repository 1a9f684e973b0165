//! Parser for the trailers after the messages, on the client's side.

use crate::http::h2::hpack::Fields;

/// Parses the fields of a trailers frame: lines as in HTTP/1, with names in any case. Malformed lines are skipped.
pub(crate) fn fields(text: &[u8]) -> Fields {
    let mut fields = Fields::default();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default();
        fields.push(&name.trim_ascii().to_ascii_lowercase(), value.trim_ascii());
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailer_names_are_case_insensitive_and_values_trimmed() {
        let fields =
            fields(b"Grpc-Status: 9\r\ngRPC-Message:a: b \r\n\r\nno field\nX-Trailer: 1\r\nx-trailer: 2");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let read: Vec<_> = fields.iter().map(|(name, value)| (text(name), text(value))).collect();
        let want = [("grpc-status", "9"), ("grpc-message", "a: b"), ("x-trailer", "1"), ("x-trailer", "2")];
        assert_eq!(read, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
