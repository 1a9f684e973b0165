use std::sync::Arc;

use polyrpc_core::Status;

use super::visit::Visit;
use crate::client::connection::link::Link;
use crate::client::pool::PooledConnection;

/// A connection lent to one call, and whom to tell how the call went.
pub(in crate::client) struct Lease {
    connection: PooledConnection,
    /// If the server is one of several.
    visit: Option<Box<Visit>>,
}

impl Lease {
    /// For a call that is part of this visit.
    pub(in crate::client) fn of(connection: PooledConnection, visit: Box<Visit>) -> Self {
        Self { connection, visit: Some(visit) }
    }

    pub(in crate::client) fn link(&self) -> &Arc<dyn Link> {
        &self.connection.link
    }

    pub(in crate::client) fn visit(&self) -> Option<&Visit> {
        self.visit.as_deref()
    }

    /// How the call went, as soon as it is known; only the first time counts.
    pub(in crate::client) fn end(&self, failure: Option<&Status>) {
        if let Some(visit) = &self.visit {
            visit.end(failure);
        }
    }
}

/// The server is the only one.
impl From<PooledConnection> for Lease {
    fn from(connection: PooledConnection) -> Self {
        Self { connection, visit: None }
    }
}
