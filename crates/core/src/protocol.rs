//! What a protocol is, as data: its name, how URLs and TLS name it, its first bytes, what it can carry.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::{Carrier, Format};

/// One protocol. There is one static value of it for each; two are equal if their names are.
///
/// Servers and clients read it instead of matching on the protocol, so a protocol of another crate is served and called
/// as the built-in ones are. What speaks it is a [session](crate::session).
///
/// ```
/// use polyrpc_core::protocol::{Capabilities, Descriptor, Detected, Scheme, by_magic};
///
/// fn recognise(start: &[u8]) -> Detected {
///     by_magic(b"LINE ", start)
/// }
///
/// static LINES: Descriptor = Descriptor {
///     schemes: &[Scheme::new("lines")],
///     capabilities: Capabilities { push: true, ..Capabilities::NONE },
///     ..Descriptor::new("lines", recognise)
/// };
///
/// assert_eq!((LINES.recognise)(b"LINE 1"), Detected::Is(()));
/// assert_eq!((LINES.recognise)(b"LI"), Detected::NeedMore);
/// ```
#[derive(Clone, Copy)]
pub struct Descriptor {
    /// The name users know, in metrics, traces and logs: `baidu_std`. In lower case, with `_` between words.
    pub name: &'static str,
    /// What URLs call it, the usual name first. None: clients cannot name it.
    pub schemes: &'static [Scheme],
    /// Ports that a URL may leave out.
    pub default_ports: Option<Ports>,
    /// Reads the words behind `+` in a URL that are not of its transport (`tls`, `unix`, …).
    pub dialect: ReadDialect,
    /// Where it is spoken behind HTTP's `CONNECT`.
    pub connect: Option<Connect>,
    /// Whether a connection that begins so speaks it. What it says must not change when more bytes come, unless it was
    /// [`NeedMore`](Detected::NeedMore).
    pub recognise: fn(&[u8]) -> Detected,
    /// The registered name by which clients ask for it in TLS's handshake (ALPN, RFC 7301). Without one they ask for none,
    /// and servers know it by its own name, as brpc does (`ssl_options.h`, `alpns`).
    pub alpn: Option<&'static str>,
    /// What it can carry and do.
    pub capabilities: Capabilities,
    /// The format in which it carries what a codec prefers.
    pub prefer: fn(Format) -> Format,
    /// How often a client sends heartbeats where nobody says.
    pub keepalive: Option<Duration>,
}

/// Reads the dialect out of a URL's scheme, as [`Scheme::name`] spells it, and the words behind it.
pub type ReadDialect = fn(&'static str, &[&str]) -> Result<Dialect, String>;

impl Descriptor {
    /// A protocol that is recognised so, with one dialect, and [able](Capabilities::NONE) of nothing but unary calls.
    pub const fn new(name: &'static str, recognise: fn(&[u8]) -> Detected) -> Self {
        Self {
            name,
            schemes: &[],
            default_ports: None,
            dialect: Dialect::only,
            connect: None,
            recognise,
            alpn: None,
            capabilities: Capabilities::NONE,
            prefer: std::convert::identity,
            keepalive: None,
        }
    }

    /// The scheme that a URL spells so, with `-` or `_` between words, and whether it says that TLS is to be used.
    pub fn scheme(&self, spelled: &str) -> Option<(&'static str, bool)> {
        self.schemes.iter().find_map(|scheme| scheme.spelled(spelled).map(|secure| (scheme.name, secure)))
    }

    /// The name by which TLS's handshake settles on it.
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

/// A name of a protocol in URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// In lower case, with `-` between words: `baidu-std`.
    pub name: &'static str,
    /// The name that says TLS as well: `https`. `+tls` says so behind any.
    pub secure: Option<&'static str>,
}

impl Scheme {
    /// A name that says nothing of TLS.
    pub const fn new(name: &'static str) -> Self {
        Self { name, secure: None }
    }

    /// Whether this is what a URL spells so, and if it is, whether it says TLS.
    fn spelled(&self, spelled: &str) -> Option<bool> {
        let same = |name: &str| {
            let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
            spelled.bytes().map(dashed).eq(name.bytes())
        };
        if same(self.name) { Some(false) } else { self.secure.filter(|name| same(name)).map(|_| true) }
    }
}

/// The ports of a protocol that has registered ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// In clear text.
    pub plain: u16,
    /// Within TLS.
    pub secure: u16,
}

/// How a protocol is reached behind HTTP's `CONNECT`, which `+http` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The path, unless the URL has one.
    pub path: &'static str,
    /// The protocol's session sends the `CONNECT`. If not, that is done before there is a session.
    pub by_session: bool,
}

/// What is spoken of a protocol that has dialects, as a URL asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The scheme of the URL, as [`Scheme::name`] spells it.
    pub scheme: &'static str,
    /// The words behind it that chose the dialect, for whoever makes the session.
    pub words: Vec<String>,
    /// A connection takes one call at a time.
    pub one_at_a_time: bool,
    /// The format in which it carries messages, whatever a codec prefers.
    pub format: Option<Format>,
    /// It carries no other format.
    pub only_format: bool,
    /// How long a connection is left alone once it is made.
    pub settling: Option<Duration>,
    /// A connection begins with HTTP/1.1, which TLS's handshake must ask for.
    pub within_http1: bool,
}

