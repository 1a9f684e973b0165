//! What makes the sessions of a protocol, one for each connection that speaks it.

use std::marker::PhantomData;
use std::sync::Arc;

use polyrpc_core::Limits;
use polyrpc_core::session::{Handover, Server as Session};

use super::connection::{Connection, Driver, SessionContext};

/// What is known of a connection when its session is made.
#[derive(Debug)]
pub struct SessionContext<'a> {
    limits: &'a Limits,
    start: &'a [u8],
    is_secured: bool,
    handover: Option<Handover>,
}

impl<'a> SessionContext<'a> {
    /// What the session may accept.
    pub fn limits(&self) -> &'a Limits {
        self.limits
    }

    /// The bytes by which the protocol was recognised. They come with the first
    /// [`next_event`](polyrpc_core::session::Server::next_event) again.
    pub fn start(&self) -> &'a [u8] {
        self.start
    }

    /// Whether it is within TLS.
    pub fn is_secured(&self) -> bool {
        self.is_secured
    }

    /// What the session before has left, in whose stead this one goes on.
    pub(super) fn handover<T: 'static>(&mut self) -> Option<T> {
        self.handover.take()?.downcast()
    }
}

/// Makes the sessions of one protocol, which is forgotten here: a connection is driven by one call through this each time
/// it is polled, and everything within is made for the type of its session.
pub(super) trait SessionFactory: Send + Sync {
    /// A session on this connection.
    fn start<'a>(&self, link: SessionContext<'a>, handover: Option<Handover>) -> Box<dyn Driver + 'a>;
}

/// Sessions that are made so.
pub(super) fn sessions<S, F>(new: F) -> Arc<dyn SessionFactory>
where
    S: Session + Send + 'static,
    F: Fn(&mut SessionContext<'_>) -> S + Send + Sync + 'static,
{
    Arc::new(Sessions { new, made: PhantomData })
}

struct Sessions<S, F> {
    new: F,
    made: PhantomData<fn() -> S>,
}

impl<S, F> SessionFactory for Sessions<S, F>
where
    S: Session + Send + 'static,
    F: Fn(&mut SessionContext<'_>) -> S + Send + Sync,
{
    fn start<'a>(&self, link: SessionContext<'a>, handover: Option<Handover>) -> Box<dyn Driver + 'a> {
        let mut context = SessionContext {
            limits: &link.port.limits,
            start: &link.inbox.bytes,
            is_secured: link.facts.peer.tls().is_some(),
            handover,
        };
        let session = (self.new)(&mut context);
        Connection::new(link, session)
    }
}
