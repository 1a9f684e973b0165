use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Returns the IPv4 address from which this machine would send to the Internet.
///
/// # Errors
///
/// If it has none.
pub(crate) fn outgoing_v4() -> io::Result<IpAddr> {
    outgoing((Ipv4Addr::UNSPECIFIED, 0).into(), TEST_TARGET_V4)
}

/// Returns the IPv6 address from which this machine would send to the Internet.
///
/// # Errors
///
/// If it has none.
pub(crate) fn outgoing_v6() -> io::Result<IpAddr> {
    outgoing((Ipv6Addr::UNSPECIFIED, 0).into(), TEST_TARGET_V6)
}

/// Connecting a datagram socket sends nothing; it only selects a route.
fn outgoing(any: SocketAddr, target: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// Addresses for documentation (RFC 5737, RFC 3849), which use the default route.
const TEST_TARGET_V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 9);
const TEST_TARGET_V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9);
