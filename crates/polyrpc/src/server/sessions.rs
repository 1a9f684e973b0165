//! Creates the sessions of a protocol, one for each connection.

use std::marker::PhantomData;
use std::sync::Arc;

use polyrpc_core::session::server::SessionContext;
use polyrpc_core::session::{Handover, Server as Session};

use super::connection::{Connection, ConnectionParts, Driver};

/// Creates the sessions of one protocol, whose type is erased here: one dynamic call per poll drives a connection, and
/// everything within is monomorphic in the type of its session.
pub(super) trait SessionFactory: Send + Sync {
    /// Starts a session on this connection.
    fn start<'a>(&self, parts: ConnectionParts<'a>, handover: Option<Handover>) -> Box<dyn Driver + 'a>;
}

/// Returns a factory of sessions.
pub(super) fn sessions<S, F>(new: F) -> Arc<dyn SessionFactory>
where
    S: Session + Send + 'static,
    F: Fn(&mut SessionContext<'_>) -> S + Send + Sync + 'static,
{
    Arc::new(Sessions { new, session: PhantomData })
}

struct Sessions<S, F> {
    new: F,
    session: PhantomData<fn() -> S>,
}

impl<S, F> SessionFactory for Sessions<S, F>
where
    S: Session + Send + 'static,
    F: Fn(&mut SessionContext<'_>) -> S + Send + Sync,
{
    fn start<'a>(&self, parts: ConnectionParts<'a>, handover: Option<Handover>) -> Box<dyn Driver + 'a> {
        let mut context = SessionContext {
            limits: &parts.listener.limits,
            start: &parts.inbox.bytes,
            is_secured: parts.facts.peer.tls().is_some(),
            handover,
        };
        let session = (self.new)(&mut context);
        Connection::new(parts, session)
    }
}
