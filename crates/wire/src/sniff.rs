//! Detection of a connection's protocol from its first bytes.

use polyrpc_core::Detected;

use crate::Protocol;

/// Detects the protocol of a connection that starts with `start`, among the `allowed` ones.
pub fn sniff(start: &[u8], allowed: &[Protocol]) -> Detected<Protocol> {
    let mut undecided = start.is_empty();
    for protocol in allowed {
        match (protocol.descriptor().recognise)(start) {
            Detected::Unknown => {}
            Detected::NeedMore => undecided = true,
            Detected::Is(()) => return Detected::Is(*protocol),
        }
    }
    if undecided { Detected::NeedMore } else { Detected::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(start: &[u8]) -> Detected<Protocol> {
        sniff(start, &Protocol::ALL)
    }

    #[test]
    fn each_protocol_is_detected_by_its_first_bytes() {
        assert_eq!(all(b"PRPC\0\0\0\0"), Detected::Is(Protocol::BaiduStd));
        assert_eq!(all(&[8, 0, 0, 0x30]), Detected::Is(Protocol::Rpcx));
        assert_eq!(all(b"FRPC\0\0\0\x34"), Detected::Is(Protocol::FbRpc));
        assert_eq!(all(b"BRPC\0\0\0\x34"), Detected::Is(Protocol::FbRpc));
        assert_eq!(all(b"POST /EchoService/Echo HTTP/1.1\r\n"), Detected::Is(Protocol::Http));
        assert_eq!(all(b"GET / HTTP/1.1\r\n"), Detected::Is(Protocol::Http));
        assert_eq!(all(&[0x2e, 0x7f, 3, 1, 1, 7]), Detected::Is(Protocol::NetRpc));
        assert_eq!(all(br#"{"method":"Arith.Mul""#), Detected::Is(Protocol::NetRpc));
        assert_eq!(all(b"\x82\xa3Seq"), Detected::Is(Protocol::NetRpc));
    }

    #[test]
    fn ambiguous_prefix_needs_more_bytes_and_junk_is_unknown() {
        assert_eq!(all(b""), Detected::NeedMore);
        assert_eq!(all(b"P"), Detected::NeedMore);
        assert_eq!(all(b"PR"), Detected::NeedMore);
        assert_eq!(all(b"PRPX\0"), Detected::Unknown);
        assert_eq!(all(b"FOO /"), Detected::Is(Protocol::Http));
        assert_eq!(all(&[0, 1, 2, 3]), Detected::Unknown);
    }

    #[test]
    fn disallowed_protocol_is_unknown() {
        assert_eq!(sniff(b"PRPC\0", &[Protocol::Http]), Detected::Unknown);
        assert_eq!(sniff(b"PO", &[Protocol::BaiduStd]), Detected::Unknown);
    }
}
