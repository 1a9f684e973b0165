//! Invariants of a session that hold whatever the peer sends. Fuzz targets assert them after every event.

use super::Client;
use super::frame::PREFIX;
use crate::http::h2::Config;

impl Client {
    /// Asserts that no state is kept for finished calls, and for open calls no more than the limits allow.
    #[doc(hidden)]
    pub fn assert_sound(&self) {
        self.http.assert_sound();
        for (stream, call) in &self.calls {
            let is_over = call.end.is_some() && self.found.contains(stream);
            assert!(is_over || self.http.is_open(*stream), "stream {stream} is over, and its call is kept");
            assert_within(call.assembler.held(), self.config.limits.message, &self.config.http);
        }
        assert_eq!(self.held, self.calls.values().map(|call| call.counted).sum::<usize>(), "held bytes");
        for (id, stream) in &self.streams {
            assert!(self.calls.get(stream).is_some_and(|call| call.id == *id), "{id:?} is over");
        }
        for stream in self.http.ids() {
            assert!(self.calls.contains_key(&stream), "stream {stream} belongs to no call");
        }
    }

    /// Identifiers of the open streams.
    #[doc(hidden)]
    pub fn ids(&self) -> Vec<u32> {
        self.http.ids()
    }
}

/// Asserts that an incomplete message holds fewer bytes than its length, followed by at most one window.
pub(crate) fn assert_within(held: usize, message: usize, http: &Config) {
    let max = PREFIX + message + http.max_window as usize;
    assert!(held <= max, "{held} bytes of a message");
}
