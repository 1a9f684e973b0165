//! Room for responses, reserved before calls are forwarded.
//!
//! The responses of an upstream share a connection, and most protocols cannot cancel a call. If a caller does not read,
//! the gateway must still receive its responses, before those of other callers. So a call is forwarded only if there is
//! room for a response of the size that its method typically has.

use std::pin::{Pin, pin};
use std::time::Duration;

use polyrpc::Result;
use polyrpc::fallback::RawRequest;
use tokio::time::timeout;

use super::decision::Decision;
use super::refusal;

/// Room for a response, until this is dropped.
pub(super) type Room = Box<dyn Send + Sync>;

/// Waits for room for a response.
pub(super) type Waiting = Pin<Box<dyn Future<Output = Result<Option<Room>>> + Send>>;

/// Reserves room for the response of a call. `None`: its method has small ones.
///
/// # Errors
///
/// If there is no room now: the future that waits for it.
pub(super) fn reserve(decision: &Decision, call: &RawRequest) -> Result<Option<Room>, Waiting> {
    let size = &decision.pair.response_size;
    let expected = size.estimate();
    if expected == 0 || decision.options.oneway {
        return Ok(None);
    }
    match call.try_reserve_response(expected) {
        Some(reserved) => Ok(Some(Box::new(reserved))),
        None => {
            let size = size.clone();
            Err(Box::pin(wait_for_room(call.reserve_response(move || size.estimate()))))
        }
    }
}

async fn wait_for_room(
    reserving: impl Future<Output = Result<impl Send + Sync + 'static>>,
) -> Result<Option<Room>> {
    match reserving.await {
        Ok(reserved) => Ok(Some(Box::new(reserved))),
        Err(_) => Err(refusal::responses_unread()),
    }
}

/// Awaits a response for which there is room. One that does not come soon gives its room to others: calls that wait for
/// minutes would hold back all that are answered at once.
pub(super) async fn await_response<T>(room: Room, response: impl Future<Output = T>) -> (T, Option<Room>) {
    let mut response = pin!(response);
    match timeout(ROOM_TIMEOUT, response.as_mut()).await {
        Ok(response) => (response, Some(room)),
        Err(_) => {
            drop(room);
            (response.await, None)
        }
    }
}

/// Time after which a pending response gives its room to others.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);
