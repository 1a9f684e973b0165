use std::any::Any;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc_core::{Checksum, Compression, Format, Head, Metadata, Push, Status};
use polyrpc_wire::Protocol;

use super::{AcceptedStreams, CallSite, ConnectionFacts, MethodName, Peer, RequestedMethod, StreamOffer};

/// Data about the call that a handler serves, and options of its reply.
///
/// A handler owns it: it contains no lock, and does not outlive the call.
///
/// It is one pointer wide: a call passes it on several times, and copying its content would cost more than the
/// allocation.
#[derive(Debug)]
pub struct Context(Box<CallFacts>);

#[derive(Debug)]
struct CallFacts {
    connection: Arc<ConnectionFacts>,
    /// The called method; `None` outside of a connection.
    called: Option<Arc<MethodName>>,
    /// When the complete request was received, if that was recorded.
    arrived: Option<Instant>,
    deadline: Option<Instant>,
    head: Head,
    attachment: Bytes,
    /// The protocol's format for the reply unless the handler selects one.
    usual_format: Format,
    reply: ReplyOptions,
    /// The streams that the caller offers with the call.
    offer: Option<Box<StreamOffer>>,
    late: Option<Trailers>,
    /// Values inserted by layers, at most one of each type.
    extensions: Vec<Box<dyn Any + Send + Sync>>,
    /// Set when the reply is no longer awaited; not needed for a handler in the connection's task, which is dropped
    /// then.
    abandoned: Option<Arc<AtomicBool>>,
}

/// Options of a reply.
#[derive(Debug, Default)]
pub struct ReplyOptions {
    /// Sent before the reply, if the protocol supports it: user fields, metadata, headers. Over gRPC, gRPC-Web and
    /// HTTP, a reserved name (`grpc-status`, `te`) or bytes not allowed in a header make the call fail with
    /// [`Internal`](crate::Code::Internal), which names the key; the same applies to trailers. `content-type` sets the
    /// content type of an HTTP response, and has no effect in other protocols.
    pub metadata: Metadata,
    /// Sent after the reply, if the protocol supports it (gRPC, gRPC-Web, Connect).
    pub trailers: Metadata,
    /// Attachment: bytes in addition to the reply (baidu_std, fb_rpc). Over HTTP it replaces the reply, as in
    /// brpc.
    pub attachment: Bytes,
    /// Compression of the reply, if the protocol lets the server choose.
    pub compression: Compression,
    /// Part of the reply that the checksum covers, if the protocol has one.
    pub checksum: Checksum,
    /// Format of the reply, if the protocol lets the server choose; `None`: the protocol's default.
    pub format: Option<Format>,
    /// Close the connection instead of answering (brpc's `CloseConnection`).
    pub close_connection: bool,
}

impl Context {
    pub(crate) fn new(
        connection: Arc<ConnectionFacts>,
        deadline: Option<Instant>,
        head: Head,
        attachment: Bytes,
        usual_format: Format,
    ) -> Self {
        let reply = ReplyOptions::default();
        let (offer, late, abandoned) = (None, None, None);
        Self(Box::new(CallFacts {
            connection,
            called: None,
            arrived: None,
            deadline,
            head,
            attachment,
            usual_format,
            reply,
            offer,
            late,
            extensions: Vec::new(),
            abandoned,
        }))
    }

    /// Sets the called method, and when the complete request was received if that was recorded.
    pub(crate) fn with_route(mut self, called: Arc<MethodName>, arrived: Option<Instant>) -> Self {
        (self.0.called, self.0.arrived) = (Some(called), arrived);
        self
    }

    /// Records the request of a call to a fallback.
    #[cold]
    pub(crate) fn with_requested(mut self, requested: RequestedMethod) -> Self {
        self.insert_extension(requested);
        self
    }

    /// Sets the streams that the caller offers with the call.
    pub(crate) fn with_offer(mut self, offer: Option<StreamOffer>) -> Self {
        self.0.offer = offer.map(Box::new);
        self
    }

    pub(super) fn offer(&self) -> Option<&StreamOffer> {
        self.0.offer.as_deref()
    }

    pub(super) fn offer_mut(&mut self) -> Option<&mut StreamOffer> {
        self.0.offer.as_deref_mut()
    }

    /// Takes the accepted streams.
    pub(crate) fn take_accepted(&mut self) -> Option<AcceptedStreams> {
        self.0.offer.take().and_then(|offer| offer.into_accepted())
    }

    /// Returns the data about the connection.
    pub(crate) fn facts(&self) -> &Arc<ConnectionFacts> {
        &self.0.connection
    }

