//! The HTTP handshake that may precede the first call (Go `net/rpc/server.go`, `ServeHTTP`; `client.go`,
//! `DialHTTPPath`).

use bytes::{Buf, BytesMut};

use polyrpc_core::{Outbox, Violation};

/// Default path of Go's clients.
pub const CONNECT_PATH: &str = "/_goRPC_";

/// The server's response.
pub(crate) const CONNECTED: &[u8] = b"HTTP/1.0 200 Connected to Go RPC\n\n";

/// Progress of the handshake on a client's connection.
#[derive(Debug)]
pub(super) enum HttpHandshake {
    /// The request was not sent yet.
    Unsaid(String),
    /// The response is awaited. Calls are buffered here: Go's server loses bytes received before it has answered, with
    /// the buffer from which it read the request.
    Awaited {
        held: Outbox,
        /// Number of inbox bytes already searched for the end of the response.
        scanned: usize,
    },
    /// The handshake is complete; calls are sent immediately.
    Over,
}

impl HttpHandshake {
    /// Creates the handshake of a connection that starts with `CONNECT` to this path; `None` skips it.
    pub(super) fn new(path: Option<&str>) -> Self {
        path.map_or(Self::Over, |path| Self::Unsaid(path.to_owned()))
    }

    /// Returns the outbox for calls; sends the handshake request first if that was not done yet.
    pub(super) fn outbox<'o>(&'o mut self, out: &'o mut Outbox) -> &'o mut Outbox {
        if let Self::Unsaid(path) = self {
            out.extend_from_slice(format!("CONNECT {path} HTTP/1.0\n\n").as_bytes());
            *self = Self::Awaited { held: Outbox::new(), scanned: 0 };
        }
        match self {
            Self::Awaited { held, .. } => held,
            _ => out,
        }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Awaited { held, .. } => held.len(),
            Self::Unsaid(_) | Self::Over => 0,
        }
    }

    /// Removes the response from `inbox`; the buffered calls are sent. Returns whether responses to calls follow.
    pub(super) fn take(
        &mut self,
        inbox: &mut BytesMut,
        out: &mut Outbox,
        limit: usize,
    ) -> Result<bool, Violation> {
        let Self::Awaited { held, scanned } = self else { return Ok(matches!(self, Self::Over)) };
        let end = match head_end(inbox, *scanned) {
            Some(end) if end <= limit => end,
            None if inbox.len() <= limit => {
                *scanned = inbox.len();
                return Ok(false);
            }
            _ => return Err(response_too_long()),
        };
        check(&inbox[..end])?;
        inbox.advance(end);
        out.body(held.take().into());
        *self = Self::Over;
        Ok(true)
    }
}

/// Returns the end of the head: after an empty line, where lines may end with LF alone. `scanned` bytes were searched
/// before.
fn head_end(bytes: &[u8], scanned: usize) -> Option<usize> {
    const LONGEST_END: usize = 3;
    let from = scanned.saturating_sub(LONGEST_END);
    let found = |end: &[u8]| {
        let searched = bytes.get(from..)?;
        searched.windows(end.len()).position(|window| window == end).map(|at| from + at + end.len())
    };
    [found(b"\n\n"), found(b"\n\r\n")].into_iter().flatten().min()
}

fn check(head: &[u8]) -> Result<(), Violation> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..));
    match status {
        Some(b"200 Connected to Go RPC") => Ok(()),
        _ => Err(unexpected_response(status.unwrap_or(line))),
    }
}

#[cold]
fn unexpected_response(status: &[u8]) -> Violation {
    Violation::new(format!("unexpected HTTP response: {}", String::from_utf8_lossy(status)))
}

#[cold]
fn response_too_long() -> Violation {
    Violation::new("the response to CONNECT is too long")
}
