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

/// What a handler knows of the call it serves, and what it may say beside its answer.
///
/// A handler has it for itself: there is no lock in it, and nothing of it outlives the call.
///
/// It is one pointer wide: a call hands it on several times, and every copy of its content would cost more
/// than the allocation.
#[derive(Debug)]
pub struct Context(Box<CallFacts>);

#[derive(Debug)]
struct CallFacts {
    connection: Arc<ConnectionFacts>,
    /// What is called; nothing outside of any connection.
    called: Option<Arc<MethodName>>,
    /// When the request was here as a whole, if that was noted.
    arrived: Option<Instant>,
    deadline: Option<Instant>,
    head: Head,
    attachment: Bytes,
    /// How the protocol wants the answer written unless the handler chooses.
    usual_format: Format,
    reply: ReplyOptions,
    /// The streams that the caller offers beside the call.
    offer: Option<Box<StreamOffer>>,
    late: Option<Trailers>,
    /// What layers have left here.
    attached: Vec<Box<dyn Any + Send + Sync>>,
    /// Set when the answer is no longer awaited; a handler in the connection's task needs none, since it is
    /// dropped then.
    abandoned: Option<Arc<AtomicBool>>,
}

/// What a handler says beside its answer.
#[derive(Debug, Default)]
pub struct ReplyOptions {
    /// Sent before the answer, where the protocol has room for it: user fields, metadata, headers. Over gRPC, gRPC-Web and
    /// HTTP a reserved name (`grpc-status`, `te`) or bytes that no header has make the call fail with
    /// [`Internal`](crate::Code::Internal), which names the key; so they do among the trailers. `content-type` is what HTTP
    /// calls the answer, and means nothing to the other protocols.
    pub metadata: Metadata,
    /// Sent behind the answer, where the protocol has room for it (gRPC).
    pub trailers: Metadata,
    /// Bytes beside the answer: baidu_std's attachment; over HTTP it takes the place of the answer, as in brpc.
    pub attachment: Bytes,
    /// How the answer is compressed, where the protocol lets the server choose.
    pub compression: Compression,
    /// What the answer's checksum covers, where the protocol has one.
    pub checksum: Checksum,
    /// How the answer is written, where the protocol lets the server choose; `None`: in the protocol's
    /// default.
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
            attached: Vec::new(),
            abandoned,
        }))
    }

    /// What is called, and when the request was here as a whole if that was noted.
    pub(crate) fn with_route(mut self, called: Arc<MethodName>, arrived: Option<Instant>) -> Self {
        (self.0.called, self.0.arrived) = (Some(called), arrived);
        self
    }

    /// Notes what a call to a fallback has asked for.
    #[cold]
    pub(crate) fn with_requested(mut self, asked: RequestedMethod) -> Self {
        self.attach(asked);
        self
    }

    /// The caller offers streams beside the call.
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

    /// Takes out the streams that were accepted.
    pub(crate) fn accepted(&mut self) -> Option<AcceptedStreams> {
        self.0.offer.take().and_then(|offer| offer.into_accepted())
    }

    /// What is known of the connection.
    pub(crate) fn facts(&self) -> &Arc<ConnectionFacts> {
        &self.0.connection
    }

    /// A context outside of any connection, for tests of handlers.
    pub fn detached() -> Self {
        let facts = ConnectionFacts::new(Protocol::BaiduStd, Peer::InProcess, None);
        Self::new(Arc::new(facts), None, Head::default(), Bytes::new(), Format::default())
    }

    /// The service that is called, by the full name that the server knows it by, whatever the caller named it; empty for
    /// a function that belongs to none. In a [fallback](crate::Server::fallback) it is what the caller wrote.
    pub fn service(&self) -> &str {
        match &self.0.called {
            Some(called) if called.is_fallback() => {
                self.attached::<RequestedMethod>().map_or("", |asked| &asked.service)
            }
            called => called.as_ref().map_or("", |called| called.service()),
        }
    }

    /// The method that is called, or the function, by the name that the server knows it by.
    pub fn method(&self) -> &str {
        match &self.0.called {
            Some(called) if called.is_fallback() => {
                self.attached::<RequestedMethod>().map_or("", |asked| &asked.method)
            }
            called => called.as_ref().map_or("", |called| called.method()),
        }
    }

    /// Whether the caller wants no answer, where a fallback takes the call, which alone uses it.
    pub(crate) fn oneway(&self) -> bool {
        self.attached::<RequestedMethod>().is_some_and(|asked| asked.oneway)
    }

    /// Where the method is in the server: the same for all its calls, and for those of no other.
    pub(crate) fn method_index(&self) -> usize {
        self.0.called.as_ref().map_or(0, |called| Arc::as_ptr(called).addr())
    }

    /// Where the call is handled.
    pub(crate) fn site(&self) -> CallSite {
        CallSite::new(self.0.connection.clone(), self.0.called.clone())
    }

    /// When the request was here as a whole, if that was noted: it is where the server has a [hook](crate::server::Hook)
    /// or a concurrency limit that measures, or where the caller has named a deadline.
    pub fn arrived(&self) -> Option<Instant> {
        self.0.arrived
    }

    /// The number of the caller's connection, which no other connection of the server has borne.
    pub fn connection(&self) -> u64 {
        self.0.connection.id
    }

    /// Leaves a value for the layers behind this one and for the handler: who calls, say. There is one of each type; the
    /// one that was there is given back.
    pub fn attach<T: Any + Send + Sync>(&mut self, value: T) -> Option<T> {
        if let Some(there) = self.attached_mut() {
            return Some(std::mem::replace(there, value));
        }
        self.0.attached.push(Box::new(value));
        None
    }

    /// The value of this type that a layer has [left](Self::attach).
    pub fn attached<T: Any>(&self) -> Option<&T> {
        self.0.attached.iter().find_map(|value| (**value).downcast_ref())
    }

    /// The value of this type that a layer has [left](Self::attach).
    pub fn attached_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.attached.iter_mut().find_map(|value| (**value).downcast_mut())
    }

    /// The protocol by which the call came.
    pub fn protocol(&self) -> Protocol {
        match self.0.head.plain_http {
            true => Protocol::Http,
            false => self.0.connection.protocol,
        }
    }

    /// The protocol of the connection: [`Grpc`](Protocol::Grpc) where plain HTTP came by HTTP/2.
    pub(crate) fn carrier(&self) -> Protocol {
        self.0.connection.protocol
    }

    /// Who called.
    pub fn peer(&self) -> &Peer {
        &self.0.connection.peer
    }

    /// The address that the caller reached, if it was noted.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.0.connection.local
    }

    /// How the request was written.
    pub fn format(&self) -> Format {
        self.0.head.format
    }

    /// How the request was compressed; the handler gets it with that undone. Of a stream of requests it is what the
    /// caller announced, and single messages may have come as they are.
    pub fn compression(&self) -> Compression {
        self.0.head.compression
    }

    /// The one message of the request has come, compressed so.
    pub(crate) fn came(&mut self, compression: Compression) {
        self.0.head.compression = compression;
    }

    /// The request is a list of positional arguments.
    pub(crate) fn positional(&self) -> bool {
        self.0.head.positional
    }

    /// What travelled before the request: user fields, metadata, headers.
    pub fn metadata(&self) -> &Metadata {
        &self.0.head.metadata
    }

    /// The same, to be changed by layers.
    pub(crate) fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.0.head.metadata
    }

    /// Bytes beside the request (baidu_std's attachment); empty elsewhere.
    pub fn attachment(&self) -> &Bytes {
        &self.0.attachment
    }

    /// When the caller stops waiting, if he said so. The server stops waiting then too: a handler that is
    /// still pending is dropped, a blocking one should look at [`is_cancelled`](Self::is_cancelled).
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// How long the caller still waits, if he said so.
    pub fn remaining(&self) -> Option<Duration> {
        self.0.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether the answer is no longer awaited: the caller said so, the deadline has passed or the
    /// connection is gone.
    pub fn is_cancelled(&self) -> bool {
        self.0.connection.is_closed()
            || self.0.abandoned.as_ref().is_some_and(|abandoned| abandoned.load(Ordering::Relaxed))
            || self.0.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Lets [`is_cancelled`](Self::is_cancelled) be true from when the returned value is dropped.
    pub(crate) fn cancel_on_drop(&mut self) -> CancelOnDrop {
        CancelOnDrop(self.0.abandoned.get_or_insert_default().clone())
    }

    /// Takes out what was said beside the answer.
    pub(crate) fn into_reply(self) -> ReplyOptions {
        let (mut reply, late) = self.into_answer();
        late.append_to(&mut reply.trailers);
        reply
    }

    /// Takes out what was said beside an answer that has yet to be made, and what may still be said behind it.
    pub(crate) fn into_answer(self) -> (ReplyOptions, LateTrailers) {
        (self.0.reply, LateTrailers(self.0.late))
    }

    /// What is said beside the answer.
    pub fn reply(&mut self) -> &mut ReplyOptions {
        &mut self.0.reply
    }

    /// What travels behind the answer, to be said while its messages are still being made: beside
    /// [`ReplyOptions::trailers`], which must be known when the handler returns.
    pub fn trailers(&mut self) -> Trailers {
        self.0.late.get_or_insert_default().clone()
    }

    /// The format of the answer: the handler's choice, else what the protocol usually writes if `carries`
    /// says that the answer can be written so, else the request's.
    pub(crate) fn reply_format(&self, carries: impl Fn(Format) -> bool) -> Format {
        match self.0.reply.format {
            Some(chosen) => chosen,
            None if carries(self.0.usual_format) => self.0.usual_format,
            None => self.format(),
        }
    }

    /// Sends messages that no call asked for over this call's connection, now or after the call.
    pub fn pusher(&self) -> Pusher {
        Pusher { connection: self.0.connection.clone() }
    }
}

/// What will travel behind an answer, where the protocol has room for it (gRPC). Clones share their content; what
/// is said after the last message is too late.
#[derive(Debug, Clone, Default)]
pub struct Trailers(Arc<Mutex<Metadata>>);

impl Trailers {
    /// Sets `key`, replacing what it was.
    pub fn insert(&self, key: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    /// Adds a value to `key`, behind those it has.
    pub fn append(&self, key: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(key, value);
    }

    /// Adds what was said to these.
    pub(crate) fn append_to(&self, trailers: &mut Metadata) {
        for (key, value) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            trailers.append(key.to_owned(), value.clone());
        }
    }
}

/// The trailers that a handler may still be writing, if it asked for a way to.
#[derive(Debug)]
pub(crate) struct LateTrailers(Option<Trailers>);

impl LateTrailers {
    pub(crate) fn append_to(&self, trailers: &mut Metadata) {
        if let Some(late) = &self.0 {
            late.append_to(trailers);
        }
    }
}

/// Dropped when a call's answer is no longer awaited.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends messages that no call asked for to one client, for as long as its connection lives.
#[derive(Debug, Clone)]
pub struct Pusher {
    connection: Arc<ConnectionFacts>,
}

impl Pusher {
    /// Queues a message.
    ///
    /// # Errors
    ///
    /// [`Unimplemented`](polyrpc_core::Code::Unimplemented) when the protocol cannot push,
    /// [`ResourceExhausted`](polyrpc_core::Code::ResourceExhausted) when the client does not read,
    /// [`Unavailable`](polyrpc_core::Code::Unavailable) when the connection is gone.
    pub fn push(&self, push: Push) -> Result<(), Status> {
        self.connection.push(push)
    }
}
