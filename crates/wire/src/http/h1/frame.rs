//! Message framing of HTTP/1.x: the end of a head, and the body length defined by its fields.

use std::mem::MaybeUninit;

use polyrpc_core::Violation;
use polyrpc_core::session::ViolationKind;

/// Why a message is rejected: a server answers with `status` and closes the connection, a client gives up.
///
/// Ambiguous message boundaries are rejected, never corrected: a proxy before us may have interpreted them differently,
/// and the rest of one request must not be taken for another (RFC 9112 §11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
}

impl Refusal {
    #[cold]
    pub(crate) fn malformed(reason: &'static str) -> Self {
        Self { status: 400, reason }
    }

    #[cold]
    pub(crate) fn too_large() -> Self {
        Self { status: 413, reason: "the message is larger than this side accepts" }
    }

    #[cold]
    pub(crate) fn no_proxy() -> Self {
        Self { status: 405, reason: "this server is not a proxy" }
    }

    #[cold]
    pub(crate) fn long_head() -> Self {
        Self { status: 431, reason: "the header fields are longer than this side accepts" }
    }
}

impl From<Refusal> for Violation {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.status {
            413 | 431 => ViolationKind::TooLarge,
            _ => ViolationKind::Malformed,
        };
        Self::new(refusal.reason).with_kind(kind)
    }
}

/// Maximum number of fields in the head of a request or response.
pub const MAX_FIELDS: usize = 100;

/// Returns the end of the head at the start of `bytes`: after the first empty line, if there is one. `scanned` stores
/// the number of bytes already searched, so that a head that arrives slowly is searched once.
pub(crate) fn head_end(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    // The line's end may be the last byte searched, or the last but one before a `\r`.
    let mut at = scanned.saturating_sub(2);
    while let Some(newline) = bytes.get(at..)?.iter().position(|byte| *byte == b'\n') {
        at += newline + 1;
        // A bare LF ends a line too (RFC 9112 §2.2): rpcx's clients write `CONNECT /_rpcx_ HTTP/1.0\n\n`.
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    *scanned = bytes.len();
    None
}

/// Status line of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusLine<'h> {
    pub(crate) status: u16,
    pub(crate) reason: &'h str,
    pub(crate) http10: bool,
}

impl StatusLine<'_> {
    /// Whether another response to the same request follows (RFC 9110 §15.2).
    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// Whether no body follows, whatever the fields (RFC 9112 §6.3).
    fn is_bare(&self) -> bool {
        self.is_interim() || matches!(self.status, 204 | 304)
    }
}

/// Parses the complete head of a response; `read` gets its status line and its fields.
pub(crate) fn parse_response<'h, R>(
    head: &'h [u8],
    read: impl FnOnce(StatusLine<'h>, &[httparse::Header<'h>]) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let whole =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, head, &mut slots);
    let (Ok(httparse::Status::Complete(_)), Some(status), Some(version)) =
        (whole, parsed.code, parsed.version)
    else {
        return Err(Refusal::malformed("the head of the response is malformed"));
    };
    if status == 101 {
        return Err(Refusal::malformed("the peer switched to another protocol without a request"));
    }
    let line = StatusLine { status, reason: parsed.reason.unwrap_or_default(), http10: version == 0 };
    read(line, parsed.headers)
}

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Fixed(usize),
    Chunked,
    /// By the end of the connection; responses only.
    UntilClose,
}

/// Fields of a head that determine the length of the body.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    length: Option<u64>,
    chunked: bool,
}

impl Lengths {
    /// Handles a `Content-Length`. A number beyond 2^64 is clamped to that: it is too large either way.
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(Refusal::malformed("the content-length is not a number"));
        }
        let digits = value.iter().map(|digit| u64::from(digit - b'0'));
        let length = digits.fold(0u64, |n, digit| n.saturating_mul(10).saturating_add(digit));
        match self.length.replace(length) {
            Some(other) if other != length => Err(Refusal::malformed("two content-lengths differ")),
            _ => Ok(()),
        }
    }

    /// Handles a `Transfer-Encoding`.
    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Refusal { status: 501, reason: "the only supported transfer-encoding is chunked" });
        }
        if self.chunked {
            return Err(Refusal::malformed("the body is chunked twice"));
        }
        self.chunked = true;
        Ok(())
    }

    /// Returns the announced length of the body, if there is one.
    pub(crate) fn announced_length(&self) -> Option<u64> {
        self.length
    }

    /// Returns the length of the body of a response with this status line.
    pub(crate) fn body_length_of_response(
        &self,
        line: &StatusLine<'_>,
        room: usize,
    ) -> Result<BodyLength, Refusal> {
        match line.is_bare() {
            true => Ok(BodyLength::Fixed(0)),
            false => Ok(self.body_length(line.http10, room)?.unwrap_or(BodyLength::UntilClose)),
        }
    }

    /// Returns the length of the body, or `None` if no field defines it; `room` is the remainder of the limit.
    pub(crate) fn body_length(&self, http10: bool, room: usize) -> Result<Option<BodyLength>, Refusal> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Refusal::malformed("both transfer-encoding and content-length")),
            (true, None) if http10 => Err(Refusal::malformed("HTTP/1.0 has no transfer-encoding")),
            (true, None) => Ok(Some(BodyLength::Chunked)),
            (false, None) => Ok(None),
            (false, Some(length)) => match usize::try_from(length) {
                Ok(length) if length <= room => Ok(Some(BodyLength::Fixed(length))),
                _ => Err(Refusal::too_large()),
            },
        }
    }
}
