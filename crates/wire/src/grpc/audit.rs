//! What holds of a session at any time, whatever the peer sent. Whoever fuzzes asserts it after every event.

use super::Client;
use super::frame::PREFIX;
use crate::http::h2::Config;

impl Client {
    /// Asserts that nothing is kept of calls that are over, and no more of the others than the limits allow.
    #[doc(hidden)]
    pub fn assert_sound(&self) {
        self.http.assert_sound();
        for (stream, call) in &self.calls {
            let is_over = call.end.is_some() && self.found.contains(stream);
            assert!(is_over || self.http.is_open(*stream), "stream {stream} is over, and its call is kept");
            assert_within(call.assembler.held(), self.config.limits.message, &self.config.http);
        }
        for (id, stream) in &self.streams {
            assert!(self.calls.get(stream).is_some_and(|call| call.id == *id), "{id:?} is over");
        }
        for stream in self.http.ids() {
            assert!(self.calls.contains_key(&stream), "stream {stream} belongs to no call");
        }
    }

    /// The streams that are open.
    #[doc(hidden)]
    pub fn ids(&self) -> Vec<u32> {
        self.http.ids()
    }
}

/// Of a message that is not whole there is less than its length; behind it lies what a window lets through.
pub(crate) fn assert_within(held: usize, message: usize, http: &Config) {
    let most = PREFIX + message + http.most_window as usize;
    assert!(held <= most, "{held} bytes of a message");
}
