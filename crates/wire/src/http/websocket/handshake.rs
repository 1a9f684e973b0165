//! How a connection of HTTP/1.1 becomes a WebSocket (RFC 6455 §4).

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine, alphabet};
use bytes::Bytes;
use sha1_smol::Sha1;

use crate::http::cors::is_own;

/// What the fields of a request say of a WebSocket, gathered field by field.
#[derive(Debug, Default)]
pub(crate) struct HandshakeFields {
    named: bool,
    key: Option<Bytes>,
    version: Option<Bytes>,
    /// What the client would have the messages carry, by names of its own.
    protocols: Vec<Bytes>,
    /// A field stands there twice.
    twice: bool,
    /// `Connection` names the upgrade.
    pub(crate) agreed: bool,
    /// The name under which the client knows this server.
    pub(crate) host: Option<Bytes>,
}

impl HandshakeFields {
    /// `Upgrade` names it.
    pub(crate) fn name(&mut self) {
        self.named = true;
    }

    /// Takes a `Sec-WebSocket-Key`.
    pub(crate) fn key(&mut self, value: Bytes) {
        self.twice |= self.key.replace(value).is_some();
    }

    /// Takes a `Sec-WebSocket-Version`.
    pub(crate) fn version(&mut self, value: Bytes) {
        self.twice |= self.version.replace(value).is_some();
    }

    /// Takes a name out of `Sec-WebSocket-Protocol`.
    pub(crate) fn protocol(&mut self, name: Bytes) {
        // Of several it matters only that they are.
        if self.protocols.len() < 2 {
            self.protocols.push(name);
        }
    }

    /// Whether the client would go on in it.
    pub(crate) fn is_websocket(&self) -> bool {
        self.named
    }

    /// The answer that grants it, unless something is amiss (§4.2.1). `origin` is the site of the page that asks, if one
    /// does that was not allowed to.
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

    /// The field that agrees to the protocol which is asked for, without which a page's WebSocket fails. What it is the
    /// first bytes will tell, so that of several none can be chosen (golang.org/x/net `websocket/hybi.go`,
    /// `AcceptHandshake`).
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

/// Why a WebSocket is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// Its version is not 13, the one there is.
    Version,
    /// The key is none, or `Connection` does not name the upgrade.
    Malformed,
    /// The messages are to carry one of several protocols.
    Protocols,
    /// A page of another site asks (§10.2).
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
            Self::Version => "version 13 of WebSocket is wanted\n",
            Self::Malformed => "this is no request for a WebSocket\n",
            Self::Protocols => "one protocol at most is wanted\n",
            Self::Origin => "pages of this origin may not call\n",
        }
    }
}

/// What a client sends to ask for a WebSocket. The server of rpcx wants an `Origin`
/// (golang.org/x/net `websocket/server.go`, `checkOrigin`).
pub(super) fn request(authority: &str, path: &str, key: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nOrigin: http://{authority}\r\n\r\n"
    )
}

/// Checks what a server answered to the key (§4.1).
///
/// # Errors
///
/// Why it is no WebSocket.
pub(super) fn check(head: &[u8], key: &str) -> Result<(), String> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut headers);
    if !matches!(response.parse(head), Ok(httparse::Status::Complete(_))) {
        return Err("the answer to the request for a WebSocket is malformed".to_owned());
    }
    if response.code != Some(101) {
        let (code, reason) = (response.code.unwrap_or_default(), response.reason.unwrap_or_default());
        return Err(format!("the server grants no WebSocket: HTTP {code} {reason}"));
    }
    let values = |name: &'static str| {
        let named = response.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.flat_map(|field| field.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    };
    let has = |name, wanted: &[u8]| values(name).any(|value| value.eq_ignore_ascii_case(wanted));
    if !has("upgrade", b"websocket") || !has("connection", b"upgrade") {
        return Err("the server goes on in another protocol than WebSocket".to_owned());
    }
    if !values("sec-websocket-accept").eq([accept(key.as_bytes()).as_bytes()]) {
        return Err("the server's answer is not to our request for a WebSocket".to_owned());
    }
    if values("sec-websocket-extensions")
        .chain(values("sec-websocket-protocol"))
        .any(|value| !value.is_empty())
    {
        return Err("the server wants an extension that nobody asked for".to_owned());
    }
    Ok(())
}

/// A key of these numbers.
pub(super) fn key(numbers: [u64; 2]) -> String {
    STANDARD.encode(numbers.map(u64::to_ne_bytes).concat())
}

/// What proves that the answer is to this key (§4.2.2).
fn accept(key: &[u8]) -> String {
    let mut digest = Sha1::new();
    digest.update(key);
    digest.update(GUID);
    STANDARD.encode(digest.digest().bytes())
}

/// Whether it is 16 bytes in base64. Not every client leaves the bits behind the last of them empty.
fn is_key(key: &[u8]) -> bool {
    LENIENT.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// Whether it may stand in a name (RFC 9110 §5.6.2).
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

const VERSION: &[u8] = b"13";
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How many fields an answer may have.
const MAX_FIELDS: usize = 100;
