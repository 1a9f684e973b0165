//! Checks the address of an admin listener.

use std::io;
use std::net::{IpAddr, SocketAddr};

use polyrpc::Address;

use super::access::Access;

/// Minimum length of a token.
const TOKEN: usize = 16;

/// Checks that callers from elsewhere are authenticated.
///
/// # Errors
///
/// If they are not or cannot be authenticated, or if a token is too short to withstand guessing.
pub(super) fn check(address: &str, access: &Access) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if access.tokens.iter().any(|(_, token)| token.len() < TOKEN) {
        return invalid(format!("a token of the admin listener has at least {TOKEN} bytes"));
    }
    if access.certificates.is_some() && !access.tls {
        return invalid(
            "client certificates need TLS: give the admin listener a certificate of its own".to_owned(),
        );
    }
    let parsed: Address = match address.parse() {
        Ok(parsed) => parsed,
        Err(status) => {
            let status: polyrpc::Status = status;
            return invalid(status.message().to_owned());
        }
    };
    match parsed {
        Address::Unix(_) => Ok(()),
        Address::Tcp(authority) if is_local(&authority) || access.authenticates() => Ok(()),
        Address::Tcp(_) => invalid(format!(
            "the admin listener {address} can be reached from elsewhere: give it a token or client certificates, or \
             listen on 127.0.0.1 or a Unix socket"
        )),
        _ => invalid(format!("the admin listener {address} is neither host:port nor unix:/path")),
    }
}

/// Whether only this machine can reach an address. Any name except `localhost` may resolve to another machine.
fn is_local(authority: &str) -> bool {
    match authority.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().is_loopback(),
        Err(_) => authority.rsplit_once(':').is_some_and(|(host, _)| {
            host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;

    #[test]
    fn other_addresses_need_a_credential() {
        let open = Access::default();
        let mut guarded = Access::default();
        guarded.tokens.push((Role::Read, "0123456789abcdef".into()));
        for local in
            ["127.0.0.1:0", "127.8.8.8:80", "[::1]:0", "localhost:1", "unix:/run/x", "[::ffff:127.0.0.1]:1"]
        {
            assert!(check(local, &open).is_ok(), "{local}");
        }
        for elsewhere in ["0.0.0.0:0", "[::]:0", "10.0.0.1:1", "example.org:1", "localhost.example.org:1"] {
            let error = check(elsewhere, &open).unwrap_err().to_string();
            assert!(error.contains(elsewhere) && error.contains("token"), "{error}");
            assert!(check(elsewhere, &guarded).is_ok(), "{elsewhere}");
        }
        for wrong in ["quic://127.0.0.1:1", "kcp://127.0.0.1:1", "127.0.0.1", "", "unix:"] {
            assert!(check(wrong, &guarded).is_err(), "{wrong}");
        }
        let unproven = Access { certificates: Some(Role::Read), ..Access::default() };
        assert!(check("127.0.0.1:0", &unproven).is_err());
        let proven = Access { tls: true, ..unproven };
        assert!(check("0.0.0.0:0", &proven).is_ok());
        guarded.tokens.push((Role::Write, "short".into()));
        assert!(check("127.0.0.1:0", &guarded).is_err());
    }
}
