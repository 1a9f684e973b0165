use std::future::poll_fn;
use std::io;

use bytes::BytesMut;
use polyrpc_core::Outbox;

use super::{Source, Stream};

/// Switches a connection to an rpcx server from HTTP to rpcx's own protocol (rpcx `client/connection.go`,
/// `newDirectHTTPConn`).
///
/// # Errors
///
/// If the server does not answer as an rpcx server does, or the connection breaks.
pub(crate) async fn connect_behind_http(mut stream: Stream, path: &str) -> io::Result<Stream> {
    let mut out = Outbox::new();
    out.extend_from_slice(format!("CONNECT {path} HTTP/1.0\n\n").as_bytes());
    poll_fn(|cx| stream.poll_flush(cx, &mut out)).await?;
    let mut head = BytesMut::with_capacity(MAX_RESPONSE_SIZE);
    while !is_whole(&head) {
        // A read is limited to the free capacity.
        if head.len() == head.capacity() {
            return Err(io::Error::other("the response to CONNECT is too long"));
        }
        if poll_fn(|cx| stream.poll_read(cx, &mut head)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    // The server sends nothing more before the first call.
    let line = (*head).split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    if is_granted(line) {
        return Ok(stream);
    }
    let line = String::from_utf8_lossy(line);
    Err(io::Error::other(format!("unexpected answer to CONNECT: {line}")))
}

/// Any proxy answers 200; rpcx has its own text after the version.
fn is_granted(line: &[u8]) -> bool {
    matches!(line, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', status @ ..] if status == CONNECTED)
}

/// rpcx `client/connection.go`, `connected`
const CONNECTED: &[u8] = b"200 Connected to rpcx";

/// Maximum size of the response. Go's servers send `HTTP/1.0 200 Connected to rpcx` and nothing more.
const MAX_RESPONSE_SIZE: usize = 1024;

fn is_whole(head: &[u8]) -> bool {
    head.ends_with(b"\n\n") || head.ends_with(b"\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rpcx_response_is_accepted() {
        for granted in ["HTTP/1.0 200 Connected to rpcx", "HTTP/1.1 200 Connected to rpcx"] {
            assert!(is_granted(granted.as_bytes()));
        }
        for other in
            ["HTTP/1.1 200 OK", "HTTP/1.1 200 Connection established", "HTTP/1.0 200 Connected to Go RPC"]
        {
            assert!(!is_granted(other.as_bytes()), "{other}");
        }
    }
}
