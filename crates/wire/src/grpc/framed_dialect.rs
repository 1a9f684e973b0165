use polyrpc_core::protocol::Parameters;

use super::request_reader::RequestReader;
use super::request_writer::ClientFraming;

/// A dialect with a framing of its own, as gRPC lists it.
pub(crate) struct FramedDialect {
    /// Scheme of its URLs.
    pub(crate) scheme: &'static str,
    /// Returns the framing of a client's calls that the parameters of a URL select.
    pub(crate) client: fn(&Parameters) -> ClientFraming,
    /// Reads its requests on a server.
    pub(crate) reader: &'static dyn RequestReader,
}
