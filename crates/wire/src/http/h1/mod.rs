//! HTTP/1.x (RFC 9112): how messages lie on a connection, and nothing of what they mean.

pub(crate) mod chunked;
pub(crate) mod frame;

use polyrpc_core::Detected;
use polyrpc_core::protocol::by_magic;

/// Whether a connection that begins with `start` speaks this protocol.
///
/// HTTP/2's `PRI * HTTP/2.0` is none of these methods, so it is not taken for HTTP/1.
pub(crate) fn recognise(start: &[u8]) -> Detected {
    let mut undecided = false;
    for method in METHODS {
        match by_magic(method, start) {
            Detected::Unknown => {}
            Detected::NeedMore => undecided = true,
            is @ Detected::Is(_) => return is,
        }
    }
    if undecided { Detected::NeedMore } else { Detected::Unknown }
}

const METHODS: [&[u8]; 8] =
    [b"POST ", b"GET ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT "];
