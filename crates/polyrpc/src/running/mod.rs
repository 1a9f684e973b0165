//! Calls in flight and the polls of their handlers, while a [watch](watch_calls) exists.
//!
//! A thread that polls a call of a server marks its [cell] with the call: a few stores, without a clock. Most calls end
//! with their first poll; only one that has to wait is entered in the [registry]. For profilers, its stack has a
//! [label].

mod cell;

mod registry;

mod label;

mod tracked;

mod carried_label;

use std::time::Duration;

use crate::call::Peer;
use crate::layer::Side;

pub use self::cell::{RunningPoll, current_polls};
pub(crate) use self::label::find_label;
pub use self::label::{is_stack_label, label_stacks};
pub use self::registry::watch_calls;

pub(crate) use self::carried_label::CarriedLabel;
pub(crate) use self::registry::{Entry, entries, is_watched};
pub(crate) use self::tracked::TrackedCall;

/// A call in flight: see [`Metrics::calls_in_flight`](crate::layers::Metrics::calls_in_flight).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunningCall {
    /// The side on which it was observed.
    pub side: Side,
    /// Name of the protocol that carries it.
    pub protocol: &'static str,
    /// The service; empty for plain functions.
    pub service: String,
    /// The method, or the function's name.
    pub method: String,
    /// The caller; `None` on a client.
    pub peer: Option<Peer>,
    /// Time since it started; `None` if it has not had to wait yet.
    pub age: Option<Duration>,
    /// The current poll of its handler; `None` while it waits.
    pub poll: Option<RunningPoll>,
}

/// Identifies a method of one of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    /// The number of the metrics.
    pub(crate) metrics: u32,
    /// Index of the method's series.
    pub(crate) series: u32,
}

impl CallKey {
    fn to_bits(self) -> u64 {
        u64::from(self.metrics) << 32 | u64::from(self.series)
    }

    fn from_bits(bits: u64) -> Self {
        Self { metrics: (bits >> 32) as u32, series: bits as u32 }
    }
}
