use polyrpc_core::Status;

use super::endpoint_guard::EndpointGuard;
use crate::client::connection::call_slot::CallSlot;
use crate::client::pool::PooledConnection;

/// Connection lent to one call, with the guard that records the outcome.
pub(in crate::client) struct CallConnection {
    connection: PooledConnection,
    /// Set if the server is one of several.
    guard: Option<Box<EndpointGuard>>,
}

impl CallConnection {
    /// Creates a connection for a call that holds this endpoint guard.
    pub(in crate::client) fn with_guard(connection: PooledConnection, guard: Box<EndpointGuard>) -> Self {
        Self { connection, guard: Some(guard) }
    }

    pub(in crate::client) fn slot(&self) -> &CallSlot {
        &self.connection.slot
    }

    pub(in crate::client) fn guard(&self) -> Option<&EndpointGuard> {
        self.guard.as_deref()
    }

    /// Records the outcome of the call as soon as it is known; only the first one counts.
    pub(in crate::client) fn finish(&self, failure: Option<&Status>) {
        if let Some(guard) = &self.guard {
            guard.finish(failure);
        }
    }
}

/// Used if there is only one server.
impl From<PooledConnection> for CallConnection {
    fn from(connection: PooledConnection) -> Self {
        Self { connection, guard: None }
    }
}
