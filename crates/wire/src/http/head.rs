//! The head of a response: text in HTTP/1, a header block in HTTP/2.

use polyrpc_core::digits::put_decimal;

use super::h1::frame;
use super::mapping::status;

/// Where the head of a response is written.
pub(crate) trait WriteHead {
    /// Begins a response, of so many bytes unless it can have none; its fields follow.
    fn begin(&mut self, status: u16, length: Option<usize>);

    /// Writes a field whose name and value are known to be clean.
    fn field(&mut self, name: &str, value: &[u8]);

    /// Writes a field whose value comes from elsewhere: what must not stand in a head becomes a blank, as Go's
    /// `net/http` does with line ends.
    fn lenient_field(&mut self, name: &str, value: &[u8]) {
        if frame::is_field_value(value) {
            return self.field(name, value);
        }
        let clean: Vec<u8> =
            value.iter().map(|byte| if frame::is_field_byte(byte) { *byte } else { b' ' }).collect();
        self.field(name, &clean);
    }
}

/// HTTP/1's text. Its connection fields and the empty line are still to come.
impl WriteHead for Vec<u8> {
    fn begin(&mut self, status: u16, length: Option<usize>) {
        self.extend_from_slice(b"HTTP/1.1 ");
        put_decimal(self, u64::from(status));
        self.push(b' ');
        self.extend_from_slice(status::phrase(status).as_bytes());
        if let Some(length) = length {
            self.extend_from_slice(b"\r\nContent-Length: ");
            put_decimal(self, length as u64);
        }
        self.extend_from_slice(b"\r\n");
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        frame::field(self, name, value);
    }
}
