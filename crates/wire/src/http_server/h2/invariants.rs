//! Invariants of a session that hold whatever the peer sends. Fuzz targets assert them after every event.

use polyrpc_core::session::server::Housekeeping as _;

use super::Server;
use crate::grpc::invariants::assert_within;

impl Server {
    /// Asserts that no state is kept for finished calls, and for open calls no more than the limits allow.
    #[doc(hidden)]
    pub fn assert_sound(&self) {
        self.http.assert_sound();
        for stream in self.parts.audit() {
            assert!(self.http.is_open(stream), "stream {stream} has ended, and its start is kept");
        }
        for (stream, incoming) in self.open.audit() {
            assert!(self.http.is_open(*stream), "stream {stream} has ended, and its request is kept");
            assert_within(incoming.held(), self.config.limits.message, &self.config.http);
        }
        let [counted, heads] = self.recount_heads();
        assert_eq!(counted, heads, "bytes of heads");
        let buffered = self.open.held() + self.parts.held() + self.http.buffered() + self.remembered();
        assert_eq!(self.buffered(), buffered, "bytes of requests");
        let unsent = self.http.queued() + self.recount_batches();
        assert_eq!(self.unsent(), unsent, "bytes of answers");
    }

    /// Identifiers of the open streams.
    #[doc(hidden)]
    pub fn ids(&self) -> Vec<u32> {
        self.http.ids()
    }
}
