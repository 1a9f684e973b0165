//! The order in which connections make room for others.

use std::fmt;

/// A connection, as its transport sees it when it must make room for another one.
#[cfg_attr(not(feature = "kcp"), allow(dead_code, reason = "only KCP limits its connections itself"))]
pub(crate) trait Evictable: fmt::Debug + Send + Sync {
    /// Returns its class, and the time since which it is in it: the smaller, the longer.
    fn eviction(&self) -> (EvictionClass, u32);

    /// Closes it to make room, and counts that.
    fn evict(&self);
}

/// The state of a connection, in the order of eviction. A connection up to `Stuck` is evicted for any new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(feature = "kcp"), allow(dead_code, reason = "only KCP keeps closed conversations"))]
pub(crate) enum EvictionClass {
    /// It is closed, and only kept for late datagrams.
    Closed,
    /// Its peer has sent nothing yet, or no valid credential where one is needed.
    Unproven,
    /// Nothing has been in flight for a while.
    Idle,
    /// The rest of a message has not arrived for a while.
    Late,
    /// No call is in flight, and nothing was received or sent for a while.
    Still,
    /// Calls are in flight, and nothing was received or sent for a long time.
    Stuck,
    /// No call is in flight.
    Active,
    /// Calls are in flight.
    Calling,
}
