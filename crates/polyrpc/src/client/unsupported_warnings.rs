//! Warnings about call options that a protocol does not support.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyrpc_core::Call;
use polyrpc_wire::Protocol;

use crate::propagation::CallScope;

/// Logs once per client which data does not reach its servers, without failing the call. Options that a call sets
/// explicitly (attachments, credentials, metadata) are rejected by the session instead.
#[derive(Debug, Clone)]
pub(super) struct UnsupportedWarnings(Arc<WarnedOnce>);

#[derive(Debug)]
struct WarnedOnce {
    protocol: Protocol,
    deadline: AtomicBool,
    trace: AtomicBool,
}

impl UnsupportedWarnings {
    /// Returns `None` if the protocol supports everything.
    pub(super) fn new(protocol: Protocol) -> Option<Self> {
        let can = protocol.descriptor().capabilities;
        if can.deadline && can.carries_metadata() {
            return None;
        }
        // Supported options need no warning.
        let warned =
            WarnedOnce { protocol, deadline: can.deadline.into(), trace: can.carries_metadata().into() };
        Some(Self(Arc::new(warned)))
    }

    /// Logs the unsupported options of a call about to be sent.
    #[cold]
    pub(super) fn warn_unsupported(&self, call: &Call<'_>, inherited: &CallScope) {
        let warned = &*self.0;
        let protocol = warned.protocol.as_str();
        if call.timeout.is_some() && !warned.deadline.swap(true, Ordering::Relaxed) {
            tracing::info!(
                protocol,
                "this protocol carries no deadlines: the client enforces them, and the server only its own limit"
            );
        }
        if inherited.trace().is_some() && !warned.trace.swap(true, Ordering::Relaxed) {
            tracing::warn!(protocol, "this protocol carries no trace context: traces end here");
        }
    }
}
