//! From a packet to the TCP segment in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::file::Packet;

/// A segment of a TCP connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment<'p> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) sequence: u32,
    pub(super) flags: Flags,
    pub(super) content: &'p [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) fn has_fin(self) -> bool {
        self.0 & 0x01 != 0
    }

    pub(super) fn has_syn(self) -> bool {
        self.0 & 0x02 != 0
    }

    pub(super) fn has_rst(self) -> bool {
        self.0 & 0x04 != 0
    }

    pub(super) fn has_ack(self) -> bool {
        self.0 & 0x10 != 0
    }
}

/// Why a packet has no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SkipReason {
    /// ARP, ICMP and the like.
    Other,
    Udp,
    /// A part of an IP packet.
    Fragment,
    /// Part of it was not captured.
    Cut,
    /// A kind of link that is not known.
    Link(u32),
}

/// Finds the segment in a packet.
pub(super) fn find_segment(packet: &Packet) -> Result<Segment<'_>, SkipReason> {
    let bytes = &packet.bytes[..];
    let ip = match packet.link {
        // BSD's loopback: the family of addresses in four bytes.
        0 | 108 => bytes.get(4..),
        1 => parse_ethernet(bytes),
        101 | 228 | 229 => Some(bytes),
        113 => bytes.get(16..).filter(|_| is_ip(bytes, 14)),
        276 => bytes.get(20..).filter(|_| is_ip(bytes, 0)),
        link => return Err(SkipReason::Link(link)),
    };
    let (from, to, protocol, content) = parse_ip(ip.ok_or(SkipReason::Other)?)?;
    match protocol {
        TCP => parse_tcp(from, to, content).ok_or(SkipReason::Cut),
        UDP => Err(SkipReason::Udp),
        _ => Err(SkipReason::Other),
    }
}

/// The content of a frame of Ethernet, within any number of VLANs.
fn parse_ethernet(mut bytes: &[u8]) -> Option<&[u8]> {
    bytes = bytes.get(12..)?;
    while matches!(bytes, [0x81, 0, ..] | [0x88, 0xa8, ..]) {
        bytes = bytes.get(4..)?;
    }
    bytes.get(2..).filter(|_| is_ip(bytes, 0))
}

fn is_ip(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at..at + 2), Some([0x08, 0x00] | [0x86, 0xdd]))
}

type AddressedPayload<'p> = (IpAddr, IpAddr, u8, &'p [u8]);

fn parse_ip(ip: &[u8]) -> Result<AddressedPayload<'_>, SkipReason> {
    match ip.first().map(|first| first >> 4) {
        Some(4) => parse_ipv4(ip),
        Some(6) => parse_ipv6(ip),
        _ => Err(SkipReason::Other),
    }
}

fn parse_ipv4(ip: &[u8]) -> Result<AddressedPayload<'_>, SkipReason> {
    let head: &[u8; 20] = ip.first_chunk().ok_or(SkipReason::Cut)?;
    let (length, whole) =
        (usize::from(head[0] & 0x0f) * 4, usize::from(u16::from_be_bytes([head[2], head[3]])));
    if u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0 {
        return Err(SkipReason::Fragment);
    }
    // A network card that cuts packets itself leaves the length to be filled in.
    let whole = if whole == 0 { ip.len() } else { whole };
    let content = ip.get(length.max(20)..whole).ok_or(SkipReason::Cut)?;
    let address = |at: usize| IpAddr::from(Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]));
    Ok((address(12), address(16), head[9], content))
}

fn parse_ipv6(ip: &[u8]) -> Result<AddressedPayload<'_>, SkipReason> {
    let head: &[u8; 40] = ip.first_chunk().ok_or(SkipReason::Cut)?;
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let whole = if length == 0 { ip.len() } else { length + 40 };
    let mut content = ip.get(40..whole).ok_or(SkipReason::Cut)?;
    let mut next = head[6];
    // Options for routers and for the destination, and the route.
    while matches!(next, 0 | 43 | 60) {
        let [following, eighths, ..] = *content else { return Err(SkipReason::Cut) };
        next = following;
        content = content.get((usize::from(eighths) + 1) * 8..).ok_or(SkipReason::Cut)?;
    }
    if next == 44 {
        return Err(SkipReason::Fragment);
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&head[at..at + 16]);
        IpAddr::from(Ipv6Addr::from(octets))
    };
    Ok((address(8), address(24), next, content))
}

fn parse_tcp(from: IpAddr, to: IpAddr, bytes: &[u8]) -> Option<Segment<'_>> {
    let head: &[u8; 20] = bytes.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    Some(Segment {
        from: SocketAddr::new(from, port(0)),
        to: SocketAddr::new(to, port(2)),
        sequence: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        flags: Flags(head[13]),
        content: bytes.get(usize::from(head[12] >> 4).max(5) * 4..)?,
    })
}

const TCP: u8 = 6;
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp_bytes() -> Vec<u8> {
        let mut tcp = vec![0x1f, 0x90, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0];
        tcp.extend(b"hi");
        tcp
    }

    fn v4() -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 42, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip.extend(tcp_bytes());
        ip
    }

    fn v6() -> Vec<u8> {
        let mut ip = vec![0x60, 0, 0, 0, 0, 30, 0, 64];
        ip.extend([[0; 15].as_slice(), &[1], &[0; 15], &[2]].concat());
        // An empty option for routers.
        ip.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        ip.extend(tcp_bytes());
        ip
    }

    fn packet(link: u32, bytes: Vec<u8>) -> Packet {
        Packet { at: 0, link, bytes, is_cut: false }
    }

    #[test]
    fn segment_is_found_behind_every_kind_of_link() {
        let ether = |kind: &[u8], ip: Vec<u8>| [&[0; 12][..], kind, &ip].concat();
        for (link, bytes) in [
            (1, ether(&[8, 0], v4())),
            (1, ether(&[0x81, 0, 0, 5, 0x86, 0xdd], v6())),
            (101, v4()),
            (229, v6()),
            (0, [&[2, 0, 0, 0][..], &v4()].concat()),
            (113, [&[0; 14][..], &[8, 0], &v4()].concat()),
            (276, [&[0x86, 0xdd][..], &[0; 18], &v6()].concat()),
        ] {
            // Short frames are filled up.
            let padded = packet(link, [bytes, vec![0; 6]].concat());
            let found = find_segment(&padded).unwrap();
            assert_eq!(
                (found.from.port(), found.to.port(), found.sequence, found.content),
                (8080, 80, 9, &b"hi"[..])
            );
            let flags = found.flags;
            assert!(flags.has_syn() && flags.has_ack() && !flags.has_fin() && !flags.has_rst());
        }
    }

    #[test]
    fn invalid_segment_is_classified_without_a_panic() {
        let mut fragment = v4();
        fragment[6] = 0x20;
        assert_eq!(find_segment(&packet(101, fragment)), Err(SkipReason::Fragment));
        let mut udp = v4();
        udp[9] = 17;
        assert_eq!(find_segment(&packet(101, udp)), Err(SkipReason::Udp));
        assert_eq!(find_segment(&packet(147, v4())), Err(SkipReason::Link(147)));
        for ip in [v4(), v6()] {
            for length in 0..ip.len() {
                find_segment(&packet(101, ip[..length].to_vec())).unwrap_err();
            }
        }
    }
}
