//! Creates the sessions of a protocol, one for each connection.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use polyrpc_core::Limits;
use polyrpc_core::protocol::Dialect;
use polyrpc_core::session::Client as Session;
use polyrpc_wire::rpcx::Compressors;

use super::any_connection::AnyConnection;
use super::blocking;
use super::keepalive::Keepalive;
use super::{Connection, ConnectionListeners};
use crate::call::redacted;
use crate::transport::Stream;

/// The configuration of a client that its sessions need.
#[derive(Clone)]
pub struct SessionContext {
    pub(in crate::client) limits: Limits,
    pub(in crate::client) credential: Option<Bytes>,
    pub(in crate::client) dialect: Dialect,
    pub(in crate::client) authority: String,
    pub(in crate::client) is_secured: bool,
    pub(in crate::client) connect: Option<String>,
    pub(in crate::client) compressors: Compressors,
}

impl SessionContext {
    /// Returns the limits for the session.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the credential of the caller, which is used by calls without one of their own.
    pub fn credential(&self) -> Option<&Bytes> {
        self.credential.as_ref()
    }

    /// Returns the dialect of the protocol that the URL selects.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Returns the server's name from the URL; `localhost` for a Unix socket.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether connections use TLS.
    pub fn is_secured(&self) -> bool {
        self.is_secured
    }

    /// Returns the path of the `CONNECT` that the session must start with, if the URL requests one.
    pub fn connect(&self) -> Option<&str> {
        self.connect.as_deref()
    }
}

impl fmt::Debug for SessionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionContext")
            .field("limits", &self.limits)
            .field("credential", &redacted(self.credential.as_ref()))
            .field("dialect", &self.dialect)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

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
