use std::sync::Arc;

use super::any_connection::AnyConnection;

/// Slot of a call that is never sent.
pub(in crate::client) struct CallSlot {
    connection: Arc<dyn AnyConnection>,
    is_reserved: bool,
}

impl CallSlot {
    pub(in crate::client) fn new(connection: Arc<dyn AnyConnection>) -> Self {
        Self { connection, is_reserved: false }
    }

    pub(in crate::client) fn from_reserved(connection: Arc<dyn AnyConnection>) -> Self {
        Self { connection, is_reserved: true }
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        if self.is_reserved {
            self.connection.release_reserved();
        }
    }
}
