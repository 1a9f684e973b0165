//! Head of a response: text in HTTP/1, a header block in HTTP/2.

use polyrpc_core::digits::put_decimal;
use polyrpc_core::{Carrier, Metadata};

use super::field;

/// Writer of a response's head.
pub(crate) trait WriteHead {
    /// Starts a response with a body of this length, or `None` if it can have no body; its fields follow.
    fn begin(&mut self, status: u16, length: Option<usize>);

    /// Writes a field whose name and value are known to be valid.
    fn field(&mut self, name: &str, value: &[u8]);

    /// Writes a field with an unchecked value: invalid bytes are replaced by blanks, as Go's `net/http` does with line
    /// ends.
    fn lenient_field(&mut self, name: &str, value: &[u8]) {
        if field::is_field_value(value) {
            return self.field(name, value);
        }
        let clean: Vec<u8> =
            value.iter().map(|byte| if field::is_field_byte(byte) { *byte } else { b' ' }).collect();
        self.field(name, &clean);
    }
}

/// HTTP/1's text. Its connection fields and the empty line are appended later.
impl WriteHead for Vec<u8> {
    fn begin(&mut self, status: u16, length: Option<usize>) {
        self.extend_from_slice(b"HTTP/1.1 ");
        put_decimal(self, u64::from(status));
        self.push(b' ');
        self.extend_from_slice(phrase(status).as_bytes());
        if let Some(length) = length {
            self.extend_from_slice(b"\r\nContent-Length: ");
            put_decimal(self, length as u64);
        }
        self.extend_from_slice(b"\r\n");
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        field::field(self, name, value);
    }
}

/// Writes metadata as fields. Entries that [cannot be sent](Carrier::Http) were rejected before; those of a failed call
/// are dropped, and so is a content type among them.
pub(crate) fn metadata_fields(head: &mut impl WriteHead, metadata: &Metadata) {
    for (name, value) in metadata.iter() {
        if Carrier::Http.refusal(name, value).is_none() {
            head.field(name, value);
        }
    }
}

/// Returns the reason phrase of an HTTP status.
fn phrase(http: u16) -> &'static str {
    match http {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        511 => "Network Authentication Required",
        _ => "Unknown",
    }
}
