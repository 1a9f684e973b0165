//! HTTP/1.x (RFC 9112): the message syntax on a connection, without its semantics.

pub(crate) mod chunked;
pub(crate) mod frame;

use polyrpc_core::Detection;
use polyrpc_core::protocol::by_magic;

/// Detects from the first bytes whether a connection uses this protocol.
///
/// HTTP/2's `PRI * HTTP/2.0` is not among these methods, so that it is not taken for HTTP/1.
pub(crate) fn recognise(start: &[u8]) -> Detection {
    let mut undecided = false;
    for method in METHODS {
        match by_magic(method, start) {
            Detection::Unknown => {}
            Detection::NeedMore => undecided = true,
            is @ Detection::Is(_) => return is,
        }
    }
    match recognise_other_method(start) {
        Detection::Unknown if undecided => Detection::NeedMore,
        other => other,
    }
}

/// Detects a request with any other method, which is answered by 501 (RFC 9110 §9.1): its name in capital letters, and
/// the slash of a path, which the preface of HTTP/2 does not have.
#[cold]
fn recognise_other_method(start: &[u8]) -> Detection {
    let name = start.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match &start[name..] {
        _ if name == 0 || name > MAX_METHOD => Detection::Unknown,
        [] | [b' '] => Detection::NeedMore,
        [b' ', b'/', ..] => Detection::Is(()),
        _ => Detection::Unknown,
    }
}

/// Length of the longest method that is detected, longer than any registered one of letters only.
const MAX_METHOD: usize = 24;

const METHODS: [&[u8]; 8] =
    [b"POST ", b"GET ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT "];
