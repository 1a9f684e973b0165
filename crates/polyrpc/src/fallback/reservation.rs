//! Room for the response of a call that is forwarded.

use polyrpc_core::{Retry, Status};

use super::RawRequest;
use crate::Result;

impl RawRequest {
    /// Waits until the memory budget has room for a response to this caller of about as many bytes as `expected` then
    /// returns, and reserves it. The result is to be held until the response is returned: dropping it releases the room.
    ///
    /// It is for proxies, before they forward a call: what was requested from another server must be received, whether
    /// the caller reads it or not. Together, the responses that are expected may take a quarter of the budget; those of
    /// one connection may take a quarter of the rest. A connection of which none is expected gets room for one of any
    /// length. One that leaves 1 MiB of earlier responses unread gets none until its peer has read them; if they wait
    /// for windows of HTTP/2 or for earlier responses, and the peer reads others, it gets room while there is some.
    /// Calls of a connection wait in the order of their arrival. A response of 0 bytes needs no room.
    ///
    /// `expected` is called again whenever there may be room, since the size may become known meanwhile.
    ///
    /// # Errors
    ///
    /// [`ResourceExhausted`](crate::Code::ResourceExhausted) if earlier responses of the connection are given up since
    /// the peer has not read them for [`Limits::write_timeout`], and this has waited for half of it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the call's turn.
    ///
    /// [`Limits::write_timeout`]: crate::server::Limits::write_timeout
    pub fn reserve_response<E>(
        &self,
        expected: E,
    ) -> impl Future<Output = Result<impl Send + Sync + use<E>>> + Send + use<E>
    where
        E: Fn() -> usize + Send,
    {
        let room = self.context().facts().response_room().cloned();
        async move {
            // A connection that counts no memory needs no room.
            let Some(room) = room else { return Ok(None) };
            let reserved = room.reserve(expected).await.ok_or_else(responses_unread)?;
            Ok(Some(reserved))
        }
    }

    /// Reserves room as [`reserve_response`](Self::reserve_response) does, unless the call would have to wait for it.
    #[must_use = "dropping it releases the room"]
    pub fn try_reserve_response(&self, bytes: usize) -> Option<impl Send + Sync + use<>> {
        match self.context().facts().response_room() {
            Some(room) => room.try_reserve(bytes).map(Some),
            None => Some(None),
        }
    }
}

#[cold]
fn responses_unread() -> Status {
    let text = "earlier responses on this connection are not read; try again later";
    Status::resource_exhausted(text).with_retry(Retry::Elsewhere)
}
