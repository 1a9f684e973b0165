use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use polyrpc_core::{Call, Push, Status};
use polyrpc_wire::Protocol;

use crate::call::{Connection, ConnectionFacts, Peer};
use crate::layer::hook::{AnsweredCall, Hook, IncomingCall};
use crate::service::Router;

/// The hooks of a server.
#[derive(Clone, Default)]
pub(super) struct HookChain(Arc<Vec<Box<dyn Hook>>>);

impl HookChain {
    pub(super) fn new(hooks: Vec<Box<dyn Hook>>) -> Self {
        Self(Arc::new(hooks))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notifies the hooks of all services.
    pub(super) fn on_register(&self, router: &Router) -> Result<(), Status> {
        if self.is_empty() {
            return Ok(());
        }
        let services = router.list();
        services
            .iter()
            .try_for_each(|(service, methods)| self.call_hooks(|hook| hook.on_register(service, methods)).1)
    }

    /// Notifies the hooks that the services are no longer available.
    pub(super) fn on_unregister(&self, router: &Router) {
        if self.is_empty() {
            return;
        }
        router.list().iter().for_each(|(service, _)| self.notify(|hook| hook.on_unregister(service)));
    }

    /// Notifies the hooks of a connection. Returns how many have accepted it, and whether all have accepted.
    pub(super) fn on_accept(&self, connection: &Connection) -> (usize, Result<(), Status>) {
        self.call_hooks(|hook| hook.on_accept(connection))
    }

    /// Notifies the first `accepted` hooks of the end of a connection.
    pub(super) fn on_close(&self, accepted: usize, connection: &Connection) {
        self.0.iter().take(accepted).for_each(|hook| catch_panic(|| hook.on_close(connection)));
    }

    /// Passes a call to the hooks and applies their changes.
    pub(super) fn on_request<'c>(
        &self,
        call: &mut Call<'c>,
        caller: &ConnectionFacts,
        renamed: &'c mut RedirectedNames,
    ) -> Result<(), Status> {
        let mut received = IncomingCall {
            service: Cow::Borrowed(call.service),
            method: Cow::Borrowed(call.method),
            bytes: call.body.len() + call.attachment.len(),
            metadata: &mut call.head.metadata,
            credential: call.credential.bytes().map(|credential| &credential[..]),
            timeout: call.timeout,
            oneway: call.oneway,
            connection_id: caller.id,
            protocol: caller.protocol,
            peer: &caller.peer,
        };
        let result = self.call_hooks(|hook| hook.on_request(&mut received)).1;
        let names = (received.service, received.method);
        if let (Cow::Owned(service), Cow::Owned(method)) = names {
            let (service, method) = &**renamed.0.insert(Box::new((service, method)));
            (call.service, call.method) = (service, method);
        }
        result
    }

    pub(super) fn heartbeat(&self, peer: &Peer, protocol: Protocol) {
        self.notify(|hook| hook.on_heartbeat(peer, protocol));
    }

    pub(super) fn on_response(&self, answered: &AnsweredCall<'_>) {
        self.notify(|hook| hook.on_response(answered));
    }

    pub(super) fn on_push(&self, peer: &Peer, push: &Push) {
        self.notify(|hook| hook.on_push(peer, push));
    }

    fn notify(&self, event: impl Fn(&dyn Hook)) {
        self.0.iter().for_each(|hook| catch_panic(|| event(&**hook)));
    }

    /// Calls the hooks in order, up to the first that rejects. Returns how many accepted.
    fn call_hooks(
        &self,
        mut hook_call: impl FnMut(&dyn Hook) -> Result<(), Status>,
    ) -> (usize, Result<(), Status>) {
        for (agreed, hook) in self.0.iter().enumerate() {
            let answer = catch_unwind(AssertUnwindSafe(|| hook_call(&**hook)));
            if let Err(status) = answer.unwrap_or_else(|_| Err(Status::internal("a hook panicked"))) {
                return (agreed, Err(status));
            }
        }
        (self.0.len(), Ok(()))
    }
}

/// A hook's panic in a notification is ignored.
fn catch_panic(event: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(event));
}

impl fmt::Debug for HookChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookChain").field(&self.0.len()).finish()
    }
}

/// Service and method names to which hooks have redirected a call.
#[derive(Debug, Default)]
pub(super) struct RedirectedNames(Option<Box<(String, String)>>);
