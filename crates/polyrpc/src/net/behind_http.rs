use std::future::poll_fn;
use std::io;

use bytes::BytesMut;
use polyrpc_wire::Outbox;

use super::{Source, Stream};

/// Has a server of rpcx go over from HTTP to its own protocol (rpcx `client/connection.go`, `newDirectHTTPConn`).
///
/// # Errors
///
/// When the server does not answer as one of rpcx does, or the connection breaks.
pub(crate) async fn connect_behind_http(mut stream: Stream, path: &str) -> io::Result<Stream> {
    let mut out = Outbox::new();
    out.copy(format!("CONNECT {path} HTTP/1.0\n\n").as_bytes());
    poll_fn(|cx| stream.poll_flush(cx, &mut out)).await?;
    let mut head = BytesMut::with_capacity(MOST);
    while !is_whole(&head) {
        // What is read is what there is room for.
        if head.len() == head.capacity() {
            return Err(io::Error::other("the answer to CONNECT does not end"));
        }
        if poll_fn(|cx| stream.poll_read(cx, &mut head)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    // The server says nothing more before it is called.
    match (*head).split(|&byte| byte == b'\n').next().map(<[u8]>::trim_ascii_end) {
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'2', b'0', b'0', ..]) => Ok(stream),
        line => {
            let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
            Err(io::Error::other(format!("unexpected answer to CONNECT: {line}")))
        }
    }
}

/// Bytes of an answer. Go's servers say `HTTP/1.0 200 Connected to rpcx` and nothing more.
const MOST: usize = 1024;

fn is_whole(head: &[u8]) -> bool {
    head.ends_with(b"\n\n") || head.ends_with(b"\n\r\n")
}
