//! Descriptors of protocols: name, URL schemes, ALPN, first bytes, capabilities.

mod parameters;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

pub use self::parameters::{Parameter, Parameters, percent_decode};

use crate::{Carrier, Format};

/// Descriptor of a protocol. Each protocol has one static value; two descriptors are equal if their names are.
///
/// Servers and clients read it instead of matching on the protocol, so protocols of other crates are served and called
/// like the built-in ones. A [session](crate::session) implements the protocol itself.
///
/// ```
/// use polyrpc_core::protocol::{Capabilities, Descriptor, Detection, Scheme, by_magic};
///
/// fn recognise(start: &[u8]) -> Detection {
///     by_magic(b"LINE ", start)
/// }
///
/// static LINES: Descriptor = Descriptor {
///     schemes: &[Scheme::new("lines")],
///     capabilities: Capabilities { push: true, ..Capabilities::NONE },
///     ..Descriptor::new("lines", recognise)
/// };
///
/// assert_eq!((LINES.recognise)(b"LINE 1"), Detection::Is(()));
/// assert_eq!((LINES.recognise)(b"LI"), Detection::NeedMore);
/// ```
#[derive(Clone, Copy)]
pub struct Descriptor {
    /// Name in metrics, traces and logs, such as `baidu_std`. In lower case, with `_` between words.
    pub name: &'static str,
    /// URL schemes, the usual one first. If empty, clients cannot use the protocol.
    pub schemes: &'static [Scheme],
    /// Default ports of URLs without one.
    pub default_ports: Option<Ports>,
    /// Parameters of URLs, in addition to those of the transport. Others are rejected, with an error that lists these.
    pub parameters: &'static [Parameter],
    /// Derives the dialect from the parameters, which are checked already.
    pub dialect: SelectDialect,
    /// How the protocol is reached by HTTP's `CONNECT`.
    pub connect: Option<Connect>,
    /// Whether a connection that starts with these bytes uses the protocol. Once it is not
    /// [`NeedMore`](Detection::NeedMore), the result must not change when more bytes arrive.
    pub recognise: fn(&[u8]) -> Detection,
    /// Registered name that clients request in the TLS handshake (ALPN, RFC 7301). Without one, clients request none,
    /// and servers accept the protocol's own name, as brpc does (`ssl_options.h`, `alpns`).
    pub alpn: Option<&'static str>,
    /// Features of the protocol.
    pub capabilities: Capabilities,
    /// Maps the format that a codec prefers to the one that the protocol uses for it.
    pub prefer: fn(Format) -> Format,
    /// Default interval of a client's heartbeats.
    pub keepalive: Option<Duration>,
}

/// Derives the dialect that a URL selects from its scheme, as spelled in [`Scheme::name`], and its parameters. It may
/// reject parameters that contradict each other. The caller sets [`Dialect::parameters`].
pub type SelectDialect = fn(&'static str, &Parameters) -> Result<Dialect, String>;

impl Descriptor {
    /// Creates the descriptor of a protocol with one dialect and [only unary calls](Capabilities::NONE).
    pub const fn new(name: &'static str, recognise: fn(&[u8]) -> Detection) -> Self {
        Self {
            name,
            schemes: &[],
            default_ports: None,
            parameters: &[],
            dialect: |scheme, _| Ok(Dialect::new(scheme)),
            connect: None,
            recognise,
            alpn: None,
            capabilities: Capabilities::NONE,
            prefer: std::convert::identity,
            keepalive: None,
        }
    }

    /// Returns the scheme with this spelling, which may use `-` or `_` between words and either case (RFC 3986 §3.1),
    /// and whether it implies TLS.
    pub fn scheme(&self, spelled: &str) -> Option<(&'static str, bool)> {
        self.schemes
            .iter()
            .find_map(|scheme| scheme.parse_spelling(spelled).map(|secure| (scheme.name, secure)))
    }

    /// Returns the dialect that a URL with this scheme and these parameters selects.
    ///
    /// # Errors
    ///
    /// If parameters contradict each other.
    pub fn select_dialect(&self, scheme: &'static str, parameters: Parameters) -> Result<Dialect, String> {
        let dialect = (self.dialect)(scheme, &parameters)?;
        Ok(Dialect { parameters, ..dialect })
    }

    /// Returns the name for ALPN.
    pub fn alpn(&self) -> &'static str {
        self.alpn.unwrap_or(self.name)
    }
}

