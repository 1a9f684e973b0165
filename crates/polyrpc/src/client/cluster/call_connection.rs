use std::sync::Arc;

use polyrpc_core::Status;

use super::endpoint_guard::EndpointGuard;
use crate::client::connection::any_connection::AnyConnection;
use crate::client::pool::PooledConnection;

/// A connection lent to one call, and whom to tell how the call went.
pub(in crate::client) struct CallConnection {
    connection: PooledConnection,
    /// If the server is one of several.
    guard: Option<Box<EndpointGuard>>,
}

impl CallConnection {
    /// For a call that is part of this endpoint guard.
    pub(in crate::client) fn with_guard(connection: PooledConnection, visit: Box<EndpointGuard>) -> Self {
        Self { connection, guard: Some(visit) }
    }

    pub(in crate::client) fn link(&self) -> &Arc<dyn AnyConnection> {
        &self.connection.connection
    }

    pub(in crate::client) fn guard(&self) -> Option<&EndpointGuard> {
        self.guard.as_deref()
    }

    /// How the call went, as soon as it is known; only the first time counts.
    pub(in crate::client) fn finish(&self, failure: Option<&Status>) {
        if let Some(visit) = &self.guard {
            visit.finish(failure);
        }
    }
}

/// The server is the only one.
impl From<PooledConnection> for CallConnection {
    fn from(connection: PooledConnection) -> Self {
        Self { connection, guard: None }
    }
}
