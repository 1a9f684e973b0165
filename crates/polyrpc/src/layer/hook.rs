//! Notifications of a server's connections and calls, and the decisions that can be made at those points.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use polyrpc_core::{Metadata, Push, Status};
use polyrpc_wire::Protocol;

use crate::call::{Connection, Peer};

/// Observer of a server's events, which may reject some: the points at which rpcx's server calls its plugins.
///
/// Every method does nothing by default. All hooks of a server are called, in the order in which they were
/// [added](crate::Server::hook); the first rejection ends the chain. Hooks run on the task of the connection or of
/// the listener, and must not block. A panic counts as a rejection where the hook can reject, and is ignored
/// elsewhere.
///
/// They observe the user's calls, including [file transfer](crate::transfer), but not introspection of the server
/// itself: health, reflection, pages. Probes are answered regardless of hooks; the listener's
/// [authenticator](crate::server::Listen::authenticate) controls access to them.
///
/// Code around a method, with access to the request and the response, is a [`Layer`](crate::layer::Layer) (rpcx's
/// `PreHandleRequest`, `PreCall`, `PostCall` and `PreWriteResponse`). A server without hooks does no work for them.
///
/// ```
/// use polyrpc::server::{AnsweredCall, Hook, IncomingCall};
/// use polyrpc::{Server, Status};
///
/// /// Maps old names of methods to new ones, and reports slow calls.
/// struct LegacyNames;
///
/// impl Hook for LegacyNames {
///     fn on_request(&self, call: &mut IncomingCall<'_>) -> Result<(), Status> {
///         if call.service() == "Arithmetic" {
///             let method = call.method().to_owned();
///             call.redirect("Arith", method);
///         }
///         Ok(())
///     }
///
///     fn on_response(&self, call: &AnsweredCall<'_>) {
///         if call.duration.as_millis() > 100 {
///             println!("{}/{} took {:?}", call.service, call.method, call.duration);
///         }
///     }
/// }
///
/// let server = Server::new().hook(LegacyNames);
/// ```
pub trait Hook: Send + Sync + 'static {
    /// Called when the server binds, for each service with its methods, including the standard services; functions are
    /// under the empty name (rpcx `Register`, `RegisterFunction`).
    ///
    /// # Errors
    ///
    /// The server does not listen: [`bind`](crate::Server::bind) fails with this error.
    fn on_register(&self, _service: &str, _methods: &[String]) -> Result<(), Status> {
        Ok(())
    }

    /// Called for each service when the server [shuts down](crate::server::ServerHandle::shutdown) (rpcx `Unregister`).
    fn on_unregister(&self, _service: &str) {}

    /// Called when a connection was accepted (rpcx `HandleConnAccept`). No byte of it was read yet, and the TLS
    /// handshake is not done.
    ///
    /// # Errors
    ///
    /// Rejects the connection. It is closed at once: there is no protocol yet in which to send the error.
    fn on_accept(&self, _connection: &Connection) -> Result<(), Status> {
        Ok(())
    }

    /// Called when a connection was closed that this hook had accepted, with its counters (rpcx `HandleConnClose`).
    fn on_close(&self, _connection: &Connection) {}

    /// Called when a call was read, before its credential is checked and its method looked up (rpcx `PostReadRequest`,
    /// `PostReadRequestHeader`).
    ///
    /// # Errors
    ///
    /// Rejects the call. An error of [`Scope::Connection`](polyrpc_core::Scope::Connection) is sent as a rejected
    /// credential, which in most protocols closes the connection.
    fn on_request(&self, _call: &mut IncomingCall<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Called when a call was answered: its response is on its way to the socket (rpcx `PostWriteResponse`). Called
    /// once for each [received](Self::on_request) call, including rejected and cancelled ones.
    fn on_response(&self, _call: &AnsweredCall<'_>) {}

    /// Called when a peer's heartbeat was answered (rpcx `HeartbeatRequest`).
    fn on_heartbeat(&self, _peer: &Peer, _protocol: Protocol) {}

    /// Called when a message that no call requested is on its way to the socket (rpcx `PostWriteRequest`).
    fn on_push(&self, _peer: &Peer, _push: &Push) {}
}

/// A shared hook.
impl<H: Hook + ?Sized> Hook for Arc<H> {
    fn on_register(&self, service: &str, methods: &[String]) -> Result<(), Status> {
        (**self).on_register(service, methods)
    }

    fn on_unregister(&self, service: &str) {
        (**self).on_unregister(service);
    }

    fn on_accept(&self, connection: &Connection) -> Result<(), Status> {
        (**self).on_accept(connection)
    }

    fn on_close(&self, connection: &Connection) {
        (**self).on_close(connection);
    }

    fn on_request(&self, call: &mut IncomingCall<'_>) -> Result<(), Status> {
        (**self).on_request(call)
    }

    fn on_response(&self, call: &AnsweredCall<'_>) {
        (**self).on_response(call);
    }

    fn on_heartbeat(&self, peer: &Peer, protocol: Protocol) {
        (**self).on_heartbeat(peer, protocol);
    }

    fn on_push(&self, peer: &Peer, push: &Push) {
        (**self).on_push(peer, push);
    }
}

/// A call that was read.
#[derive(Debug)]
pub struct IncomingCall<'a> {
    pub(crate) service: Cow<'a, str>,
    pub(crate) method: Cow<'a, str>,
    pub(crate) metadata: &'a mut Metadata,
    pub(crate) credential: Option<&'a [u8]>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) oneway: bool,
    pub(crate) bytes: usize,
    pub(crate) connection_id: u64,
    pub(crate) protocol: Protocol,
    pub(crate) peer: &'a Peer,
}

