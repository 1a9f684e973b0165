//! Chunked transfer coding (RFC 9112 §7.1): decoding as the bytes arrive, and encoding piece by piece.

use bytes::{Buf, Bytes, BytesMut};

use polyrpc_core::Outbox;

use super::frame::Refusal;

/// Writes `prefix` and `body` as one chunk. An empty chunk would end the body.
pub(crate) fn write(prefix: &[u8], body: Bytes, out: &mut Outbox) {
    let length = prefix.len() + body.len();
    if length == 0 {
        return;
    }
    hexadecimal(length, out.buffer());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(prefix);
    out.body(body);
    out.extend_from_slice(b"\r\n");
}

/// End of a chunked body.
pub(crate) const END: &[u8] = b"0\r\n\r\n";

fn hexadecimal(number: usize, text: &mut Vec<u8>) {
    let digits = (number.checked_ilog2().unwrap_or(0) / 4) as usize + 1;
    text.extend((0..digits).rev().map(|at| b"0123456789abcdef"[number >> (4 * at) & 15]));
}

/// Decoder state of a chunked body.
///
/// ```text
/// Size ──n──▶ Data ──▶ DataEnd ──▶ Size
///   └──0──▶ Trailers ──▶ (whole)
/// ```
///
/// Lines end with CRLF only and errors are not corrected: servers differ in their treatment of a bare LF, and this
/// difference has been exploited for request smuggling.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    body: BytesMut,
    /// Bytes of chunk extensions and trailers so far: they carry no content, so that they have a limit of their own.
    overhead: usize,
}

/// The part that is read next.
#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Size,
    Data(usize),
    DataEnd,
    Trailers,
}

/// Maximum length of a line: a chunk's size with its extensions, or a trailer.
const MAX_LINE: usize = 4 << 10;

impl Chunked {
    /// Reads the available bytes from `inbox`; returns the body once it is complete. It may have `limit` bytes, and
    /// extensions and trailers together `overhead_limit` bytes.
    pub(crate) fn read(
        &mut self,
        inbox: &mut BytesMut,
        limit: usize,
        overhead_limit: usize,
    ) -> Result<Option<Bytes>, Refusal> {
        loop {
            match self.state {
                State::Size => {
                    let Some(line) = take_line(inbox)? else { return Ok(None) };
                    let (size, extension) = parse_size(&line)?;
                    self.count_overhead(extension, overhead_limit)?;
                    self.state = match size {
                        0 => State::Trailers,
                        size if size <= limit.saturating_sub(self.body.len()) => State::Data(size),
                        _ => return Err(Refusal::too_large()),
                    };
                }
                State::Data(left) => {
                    let here = left.min(inbox.len());
                    self.body.extend_from_slice(&inbox.split_to(here));
                    if here < left {
                        self.state = State::Data(left - here);
                        return Ok(None);
                    }
                    self.state = State::DataEnd;
                }
                State::DataEnd => match &inbox[..] {
                    [b'\r', b'\n', ..] => {
                        inbox.advance(2);
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(Refusal::malformed("a chunk does not end after its size")),
                },
                State::Trailers => {
                    let Some(line) = take_line(inbox)? else { return Ok(None) };
                    if line.is_empty() {
                        return Ok(Some(std::mem::take(&mut self.body).freeze()));
                    }
                    self.count_overhead(line.len(), overhead_limit)?;
                }
            }
        }
    }

    /// Removes the available part of the body.
    pub(crate) fn take(&mut self) -> Bytes {
        self.body.split().freeze()
    }

    /// Returns the number of body bytes held.
    pub(crate) fn held(&self) -> usize {
        self.body.len()
    }

    fn count_overhead(&mut self, bytes: usize, limit: usize) -> Result<(), Refusal> {
        self.overhead += bytes;
        if self.overhead > limit { Err(Refusal::long_head()) } else { Ok(()) }
    }
}

/// Removes a line without its end from `inbox`.
fn take_line(inbox: &mut BytesMut) -> Result<Option<BytesMut>, Refusal> {
    let Some(end) = inbox.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        return if inbox.len() < MAX_LINE { Ok(None) } else { Err(Refusal::long_head()) };
    };
    let mut line = inbox.split_to(end + 1);
    match line.strip_suffix(b"\r\n") {
        Some(text) if !text.contains(&b'\r') => line.truncate(end - 1),
        _ => return Err(Refusal::malformed("a line of the chunked body does not end with CRLF")),
    }
    Ok(Some(line))
}

/// Parses the first line of a chunk: its size, and the number of bytes spent on extensions.
fn parse_size(line: &[u8]) -> Result<(usize, usize), Refusal> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let malformed = || Refusal::malformed("the size of a chunk is malformed");
    // Blanks before the extensions are invalid but occur (RFC 9112 §7.1.1, "BWS").
    if !matches!(rest.trim_ascii_start(), [] | [b';', ..]) {
        return Err(malformed());
    }
    let digits = std::str::from_utf8(digits).map_err(|_| malformed())?;
    match u64::from_str_radix(digits, 16) {
        Ok(size) => Ok((usize::try_from(size).unwrap_or(usize::MAX), rest.len())),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => Err(Refusal::too_large()),
        Err(_) => Err(malformed()),
    }
}