    /// Creates a context to test a handler with, outside of any connection.
    pub fn for_test() -> Self {
        let facts = ConnectionFacts::new(Protocol::BaiduStd, Peer::InProcess, None);
        Self::new(Arc::new(facts), None, Head::default(), Bytes::new(), Format::default())
    }

    /// Returns the called service, by the full name known to the server, whatever the caller used; empty for a function
    /// without one. In a [fallback](crate::Server::fallback) it is the name used by the caller.
    pub fn service(&self) -> &str {
        match &self.0.called {
            Some(called) if called.is_fallback() => {
                self.extension::<RequestedMethod>().map_or("", |requested| &requested.service)
            }
            called => called.as_ref().map_or("", |called| called.service()),
        }
    }

    /// Returns the called method or function, by the name known to the server.
    pub fn method(&self) -> &str {
        match &self.0.called {
            Some(called) if called.is_fallback() => {
                self.extension::<RequestedMethod>().map_or("", |requested| &requested.method)
            }
            called => called.as_ref().map_or("", |called| called.method()),
        }
    }

    /// Whether the names are the caller's, since a [fallback](crate::Server::fallback) answers, or since it is a topic
    /// that the caller subscribes to.
    pub(crate) fn is_named_by_caller(&self) -> bool {
        self.0.called.as_ref().is_some_and(|called| called.is_fallback() || called.is_topic())
    }

    /// Whether the caller wants no reply. Only set for fallbacks, which alone use it.
    pub(crate) fn oneway(&self) -> bool {
        self.extension::<RequestedMethod>().is_some_and(|requested| requested.oneway)
    }

    /// Returns the index of the method in the server: the same for all its calls, and unique. Subscriptions, each of
    /// which has a name of its own, share one.
    pub(crate) fn method_index(&self) -> usize {
        let called = self.0.called.as_ref().filter(|called| !called.is_topic());
        called.map_or(0, |called| Arc::as_ptr(called).addr())
    }

    /// Returns where the call is handled.
    pub(crate) fn site(&self) -> CallSite {
        CallSite::new(self.0.connection.clone(), self.0.called.clone())
    }

    /// Returns when the complete request was received, if that was recorded: if the server has a
    /// [hook](crate::server::Hook) or a measuring concurrency limit, or if the caller has set a deadline.
    pub fn arrived(&self) -> Option<Instant> {
        self.0.arrived
    }

    /// Returns the id of the caller's connection, which the server never reuses.
    pub fn connection_id(&self) -> u64 {
        self.0.connection.id
    }

    /// Inserts a value for further layers and the handler, such as the identity of the caller. There is one value of
    /// each type; the previous one is returned.
    pub fn insert_extension<T: Any + Send + Sync>(&mut self, value: T) -> Option<T> {
        if let Some(there) = self.extension_mut() {
            return Some(std::mem::replace(there, value));
        }
        self.0.extensions.push(Box::new(value));
        None
    }

    /// Returns the value of this type that was [inserted](Self::insert_extension).
    pub fn extension<T: Any>(&self) -> Option<&T> {
        self.0.extensions.iter().find_map(|value| (**value).downcast_ref())
    }

