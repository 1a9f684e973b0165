//! What makes the sessions of a protocol, one for each connection.

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

/// What a client was set up with, as far as its sessions want to know.
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
    /// What the session may accept.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Credential of the caller, unless a call brings its own.
    pub fn credential(&self) -> Option<&Bytes> {
        self.credential.as_ref()
    }

    /// What the URL has chosen of the protocol.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// The server's name, as the URL has it; `localhost` at a Unix socket.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether connections are within TLS.
    pub fn is_secured(&self) -> bool {
        self.is_secured
    }

    /// The path of the `CONNECT` that the session is to begin with, if the URL asks for one.
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

/// Makes the sessions of one protocol, which is forgotten here: what starts a connection is called through this, and
/// everything within is made for the type of its session.
pub(in crate::client) trait SessionFactory: Send + Sync {
    /// A connection that many callers share.
    fn start(
        &self,
        stream: Stream,
        keepalive: Option<Keepalive>,
        ears: ConnectionListeners,
    ) -> Arc<dyn AnyConnection>;

    /// A connection of one thread.
    fn start_blocking(&self, socket: blocking::Socket) -> Box<dyn blocking::AnyConnection>;

    /// A session alone.
    fn session(&self) -> Box<dyn Session + Send>;
}

/// Sessions that are made so.
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
        ears: ConnectionListeners,
    ) -> Arc<dyn AnyConnection> {
        Connection::start(stream, (self.new)(), keepalive, ears)
    }

    fn start_blocking(&self, socket: blocking::Socket) -> Box<dyn blocking::AnyConnection> {
        Box::new(blocking::Connection::new(socket, (self.new)()))
    }

    fn session(&self) -> Box<dyn Session + Send> {
        Box::new((self.new)())
    }
}
