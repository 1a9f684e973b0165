use std::sync::Arc;

use super::{CallEnd, CallStart};
use crate::propagation::CallTrace;

/// Selects calls to record, among those that [`Metrics`](super::Metrics) counts, and records them. It shares the
/// observation of a call with the metrics, so that an unrecorded call costs little more than being counted.
pub trait CallTracer: Send + Sync + 'static {
    /// Called when a call starts; returns its record, or `None` if it is not recorded.
    fn start(&self, call: &CallStart<'_>) -> Option<Arc<dyn CallTrace>>;

    /// Called when an unrecorded call has ended: it may have turned out to be slow, or have failed.
    fn end_unrecorded(&self, call: &CallStart<'_>, end: &CallEnd<'_>);
}
