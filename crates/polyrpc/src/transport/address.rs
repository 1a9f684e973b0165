use std::fmt;
use std::num::IntErrorKind;
use std::path::PathBuf;
use std::str::FromStr;

use polyrpc_core::Status;

/// Address of a server: `127.0.0.1:8000`, `[::1]:8000`, `localhost:8000`, or the path of a Unix socket,
/// `unix:/run/echo.sock`; over UDP `kcp://127.0.0.1:8000`, `quic://127.0.0.1:8000`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// Host and port; the host may be a name.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// Host and port, by KCP (feature `kcp`).
    Kcp(String),
    /// Host and port, by QUIC (feature `quic`).
    Quic(String),
}

impl Address {
    /// Returns host and port, if it has them.
    pub(crate) fn host_and_port(&self) -> Option<&str> {
        match self {
            Self::Tcp(authority) | Self::Kcp(authority) | Self::Quic(authority) => Some(authority),
            Self::Unix(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = Status;

    fn from_str(text: &str) -> Result<Self, Status> {
        if let Some(path) = text.strip_prefix("unix:") {
            // Both `unix:/path` and `unix:///path` are in use.
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.is_empty() {
                true => Err(Status::invalid_argument("unix: needs the path of a socket")),
                false => Ok(Self::Unix(path.into())),
            };
        }
        let (variant, authority): (fn(String) -> Self, _) = match text.split_once("://") {
            Some((scheme, authority)) if scheme.eq_ignore_ascii_case("kcp") => (Self::Kcp, authority),
            Some((scheme, authority)) if scheme.eq_ignore_ascii_case("quic") => (Self::Quic, authority),
            Some(_) => return Err(invalid_address(text, FORMS)),
            None => (Self::Tcp, text),
        };
        // Rust's own conversion accepts a sign, too; the text goes into `Host` as it is.
        let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.starts_with('+'));
        match port.map(str::parse::<u16>) {
            Some(Ok(_)) => Ok(variant(authority.to_owned())),
            Some(Err(error)) if *error.kind() == IntErrorKind::PosOverflow => {
                Err(invalid_address(text, "a port is at most 65535"))
            }
            _ => Err(invalid_address(text, "expected host:port or unix:/path")),
        }
    }
}

/// The forms of an address. Protocols are no part of it: a listener accepts all allowed protocols on one port.
const FORMS: &str = "expected host:port, unix:/path, kcp://host:port or quic://host:port, for every protocol";

#[cold]
fn invalid_address(text: &str, why: &str) -> Status {
    Status::invalid_argument(format!("`{text}` is not an address: {why}"))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Kcp(address) => write!(f, "kcp://{address}"),
            Self::Quic(address) => write!(f, "quic://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_by_kind() {
        assert_eq!("localhost:80".parse(), Ok(Address::Tcp("localhost:80".into())));
        assert_eq!("[::1]:80".parse(), Ok(Address::Tcp("[::1]:80".into())));
        assert_eq!("unix:/tmp/x".parse(), Ok(Address::Unix("/tmp/x".into())));
        assert_eq!("kcp://h:1".parse(), Ok(Address::Kcp("h:1".into())));
        assert_eq!("KCP://h:1".parse(), Ok(Address::Kcp("h:1".into())));
        assert_eq!("quic://[::1]:1".parse(), Ok(Address::Quic("[::1]:1".into())));
        assert_eq!("unix:///tmp/x".parse(), Ok(Address::Unix("/tmp/x".into())));
        for wrong in
            ["", "localhost", "localhost:", "localhost:http", "unix:", "1.2.3.4:70000", "kcp://h", "tcp://h"]
        {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn invalid_address_error_names_the_cause() {
        for (text, why) in [
            ("127.0.0.1:99999", "a port is at most 65535"),
            ("quic://h:65536", "a port is at most 65535"),
            ("h:-1", "expected host:port or unix:/path"),
            ("h:+1", "expected host:port or unix:/path"),
            ("grpc://127.0.0.1:1", "expected host:port, unix:/path, kcp://host:port or quic://host:port"),
            ("tcp://h:1", "expected host:port, unix:/path, kcp://host:port or quic://host:port"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
    }
}
