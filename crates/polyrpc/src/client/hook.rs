use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::{Call, Metadata, Reply, Status};

use crate::call::RedactedMetadata;
use crate::transport::Address;

/// What a program wants to know of a client's connections, and of each attempt to have a call answered. It implements
/// what it is interested in; the rest does nothing.
///
/// A call may take several attempts, of which its [layers](super::Layer) see nothing. Hooks run in the order in which they
/// were added, in the caller's task or, where it is said so, the connection's; they must not wait. Whatever is to wait is a
/// layer.
///
/// ```
/// use polyrpc::client::{Attempt, Hook};
/// use polyrpc::Status;
///
/// /// Says where calls fail.
/// struct Complaints;
///
/// impl Hook for Complaints {
///     fn attempted(&self, attempt: &Attempt<'_>, failure: Option<&Status>) {
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
    /// A connection is made, with the handshake of TLS behind it, and no call was sent on it yet. rpcx's `ConnCreated` and
    /// `ClientConnected`.
    ///
    /// # Errors
    ///
    /// Why it is not to be used: it is closed, and has failed to be made.
    fn on_connect(&self, _server: &Address) -> Result<(), Status> {
        Ok(())
    }

    /// A connection could not be made. rpcx's `ConnCreateFailed`.
    fn on_connect_error(&self, _server: &Address, _failure: &Status) {}

    /// A connection that was made has ended, in the connection's task. rpcx's `ClientConnectionClose`.
    fn on_close(&self, _server: &Address, _reason: &Status) {}

    /// An attempt begins: there is a connection for it. rpcx's `PreCall`.
    ///
    /// # Errors
    ///
    /// Why the call is not to be made; it ends with this.
    fn on_attempt(&self, _attempt: &Attempt<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// An attempt has ended, and why it failed if it did; one that was given up has failed as
    /// [`Cancelled`](crate::Code::Cancelled). Nothing is said of the end of calls with several messages. rpcx's `PostCall`.
    fn on_attempt_end(&self, _attempt: &Attempt<'_>, _failure: Option<&Status>) {}

    /// The request of an attempt is about to be written, and may be edited. rpcx's `ClientBeforeEncode`, but for
    /// heartbeats.
    fn on_send(&self, _attempt: &Attempt<'_>, _request: &mut OutgoingRequest<'_>) {}

    /// The reply of an attempt was read, and may be edited before it counts. rpcx's `ClientAfterDecode`, but for heartbeats
    /// and for what the server pushes. Replies that come in pieces are not shown.
    fn on_receive(&self, _attempt: &Attempt<'_>, _reply: &mut ReceivedReply<'_>) {}
}

/// One attempt to have a call answered.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The service; empty for a plain function.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// Where the server is.
    pub server: &'a Address,
}

/// What may be edited of a request before it is written.
pub struct OutgoingRequest<'a> {
    /// User fields, metadata, headers.
    pub metadata: &'a mut Metadata,
    /// The encoded message, not compressed yet; empty where messages follow one by one.
    pub body: &'a mut Bytes,
}

impl fmt::Debug for OutgoingRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending")
            .field("metadata", &RedactedMetadata(self.metadata))
            .field("body", &self.body)
            .finish()
    }
}

/// What may be edited of a reply before it counts.
pub struct ReceivedReply<'a> {
    /// User fields, metadata, headers.
    pub metadata: &'a mut Metadata,
    /// The encoded message, compressed as it came, or why there is none.
    pub result: &'a mut Result<Bytes, Status>,
}

impl fmt::Debug for ReceivedReply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("metadata", &RedactedMetadata(self.metadata))
            .field("result", &self.result)
            .finish()
    }
}

/// The hooks of a client. Most clients have none and pay nothing.
#[derive(Clone, Default)]
pub(super) struct Hooks(Option<Arc<[Arc<dyn Hook>]>>);

impl Hooks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// One more behind those there are.
    pub(super) fn add(&mut self, hook: impl Hook) {
        let before = self.0.iter().flat_map(|hooks| hooks.iter().cloned());
        self.0 = Some(before.chain([Arc::new(hook) as Arc<dyn Hook>]).collect());
    }

    pub(super) fn connected(&self, server: &Address) -> Result<(), Status> {
        self.iter().try_for_each(|hook| hook.on_connect(server))
    }

    pub(super) fn connect_failed(&self, server: &Address, failure: &Status) {
        self.iter().for_each(|hook| hook.on_connect_error(server, failure));
    }

    /// An attempt begins with this request.
    fn start<'h>(&'h self, attempt: Attempt<'h>, call: &mut Call<'_>) -> Result<AttemptGuard<'h>, Status> {
        self.iter().try_for_each(|hook| hook.on_attempt(&attempt))?;
        let mut request = OutgoingRequest { metadata: &mut call.head.metadata, body: &mut call.body };
        self.iter().for_each(|hook| hook.on_send(&attempt, &mut request));
        Ok(AttemptGuard { hooks: self, attempt, ended: false })
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<dyn Hook>> {
        self.0.iter().flat_map(|hooks| hooks.iter())
    }
}

/// A connection whose life hooks want to know.
#[derive(Debug, Clone)]
pub(super) struct HookedConnection {
    hooks: Hooks,
    server: Address,
}

impl HookedConnection {
    /// A connection to this server, unless nobody wants to know.
    pub(super) fn new(hooks: &Hooks, server: &Address) -> Option<Self> {
        (!hooks.is_empty()).then(|| Self { hooks: hooks.clone(), server: server.clone() })
    }

    /// It has ended.
    pub(super) fn closed(&self, reason: &Status) {
        for hook in self.hooks.iter() {
            // A hook's panic is no reason to leave callers waiting.
            drop(catch_unwind(AssertUnwindSafe(|| hook.on_close(&self.server, reason))));
        }
    }

    /// A call is about to be sent on it. What is returned is to be told how that ended.
    ///
    /// # Errors
    ///
    /// Why it is not to be sent. There is no call any more then.
    pub(super) fn start<'w, 'c: 'w>(
        &'w self,
        call: &mut Option<Call<'c>>,
    ) -> Result<Option<AttemptGuard<'w>>, Status> {
        let Some(asked) = call else { return Ok(None) };
        let attempt = Attempt { service: asked.service, method: asked.method, server: &self.server };
        let begun = self.hooks.start(attempt, asked);
        if begun.is_err() {
            *call = None;
        }
        begun.map(Some)
    }
}

/// An attempt that has begun. One whose end nobody tells was given up.
pub(super) struct AttemptGuard<'h> {
    hooks: &'h Hooks,
    attempt: Attempt<'h>,
    ended: bool,
}

impl AttemptGuard<'_> {
    /// It has ended so; a one-way call without a reply.
    pub(super) fn finish(mut self, ended: &mut Result<Option<Reply>, Status>) {
        if let Ok(Some(reply)) = ended {
            let mut received =
                ReceivedReply { metadata: &mut reply.head.metadata, result: &mut reply.result };
            self.hooks.iter().for_each(|hook| hook.on_receive(&self.attempt, &mut received));
        }
        self.notify(match ended {
            Ok(Some(reply)) => reply.result.as_ref().err(),
            Ok(None) => None,
            Err(status) => Some(status),
        });
    }

    /// Its end is not told.
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
            self.notify(Some(&Status::cancelled("the attempt was given up")));
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hooks").field(&self.iter().count()).finish()
    }
}
