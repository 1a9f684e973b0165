use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use tokio::net::UdpSocket;

use crate::transport::outgoing_v4;

/// Where everybody listens (RFC 6762).
pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);

/// The network that leads to the Internet, and the machine itself.
pub(super) fn usual_interfaces() -> Vec<Ipv4Addr> {
    let outside = match outgoing_v4() {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    outside.into_iter().chain([Ipv4Addr::LOCALHOST]).collect()
}

/// Sockets to ask with, one for each network. They take a free port: who asks from one is answered there, and need not
/// share the usual one with others (RFC 6762, section 6.7).
pub(super) async fn asking(interfaces: &[Ipv4Addr]) -> io::Result<Vec<Arc<UdpSocket>>> {
    let (mut sockets, mut failure) = (Vec::new(), io::Error::from(io::ErrorKind::AddrNotAvailable));
    for address in interfaces {
        // One network that is gone must not keep the others from being asked.
        match asking_one(*address).await {
            Ok(socket) => sockets.push(Arc::new(socket)),
            Err(error) => failure = error,
        }
    }
    if sockets.is_empty() { Err(failure) } else { Ok(sockets) }
}

async fn asking_one(interface: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((interface, 0)).await?;
    sockopt::set_ip_multicast_if(&socket, &interface)?;
    Ok(socket)
}

/// A socket that hears what is asked in these networks, beside those of other programs.
pub(super) fn answering(interfaces: &[Ipv4Addr], port: u16) -> io::Result<UdpSocket> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::UDP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    let socket = std::net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    let mut joined: io::Result<()> = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in interfaces {
        // One network that has no multicast must not keep the others from it.
        joined = socket.join_multicast_v4(&GROUP, address).or(joined);
    }
    joined?;
    UdpSocket::from_std(socket)
}

/// Sends to everybody in these networks.
pub(super) async fn send_to_all(socket: &UdpSocket, interfaces: &[Ipv4Addr], port: u16, packet: &[u8]) {
    for address in interfaces {
        // What does not arrive is asked for again.
        if sockopt::set_ip_multicast_if(socket, address).is_ok() {
            let _ = socket.send_to(packet, (GROUP, port)).await;
        }
    }
}

/// The next packet, if it could be received, and the socket.
pub(super) async fn receive(socket: Arc<UdpSocket>) -> (Arc<UdpSocket>, Option<Vec<u8>>) {
    let mut buffer = vec![0; LONGEST];
    match socket.recv(&mut buffer).await {
        Ok(length) => {
            buffer.truncate(length);
            (socket, Some(buffer))
        }
        Err(_) => {
            tokio::time::sleep(BREATH).await;
            (socket, None)
        }
    }
}

/// The longest packet of multicast DNS (RFC 6762, section 17).
pub(super) const LONGEST: usize = 9000;
/// An error might come again at once.
pub(super) const BREATH: Duration = Duration::from_millis(50);
