//! Invariants of a connection that hold whatever the peer sends. Fuzz targets assert them after every event.

use super::connection::{Connection, PrefaceState};
use super::hpack::Decoder;
use super::settings::DEFAULT_FRAME;
use super::stream::{Role, Stream};

impl<T> Connection<T> {
    /// Asserts that buffered state stays within the limits and that all counters add up.
    #[doc(hidden)]
    pub fn assert_sound(&self) {
        self.assert_bounded();
        self.assert_counted();
        self.assert_windows_add_up();
    }

    /// Identifiers of the open streams.
    #[doc(hidden)]
    pub fn ids(&self) -> Vec<u32> {
        self.streams.iter_with_ids().map(|(id, _)| id).collect()
    }

    fn assert_bounded(&self) {
        let (config, streams) = (&self.config, self.streams.len());
        assert!(self.role == Role::Client || streams <= config.streams as usize, "{streams} streams");
        let block = self.block.as_ref().map_or(0, |block| block.bytes.len());
        let max = DEFAULT_FRAME.max(config.longest_block());
        assert!(block <= max, "{block} bytes of a header block");
        assert_eq!(block, self.buffered());
        let decoder = self.decoder.held();
        assert_eq!(decoder, self.decoder.recount(), "bytes in the decoder");
        assert!(decoder <= Decoder::MAX_FOOTPRINT, "{decoder} bytes in the decoder");
        assert!(self.blocked.len() <= streams, "{} of {streams} streams blocked", self.blocked.len());
        let max = 2 * self.whole_window();
        assert!(self.unread <= max, "{} bytes wait to be taken", self.unread);
    }

    fn assert_counted(&self) {
        let sum = |count: fn(&Stream<T>) -> usize| self.streams.iter().map(count).sum::<usize>();
        assert_eq!(self.queued(), sum(|stream| stream.queued), "bytes that wait to be sent");
        let ending = self.streams.iter().filter(|stream| stream.is_ending()).count();
        assert_eq!(self.ending, ending, "streams whose end waits");
        assert_eq!(self.queued, sum(|stream| stream.queue.iter().map(|piece| piece.len()).sum()));
        assert_eq!(self.unread, sum(|stream| stream.unread), "bytes that wait to be taken");
        let window = self.initial_window as usize;
        let growth: usize = self.streams.iter().map(|stream| stream.window as usize - window).sum();
        assert_eq!(self.growth, growth, "growth of windows");
    }

    /// Asserts that the peer's remaining window, the credit not yet granted and the withheld bytes add up to the whole
    /// window, so that no flow-control credit is lost.
    fn assert_windows_add_up(&self) {
        if self.opening != PrefaceState::Silent {
            let window = self.receive_window + i64::from(self.credit) + self.withheld as i64;
            assert_eq!(window, self.whole_window() as i64, "the connection's window");
        }
        // Streams that have grown before are widened too.
        let widened = self.initial_window - self.config.window;
        for stream in self.streams.iter().filter(|stream| stream.is_read(self.role)) {
            let window = stream.receive_window + i64::from(stream.credit) + stream.unread as i64;
            assert_eq!(window, i64::from(stream.window), "a stream's window");
            assert!(stream.window <= self.config.max_window.max(self.config.window) + widened);
        }
    }
}
