//! Handshake that upgrades an HTTP/1.1 connection to WebSocket (RFC 6455 §4).

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine, alphabet};
use bytes::Bytes;
use sha1_smol::Sha1;

use crate::http::cors::is_own;

/// Handshake fields of a request, collected field by field.
#[derive(Debug, Default)]
pub(crate) struct HandshakeFields {
    named: bool,
    key: Option<Bytes>,
    version: Option<Bytes>,
    /// Subprotocols requested by the client.
    protocols: Vec<Bytes>,
    /// A field occurs twice.
    twice: bool,
    /// `Connection` names the upgrade.
    pub(crate) agreed: bool,
    /// Name of this server, as the client knows it.
    pub(crate) host: Option<Bytes>,
}

impl HandshakeFields {
    /// Records that `Upgrade` names WebSocket.
    pub(crate) fn name(&mut self) {
        self.named = true;
    }

    /// Handles a `Sec-WebSocket-Key`.
    pub(crate) fn key(&mut self, value: Bytes) {
        self.twice |= self.key.replace(value).is_some();
    }

    /// Handles a `Sec-WebSocket-Version`.
    pub(crate) fn version(&mut self, value: Bytes) {
        self.twice |= self.version.replace(value).is_some();
    }

    /// Handles a name in `Sec-WebSocket-Protocol`.
    pub(crate) fn protocol(&mut self, name: Bytes) {
        // If there are several, only that fact matters.
        if self.protocols.len() < 2 {
            self.protocols.push(name);
        }
    }

    /// Whether the client requests an upgrade to WebSocket.
    pub(crate) fn is_websocket(&self) -> bool {
        self.named
    }

    /// Returns the response that accepts the handshake, unless it is invalid (§4.2.1). `origin` is the origin of the
    /// requesting page, if it is not an allowed one.
    pub(crate) fn grant(&self, origin: Option<&[u8]>) -> Result<String, HandshakeError> {
        if self.version.as_deref() != Some(VERSION) {
            return Err(HandshakeError::Version);
        }
        let key = self.key.as_deref().filter(|key| self.agreed && !self.twice && is_key(key));
        let key = key.ok_or(HandshakeError::Malformed)?;
        if origin.is_some_and(|origin| !is_own(origin, self.host.as_deref().unwrap_or_default())) {
            return Err(HandshakeError::Origin);
        }
        let protocol = self.agreement()?;
        Ok(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n{protocol}\r\n",
            accept(key)
        ))
    }

    /// Returns the field that accepts the requested subprotocol, without which a page's WebSocket fails. The first
    /// bytes will show which protocol it is, so that none can be selected among several (golang.org/x/net
    /// `websocket/hybi.go`, `AcceptHandshake`).
    fn agreement(&self) -> Result<String, HandshakeError> {
        match &self.protocols[..] {
            [] => Ok(String::new()),
            [name] => match std::str::from_utf8(name) {
                Ok(name) if name.bytes().all(is_of_token) => {
                    Ok(format!("Sec-WebSocket-Protocol: {name}\r\n"))
                }
                _ => Err(HandshakeError::Malformed),
            },
            _ => Err(HandshakeError::Protocols),
        }
    }
}

/// Why a handshake is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// The version is not 13, the only one.
    Version,
    /// The key is malformed, or `Connection` does not name the upgrade.
    Malformed,
    /// Several subprotocols are offered.
    Protocols,
    /// A page of another origin requests it (§10.2).
    Origin,
}

impl HandshakeError {
    pub(crate) fn http(self) -> u16 {
        match self {
            Self::Version => 426,
            Self::Malformed | Self::Protocols => 400,
            Self::Origin => 403,
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Version => "WebSocket version 13 is required\n",
            Self::Malformed => "this is not a WebSocket request\n",
            Self::Protocols => "at most one subprotocol is supported\n",
            Self::Origin => "pages of this origin may not call\n",
        }
    }
}

/// Returns the client's handshake request. The server of rpcx requires an `Origin` (golang.org/x/net
/// `websocket/server.go`, `checkOrigin`).
pub(super) fn request(authority: &str, path: &str, key: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nOrigin: http://{authority}\r\n\r\n"
    )
}

/// Checks the server's response for this key (§4.1).
///
/// # Errors
///
/// Why the response does not accept the handshake.
pub(super) fn check(head: &[u8], key: &str) -> Result<(), String> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut headers);
    if !matches!(response.parse(head), Ok(httparse::Status::Complete(_))) {
        return Err("the response to the WebSocket request is malformed".to_owned());
    }
    if response.code != Some(101) {
        let (code, reason) = (response.code.unwrap_or_default(), response.reason.unwrap_or_default());
        return Err(format!("the server rejected the WebSocket: HTTP {code} {reason}"));
    }
    let values = |name: &'static str| {
        let named = response.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.flat_map(|field| field.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    };
    let has = |name, wanted: &[u8]| values(name).any(|value| value.eq_ignore_ascii_case(wanted));
    if !has("upgrade", b"websocket") || !has("connection", b"upgrade") {
        return Err("the server switched to another protocol than WebSocket".to_owned());
    }
    if !values("sec-websocket-accept").eq([accept(key.as_bytes()).as_bytes()]) {
        return Err("the server's response is not to our WebSocket request".to_owned());
    }
    if values("sec-websocket-extensions")
        .chain(values("sec-websocket-protocol"))
        .any(|value| !value.is_empty())
    {
        return Err("the server uses an extension that was not requested".to_owned());
    }
    Ok(())
}

/// Encodes a key from these random numbers.
pub(super) fn key(numbers: [u64; 2]) -> String {
    STANDARD.encode(numbers.map(u64::to_ne_bytes).concat())
}

/// Returns the value that proves that a response belongs to this key (§4.2.2).
fn accept(key: &[u8]) -> String {
    let mut digest = Sha1::new();
    digest.update(key);
    digest.update(GUID);
    STANDARD.encode(digest.digest().bytes())
}

/// Whether it is 16 bytes in base64. Not every client zeroes the unused bits after the last of them.
fn is_key(key: &[u8]) -> bool {
    LENIENT.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// Whether the byte may occur in a token (RFC 9110 §5.6.2).
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

const VERSION: &[u8] = b"13";
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Maximum number of fields in a response.
const MAX_FIELDS: usize = 100;