impl PartialEq for Descriptor {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Descriptor {}

impl Hash for Descriptor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor").field("name", &self.name).finish_non_exhaustive()
    }
}

/// URL scheme of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// In lower case, with `-` between words: `baidu-std`.
    pub name: &'static str,
    /// Name that implies TLS: `https`. `+tls` can follow any scheme.
    pub secure: Option<&'static str>,
}

impl Scheme {
    /// Creates a scheme without a name that implies TLS.
    pub const fn new(name: &'static str) -> Self {
        Self { name, secure: None }
    }

    /// Returns whether the spelling implies TLS, or `None` if it is another scheme.
    fn parse_spelling(&self, spelled: &str) -> Option<bool> {
        let same = |name: &str| {
            let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
            spelled.bytes().map(|byte| dashed(byte.to_ascii_lowercase())).eq(name.bytes())
        };
        if same(self.name) { Some(false) } else { self.secure.filter(|name| same(name)).map(|_| true) }
    }
}

/// Registered ports of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Port for plaintext.
    pub plain: u16,
    /// Port for TLS.
    pub secure: u16,
}

/// How a protocol is reached by HTTP's `CONNECT`, which `transport=http-connect` in a URL requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Path to use if the URL has none.
    pub path: &'static str,
    /// Whether the protocol's session sends the `CONNECT`; otherwise it is sent before the session is created.
    pub by_session: bool,
}

/// Dialect of a protocol, as selected by a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Scheme of the URL, as spelled in [`Scheme::name`].
    pub scheme: &'static str,
    /// Parameters of the URL that the protocol declares, for the code that creates the session.
    pub parameters: Parameters,
    /// A connection carries one call at a time.
    pub one_at_a_time: bool,
    /// Format of all messages, regardless of the codec's preference.
    pub format: Option<Format>,
    /// No other format is supported.
    pub only_format: bool,
    /// Pause after connecting before the first call is sent.
    pub settling: Option<Duration>,
    /// A connection starts with HTTP/1.1, which ALPN must request.
    pub within_http1: bool,
}

impl Dialect {
    /// Creates the default dialect, with concurrent calls on a connection.
    pub const fn new(scheme: &'static str) -> Self {
        Self {
            scheme,
            parameters: Parameters::new(),
            one_at_a_time: false,
            format: None,
            only_format: false,
            settling: None,
            within_http1: false,
        }
    }
}

/// Features of a protocol, in its most capable dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Support for metadata of calls. Traces travel as metadata.
    pub metadata: MetadataSupport,
    /// Maximum number of entries of metadata that a call may have. PolyRPC's clients do not send a call with more, and its
    /// servers end the connection of a client that does, and with it all other calls. `usize::MAX`: a longer call fails
    /// alone.
    pub most_metadata: usize,
    /// Calls and replies have attachments in addition to the message.
    pub attachments: bool,
    /// The call carries its timeout to the server.
    pub deadline: bool,
    /// Kinds of streams.
    pub streams: Streams,
    /// Servers send unsolicited messages.
    pub push: bool,
    /// Clients subscribe to topics.
    pub topics: bool,
    /// A server reports that it has not processed a call (HTTP/2's `GOAWAY` and `REFUSED_STREAM`), so that retrying it
    /// is safe.
    pub refuses_unprocessed: bool,
    /// Methods are called by number.
    pub numbers_methods: bool,
    /// Functions take a list of arguments.
    pub positional_arguments: bool,
    /// A dedicated code reports messages that are too long, even if the receiver cannot read them.
    pub resource_exhausted: bool,
}

