//! HTTP/2 frames to send, and a parser of the server's frames.

/// Frames to send, concatenated.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) bytes: Vec<u8>,
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;

pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// The largest window.
pub(crate) const LARGEST_WINDOW: u32 = 0x7fff_ffff;

/// Length of a frame header.
const HEADER: usize = 9;
/// Default maximum length of a frame.
pub(crate) const FRAME: usize = 16_384;

const CANCEL: u32 = 8;

impl Frames {
    /// The start of a connection: the preface, SETTINGS, and maximum windows, so that the server may
    /// respond without limit.
    pub(crate) fn begin() -> Self {
        let mut frames = Self { bytes: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() };
        frames.settings(&[(INITIAL_WINDOW_SIZE, LARGEST_WINDOW)]);
        frames.window_update(0, LARGEST_WINDOW - 65_535);
        frames
    }

    /// The same with windows of 0: the server may send no data.
    pub(crate) fn begin_without_windows() -> Self {
        let mut frames = Self { bytes: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() };
        frames.settings(&[(INITIAL_WINDOW_SIZE, 0)]);
        frames
    }

    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, l0, l1, l2] = (payload.len() as u32).to_be_bytes();
        let [s0, s1, s2, s3] = stream.to_be_bytes();
        self.bytes.extend_from_slice(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]);
        self.bytes.extend_from_slice(payload);
    }

    /// The head of a request whose body may follow.
    pub(crate) fn head(&mut self, stream: u32, block: &[u8]) {
        self.frame(HEADERS, END_HEADERS, stream, block);
    }

    /// A complete call with this message.
    pub(crate) fn call(&mut self, stream: u32, block: &[u8], message: &[u8]) {
        self.head(stream, block);
        self.body(stream, &grpc_message(0, message));
    }

    /// A complete body.
    pub(crate) fn body(&mut self, stream: u32, body: &[u8]) {
        let mut pieces = body.chunks(FRAME).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_STREAM } else { 0 };
            self.frame(DATA, flags, stream, piece);
        }
    }

    pub(crate) fn reset(&mut self, stream: u32) {
        self.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    }

    pub(crate) fn window_update(&mut self, stream: u32, increment: u32) {
        self.frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    }

    pub(crate) fn settings(&mut self, settings: &[(u16, u32)]) {
        let mut payload = Vec::with_capacity(settings.len() * 6);
        for (id, value) in settings {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.frame(SETTINGS, 0, 0, &payload);
    }
}

/// The id of the client's stream in this round.
pub(crate) fn stream(index: usize) -> u32 {
    2 * index as u32 + 1
}

/// A gRPC message; `flag` 1 marks it as compressed.
pub(crate) fn grpc_message(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut framed = vec![flag];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message);
    framed
}

/// The head of a gRPC call, as a header block that refers to no dynamic table.
pub(crate) fn grpc_head(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = request_head(path);
    for &(name, value) in [("content-type", "application/grpc"), ("te", "trailers")].iter().chain(fields) {
        field(&mut block, name, value);
    }
    block
}

/// The head of a call in JSON over HTTP/2.
pub(crate) fn json_head(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = request_head(path);
    field(&mut block, "content-type", "application/json");
    for (name, value) in fields {
        field(&mut block, name, value);
    }
    block
}

fn request_head(path: &str) -> Vec<u8> {
    // `:method: POST` and `:scheme: http` of the static table.
    let mut block = vec![0x83, 0x86];
    field(&mut block, ":path", path);
    field(&mut block, ":authority", "localhost");
    block
}

/// A literal field without indexing.
pub(crate) fn field(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        length(block, text.len());
        block.extend(text.as_bytes());
    }
}

/// An HPACK integer with a prefix of 7 bits (RFC 7541, section 5.1), without Huffman's flag.
fn length(block: &mut Vec<u8>, value: usize) {
    let Some(mut rest) = value.checked_sub(127) else { return block.push(value as u8) };
    block.push(127);
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}

/// The server's frames on a connection.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The start of an incomplete frame.
    rest: Vec<u8>,
    /// Number of streams ended by the server.
    pub(crate) ended: usize,
    /// Number of streams reset by the server.
    pub(crate) resets: usize,
    /// The code of the last GOAWAY.
    pub(crate) goaway: Option<u32>,
}

impl Answers {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        while let Some(&[l0, l1, l2, kind, flags, ..]) = rest.first_chunk::<HEADER>() {
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            let Some((frame, behind)) = rest.split_at_checked(HEADER + length) else { break };
            self.note(kind, flags, &frame[HEADER..]);
            rest = behind;
        }
        self.rest = rest.to_vec();
    }

    fn note(&mut self, kind: u8, flags: u8, payload: &[u8]) {
        match (kind, payload) {
            (HEADERS | DATA, _) if flags & END_STREAM != 0 => self.ended += 1,
            (RST_STREAM, _) => self.resets += 1,
            (GOAWAY, &[_, _, _, _, a, b, c, d, ..]) => self.goaway = Some(u32::from_be_bytes([a, b, c, d])),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_encoded_as_hpack_integers() {
        let written = |value| {
            let mut block = Vec::new();
            length(&mut block, value);
            block
        };
        assert_eq!(written(10), [10]);
        assert_eq!(written(127), [127, 0]);
        assert_eq!(written(1337), [127, 0x80 | 58, 9]);
    }

    #[test]
    fn responses_are_counted_for_any_split_of_the_bytes() {
        let mut frames = Frames::default();
        frames.frame(HEADERS, END_HEADERS | END_STREAM, 1, b"block");
        frames.frame(RST_STREAM, 0, 3, &[0; 4]);
        frames.frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]);
        let mut answers = Answers::default();
        frames.bytes.chunks(3).for_each(|bytes| answers.take(bytes));
        assert_eq!((answers.ended, answers.resets, answers.goaway), (1, 1, Some(11)));
    }
}
