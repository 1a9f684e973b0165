//! Creates the sessions of a protocol, one for each connection.

use std::marker::PhantomData;
use std::sync::Arc;

use polyrpc_core::session::Client as Session;

use super::any_connection::AnyConnection;
use super::blocking;
use super::keepalive::Keepalive;
use super::{Connection, ConnectionListeners};
use crate::transport::Stream;

/// Creates the sessions of one protocol, whose type is erased here: connections are started through this trait, and
/// everything within is monomorphic in the type of its session.
pub(in crate::client) trait SessionFactory: Send + Sync {
    /// Starts a connection that many callers share.
    fn start(
        &self,
        stream: Stream,
        keepalive: Option<Keepalive>,
        listeners: ConnectionListeners,
    ) -> Arc<dyn AnyConnection>;

    /// Starts a connection for a single thread.
    fn start_blocking(&self, socket: blocking::Socket) -> Box<dyn blocking::AnyConnection>;

    /// Creates a session without a connection.
    fn session(&self) -> Box<dyn Session + Send>;
}

/// Returns a factory of sessions.
pub(in crate::client) fn sessions<S, F>(new: F) -> Arc<dyn SessionFactory>
where
    S: Session + Send + 'static,
    F: Fn() -> S + Send + Sync + 'static,
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
    F: Fn() -> S + Send + Sync,
{
    fn start(
        &self,
        stream: Stream,
        keepalive: Option<Keepalive>,
        listeners: ConnectionListeners,
    ) -> Arc<dyn AnyConnection> {
        Connection::start(stream, (self.new)(), keepalive, listeners)
    }

    fn start_blocking(&self, socket: blocking::Socket) -> Box<dyn blocking::AnyConnection> {
        Box::new(blocking::Connection::new(socket, (self.new)()))
    }

    fn session(&self) -> Box<dyn Session + Send> {
        Box::new((self.new)())
    }
}
