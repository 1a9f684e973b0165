use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyrpc_console::vars::Counter;
use polyrpc_core::Push;

/// Counts messages that servers push (rpcx). They belong to no call, so there is no caller to forward them to.
#[derive(Debug, Clone)]
pub(super) struct DroppedPushes(Arc<DropCounter>);

#[derive(Debug)]
struct DropCounter {
    upstream: String,
    count: Counter,
    is_logged: AtomicBool,
}

impl DroppedPushes {
    pub(super) fn new(upstream: &str, count: Counter) -> Self {
        Self(Arc::new(DropCounter {
            upstream: upstream.to_owned(),
            count,
            is_logged: AtomicBool::new(false),
        }))
    }

    /// Counts a message and logs the first one.
    pub(super) fn count(&self, push: &Push) {
        let DropCounter { upstream, count, is_logged } = &*self.0;
        count.add(1);
        if !is_logged.swap(true, Ordering::Relaxed) {
            let (service, method) = (&push.service, &push.method);
            tracing::warn!(
                target: "polyrpc_gateway",
                upstream, service, method,
                "a server pushed a message that belongs to no call: such messages are dropped"
            );
        }
    }
}
