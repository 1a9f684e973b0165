//! The PROXY protocol: a proxy sends the origin of a connection in its first bytes (HAProxy,
//! `doc/proxy-protocol.txt`, versions 1 and 2).

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Poll;

use polyrpc_core::digits::parse_decimal;

use super::connections::{ConnectionCommand, ConnectionGuard, ConnectionPhase};
use crate::call::Peer;
use crate::layers::IpList;
use crate::transport::{Inbox, Stream};

/// Proxies whose connections begin with a header.
#[derive(Debug, Clone)]
pub(super) struct TrustedProxies(pub(super) IpList);

impl TrustedProxies {
    /// Whether the peer is a proxy. One on a Unix socket is on this machine.
    pub(super) fn includes(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Unix => true,
            peer => peer.address().is_some_and(|address| self.0.allows(address.ip())),
        }
    }
}

/// Reads the header of a proxy's connection. Returns the origin of the connection: the proxy itself if the header says
/// so, or has no address. `None`: there is no valid header, or the connection has ended.
pub(super) async fn read(
    stream: &mut Stream,
    inbox: &mut Inbox,
    proxy: &Peer,
    registration: &ConnectionGuard,
) -> Option<Peer> {
    let connection = &registration.connection;
    let header = poll_fn(|cx| {
        connection.set_waker(cx.waker());
        loop {
            if connection.command() >= ConnectionCommand::Drain {
                return Poll::Ready(None);
            }
            match parse(&inbox.bytes) {
                ParseResult::Header(source, length) => return Poll::Ready(Some((source, length))),
                ParseResult::Invalid => return Poll::Ready(None),
                ParseResult::Partial => {}
            }
            if !inbox.bytes.is_empty() {
                connection.set_phase(ConnectionPhase::MidMessage, registration.tick());
            }
            match inbox.poll_fill(stream, cx, 0) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(None),
                Poll::Pending => {
                    inbox.release_spare();
                    return Poll::Pending;
                }
            }
        }
    });
    let Some((source, length)) = header.await else {
        tracing::debug!(target: "polyrpc::server", %proxy, "a proxy sent no valid header");
        return None;
    };
    let _ = inbox.bytes.split_to(length);
    connection.set_phase(ConnectionPhase::Silent, registration.tick());
    Some(source.map_or_else(|| proxy.clone(), Peer::Tcp))
}

/// Result of parsing the first bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
enum ParseResult {
    Partial,
    Invalid,
    /// The origin, if the header has one, and the header's length.
    Header(Option<SocketAddr>, usize),
}

fn parse(bytes: &[u8]) -> ParseResult {
    match bytes.first() {
        None => ParseResult::Partial,
        Some(b'P') => parse_text(bytes),
        Some(_) => parse_binary(bytes),
    }
}

/// Version 1: `PROXY TCP4 192.0.2.1 192.0.2.9 51000 443\r\n`.
fn parse_text(bytes: &[u8]) -> ParseResult {
    if bytes.iter().zip(b"PROXY ").any(|(byte, expected)| byte != expected) {
        return ParseResult::Invalid;
    }
    let Some(end) = bytes.iter().take(MAX_TEXT_LENGTH).position(|byte| *byte == b'\n') else {
        return if bytes.len() < MAX_TEXT_LENGTH { ParseResult::Partial } else { ParseResult::Invalid };
    };
    let line = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    let Some(line) = line.and_then(|line| std::str::from_utf8(line).ok()) else {
        return ParseResult::Invalid;
    };
    let parts: Vec<_> = line.split(' ').collect();
    let source = match *parts.as_slice() {
        ["PROXY", "UNKNOWN", ..] => None,
        ["PROXY", "TCP4", source, target, port, target_port] => {
            if target.parse::<Ipv4Addr>().is_err() || parse_decimal::<u16>(target_port).is_none() {
                return ParseResult::Invalid;
            }
            source
                .parse()
                .ok()
                .zip(parse_decimal::<u16>(port))
                .map(|(source, port)| (IpAddr::V4(source), port))
        }
        ["PROXY", "TCP6", source, target, port, target_port] => {
            if target.parse::<Ipv6Addr>().is_err() || parse_decimal::<u16>(target_port).is_none() {
                return ParseResult::Invalid;
            }
            source
                .parse()
                .ok()
                .zip(parse_decimal::<u16>(port))
                .map(|(source, port)| (IpAddr::V6(source), port))
        }
        _ => return ParseResult::Invalid,
    };
    match (source, parts.get(1)) {
        (None, Some(&"UNKNOWN")) => ParseResult::Header(None, end + 1),
        (Some(source), _) => ParseResult::Header(Some(source.into()), end + 1),
        (None, _) => ParseResult::Invalid,
    }
}

