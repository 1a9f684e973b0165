//! Cross-origin requests of browsers (the Fetch standard, "CORS protocol").

use bytes::Bytes;

use polyrpc_core::Metadata;

/// Which web pages may call this server from a browser: pages of its own origin always, those of other origins as
/// configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Cors {
    /// No other origin.
    #[default]
    None,
    /// Any origin.
    Any,
    /// These origins, spelled as browsers do: `https://example.org`.
    Origins(Vec<String>),
}

impl Cors {
    /// Returns the origin of a request, if it may read the response.
    pub(crate) fn origin(&self, fields: &Metadata) -> Option<Bytes> {
        if *self == Self::None {
            return None;
        }
        let origin = fields.bytes("origin")?;
        let allowed = match self {
            Self::None => false,
            Self::Any => true,
            Self::Origins(origins) => origins.iter().any(|known| known.as_bytes() == &origin[..]),
        };
        allowed.then(|| origin.clone())
    }
}

/// Whether an origin is that of the server named `host`.
pub(crate) fn is_own(origin: &[u8], host: &[u8]) -> bool {
    let authority = origin.windows(3).position(|part| part == b"://").and_then(|at| origin.get(at + 3..));
    // Clients in Go send a URL with a path.
    let authority = authority.and_then(|authority| authority.split(|byte| *byte == b'/').next());
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// A CORS preflight request.
#[derive(Debug)]
pub(crate) struct Preflight {
    /// Fields of the actual request.
    fields: Option<Bytes>,
}

impl Preflight {
    /// Parses an `OPTIONS` request from an allowed origin; `None` if it is not a preflight.
    pub(crate) fn read(fields: &Metadata) -> Option<Self> {
        fields.bytes("access-control-request-method")?;
        Some(Self { fields: fields.bytes("access-control-request-headers").cloned() })
    }

    /// Writes the fields that grant permission, in addition to those of [`expose`].
    pub(crate) fn allow(&self, mut write: impl FnMut(&str, &[u8])) {
        write("access-control-allow-methods", METHODS);
        if let Some(fields) = &self.fields {
            write("access-control-allow-headers", fields);
        }
        write("access-control-max-age", MAX_AGE);
    }
}

/// Methods that call: POST, and those of declared routes.
const METHODS: &[u8] = b"POST, GET, PUT, PATCH, DELETE";

/// How many seconds a browser may cache the response. Chromium accepts at most two hours.
const MAX_AGE: &[u8] = b"7200";

/// Writes the fields that let a page of this origin read the response.
pub(crate) fn expose(origin: &[u8], mut write: impl FnMut(&str, &[u8])) {
    write("access-control-allow-origin", origin);
    write("access-control-expose-headers", b"grpc-status, grpc-message, grpc-status-details-bin");
    // A cache must not serve the response to another origin.
    write("vary", b"origin");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(origin: &'static str) -> Metadata {
        [("origin", origin)].into_iter().collect()
    }

    #[test]
    fn only_listed_origins_are_allowed() {
        let page = from("https://example.org");
        let some = Cors::Origins(vec!["https://example.org".into()]);
        assert_eq!(Cors::None.origin(&page), None);
        assert!(Cors::Any.origin(&page).is_some());
        assert!(some.origin(&page).is_some());
        assert_eq!(some.origin(&from("https://example.org.evil")), None);
        assert_eq!(Cors::Any.origin(&Metadata::new()), None);
    }
}
