//! HTTP/1.x (RFC 9112): the message syntax on a connection, without its semantics.

pub(crate) mod chunked;
pub(crate) mod frame;

use polyrpc_core::Detected;
use polyrpc_core::protocol::by_magic;

/// Detects from the first bytes whether a connection uses this protocol.
///
/// HTTP/2's `PRI * HTTP/2.0` is not among these methods, so that it is not taken for HTTP/1.
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
