//! What a server tells of its connections and calls, and what can be said to it at those points.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use polyrpc_core::{Metadata, Push, Status};
use polyrpc_wire::Protocol;

use crate::call::{Connection, Peer};

/// Hears of what a server does, and may object: the points at which rpcx's server calls its plugins.
///
/// Every method does nothing unless it is written. All hooks of a server are told, in the order in which they were
/// [added](crate::Server::hook); who objects ends the row. They run where the thing happens, on the connection's task
/// or on that which accepts: they must not wait. One that panics counts as objecting where it can, and is not heard where
/// it cannot.
///
/// They hear of the user's calls, those of [file transfer](crate::transfer) among them, and not of those that ask the server
/// about itself: health, reflection, pages. Whatever they object to, the probes are answered; who may ask is the listener's
/// [authenticator](crate::server::Listen::authenticate)'s affair.
///
/// What is to stand around a method, with the request and the answer in hand, is a [`Layer`](crate::service::Layer)
/// (rpcx's `PreHandleRequest`, `PreCall`, `PostCall` and `PreWriteResponse`). A server without hooks does nothing for
/// them.
///
/// ```
/// use polyrpc::server::{Answered, Hook, Received};
/// use polyrpc::{Server, Status};
///
/// /// Knows methods by older names, and tells of those that take long.
/// struct House;
///
/// impl Hook for House {
///     fn received(&self, call: &mut Received<'_>) -> Result<(), Status> {
///         if call.service() == "Arithmetic" {
///             let method = call.method().to_owned();
///             call.redirect("Arith", method);
///         }
///         Ok(())
///     }
///
///     fn answered(&self, call: &Answered<'_>) {
///         if call.took.as_millis() > 100 {
///             println!("{}/{} took {:?}", call.service, call.method, call.took);
///         }
///     }
/// }
///
/// let server = Server::new().hook(House);
/// ```
pub trait Hook: Send + Sync + 'static {
    /// A service is offered, with these methods; functions stand under the empty name. Told when the server binds, of its
    /// own standard services too (rpcx `Register`, `RegisterFunction`).
    ///
    /// # Errors
    ///
    /// Why the server must not begin to listen: [`bind`](crate::Server::bind) fails with it.
    fn on_register(&self, _service: &str, _methods: &[String]) -> Result<(), Status> {
        Ok(())
    }

    /// A service is offered no longer: the server [shuts down](crate::server::Running::shutdown) (rpcx `Unregister`).
    fn on_unregister(&self, _service: &str) {}

    /// A connection was accepted (rpcx `HandleConnAccept`). No byte of it was read yet, nor is TLS's handshake done.
    ///
    /// # Errors
    ///
    /// Why it is not to be served. It is closed at once: no protocol has been spoken in which it could be told.
    fn on_accept(&self, _connection: &Connection) -> Result<(), Status> {
        Ok(())
    }

    /// A connection was closed that this hook had accepted; what was done on it (rpcx `HandleConnClose`).
    fn on_close(&self, _connection: &Connection) {}

    /// A call was read, and nothing else was done yet: neither was its credential judged nor its method looked up (rpcx
    /// `PostReadRequest`, `PostReadRequestHeader`).
    ///
    /// # Errors
    ///
    /// What the call is refused for. One of [`Scope::Connection`](polyrpc_core::Scope::Connection) is told as a credential
    /// that was refused, which in most protocols ends the connection.
    fn on_request(&self, _call: &mut IncomingCall<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// A call was answered: its answer is on its way to the socket (rpcx `PostWriteResponse`). Told once of each call that
    /// was [received](Self::on_request), also of those that were refused and of those that were cancelled.
    fn on_response(&self, _call: &AnsweredCall<'_>) {}

    /// A peer asked whether it is heard, and was answered (rpcx `HeartbeatRequest`).
    fn on_heartbeat(&self, _peer: &Peer, _protocol: Protocol) {}

    /// A message that no call asked for is on its way to the socket (rpcx `PostWriteRequest`).
    fn on_push(&self, _peer: &Peer, _push: &Push) {}
}

/// A hook that somebody else has a hand on too.
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
    pub(crate) connection: u64,
    pub(crate) protocol: Protocol,
    pub(crate) peer: &'a Peer,
}

impl IncomingCall<'_> {
    /// The service that is called, as the caller wrote it; empty for a function in protocols that have no services.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The method that is called, as the caller wrote it, or the function.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Lets another method be called.
    pub fn redirect(&mut self, service: impl Into<String>, method: impl Into<String>) {
        self.service = Cow::Owned(service.into());
        self.method = Cow::Owned(method.into());
    }

    /// What travels before the request.
    pub fn metadata(&self) -> &Metadata {
        self.metadata
    }

    /// What travels before the request, to be changed before layers and the handler see it.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        self.metadata
    }

    /// What came to prove who calls; it has not been judged.
    pub fn credential(&self) -> Option<&[u8]> {
        self.credential
    }

    /// How long the caller waits, if he said so.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the caller wants no answer.
    pub fn oneway(&self) -> bool {
        self.oneway
    }

    /// Bytes of the request as it came, with what lies beside it; 0 where its messages come one by one.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the caller's connection, which no other connection of the server has borne.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// The protocol by which the call came.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Who calls.
    pub fn peer(&self) -> &Peer {
        self.peer
    }
}

/// A call that was answered.
#[derive(Debug)]
#[non_exhaustive]
pub struct AnsweredCall<'a> {
    /// The service, by the full name that the server knows it by; as the caller wrote it if [`known`](Self::known) is
    /// false.
    pub service: &'a str,
    /// The method, or the function; as the caller wrote it if [`known`](Self::known) is false.
    pub method: &'a str,
    /// The method was found. If not, the names are anybody's, and there is no end of them.
    pub known: bool,
    /// Why the call failed. `None` if it did not, or if the connection is closed instead of an answer.
    pub failure: Option<&'a Status>,
    /// From when the request was read to when the answer was written.
    pub took: Duration,
    /// Bytes of the request as it came, with what lies beside it; 0 where its messages came one by one.
    pub received: usize,
    /// Bytes of the answer before it was compressed, with what lies beside it; 0 where its messages left one by one.
    pub sent: usize,
    /// The number of the caller's connection.
    pub connection: u64,
    /// The protocol by which the call came.
    pub protocol: Protocol,
    /// Who called.
    pub peer: &'a Peer,
}
