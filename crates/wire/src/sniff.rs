//! Detection of a connection's protocol from its first bytes.

use polyrpc_core::Detection;

use crate::Protocol;

/// Detects the protocol of a connection that starts with `start`, among the `allowed` ones.
pub fn sniff(start: &[u8], allowed: &[Protocol]) -> Detection<Protocol> {
    let mut undecided = start.is_empty();
    for protocol in allowed {
        match (protocol.descriptor().recognise)(start) {
            Detection::Unknown => {}
            Detection::NeedMore => undecided = true,
            Detection::Is(()) => return Detection::Is(*protocol),
        }
    }
    if undecided { Detection::NeedMore } else { Detection::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(start: &[u8]) -> Detection<Protocol> {
        sniff(start, &Protocol::ALL)
    }

    #[test]
    fn each_protocol_is_detected_by_its_first_bytes() {
        assert_eq!(all(b"PRPC\0\0\0\0"), Detection::Is(Protocol::BaiduStd));
        assert_eq!(all(&[8, 0, 0, 0x30]), Detection::Is(Protocol::Rpcx));
        assert_eq!(all(b"FRPC\0\0\0\x34"), Detection::Is(Protocol::FbRpc));
        assert_eq!(all(b"BRPC\0\0\0\x34"), Detection::Is(Protocol::FbRpc));
        assert_eq!(all(b"POST /EchoService/Echo HTTP/1.1\r\n"), Detection::Is(Protocol::Http));
        assert_eq!(all(b"GET / HTTP/1.1\r\n"), Detection::Is(Protocol::Http));
        assert_eq!(all(&[0x2e, 0x7f, 3, 1, 1, 7]), Detection::Is(Protocol::NetRpc));
        assert_eq!(all(br#"{"method":"Arith.Mul""#), Detection::Is(Protocol::NetRpc));
        assert_eq!(all(b"\x82\xa3Seq"), Detection::Is(Protocol::NetRpc));
    }

    #[test]
    fn ambiguous_prefix_needs_more_bytes_and_junk_is_unknown() {
        assert_eq!(all(b""), Detection::NeedMore);
        assert_eq!(all(b"P"), Detection::NeedMore);
        assert_eq!(all(b"PR"), Detection::NeedMore);
        assert_eq!(all(b"PRPX\0"), Detection::Unknown);
        assert_eq!(all(b"FOO /"), Detection::Is(Protocol::Http));
        assert_eq!(all(&[0, 1, 2, 3]), Detection::Unknown);
    }

    #[test]
    fn disallowed_protocol_is_unknown() {
        assert_eq!(sniff(b"PRPC\0", &[Protocol::Http]), Detection::Unknown);
        assert_eq!(sniff(b"PO", &[Protocol::BaiduStd]), Detection::Unknown);
    }
}