    /// Returns the value of this type that was [inserted](Self::insert_extension), mutable.
    pub fn extension_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.extensions.iter_mut().find_map(|value| (**value).downcast_mut())
    }

    /// Returns the protocol of the call.
    pub fn protocol(&self) -> Protocol {
        match self.0.head.plain_http {
            true => Protocol::Http,
            false => self.0.connection.protocol,
        }
    }

    /// Returns the protocol of the connection: [`Grpc`](Protocol::Grpc) for plain HTTP over HTTP/2.
    pub(crate) fn carrier(&self) -> Protocol {
        self.0.connection.protocol
    }

    /// Returns the caller.
    pub fn peer(&self) -> &Peer {
        &self.0.connection.peer
    }

    /// Returns the local address of the connection, if it was recorded.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.0.connection.local
    }

    /// Returns the format of the request.
    pub fn format(&self) -> Format {
        self.0.head.format
    }

    /// Returns the compression of the request; the handler receives it decompressed. For streaming requests it is the
    /// announced compression, and single messages may have been sent uncompressed.
    pub fn compression(&self) -> Compression {
        self.0.head.compression
    }

    /// Records the compression of the only message of the request.
    pub(crate) fn record_compression(&mut self, compression: Compression) {
        self.0.head.compression = compression;
    }

    /// Whether the request is a list of positional arguments.
    pub(crate) fn positional(&self) -> bool {
        self.0.head.positional
    }

    /// Returns the metadata of the request: user fields, metadata, headers.
    pub fn metadata(&self) -> &Metadata {
        &self.0.head.metadata
    }

    /// Returns the same for modification by layers.
    pub(crate) fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.head.metadata
    }

    /// Returns the attachment of the request (baidu_std, fb_rpc); empty in other protocols.
    pub fn attachment(&self) -> &Bytes {
        &self.0.attachment
    }

    /// Returns the deadline of the caller, if it has one. The server applies it too: a pending handler is dropped; a
    /// blocking one should check [`is_cancelled`](Self::is_cancelled).
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Returns the time until the deadline, if there is one.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether the reply is no longer awaited: the call was cancelled, the deadline has passed or the connection is
    /// closed.
    pub fn is_cancelled(&self) -> bool {
        self.0.connection.is_closed()
            || self.0.abandoned.as_ref().is_some_and(|abandoned| abandoned.load(Ordering::Relaxed))
            || self.0.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Makes [`is_cancelled`](Self::is_cancelled) return true after the returned value is dropped.
    pub(crate) fn cancel_on_drop(&mut self) -> CancelOnDrop {
        CancelOnDrop(self.0.abandoned.get_or_insert_default().clone())
    }

    /// Takes the options of the reply.
    pub(crate) fn into_reply(self) -> ReplyOptions {
        let (mut reply, late) = self.into_answer();
        late.append_to(&mut reply.trailers);
        reply
    }

    /// Takes the options of a reply that is still being created, and the trailers that may still be set.
    pub(crate) fn into_answer(self) -> (ReplyOptions, LateTrailers) {
        (self.0.reply, LateTrailers(self.0.late))
    }

    /// Returns the options of the reply.
    pub fn reply_options(&mut self) -> &mut ReplyOptions {
        &mut self.0.reply
    }

    /// Returns the trailers, which may be set while messages of the reply are still being created, in addition to
    /// [`ReplyOptions::trailers`], which must be set before the handler returns.
    pub fn trailers(&mut self) -> Trailers {
        self.0.late.get_or_insert_default().clone()
    }

    /// Returns the format of the reply: the handler's choice, otherwise the protocol's default if `carries` accepts it,
    /// otherwise the request's.
    pub(crate) fn reply_format(&self, carries: impl Fn(Format) -> bool) -> Format {
        match self.0.reply.format {
            Some(chosen) => chosen,
            None if carries(self.0.usual_format) => self.0.usual_format,
            None => self.format(),
        }
    }

    /// Returns a handle to send unsolicited messages over this call's connection, now or after the call.
    pub fn pusher(&self) -> Pusher {
        Pusher { connection: self.0.connection.clone() }
    }
}

/// Trailers of a reply that may be set until the stream of its messages has ended, also after the last message: see
/// [`Context::trailers`](crate::Context::trailers). Protocols that have trailers send them (gRPC, gRPC-Web, Connect).
/// Clones share their content.
#[derive(Debug, Clone, Default)]
pub struct Trailers(Arc<Mutex<Metadata>>);

impl Trailers {
    /// Sets `key`, replacing its previous values.
    pub fn insert(&self, key: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    /// Adds a value to `key`, after its existing ones.
    pub fn append(&self, key: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(key, value);
    }

    /// Appends its content to these trailers.
    pub(crate) fn append_to(&self, trailers: &mut Metadata) {
        for (key, value) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            trailers.append(key.to_owned(), value.clone());
        }
    }
}

/// The trailers that a handler may still be writing, if it has a handle to them.
#[derive(Debug)]
pub(crate) struct LateTrailers(Option<Trailers>);

impl LateTrailers {
    pub(crate) fn append_to(&self, trailers: &mut Metadata) {
        if let Some(late) = &self.0 {
            late.append_to(trailers);
        }
    }
}

/// Dropped when the reply of a call is no longer awaited.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends unsolicited messages to one client while its connection is open.
#[derive(Debug, Clone)]
pub struct Pusher {
    connection: Arc<ConnectionFacts>,
}

impl Pusher {
    /// Queues a message.
    ///
    /// # Errors
    ///
    /// [`Unimplemented`](polyrpc_core::Code::Unimplemented) if the protocol cannot push,
    /// [`ResourceExhausted`](polyrpc_core::Code::ResourceExhausted) if the client does not read,
    /// [`Unavailable`](polyrpc_core::Code::Unavailable) if the connection is closed.
    pub fn push(&self, push: Push) -> Result<(), Status> {
        self.connection.push(push)
    }
}
