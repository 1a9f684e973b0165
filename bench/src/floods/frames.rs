//! Raw HTTP/2 frames for attackers.

/// Frames to send, concatenated.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) bytes: Vec<u8>,
}

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;

pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

const CANCEL: u32 = 8;

/// The largest window.
pub(super) const WIDEST: u32 = 0x7fff_ffff;

/// Length of a frame header.
pub(super) const HEADER: usize = 9;

impl Frames {
    /// The start of a connection.
    pub(super) fn begin() -> Self {
        let mut frames = Self { bytes: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() };
        frames.settings(&[]);
        frames
    }

    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, l0, l1, l2] = (payload.len() as u32).to_be_bytes();
        let [s0, s1, s2, s3] = stream.to_be_bytes();
        self.bytes.extend_from_slice(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]);
        self.bytes.extend_from_slice(payload);
    }

    /// The head of a request, whose body may follow.
    pub(super) fn head(&mut self, stream: u32, block: &[u8]) {
        self.frame(HEADERS, END_HEADERS, stream, block);
    }

    /// A complete call.
    pub(super) fn call(&mut self, stream: u32, block: &[u8]) {
        self.head(stream, block);
        self.frame(DATA, END_STREAM, stream, &MESSAGE);
    }

    /// A complete call with a message of this length.
    pub(super) fn large_call(&mut self, stream: u32, length: usize) {
        const MOST: usize = 16_384;
        self.head(stream, ECHO);
        let message = message(length);
        let mut pieces = message.chunks(MOST).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_STREAM } else { 0 };
            self.frame(DATA, flags, stream, piece);
        }
    }

    pub(super) fn reset(&mut self, stream: u32) {
        self.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    }

    pub(super) fn window_update(&mut self, stream: u32, increment: u32) {
        self.frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    }

    pub(super) fn settings(&mut self, settings: &[(u16, u32)]) {
        let mut payload = Vec::with_capacity(settings.len() * 6);
        for (id, value) in settings {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.frame(SETTINGS, 0, 0, &payload);
    }

    /// Grants the server maximum windows.
    pub(super) fn open_windows(&mut self) {
        self.settings(&[(INITIAL_WINDOW_SIZE, WIDEST)]);
        self.window_update(0, WIDEST - 65_535);
    }
}

/// The id of the client's stream in this iteration.
pub(super) fn stream(iteration: u32) -> u32 {
    2 * iteration + 1
}

/// The head of a call of `example.EchoService/Echo`, as a header block that refers to no dynamic table.
pub(super) const ECHO: &[u8] = b"\x83\x86\
    \x04\x19/example.EchoService/Echo\
    \x01\x04echo\
    \x0f\x10\x10application/grpc\
    \x00\x02te\x08trailers";

/// The message of a call: 32 letters as `example.EchoRequest`, after gRPC's prefix.
const MESSAGE: [u8; 39] = *b"\0\0\0\0\x22\x0a\x20AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A message of this many letters, after gRPC's prefix.
pub(super) fn message(length: usize) -> Vec<u8> {
    let mut field = vec![0x0a];
    let mut rest = length;
    while rest >= 0x80 {
        field.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    field.push(rest as u8);
    field.resize(field.len() + length, b'A');
    let [a, b, c, d] = (field.len() as u32).to_be_bytes();
    [&[0, a, b, c, d], &field[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_message_of_32_bytes_equals_the_constant() {
        assert_eq!(message(32), MESSAGE);
        assert_eq!(message(300)[..8], *b"\0\0\0\x01\x2f\x0a\xac\x02");
    }
}
