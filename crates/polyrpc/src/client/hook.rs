use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::{Call, Metadata, Reply, Status};

use crate::transport::Address;

/// Observer of a client's connections and of each attempt of a call. All methods have empty defaults.
///
/// A call may take several attempts, which its [layers](super::Layer) do not see. Hooks run in the order in which they
/// were added, in the caller's task or, where stated, in the connection's; they must not block. Use a layer for
/// anything that waits.
///
/// ```
/// use polyrpc::client::{Attempt, Hook};
/// use polyrpc::Status;
///
/// /// Reports which calls fail.
/// struct Complaints;
///
/// impl Hook for Complaints {
///     fn on_attempt_end(&self, attempt: &Attempt<'_>, failure: Option<&Status>) {
///         if let Some(failure) = failure {
///             eprintln!("{}/{} at {}: {failure}", attempt.service, attempt.method, attempt.server);
///         }
///     }
/// }
///
/// # fn main() -> polyrpc::Result<()> {
/// let client = polyrpc::Client::builder("rpcx://127.0.0.1:8972").hook(Complaints).build()?;
/// # Ok(())
/// # }
/// ```
pub trait Hook: Send + Sync + 'static {
    /// A connection was established, including the TLS handshake, and no call was sent on it yet. rpcx's `ConnCreated`
    /// and `ClientConnected`.
    ///
    /// # Errors
    ///
    /// A reason not to use it: it is closed, and the connect counts as failed.
    fn on_connect(&self, _server: &Address) -> Result<(), Status> {
        Ok(())
    }

    /// A connection could not be established. rpcx's `ConnCreateFailed`.
    fn on_connect_error(&self, _server: &Address, _failure: &Status) {}

    /// An established connection has ended; runs in the connection's task. rpcx's `ClientConnectionClose`.
    fn on_close(&self, _server: &Address, _reason: &Status) {}

    /// An attempt starts: there is a connection for it. rpcx's `PreCall`.
    ///
    /// # Errors
    ///
    /// A reason not to make the call, which ends with this.
    fn on_attempt(&self, _attempt: &Attempt<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// An attempt has ended; `failure` is the reason if it failed. A cancelled attempt has failed with
    /// [`Cancelled`](crate::Code::Cancelled). The end of streaming calls is not reported. rpcx's `PostCall`.
    fn on_attempt_end(&self, _attempt: &Attempt<'_>, _failure: Option<&Status>) {}

    /// The request of an attempt is about to be written, and may be edited: its metadata (user fields, headers), and
    /// its encoded message before compression, which is empty for streaming messages. rpcx's `ClientBeforeEncode`,
    /// except for heartbeats.
    fn on_send(&self, _attempt: &Attempt<'_>, _metadata: &mut Metadata, _body: &mut Bytes) {}

    /// The reply of an attempt was read, and may be edited before it is used: its metadata (user fields, headers), and
    /// its encoded message, still compressed, or the failure. rpcx's `ClientAfterDecode`, except for heartbeats and
    /// pushed messages. Streaming replies are not passed.
    fn on_receive(
        &self,
        _attempt: &Attempt<'_>,
        _metadata: &mut Metadata,
        _result: &mut Result<Bytes, Status>,
    ) {
    }
}

/// One attempt of a call.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Attempt<'a> {
    /// Service name; empty for a plain function.
    pub service: &'a str,
    /// Name of the method or function.
    pub method: &'a str,
    /// Address of the server.
    pub server: &'a Address,
}

/// Hooks of a client. A client without hooks has no overhead.
#[derive(Clone, Default)]
pub(super) struct Hooks(Option<Arc<[Arc<dyn Hook>]>>);

impl Hooks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Appends a hook.
    pub(super) fn add(&mut self, hook: impl Hook) {
        let before = self.0.iter().flat_map(|hooks| hooks.iter().cloned());
        self.0 = Some(before.chain([Arc::new(hook) as Arc<dyn Hook>]).collect());
    }

    pub(super) fn on_connect(&self, server: &Address) -> Result<(), Status> {
        self.iter().try_for_each(|hook| hook.on_connect(server))
    }

    pub(super) fn on_connect_error(&self, server: &Address, failure: &Status) {
        self.iter().for_each(|hook| hook.on_connect_error(server, failure));
    }

    /// Starts an attempt with this request.
    fn start<'h>(&'h self, attempt: Attempt<'h>, call: &mut Call<'_>) -> Result<AttemptGuard<'h>, Status> {
        self.iter().try_for_each(|hook| hook.on_attempt(&attempt))?;
        self.iter().for_each(|hook| hook.on_send(&attempt, &mut call.head.metadata, &mut call.body));
        Ok(AttemptGuard { hooks: self, attempt, ended: false })
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<dyn Hook>> {
        self.0.iter().flat_map(|hooks| hooks.iter())
    }
}

/// Connection whose events are reported to hooks.
#[derive(Debug, Clone)]
pub(super) struct HookedConnection {
    hooks: Hooks,
    server: Address,
}

impl HookedConnection {
    /// Creates the reporter of a connection to this server, unless there are no hooks.
    pub(super) fn new(hooks: &Hooks, server: &Address) -> Option<Self> {
        (!hooks.is_empty()).then(|| Self { hooks: hooks.clone(), server: server.clone() })
    }

    /// Reports the end of the connection.
    pub(super) fn on_close(&self, reason: &Status) {
        for hook in self.hooks.iter() {
            // A hook's panic must not leave callers waiting.
            drop(catch_unwind(AssertUnwindSafe(|| hook.on_close(&self.server, reason))));
        }
    }

    /// Reports a call that is about to be sent. The returned guard reports its end.
    ///
    /// # Errors
    ///
    /// A hook's reason not to send it. The call is consumed in this case.
    pub(super) fn start<'w, 'c: 'w>(
        &'w self,
        call: &mut Option<Call<'c>>,
    ) -> Result<Option<AttemptGuard<'w>>, Status> {
        let Some(call_facts) = call else { return Ok(None) };
        let attempt =
            Attempt { service: call_facts.service, method: call_facts.method, server: &self.server };
        let begun = self.hooks.start(attempt, call_facts);
        if begun.is_err() {
            *call = None;
        }
        begun.map(Some)
    }
}

/// Attempt in progress. If its end is not recorded, it counts as cancelled.
pub(super) struct AttemptGuard<'h> {
    hooks: &'h Hooks,
    attempt: Attempt<'h>,
    ended: bool,
}

impl AttemptGuard<'_> {
    /// Records the end; a one-way call ends without a reply.
    pub(super) fn finish(mut self, ended: &mut Result<Option<Reply>, Status>) {
        if let Ok(Some(reply)) = ended {
            let (metadata, result) = (&mut reply.head.metadata, &mut reply.result);
            self.hooks.iter().for_each(|hook| hook.on_receive(&self.attempt, metadata, result));
        }
        self.notify(match ended {
            Ok(Some(reply)) => reply.result.as_ref().err(),
            Ok(None) => None,
            Err(status) => Some(status),
        });
    }

    /// Drops the guard without reporting the end.
    pub(super) fn forget(mut self) {
        self.ended = true;
    }

    fn notify(&mut self, failure: Option<&Status>) {
        self.ended = true;
        self.hooks.iter().for_each(|hook| hook.on_attempt_end(&self.attempt, failure));
    }
}

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.notify(Some(&Status::cancelled("the attempt was cancelled")));
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hooks").field(&self.iter().count()).finish()
    }
}