impl Capabilities {
    /// Unary calls without metadata, attachments or other features.
    pub const NONE: Self = Self {
        metadata: MetadataSupport::Refused,
        most_metadata: usize::MAX,
        attachments: false,
        deadline: false,
        streams: Streams::None,
        push: false,
        topics: false,
        refuses_unprocessed: false,
        numbers_methods: false,
        positional_arguments: false,
        resource_exhausted: false,
    };

    /// Whether metadata, and with them the trace, reach the server.
    pub const fn carries_metadata(&self) -> bool {
        matches!(self.metadata, MetadataSupport::Carried(_))
    }

    /// Whether metadata are HTTP fields.
    pub const fn has_fields(&self) -> bool {
        matches!(
            self.metadata,
            MetadataSupport::Carried(Carrier::Grpc | Carrier::Http | Carrier::HttpRequest)
        )
    }
}

/// Support for metadata of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataSupport {
    /// Metadata are sent, as far as this carrier can represent them.
    Carried(Carrier),
    /// A call with metadata fails before it is sent.
    Refused,
}

/// Kinds of streams that a protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// No streams.
    None,
    /// Streams attached to a call, whose reply precedes their messages (brpc).
    Attached,
    /// Requests and responses are streams of messages.
    Calls,
}

/// Result of looking at the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection<T = ()> {
    /// The bytes belong to this one.
    Is(T),
    /// More bytes are needed to decide.
    NeedMore,
    /// The bytes belong to none of the allowed ones.
    Unknown,
}

impl<T> Detection<T> {
    /// Maps the detected value.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Detection<U> {
        match self {
            Self::Is(known) => Detection::Is(map(known)),
            Self::NeedMore => Detection::NeedMore,
            Self::Unknown => Detection::Unknown,
        }
    }

    /// Returns this result, or `other()` if it is [`Unknown`](Self::Unknown).
    pub fn or(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Unknown => other(),
            known => known,
        }
    }
}

/// Recognises a protocol by a fixed prefix.
pub fn by_magic(magic: &[u8], start: &[u8]) -> Detection {
    let n = start.len().min(magic.len());
    match start[..n] == magic[..n] {
        false => Detection::Unknown,
        true if n == magic.len() => Detection::Is(()),
        true => Detection::NeedMore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static LINES: Descriptor = Descriptor {
        schemes: &[Scheme { name: "text-lines", secure: Some("lines") }, Scheme::new("words")],
        ..Descriptor::new("text_lines", |start| by_magic(b"LINE", start))
    };

    #[test]
    fn scheme_accepts_dashes_underscores_and_capitals() {
        assert_eq!(LINES.scheme("text-lines"), Some(("text-lines", false)));
        assert_eq!(LINES.scheme("text_lines"), Some(("text-lines", false)));
        assert_eq!(LINES.scheme("lines"), Some(("text-lines", true)));
        assert_eq!(LINES.scheme("Text-LINES"), Some(("text-lines", false)));
        assert_eq!(LINES.scheme("words"), Some(("words", false)));
        assert_eq!(LINES.scheme("text"), None);
    }

    #[test]
    fn dialect_keeps_its_url_parameters() {
        static SLOW: Descriptor = Descriptor {
            parameters: &[Parameter::new("pace", &["fast", "slow"], "speed of the server")],
            dialect: |scheme, parameters| {
                Ok(Dialect { one_at_a_time: parameters.has("pace", "slow"), ..Dialect::new(scheme) })
            },
            ..Descriptor::new("slow_lines", |_| Detection::Unknown)
        };
        let slow = Parameters::parse("pace=slow", "words", SLOW.parameters).unwrap();
        let dialect = SLOW.select_dialect("words", slow.clone()).unwrap();
        assert_eq!((dialect.scheme, &dialect.parameters, dialect.one_at_a_time), ("words", &slow, true));
        assert_eq!(LINES.select_dialect("words", Parameters::new()), Ok(Dialect::new("words")));
    }

    #[test]
    fn descriptors_are_equal_by_name() {
        let other = Descriptor::new("text_lines", |_| Detection::Unknown);
        assert_eq!(LINES, other);
        assert_ne!(LINES, Descriptor::new("lines", LINES.recognise));
    }
}
