//! What pages of other origins may do (the Fetch standard, "CORS protocol").

use bytes::Bytes;

use polyrpc_core::Metadata;

/// Which pages may call this server from a browser: those of its own origin always, those of others as said here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Cors {
    /// None.
    #[default]
    None,
    /// Those of any origin.
    Any,
    /// Those of these origins, written as browsers do: `https://example.org`.
    Origins(Vec<String>),
}

impl Cors {
    /// The origin that a request comes from, if it may read the answer.
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

/// Whether a page of this origin is one of the server that is called `host`.
pub(crate) fn is_own(origin: &[u8], host: &[u8]) -> bool {
    let place = origin.windows(3).position(|part| part == b"://").and_then(|at| origin.get(at + 3..));
    // Clients in Go write it as a URL, with a path.
    let place = place.and_then(|place| place.split(|byte| *byte == b'/').next());
    place.is_some_and(|place| place.eq_ignore_ascii_case(host))
}

/// A browser asks whether a page may send a request.
#[derive(Debug)]
pub(crate) struct Preflight {
    /// The fields that the request would have.
    fields: Option<Bytes>,
}

impl Preflight {
    /// What an `OPTIONS` request from an allowed origin asks; `None` if it is none of a browser's own.
    pub(crate) fn read(fields: &Metadata) -> Option<Self> {
        fields.bytes("access-control-request-method")?;
        Some(Self { fields: fields.bytes("access-control-request-headers").cloned() })
    }

    /// The fields that give leave, beside those of [`expose`].
    pub(crate) fn allow(&self, mut write: impl FnMut(&str, &[u8])) {
        write("access-control-allow-methods", METHODS);
        if let Some(fields) = &self.fields {
            write("access-control-allow-headers", fields);
        }
        write("access-control-max-age", MAX_AGE);
    }
}

/// The methods that call: POST, and those that paths of their own may want.
const METHODS: &[u8] = b"POST, GET, PUT, PATCH, DELETE";

/// How many seconds a browser may remember the answer. Two hours are the most that Chromium takes.
const MAX_AGE: &[u8] = b"7200";

/// The fields of an answer that a page of this origin may read.
pub(crate) fn expose(origin: &[u8], mut write: impl FnMut(&str, &[u8])) {
    write("access-control-allow-origin", origin);
    write("access-control-expose-headers", b"grpc-status, grpc-message, grpc-status-details-bin");
    // Who caches the answer must not show it to another origin.
    write("vary", b"origin");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(origin: &'static str) -> Metadata {
        [("origin", origin)].into_iter().collect()
    }

    #[test]
    fn only_who_is_named_may_read() {
        let page = from("https://example.org");
        let some = Cors::Origins(vec!["https://example.org".into()]);
        assert_eq!(Cors::None.origin(&page), None);
        assert!(Cors::Any.origin(&page).is_some());
        assert!(some.origin(&page).is_some());
        assert_eq!(some.origin(&from("https://example.org.evil")), None);
        assert_eq!(Cors::Any.origin(&Metadata::new()), None);
    }
}
