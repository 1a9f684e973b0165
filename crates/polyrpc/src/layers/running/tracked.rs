use std::future::poll_fn;
use std::pin::pin;
use std::time::Instant;

use super::CallKey;
use super::cell::marked;
use super::registry::{Entered, Entry};
use crate::call::Peer;

/// A call that is watched.
#[derive(Debug)]
pub(in crate::layers) struct Tracked {
    pub(in crate::layers) key: CallKey,
    /// Whether its polls are those of a server's handler.
    pub(in crate::layers) is_served: bool,
    pub(in crate::layers) began: Instant,
    pub(in crate::layers) peer: Option<Peer>,
}

impl Tracked {
    /// Runs the call. It is entered in the list once it has to wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future`.
    pub(in crate::layers) async fn run<F: Future>(mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut entered: Option<Entered> = None;
        poll_fn(|cx| {
            let polled = match self.is_served {
                true => {
                    let place = entered.as_ref().map(Entered::place);
                    marked(self.key, place, || future.as_mut().poll(cx))
                }
                false => future.as_mut().poll(cx),
            };
            if polled.is_pending() && entered.is_none() {
                entered =
                    Some(Entered::new(Entry { key: self.key, peer: self.peer.take(), began: self.began }));
            }
            polled
        })
        .await
    }
}
