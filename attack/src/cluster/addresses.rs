//! Addresses of a server that stay the same when it is restarted.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use serde::{Deserialize, Serialize};

/// Where a server listens, with each transport.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Addresses {
    pub(crate) tcp: String,
    pub(crate) tls: String,
    pub(crate) kcp: String,
    pub(crate) quic: String,
    pub(crate) unix: PathBuf,
}

impl Addresses {
    /// Chooses free ports of this host, and a socket in this folder.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub(crate) fn choose(host: &str, folder: &Path) -> io::Result<Self> {
        let address = || free_port(host).map(|port| format!("{host}:{port}"));
        let tcp = address()?;
        let unix = folder.join(format!("{}.sock", tcp.replace(':', "-")));
        Ok(Self { tcp, tls: address()?, kcp: address()?, quic: address()?, unix })
    }

    /// Ports of a host that nothing else uses.
    pub(crate) fn with_fixed_ports(host: &str, folder: &Path) -> Self {
        let address = |port| format!("{host}:{port}");
        let [tcp, tls, kcp, quic] = [7001, 7002, 7003, 7004].map(address);
        Self { tcp, tls, kcp, quic, unix: folder.join("server.sock") }
    }
}

/// A port that the system does not give to outgoing connections: one of these could take it while the server restarts.
fn free_port(host: &str) -> io::Result<u16> {
    let ports = below_ephemeral();
    let count = ports.end - ports.start;
    // Several programs may choose at the same time, and those that start together have neighbouring process numbers.
    let first = (std::process::id() as u16).wrapping_mul(16) % count;
    for _ in 0..count {
        let port = ports.start + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        if TcpListener::bind((host, port)).is_ok() && UdpSocket::bind((host, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port below the ephemeral ones is free"))
}

static NEXT: AtomicU16 = AtomicU16::new(0);

fn below_ephemeral() -> Range<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_ascii_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    LOWEST.min(first - 1)..first
}

/// Below it are ports of well-known services.
const LOWEST: u16 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ports_are_distinct_and_not_ephemeral() {
        let addresses = Addresses::choose("127.0.0.1", Path::new("/nowhere")).unwrap();
        let mut ports: Vec<u16> = [&addresses.tcp, &addresses.tls, &addresses.kcp, &addresses.quic]
            .map(|address| address.rsplit_once(':').unwrap().1.parse().unwrap())
            .into();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 4);
        assert!(ports.iter().all(|port| below_ephemeral().contains(port)), "{ports:?}");
    }
}
