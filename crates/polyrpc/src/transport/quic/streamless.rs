use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quinn::{Connection, VarInt};

/// Connections whose client has not opened its stream, the oldest first.
///
/// A client that has nothing to send yet cannot be distinguished from one that never will. If there are too many, the
/// oldest is closed, so that they do not keep other clients out.
#[derive(Debug, Default)]
pub(super) struct Streamless(Mutex<VecDeque<Connection>>);

impl Streamless {
    /// Adds a connection.
    pub(super) fn enter(&self, connection: Connection) {
        let mut waiting = self.lock();
        waiting.push_back(connection);
        let oldest = if waiting.len() > MAX_STREAMLESS { waiting.pop_front() } else { None };
        drop(waiting);
        if let Some(oldest) = oldest {
            close(&oldest);
        }
    }

    /// Removes a connection that has a stream, or has ended.
    pub(super) fn leave(&self, connection: &Connection) {
        self.lock().retain(|waiting| waiting.stable_id() != connection.stable_id());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a connection without a stream.
pub(super) fn close(connection: &Connection) {
    connection.close(VarInt::from_u32(0), b"no stream was opened");
}

/// Maximum number of connections without a stream.
const MAX_STREAMLESS: usize = 1024;