/// Version 2.
fn parse_binary(bytes: &[u8]) -> ParseResult {
    let begins = bytes.iter().zip(SIGNATURE).all(|(byte, signature)| *byte == signature);
    if !begins {
        return ParseResult::Invalid;
    }
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else { return ParseResult::Partial };
    let [.., command, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_BINARY_LENGTH {
        return ParseResult::Invalid;
    }
    let Some(addresses) = rest.get(..length) else { return ParseResult::Partial };
    let whole = head.len() + length;
    match (command, family) {
        // The proxy's own connection, such as a health check.
        (0x20, _) => ParseResult::Header(None, whole),
        (0x21, 0x11 | 0x12) => source(addresses, 8, whole),
        (0x21, 0x21 | 0x22) => source(addresses, 32, whole),
        // Unspecified, or from a Unix socket.
        (0x21, 0x00 | 0x31 | 0x32) => ParseResult::Header(None, whole),
        _ => ParseResult::Invalid,
    }
}

/// Reads the source's address, which precedes the target's, and its port, which follows both.
fn source(addresses: &[u8], pair_length: usize, whole: usize) -> ParseResult {
    let (Some(ips), Some([high, low])) = (
        addresses.get(..pair_length),
        addresses.get(pair_length..pair_length + 2).and_then(|port| port.first_chunk::<2>()),
    ) else {
        return ParseResult::Invalid;
    };
    let ip = match (ips.first_chunk::<4>(), ips.first_chunk::<16>()) {
        (Some(ip), None) => IpAddr::from(*ip),
        (_, Some(ip)) => IpAddr::from(*ip),
        (None, None) => return ParseResult::Invalid,
    };
    ParseResult::Header(Some(SocketAddr::new(ip, u16::from_be_bytes([*high, *low]))), whole)
}

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Maximum length of a line of version 1, with its end.
const MAX_TEXT_LENGTH: usize = 107;

/// Maximum accepted length after the head of version 2: addresses, and some kilobytes about TLS.
const MAX_BINARY_LENGTH: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let length = (addresses.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, addresses].concat()
    }

    #[test]
    fn headers_of_both_versions_tell_the_origin() {
        let four = [192, 0, 2, 1, 192, 0, 2, 9, 0xc7, 0x38, 1, 0xbb];
        let mut six = [0; 36];
        six[15] = 1;
        six[32..34].copy_from_slice(&[0, 80]);
        let with_more = [&four[..], b"\x04\0\x01x"].concat();
        for (bytes, origin) in [
            (b"PROXY TCP4 192.0.2.1 192.0.2.9 51000 443\r\n".to_vec(), Some("192.0.2.1:51000")),
            (b"PROXY TCP6 ::1 ::2 80 443\r\n".to_vec(), Some("[::1]:80")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN a b c d\r\n".to_vec(), None),
            (binary(0x21, 0x11, &four), Some("192.0.2.1:51000")),
            (binary(0x21, 0x11, &with_more), Some("192.0.2.1:51000")),
            (binary(0x21, 0x21, &six), Some("[::1]:80")),
            (binary(0x20, 0, &[]), None),
            (binary(0x21, 0x31, &[0; 216]), None),
        ] {
            let origin = origin.map(|origin| origin.parse().unwrap());
            let length = bytes.len();
            let followed = [&bytes[..], b"PRPC"].concat();
            assert_eq!(parse(&followed), ParseResult::Header(origin, length), "{bytes:?}");
            for end in 0..length {
                assert_eq!(parse(&bytes[..end]), ParseResult::Partial, "{end} of {bytes:?}");
            }
        }
    }

    #[test]
    fn other_bytes_are_not_a_header() {
        for bytes in [
            b"PRPC\0\0\0\x10".to_vec(),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            b"PROXY TCP4 ::1 192.0.2.9 51000 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 192.0.2.9 70000 443\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 192.0.2.9 51000\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 192.0.2.9 +51000 443\r\n".to_vec(),
            b"PROXY TCP6 ::1 ::2 80 +443\r\n".to_vec(),
            b"PROXY UDP4 192.0.2.1 192.0.2.9 1 2\r\n".to_vec(),
            b"PROXY UNKNOWN\n".to_vec(),
            [b'P'; 200].to_vec(),
            b"GET / HTTP/1.1\r\n".to_vec(),
            binary(0x31, 0x11, &[0; 12]),
            binary(0x21, 0x11, &[0; 9]),
            binary(0x21, 0x41, &[0; 12]),
            [&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat(),
        ] {
            assert_eq!(parse(&bytes), ParseResult::Invalid, "{bytes:?}");
        }
    }
}