impl Dialect {
    /// The usual one, whose calls go side by side.
    pub const fn new(scheme: &'static str) -> Self {
        Self {
            scheme,
            words: Vec::new(),
            one_at_a_time: false,
            format: None,
            only_format: false,
            settling: None,
            within_http1: false,
        }
    }

    /// The same, chosen by these words.
    #[must_use]
    pub fn with_words(self, words: &[&str]) -> Self {
        Self { words: words.iter().map(|&word| word.to_owned()).collect(), ..self }
    }

    /// The dialect of a protocol that has no other: [`Descriptor::dialect`] by default.
    ///
    /// # Errors
    ///
    /// If there are words.
    pub fn only(scheme: &'static str, words: &[&str]) -> Result<Self, String> {
        words.first().map_or_else(|| Ok(Self::new(scheme)), |word| Err(Self::unknown(word)))
    }

    /// The error for a word that is none of a protocol's.
    pub fn unknown(word: &str) -> String {
        format!("`+{word}` is unknown here")
    }
}

/// What a protocol can carry and do, in its best dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What becomes of the metadata of a call. A trace travels as metadata.
    pub metadata: MetadataSupport,
    /// Calls and answers have bytes beside the message.
    pub attachments: bool,
    /// A server learns how long its caller still waits.
    pub deadline: bool,
    /// Which streams of messages it has.
    pub streams: Streams,
    /// Servers send messages that no call asked for.
    pub push: bool,
    /// Clients subscribe to topics.
    pub topics: bool,
    /// A server says of a call that it never looked at it (HTTP/2's `GOAWAY` and `REFUSED_STREAM`), so that it is safe to
    /// send it again.
    pub refuses_unprocessed: bool,
    /// Methods are called by number.
    pub numbers_methods: bool,
    /// Functions take a list of arguments.
    pub positional_arguments: bool,
    /// A message that is too long has a code of its own, also where it cannot be read at its receiver.
    pub resource_exhausted: bool,
}

impl Capabilities {
    /// Unary calls, and nothing beside their messages.
    pub const NONE: Self = Self {
        metadata: MetadataSupport::Refused,
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

    /// Whether metadata reach the server, and with them the trace.
    pub const fn carries_metadata(&self) -> bool {
        matches!(self.metadata, MetadataSupport::Carried(_))
    }

    /// Whether metadata are fields of HTTP.
    pub const fn has_fields(&self) -> bool {
        matches!(
            self.metadata,
            MetadataSupport::Carried(Carrier::Grpc | Carrier::Http | Carrier::HttpRequest)
        )
    }
}

/// What becomes of the metadata of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataSupport {
    /// They travel, so far as this can carry them.
    Carried(Carrier),
    /// A call with metadata fails before it is sent.
    Refused,
    /// They are not sent, which a client says once.
    Dropped,
}

/// The streams of messages that a protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// None.
    None,
    /// Beside a call, which is answered before they go on (brpc).
    Beside,
    /// A call's messages, and those of its answer, come one by one.
    Calls,
}

/// What the first bytes of a connection say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected<T = ()> {
    /// It is this one.
    Is(T),
    /// It may still be one of several.
    NeedMore,
    /// It is none of those allowed.
    Unknown,
}

impl<T> Detected<T> {
    /// The same of something else.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Detected<U> {
        match self {
            Self::Is(known) => Detected::Is(map(known)),
            Self::NeedMore => Detected::NeedMore,
            Self::Unknown => Detected::Unknown,
        }
    }

    /// What this says, or the other where this says that it is none.
    pub fn or(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Unknown => other(),
            known => known,
        }
    }
}

/// Recognises a protocol by the fixed bytes it begins with.
pub fn by_magic(magic: &[u8], start: &[u8]) -> Detected {
    let n = start.len().min(magic.len());
    match start[..n] == magic[..n] {
        false => Detected::Unknown,
        true if n == magic.len() => Detected::Is(()),
        true => Detected::NeedMore,
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
    fn a_scheme_is_spelled_with_dashes_or_underscores() {
        assert_eq!(LINES.scheme("text-lines"), Some(("text-lines", false)));
        assert_eq!(LINES.scheme("text_lines"), Some(("text-lines", false)));
        assert_eq!(LINES.scheme("lines"), Some(("text-lines", true)));
        assert_eq!(LINES.scheme("words"), Some(("words", false)));
        assert_eq!(LINES.scheme("text"), None);
    }

    #[test]
    fn a_protocol_without_dialects_refuses_words() {
        assert_eq!((LINES.dialect)("words", &[]), Ok(Dialect::new("words")));
        assert_eq!((LINES.dialect)("words", &["x"]), Err("`+x` is unknown here".to_owned()));
    }

    #[test]
    fn descriptors_are_equal_by_name() {
        let other = Descriptor::new("text_lines", |_| Detected::Unknown);
        assert_eq!(LINES, other);
        assert_ne!(LINES, Descriptor::new("lines", LINES.recognise));
    }
}
