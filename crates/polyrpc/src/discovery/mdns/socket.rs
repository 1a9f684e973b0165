use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use tokio::net::UdpSocket;

use crate::transport::outgoing_v4;

/// Multicast group (RFC 6762).
pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);

/// Interface that leads to the Internet, and the loopback interface.
pub(super) fn default_interfaces() -> Vec<Ipv4Addr> {
    let outside = match outgoing_v4() {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    outside.into_iter().chain([Ipv4Addr::LOCALHOST]).collect()
}

/// Opens sockets for queries, one per interface. They use an ephemeral port: a query from such a port is answered
/// there, without sharing the standard port with other programs (RFC 6762, section 6.7).
pub(super) async fn query_sockets(interfaces: &[Ipv4Addr]) -> io::Result<Vec<Arc<UdpSocket>>> {
    let (mut sockets, mut failure) = (Vec::new(), io::Error::from(io::ErrorKind::AddrNotAvailable));
    for address in interfaces {
        // An interface that is gone must not prevent queries on the others.
        match query_socket(*address).await {
            Ok(socket) => sockets.push(Arc::new(socket)),
            Err(error) => failure = error,
        }
    }
    if sockets.is_empty() { Err(failure) } else { Ok(sockets) }
}

async fn query_socket(interface: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((interface, 0)).await?;
    sockopt::set_ip_multicast_if(&socket, &interface)?;
    Ok(socket)
}

/// Opens a socket that receives the queries on these interfaces; the port is shared with other programs.
pub(super) fn answering(interfaces: &[Ipv4Addr], port: u16) -> io::Result<UdpSocket> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::UDP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    let mut joined: io::Result<()> = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in interfaces {
        // An interface without multicast must not affect the others.
        joined = socket.join_multicast_v4(&GROUP, address).or(joined);
    }
    joined?;
    UdpSocket::from_std(socket)
}

/// Sends to the multicast group on these interfaces.
pub(super) async fn send_to_all(socket: &UdpSocket, interfaces: &[Ipv4Addr], port: u16, packet: &[u8]) {
    for address in interfaces {
        // A lost packet is compensated by the next query.
        if sockopt::set_ip_multicast_if(socket, address).is_ok() {
            let _ = socket.send_to(packet, (GROUP, port)).await;
        }
    }
}

/// Receives the next packet; returns it, if that succeeded, and the socket.
pub(super) async fn receive(socket: Arc<UdpSocket>) -> (Arc<UdpSocket>, Option<Vec<u8>>) {
    let mut buffer = vec![0; MAX_PACKET_SIZE];
    match socket.recv(&mut buffer).await {
        Ok(length) => {
            buffer.truncate(length);
            (socket, Some(buffer))
        }
        Err(_) => {
            tokio::time::sleep(ERROR_PAUSE).await;
            (socket, None)
        }
    }
}

/// The longest packet of multicast DNS (RFC 6762, section 17).
pub(super) const MAX_PACKET_SIZE: usize = 9000;
/// Pause after a receive error, which prevents a busy loop if the error persists.
pub(super) const ERROR_PAUSE: Duration = Duration::from_millis(50);
