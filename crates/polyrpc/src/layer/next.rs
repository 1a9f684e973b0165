//! The next step inside a layer.

use std::fmt;
use std::sync::Arc;

use super::{Call, Layer};
use crate::call::Target;
use crate::call::{Outcome, ResponseFuture};

/// The next step inside a layer: the layers that were added after it, and the method, or the connection to the
/// server.
///
/// ```text
///   call ─▶ first layer ─▶ second layer ─▶ method, or server
///                 ◀─ outcome ─   ◀─ outcome ─
/// ```
pub struct Next {
    /// How many layers the call has passed.
    passed: usize,
    innermost: Box<dyn Innermost>,
}

/// The innermost step of a call behind all layers: a method, or the connection to the server. Only calls that have
/// layers pay for the box.
pub(crate) trait Innermost: Send {
    /// Returns the layers around it, outermost first.
    fn layers(&self) -> &[Arc<dyn Erased>];

    fn call(self: Box<Self>, call: Call) -> ResponseFuture;

    /// Clones it, if it can handle several calls.
    fn try_clone(&self) -> Option<Box<dyn Innermost>> {
        None
    }

    /// Returns whether it runs on a thread that it may block.
    fn is_blocking(&self) -> bool {
        false
    }

    /// On a client: returns the target for telemetry.
    fn target(&self) -> Option<&Target> {
        None
    }
}

/// A layer whose type is erased.
pub(crate) trait Erased: Send + Sync {
    fn call(self: Arc<Self>, call: Call, next: Next) -> ResponseFuture;
}

impl<L: Layer> Erased for L {
    fn call(self: Arc<Self>, call: Call, next: Next) -> ResponseFuture {
        Box::pin(Layer::call(self, call, next))
    }
}

impl Next {
    /// Creates the whole chain.
    pub(crate) fn new(innermost: impl Innermost + 'static) -> Self {
        Self { passed: 0, innermost: Box::new(innermost) }
    }

    /// Continues the call. Dropping the future cancels the call; the server may have started it.
    pub fn call(self, call: Call) -> impl Future<Output = Outcome> + Send + Unpin + 'static {
        self.run(call)
    }

    pub(crate) fn run(mut self, call: Call) -> ResponseFuture {
        match self.innermost.layers().get(self.passed).cloned() {
            Some(layer) => {
                self.passed += 1;
                layer.call(call, self)
            }
            None => self.innermost.call(call),
        }
    }

    /// Clones the rest of the chain, to make a [cloned call](Call::try_clone) again; `None` on a server, and for streaming
    /// calls.
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self { passed: self.passed, innermost: self.innermost.try_clone()? })
    }

    /// Returns whether the called method runs on a thread that it may block.
    pub fn is_blocking(&self) -> bool {
        self.innermost.is_blocking()
    }

    /// On a client: returns the target of its URL, as OpenTelemetry's `server.address` and `server.port` want it: host and
    /// port, the path of a Unix socket, or the URL of a registry without its password. With a registry it is not the
    /// server that the call goes to. `None` on a server.
    pub fn target(&self) -> Option<(&str, Option<u16>)> {
        self.innermost.target().map(|target| (&*target.address, target.port))
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.innermost.layers().len().saturating_sub(self.passed);
        f.debug_struct("Next").field("layers", &layers).finish_non_exhaustive()
    }
}