impl IncomingCall<'_> {
    /// Returns the requested service, as the caller wrote it; empty for a function in protocols without services.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns the requested method or function, as the caller wrote it.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Redirects the call to another method.
    pub fn redirect(&mut self, service: impl Into<String>, method: impl Into<String>) {
        self.service = Cow::Owned(service.into());
        self.method = Cow::Owned(method.into());
    }

    /// Returns the metadata that precede the request.
    pub fn metadata(&self) -> &Metadata {
        self.metadata
    }

    /// Returns the mutable metadata, to change before layers and the handler see them.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.metadata
    }

    /// Returns the credential, not checked yet.
    pub fn credential(&self) -> Option<&[u8]> {
        self.credential
    }

    /// Returns the caller's timeout, if it sent one.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns whether the caller expects no response.
    pub fn oneway(&self) -> bool {
        self.oneway
    }

    /// Returns the size of the request as received, including its attachment; 0 if it streams its messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the id of the caller's connection, unique among all connections of the server.
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// Returns the protocol of the call.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the caller.
    pub fn peer(&self) -> &Peer {
        self.peer
    }
}

/// A call that was answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct AnsweredCall<'a> {
    /// The service, by its full name on the server; as the caller wrote it if
    /// [`method_found`](Self::method_found) is false.
    pub service: &'a str,
    /// The method, or the function; as the caller wrote it if [`method_found`](Self::method_found) is false.
    pub method: &'a str,
    /// Whether the method was found. If not, the caller chose the names, and their number is unbounded.
    pub method_found: bool,
    /// Why the call failed. `None` if it did not, or if the connection is closed instead of a response.
    pub failure: Option<&'a Status>,
    /// Time from reading the request to writing the response.
    pub duration: Duration,
    /// Size of the request as received, including its attachment; 0 if it streamed its messages.
    pub request_bytes: usize,
    /// Size of the response before compression, including its attachment; 0 if it streamed its messages.
    pub response_bytes: usize,
    /// The id of the caller's connection, unique among all connections of the server.
    pub connection_id: u64,
    /// The protocol of the call.
    pub protocol: Protocol,
    /// The caller.
    pub peer: &'a Peer,
}
