//! Finds the local process that listens at a URL's address.

use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use polyrpc_core::protocol::percent_decode;
use polyrpc_load::Process;

use crate::url::Url;

/// The process that listens at a URL's address, or why its CPU time and memory are unknown.
pub(super) fn find_listening_process(url: &str) -> Result<Process, String> {
    let inode = socket_of(url)?;
    owner_of(inode).map(|id| Process { id }).ok_or_else(|| "its process belongs to another user".to_owned())
}

/// The inode of the socket that listens at the URL's address.
fn socket_of(url: &str) -> Result<u64, String> {
    let no_listener = || "nothing on this machine listens there".to_owned();
    let url = Url::parse(url).ok_or_else(no_listener)?;
    if url.registry.is_some() {
        return Err("the servers are discovered by the client".to_owned());
    }
    if let Some(path) = url.socket() {
        let path = percent_decode(path).ok_or_else(no_listener)?;
        let mut lines = read_table("/proc/net/unix");
        return lines.find_map(|line| parse_unix_socket(&line, &path)).ok_or_else(no_listener);
    }
    let host = url.server();
    let default_port = if url.tls { 443 } else { 80 };
    let addresses = host.to_socket_addrs().or_else(|_| (host, default_port).to_socket_addrs());
    let addresses: Vec<_> = addresses.map_err(|_| "its host has no address".to_owned())?.collect();
    let Some(local) = addresses.into_iter().find(|address| is_local(address.ip())) else {
        return Err("the server is on another machine".to_owned());
    };
    let over_udp = matches!(url.parameter("transport"), Some("kcp" | "quic"));
    let (tables, state) = if over_udp { (["udp", "udp6"], UNCONNECTED) } else { (["tcp", "tcp6"], LISTEN) };
    let lines = tables.into_iter().flat_map(|name| read_table(&format!("/proc/net/{name}")));
    let mut listening = lines.filter_map(|line| parse_listening_socket(&line, state));
    listening
        .find(|(address, _)| accepts_address(*address, local))
        .map(|(_, inode)| inode)
        .ok_or_else(no_listener)
}

/// Whether an address belongs to this machine: only such an address can be bound.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Whether connections to `called` arrive at a socket that listens at `listening`.
fn accepts_address(listening: SocketAddr, called: SocketAddr) -> bool {
    let all = match listening.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() && called.is_ipv4(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    listening.port() == called.port() && (all || listening.ip().to_canonical() == called.ip().to_canonical())
}

fn read_table(path: &str) -> impl Iterator<Item = String> + use<> {
    let bytes = fs::read(path).unwrap_or_default();
    // A name of a Unix socket may have any bytes.
    let text = String::from_utf8_lossy(&bytes);
    text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// The address and inode in a line of `/proc/net/tcp`, `udp` etc., if the socket is in this state.
fn parse_listening_socket(line: &str, state: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != state {
        return None;
    }
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddr::new(parse_address(ip)?, port), fields.get(9)?.parse().ok()?))
}

/// The kernel prints the words of an address in native byte order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for word in hex.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

/// The inode in a line of `/proc/net/unix`, if its socket listens at `path`.
fn parse_unix_socket(line: &str, path: &str) -> Option<u64> {
    let (mut fields, mut rest) = ([""; 7], line);
    for field in &mut fields {
        (*field, rest) = rest.trim_start().split_once(' ')?;
    }
    // Whatever follows is the path, which may contain blanks.
    let [_, _, _, flags, _, _, inode] = fields;
    let listens = u32::from_str_radix(flags, 16).ok()? & ACCEPTS != 0;
    (listens && rest == path).then(|| inode.parse().ok())?
}

fn owner_of(inode: u64) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    let processes =
        fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let holds = |id: &u32| {
        let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| link.as_os_str() == wanted.as_str())
    };
    let mut processes = processes;
    processes.find(holds)
}

/// The state of a listening socket (Linux `include/net/tcp_states.h`).
const LISTEN: &str = "0A";
/// The state of a bound, unconnected UDP socket: `TCP_CLOSE` there.
const UNCONNECTED: &str = "07";
/// The flag of a listening socket (Linux `include/uapi/linux/net.h`, `__SO_ACCEPTCON`).
const ACCEPTS: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::net::TcpListener;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::bench::directory::PrivateDirectory;

    #[test]
    fn listening_socket_of_this_process_is_found() {
        for host in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let port = listener.local_addr().unwrap().port();
            let found = find_listening_process(&format!("rpcx://127.0.0.1:{port}")).unwrap();
            assert_eq!(found.id, std::process::id(), "{host}");
        }
    }

    #[test]
    fn udp_socket_is_found_but_discovered_servers_are_not() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let found = find_listening_process(&format!("rpcx://127.0.0.1:{port}?transport=kcp")).unwrap();
        assert_eq!(found.id, std::process::id());
        for url in ["rpcx+list://127.0.0.1:1,127.0.0.1:2", "rpcx+etcd://127.0.0.1:2379/base/S"] {
            assert_eq!(find_listening_process(url).unwrap_err(), "the servers are discovered by the client");
        }
    }

    #[test]
    fn unix_socket_is_found_by_a_path_with_blanks_beside_names_of_any_bytes() {
        let directory = PrivateDirectory::new("listener").unwrap();
        let path = directory.path().join("a  b");
        let _other = UnixListener::bind(directory.path().join(OsStr::from_bytes(b"\xff"))).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        let url = Url::from_server("rpcx", &polyrpc::Address::Unix(path));
        assert_eq!(find_listening_process(&url.to_string()).unwrap().id, std::process::id());
    }

    #[test]
    fn lines_of_proc_net_are_parsed() {
        let line = "   0: 0100007F:1F42 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1 0 100 0 0 10 0";
        assert_eq!(
            parse_listening_socket(line, LISTEN),
            Some((SocketAddr::from(([127, 0, 0, 1], 8002)), 4711))
        );
        assert_eq!(parse_listening_socket(&line.replace(" 0A ", " 01 "), LISTEN), None);
        // The kernel pads the inode.
        let line = "0: 00000002 00000000 00010000 0001 01   711 /run/a  b ";
        assert_eq!(parse_unix_socket(line, "/run/a  b "), Some(711));
        for other in ["/run/a", "/run/a b", "/run/a  b", "b "] {
            assert_eq!(parse_unix_socket(line, other), None, "{other}");
        }
        let nameless = "0: 00000002 00000000 00010000 0001 01 4711";
        assert_eq!(parse_unix_socket(nameless, ""), None);
        assert_eq!(parse_address("00000000000000000000000001000000"), Some("::1".parse().unwrap()));
    }
}
