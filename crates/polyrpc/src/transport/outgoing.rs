use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address of IPv4 from which this machine would send to the Internet.
///
/// # Errors
///
/// When it has none.
pub(crate) fn outgoing_v4() -> io::Result<IpAddr> {
    outgoing((Ipv4Addr::UNSPECIFIED, 0).into(), ELSEWHERE_V4)
}

/// The address of IPv6 from which this machine would send to the Internet.
///
/// # Errors
///
/// When it has none.
pub(crate) fn outgoing_v6() -> io::Result<IpAddr> {
    outgoing((Ipv6Addr::UNSPECIFIED, 0).into(), ELSEWHERE_V6)
}

/// To connect a datagram socket sends nothing; it only finds the way.
fn outgoing(any: SocketAddr, there: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(any)?;
    socket.connect(there)?;
    Ok(socket.local_addr()?.ip())
}

/// Addresses for documentation (RFC 5737, RFC 3849), to which the way is the default one.
const ELSEWHERE_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 9);
const ELSEWHERE_V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9);
