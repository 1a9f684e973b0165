//! Requests in a dialect with a framing of its own, on the server.

use super::request::Request;
use crate::http::h2::hpack::Fields;

/// Reader of a dialect's requests, for every version of HTTP. They share paths and content types with other protocols,
/// so that the whole head decides.
pub(crate) trait RequestReader: Sync {
    /// Returns what a field says about the dialect of its request. Its name is in lower case.
    fn hint(&self, name: &str, value: &[u8]) -> Hint;

    /// Whether the query of a GET is that of a call.
    fn is_call(&self, query: &str) -> bool;

    /// Reads a head, with names in lower case and including `:method` and `:path` with its query. Returns `None` if it
    /// is not one of the dialect.
    fn read(&self, head: &Fields) -> Option<Request>;

    /// Returns the accepted content types of a POST, for a client that used another.
    fn accepted_types(&self) -> &'static str;
}

/// How much a part of a head reveals about the dialect of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hint {
    /// Nothing.
    #[default]
    None,
    /// It may be of the dialect: its head is worth reading.
    Possible,
    /// Its client uses the dialect, even if the head turns out to be no call.
    Certain,
}
