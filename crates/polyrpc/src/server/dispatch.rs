use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc_core::session::{NotFound, OfferedStreams, RequestHead, Server as Session, Verdict};
use polyrpc_core::{Call, Compression, Credential, Head, Message, Scope, Status, StreamId};

use super::arrival_time::ArrivalTime;
use super::authentication::{AuthenticateFuture, Authentication, AuthenticationResult};
use super::call_record::CallRecord;
use super::connections::ConnectionGuard;
use super::hook_chain::RedirectedNames;
use super::in_flight::{
    self, AwaitMessage, AwaitedMessage, AwaitedMessageFuture, CountedAs, MessageRejection, poll_guarded,
};
use super::incidents::Refusal;
use super::listener_context::ListenerContext;
use super::streams::Streams;
use crate::call::{
    CallKind, CallSite, ConnectionFacts, Context, Outcome, RequestedMethod, ResponseFuture, StreamOffer,
    StreamType,
};
use crate::codec::{Body, InPlace, decompress_aside, decompress_in_place, decompress_message_aside};
use crate::memory_budget::{Account, ReservedBytes, exhausted};
use crate::propagation::CallScope;
use crate::service::Route;
use crate::streaming::{Incoming, Outgoing};

/// How far a call came when it was first looked at.
pub(super) enum Dispatched {
    /// It has ended.
    Finished(Outcome),
    /// Its handler waits for something.
    Pending {
        handling: ResponseFuture,
        site: CallSite,
        deadline: Option<Instant>,
        inherited: CallScope,
        way: in_flight::Delivery,
        bytes: usize,
    },
    /// Its message has not come.
    AwaitingMessage {
        gathering: AwaitMessage,
        site: CallSite,
        deadline: Option<Instant>,
        inherited: CallScope,
        bytes: usize,
    },
    /// It was not begun.
    Rejected(Rejection),
}

/// Why a call was not begun.
pub(super) enum Rejection {
    /// It cannot be, or not now.
    Failed(Status),
    /// Its deadline had passed: whoever called waits no longer.
    Expired,
    /// The caller did not prove who he is, or is not wanted.
    Unauthenticated(Status),
    /// The caller has brought too many wrong credentials: its connection ends.
    TooManyFailures,
}

/// Brings the calls of one connection to their methods.
pub(super) struct Dispatcher<'a> {
    listener: &'a ListenerContext,
    registration: &'a ConnectionGuard,
    connection: Arc<ConnectionFacts>,
    authentication: Authentication<'a>,
}

/// What becomes of a request whose head was judged.
pub(super) enum HeadDecision {
    Now(Verdict),
    Later(Pin<Box<dyn Future<Output = Verdict> + Send>>),
    /// Its connection ends.
    TooMany,
}

/// What a call finds on its connection.
pub(super) struct CallEnvironment<'a> {
    /// The connection holds more than its share of the memory budget.
    pub(super) over_share: bool,
    pub(super) streams: &'a mut Streams,
    pub(super) arrival: &'a mut ArrivalTime,
}

/// The result of the checks that a call passes before its method is called.
enum Admission<'a> {
    Now(AdmittedCall<'a>),
    /// Its credential is being judged.
    Later(Box<UnauthenticatedCall<'a>>),
}

/// A call that may go on.
#[derive(Clone, Copy)]
struct AdmittedCall<'a> {
    entry: &'a Arc<Route>,
    deadline: Option<Instant>,
}

/// A call that may go on if its credential is accepted.
struct UnauthenticatedCall<'a> {
    /// Its method. Why there is none is told once the credential was accepted.
    entry: Result<&'a Arc<Route>, Status>,
    deadline: Option<Instant>,
    /// `None`: it was accepted.
    authenticating: Option<AuthenticateFuture>,
}

impl<'a> From<AdmittedCall<'a>> for UnauthenticatedCall<'a> {
    fn from(AdmittedCall { entry, deadline }: AdmittedCall<'a>) -> Self {
        Self { entry: Ok(entry), deadline, authenticating: None }
    }
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(
        port: &'a ListenerContext,
        registration: &'a ConnectionGuard,
        connection: Arc<ConnectionFacts>,
    ) -> Self {
        let authentication = Authentication::new(port.authenticator.as_ref(), registration);
        Self { listener: port, registration, connection, authentication }
    }

    /// Who is at the other end.
    pub(super) fn caller(&self) -> &ConnectionFacts {
        &self.connection
    }

    pub(super) fn connection(&self) -> &Arc<ConnectionFacts> {
        &self.connection
    }

    /// The answer will not be read.
    pub(super) fn close(&self) {
        self.connection.close();
    }

    /// Brings a call to its method and polls the handler once, in place: what is ready at once needs no queue, no
    /// task and no wake-up. The method may stream where the protocol has a name for the call as a stream.
    ///
    /// With it comes a note if hooks want to hear how the call ends.
    pub(super) fn start<'c, S: Session>(
        &mut self,
        mut call: Call<'c>,
        ticket: &S::Ticket,
        renamed: &'c mut RedirectedNames,
        mut found: CallEnvironment<'_>,
        cx: &mut TaskContext<'_>,
    ) -> (Dispatched, Option<Box<CallRecord>>) {
        let mut call_record = self.call_record(&call, found.arrival);
        let started = match self.admit::<S>(&mut call, ticket, &mut found, renamed, &mut call_record) {
            Ok(Admission::Now(admitted)) => self.start_method::<S>(call, ticket, admitted, found, cx),
            Ok(Admission::Later(unjudged)) => {
                self.start_after_authentication::<S>(call, ticket, *unjudged, found)
            }
            Err(stop) => Dispatched::Rejected(stop),
        };
        (started, call_record)
    }

    /// Brings a call to its method before its messages are here. Where the method wants one message, they are
    /// gathered first.
    pub(super) fn open<'c, S: Session>(
        &mut self,
        mut call: Call<'c>,
        ticket: &S::Ticket,
        renamed: &'c mut RedirectedNames,
        stream: StreamId,
        mut found: CallEnvironment<'_>,
    ) -> (Dispatched, Option<Box<CallRecord>>) {
        let mut call_record = self.call_record(&call, found.arrival);
        let started = match self.admit::<S>(&mut call, ticket, &mut found, renamed, &mut call_record) {
            Ok(Admission::Now(admitted)) => {
                self.start_stream::<S>(call, ticket, stream, admitted.into(), found.streams)
            }
            Ok(Admission::Later(unjudged)) => {
                self.start_stream::<S>(call, ticket, stream, *unjudged, found.streams)
            }
            Err(stop) => Dispatched::Rejected(stop),
        };
        (started, call_record)
    }

    /// What is noted of a call for hooks, if there are any and they are to hear of it.
    fn call_record(&self, call: &Call<'_>, arrival: &mut ArrivalTime) -> Option<Box<CallRecord>> {
        let hooks = &self.listener.server.hooks;
        if hooks.is_empty() {
            return None;
        }
        let is_the_users = !self.is_introspection(call.service, call.method);
        is_the_users.then(|| CallRecord::new(hooks, &self.connection, arrival.time(), call))
    }

    /// Whether what is called tells of the server itself: neither hooks nor limits of calls concern it.
    #[cold]
    fn is_introspection(&self, service: &str, method: &str) -> bool {
        self.listener.server.router.entry(service, method).is_ok_and(|entry| entry.is_introspection())
    }

    /// Checks a call and finds its method, and notes what is called.
    fn admit<'c, S: Session>(
        &mut self,
        call: &mut Call<'c>,
        ticket: &S::Ticket,
        found: &mut CallEnvironment<'_>,
        renamed: &'c mut RedirectedNames,
        call_record: &mut Option<Box<CallRecord>>,
    ) -> Result<Admission<'a>, Rejection> {
        let agreed = match call_record {
            None => Ok(()),
            Some(_) => {
                self.listener.server.hooks.received(call, &self.connection, renamed).map_err(rejected_by_hook)
            }
        };
        let admission = agreed.and_then(|()| self.check::<S>(call, ticket, found));
        if let Some(call_record) = call_record {
            let entry = match &admission {
                Ok(Admission::Now(admitted)) => Some(admitted.entry),
                Ok(Admission::Later(unjudged)) => unjudged.entry.as_ref().ok().copied(),
                Err(_) => None,
            };
            match entry {
                Some(entry) if !entry.is_fallback() => call_record.set_method(entry),
                _ => call_record.asked(call),
            }
        }
        admission
    }

    /// Cheap checks first: unauthenticated and expired calls are rejected before any real work.
    fn check<S: Session>(
        &mut self,
        call: &Call<'_>,
        ticket: &S::Ticket,
        found: &mut CallEnvironment<'_>,
    ) -> Result<Admission<'a>, Rejection> {
        let port = self.listener;
        let judging = match call.authenticated || port.authenticator.is_none() {
            true => None,
            false => match self.authenticate(&call.credential) {
                AuthenticationResult::Accepted => None,
                AuthenticationResult::Later(judging) => Some(judging),
                AuthenticationResult::Refused(status) => return Err(Rejection::Unauthenticated(status)),
                AuthenticationResult::TooMany => return Err(Rejection::TooManyFailures),
            },
        };
        let deadline = deadline(call, found.arrival);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Rejection::Expired);
        }
        let entry = self.find::<S>(call, ticket, found);
        let deadline = match (port.server.limits.call_timeout, &entry) {
            (Some(most), Ok(entry))
                if entry.method().shape().is_unary() || is_unary_here::<S>(entry, ticket) =>
            {
                bounded(deadline, found.arrival, most)
            }
            _ => deadline,
        };
        match (entry, judging) {
            (Ok(entry), None) => Ok(Admission::Now(AdmittedCall { entry, deadline })),
            (Err(status), None) => Err(Rejection::Failed(status)),
            // Whether a method exists is told only to those who may call.
            (entry, judging) => Ok(Admission::Later(Box::new(UnauthenticatedCall {
                entry,
                deadline,
                authenticating: judging,
            }))),
        }
    }

    fn start_method<S: Session>(
        &self,
        mut call: Call<'_>,
        ticket: &S::Ticket,
        admitted: AdmittedCall<'_>,
        found: CallEnvironment<'_>,
        cx: &mut TaskContext<'_>,
    ) -> Dispatched {
        let AdmittedCall { entry, deadline } = admitted;
        let offered = S::offered_streams(ticket);
        let body = std::mem::take(&mut call.body);
        let bytes = match call.head.compression {
            Compression::None => body,
            compression => match self.decompress_in_place(compression, body) {
                Ok(InPlace::Done(bytes)) => bytes,
                Ok(InPlace::TooLong(body)) => {
                    call.body = body;
                    return self.start_after_authentication::<S>(call, ticket, admitted.into(), found);
                }
                Err(status) => return Dispatched::Finished(Outcome::Corrupt(status)),
            },
        };
        if !entry.method().shape().is_unary()
            && !takes_as_call(entry, offered)
            && let Some(stream) = S::stream(ticket)
        {
            return self.begin_stream::<S>(call, bytes, ticket, admitted, stream, found.streams);
        }
        let Head { format, positional, .. } = call.head;
        let held = bytes.len() + call.attachment.len() + call.head.metadata.footprint();
        let body = Body { format, positional, required: !S::may_be_empty(ticket), bytes };
        let offer = offered.map(|offered| self.offer(offered, found.streams));
        let mut inherited = CallScope::from_call(deadline, &call.head.metadata);
        let context = self.context::<S>(call, (entry, deadline), found.arrival.known()).with_offer(offer);
        let begun = inherited.run(|| {
            let mut handling = entry.take(context, body, CallKind::Whole, S::decode_failure_of(ticket))?;
            Ok((poll_guarded(&mut handling, || self.site(entry), cx), handling))
        });
        match begun {
            Err(status) => failed(status),
            Ok((Poll::Ready(ending), _)) => Dispatched::Finished(ending),
            Ok((Poll::Pending, handling)) => {
                let (site, way) = (self.site(entry), in_flight::Delivery::Whole);
                Dispatched::Pending { handling, site, deadline, inherited, way, bytes: held }
            }
        }
    }

    fn decompress_in_place(&self, compression: Compression, body: Bytes) -> Result<InPlace, Status> {
        let limit = self.listener.server.limits.decompressed;
        decompress_in_place(compression, body, limit, &self.registration.connection.account)
    }

    /// The streams that a caller offers beside its call, unless as many are open as may be.
    fn offer(&self, offered: OfferedStreams, streams: &Streams) -> StreamOffer {
        let own = self.registration.connection.account.streams() + offered.streams;
        let most = self.listener.server.limits.streams_per_connection;
        let full =
            offered.streams > 0 && (own > most || self.registration.connection.admit_stream().is_err());
        streams.offer(OfferedStreams { streams: if full { 0 } else { offered.streams }, ..offered })
    }

    /// Brings a call to its method whose one message is here, and whose answer may have many.
    #[inline(never)]
    fn begin_stream<S: Session>(
        &self,
        call: Call<'_>,
        message: Bytes,
        ticket: &S::Ticket,
        AdmittedCall { entry, deadline }: AdmittedCall<'_>,
        stream: StreamId,
        streams: &mut Streams,
    ) -> Dispatched {
        let offered = S::offered_streams(ticket);
        if let Err(status) = self.registration.connection.admit_stream() {
            return failed(status);
        }
        let unreadable = S::decode_failure_of(ticket);
        let limit = self.listener.server.limits.decompressed;
        let goes_on = offered.is_some() && entry.method().shape() == StreamType::BIDI;
        // Of a call with a stream beside it, the deadline is that of the answer which accepts the stream.
        let deadline = deadline.filter(|_| offered.is_none());
        let mut inherited = CallScope::from_call(deadline, &call.head.metadata);
        let held = message.len() + call.head.metadata.footprint();
        let cx = self.context::<S>(call, (entry, deadline), None);
        let (message, way) = if goes_on {
            let (incoming, outgoing) = streams.open_with(stream, message, limit);
            (Bytes::new(), CallKind::Streams(incoming, outgoing))
        } else {
            (message, CallKind::Answers(streams.open(stream, limit).1))
        };
        let handling = inherited.run(|| opened(entry, cx, message, way, unreadable));
        let (site, way) = (self.site(entry), in_flight::Delivery::Streamed);
        Dispatched::Pending { handling, site, deadline, inherited, way, bytes: held }
    }

    fn start_stream<S: Session>(
        &self,
        call: Call<'_>,
        ticket: &S::Ticket,
        stream: StreamId,
        unjudged: UnauthenticatedCall<'_>,
        streams: &mut Streams,
    ) -> Dispatched {
        let unreadable = S::decode_failure_of(ticket);
        let UnauthenticatedCall { entry, deadline, authenticating: judging } = unjudged;
        let held = call.head.metadata.footprint();
        let mut inherited = CallScope::from_call(deadline, &call.head.metadata);
        let entry = match (entry, &judging) {
            (Ok(entry), _) => entry,
            (Err(status), Some(_)) => {
                let site = CallSite::new(self.connection.clone(), None);
                return later(judging, site, inherited, deadline, fails(status));
            }
            (Err(status), None) => return failed(status),
        };
        let (cx, site) = (self.context::<S>(call, (entry, deadline), None), self.site(entry));
        let limit = self.listener.server.limits.decompressed;
        let shape = entry.method().shape();
        if shape.client_streams
            && let Err(status) = self.registration.connection.admit_stream()
        {
            return failed(status);
        }
        let (incoming, outgoing) = streams.open(stream, limit);
        let handle = self.registration.connection.clone();
        match (shape.client_streams, judging) {
            (true, None) => {
                let way = CallKind::Streams(incoming, outgoing);
                let handling = inherited.run(|| opened(entry, cx, Bytes::new(), way, unreadable));
                let way = in_flight::Delivery::Streamed;
                Dispatched::Pending { handling, site, deadline, inherited, way, bytes: held }
            }
            (true, judging) => {
                let (entry, way) = (entry.clone(), CallKind::Streams(incoming, outgoing));
                let start = async move { Ok(opened(&entry, cx, Bytes::new(), way, unreadable)) };
                streamed(later(judging, site, inherited, deadline, start))
            }
            (false, judging) => {
                let gathered = gathered(
                    entry.clone(),
                    cx,
                    incoming,
                    outgoing,
                    limit,
                    handle.account.clone(),
                    unreadable,
                );
                let gathered: AwaitedMessageFuture = match judging {
                    None => Box::pin(gathered),
                    Some(judging) => Box::pin(async {
                        judging.await.map_err(MessageRejection::Unproven)?;
                        gathered.await
                    }),
                };
                let gathering = AwaitMessage { gathered, entry: handle };
                Dispatched::AwaitingMessage { gathering, site, deadline, inherited, bytes: held }
            }
        }
    }

    /// Brings a call to its method once its credential was judged and its message is decompressed.
    #[cold]
    #[inline(never)]
    fn start_after_authentication<S: Session>(
        &self,
        mut call: Call<'_>,
        ticket: &S::Ticket,
        unjudged: UnauthenticatedCall<'_>,
        found: CallEnvironment<'_>,
    ) -> Dispatched {
        let UnauthenticatedCall { entry, deadline, authenticating: judging } = unjudged;
        let unreadable = S::decode_failure_of(ticket);
        let inherited = CallScope::from_call(deadline, &call.head.metadata);
        let entry = match entry {
            Ok(entry) => entry.clone(),
            Err(status) => {
                let site = CallSite::new(self.connection.clone(), None);
                return later(judging, site, inherited, deadline, fails(status));
            }
        };
        let (account, limit) =
            (self.registration.connection.account.clone(), self.listener.server.limits.decompressed);
        let Head { format, positional, compression, .. } = call.head;
        let (body, required) = (std::mem::take(&mut call.body), !S::may_be_empty(ticket));
        let bytes = body.len() + call.attachment.len() + call.head.metadata.footprint();
        let offered = S::offered_streams(ticket);
        let streams = !entry.method().shape().is_unary() && !takes_as_call(&entry, offered);
        let stream = S::stream(ticket).filter(|_| streams);
        let ways = match stream.map(|stream| (stream, self.registration.connection.admit_stream())) {
            Some((_, Err(status))) => {
                return later(judging, self.site(&entry), inherited, deadline, fails(status));
            }
            Some((stream, Ok(()))) => Some(found.streams.open(stream, limit)),
            None => None,
        };
        let goes_on = offered.is_some() && entry.method().shape() == StreamType::BIDI;
        let offer = offered.filter(|_| ways.is_none()).map(|offered| self.offer(offered, found.streams));
        let cx = self.context::<S>(call, (&entry, deadline), found.arrival.known()).with_offer(offer);
        let is_stream = ways.is_some();
        let started = later(judging, self.site(&entry), inherited, deadline, async move {
            let bytes = decompress_aside(compression, body, limit, account.clone()).await;
            let bytes = bytes.map_err(Outcome::Corrupt)?;
            // What it was compressed to is counted with the call.
            let kept =
                ReservedBytes::new(account, if compression == Compression::None { 0 } else { bytes.len() });
            let handling = match ways {
                None => {
                    let body = Body { format, positional, required, bytes };
                    entry.take(cx, body, CallKind::Whole, unreadable).map_err(Outcome::failed)?
                }
                Some((incoming, outgoing)) if goes_on => {
                    incoming.preface(bytes);
                    opened(&entry, cx, Bytes::new(), CallKind::Streams(incoming, outgoing), unreadable)
                }
                Some((_, outgoing)) => opened(&entry, cx, bytes, CallKind::Answers(outgoing), unreadable),
            };
            let handling: ResponseFuture = Box::pin(async move {
                let _kept = kept;
                handling.await
            });
            Ok(handling)
        });
        let started = if is_stream { streamed(started) } else { started };
        match started {
            Dispatched::Pending { handling, site, deadline, inherited, way, .. } => {
                Dispatched::Pending { handling, site, deadline, inherited, way, bytes }
            }
            started => started,
        }
    }

    /// Where a call of this connection is handled.
    fn site(&self, entry: &Arc<Route>) -> CallSite {
        CallSite::new(self.connection.clone(), Some(entry.name().clone()))
    }

    fn context<S: Session>(
        &self,
        call: Call<'_>,
        (entry, deadline): (&Arc<Route>, Option<Instant>),
        arrived: Option<Instant>,
    ) -> Context {
        if entry.is_fallback() {
            return self.fallback_context::<S>(call, (entry, deadline), arrived);
        }
        let usual_format = S::reply_format(call.head.format);
        Context::new(self.connection.clone(), deadline, call.head, call.attachment, usual_format)
            .with_route(entry.name().clone(), arrived)
    }

    /// The same with what the caller has asked for, which no method tells.
    #[cold]
    #[inline(never)]
    fn fallback_context<S: Session>(
        &self,
        call: Call<'_>,
        (entry, deadline): (&Arc<Route>, Option<Instant>),
        arrived: Option<Instant>,
    ) -> Context {
        let asked =
            RequestedMethod { service: call.service.into(), method: call.method.into(), oneway: call.oneway };
        let usual_format = S::reply_format(call.head.format);
        Context::new(self.connection.clone(), deadline, call.head, call.attachment, usual_format)
            .with_route(entry.name().clone(), arrived)
            .with_requested(asked)
    }

    /// Whether calls wait until a credential was judged by which they are trusted.
    pub(super) fn is_judging(&self) -> bool {
        self.authentication.is_pending()
    }

    /// Judges a credential.
    pub(super) fn authenticate(&mut self, credential: &Credential) -> AuthenticationResult {
        self.authentication.authenticate(credential, &self.connection.peer)
    }

    /// Decides by its head about a request whose body has not come.
    pub(super) fn check_head(&mut self, head: &RequestHead<'_>, over_share: bool) -> HeadDecision {
        let verdict = match self.lookup(head, over_share) {
            Ok(()) => Verdict::Accepted,
            Err(verdict) => verdict,
        };
        match self.authenticate(&head.credential) {
            AuthenticationResult::Accepted => HeadDecision::Now(verdict),
            AuthenticationResult::Refused(status) => HeadDecision::Now(Verdict::Unauthenticated(status)),
            AuthenticationResult::Later(judging) => HeadDecision::Later(Box::pin(async {
                match judging.await {
                    Ok(()) => verdict,
                    Err(status) => Verdict::Unauthenticated(status),
                }
            })),
            AuthenticationResult::TooMany => HeadDecision::TooMany,
        }
    }

    /// Whether the budget of memory and the limits of calls have room for one more.
    #[inline]
    fn check_capacity(&self, target: Option<(&str, &str)>, over_share: bool) -> Result<(), Status> {
        match over_share || !self.registration.connection.account.has_room_for_call() {
            true => self.admit_when_full(target, over_share),
            false => Ok(()),
        }
    }

    /// The same where one of them is reached. Limits of calls are for the user's calls: a server that has enough to do still
    /// answers health checks and the like.
    #[cold]
    fn admit_when_full(&self, target: Option<(&str, &str)>, over_share: bool) -> Result<(), Status> {
        let entry = &self.registration.connection;
        if over_share {
            entry.refused(Refusal::Memory);
            return Err(exhausted());
        }
        match target {
            Some((service, method)) if self.is_introspection(service, method) => Ok(()),
            _ => entry.admit_call(),
        }
    }

    fn lookup(&self, head: &RequestHead<'_>, over_share: bool) -> Result<(), Verdict> {
        self.check_capacity(head.target, over_share).map_err(Verdict::Refused)?;
        let Some((service, method)) = head.target else { return Ok(()) };
        let router = &self.listener.server.router;
        match router.entry(service, method) {
            Err(missing) if router.fallback().is_none() => {
                self.registration.connection.refused_unknown(service, method);
                Err(Verdict::Missing(missing))
            }
            _ => Ok(()),
        }
    }

    /// What takes a call that finds no method.
    ///
    /// # Errors
    ///
    /// In the protocol's own words, that nothing does.
    #[cold]
    #[inline(never)]
    fn fall_back<S: Session>(
        &self,
        call: &Call<'_>,
        ticket: &S::Ticket,
        missing: NotFound,
    ) -> Result<&'a Arc<Route>, Status> {
        let router = &self.listener.server.router;
        let entry = if S::is_exchange(ticket) { router.http_fallback() } else { router.fallback() };
        entry.ok_or_else(|| {
            self.registration.connection.refused_unknown(call.service, call.method);
            S::not_found_failure_of(ticket, call, missing)
        })
    }

    /// Checks a call in the order in which the peers do (brpc `policy/baidu_rpc_protocol.cpp`,
    /// `ProcessRpcRequest`) and finds its method.
    fn find<S: Session>(
        &self,
        call: &Call<'_>,
        ticket: &S::Ticket,
        found: &CallEnvironment<'_>,
    ) -> Result<&'a Arc<Route>, Status> {
        self.check_capacity(Some((call.service, call.method)), found.over_share)?;
        let entry = match self.listener.server.router.entry(call.service, call.method) {
            Ok(entry) => entry,
            Err(missing) => self.fall_back::<S>(call, ticket, missing)?,
        };
        match &call.spoiled {
            None => Ok(entry),
            Some(status) => Err(status.clone()),
        }
    }
}

/// Whether a call with streams beside it is taken as one call: a fallback may accept them, as any handler may.
fn takes_as_call(entry: &Route, offered: Option<OfferedStreams>) -> bool {
    offered.is_some() && entry.is_fallback()
}

/// Whether a fallback is called with one message each way.
#[cold]
fn is_unary_here<S: Session>(entry: &Route, ticket: &S::Ticket) -> bool {
    entry.is_fallback() && (S::stream(ticket).is_none() || S::offered_streams(ticket).is_some())
}

#[cold]
fn failed(status: Status) -> Dispatched {
    Dispatched::Rejected(Rejection::Failed(status))
}

/// What becomes of a call to which a hook objects.
#[cold]
fn rejected_by_hook(status: Status) -> Rejection {
    match status.scope() {
        Scope::Call => Rejection::Failed(status),
        Scope::Connection => Rejection::Unauthenticated(status),
    }
}

/// A call that goes on with `start` once its credential was accepted.
fn later(
    judging: Option<AuthenticateFuture>,
    site: CallSite,
    inherited: CallScope,
    deadline: Option<Instant>,
    start: impl Future<Output = Result<ResponseFuture, Outcome>> + Send + 'static,
) -> Dispatched {
    let handling = Box::pin(async {
        if let Some(judging) = judging
            && let Err(status) = judging.await
        {
            return Outcome::Unauthenticated(status);
        }
        match start.await {
            Ok(handling) => handling.await,
            Err(ending) => ending,
        }
    });
    Dispatched::Pending { handling, site, deadline, inherited, way: in_flight::Delivery::Whole, bytes: 0 }
}

/// Fails a call once its credential was accepted.
async fn fails(status: Status) -> Result<ResponseFuture, Outcome> {
    Err(Outcome::failed(status))
}

/// The same for a call whose messages come or leave one by one.
fn streamed(started: Dispatched) -> Dispatched {
    match started {
        Dispatched::Pending { handling, site, deadline, inherited, bytes, .. } => Dispatched::Pending {
            handling,
            site,
            deadline,
            inherited,
            way: in_flight::Delivery::Streamed,
            bytes,
        },
        started => started,
    }
}

fn deadline(call: &Call<'_>, arrival: &mut ArrivalTime) -> Option<Instant> {
    call.timeout.and_then(|timeout| arrival.time().checked_add(timeout))
}

/// The caller's deadline, unless what the server allows is over earlier.
#[cold]
fn bounded(deadline: Option<Instant>, arrival: &mut ArrivalTime, most: Duration) -> Option<Instant> {
    let latest = arrival.time().checked_add(most);
    deadline.map_or(latest, |deadline| Some(latest.map_or(deadline, |latest| latest.min(deadline))))
}

/// Takes a call to its method whose handler is polled later.
fn opened(
    entry: &Arc<Route>,
    cx: Context,
    message: Bytes,
    way: CallKind,
    unreadable: fn(Status) -> Status,
) -> ResponseFuture {
    // brpc's gRPC takes an empty message whatever its format (`policy/http_rpc_protocol.cpp`), and a stream offered
    // beside a call may bring them all.
    let body = Body { positional: cx.positional(), ..Body::new(cx.format(), message) };
    entry
        .take(cx, body, way, unreadable)
        .unwrap_or_else(|status| Box::pin(std::future::ready(Outcome::failed(status))))
}

/// Waits for the one message of a call.
async fn gathered(
    entry: Arc<Route>,
    mut cx: Context,
    incoming: Incoming,
    outgoing: Outgoing,
    limit: usize,
    account: Arc<Account>,
    unreadable: fn(Status) -> Status,
) -> Result<AwaitedMessage, MessageRejection> {
    let message = single_message(&incoming).await?;
    cx.came(message.compression);
    let message = decompress_message_aside(message, limit, account).await?;
    let streams = entry.method().shape().server_streams;
    let (counted, way) = match streams {
        true => (CountedAs::Stream, CallKind::Answers(outgoing)),
        false => (CountedAs::Call, CallKind::Whole),
    };
    let (bytes, exempt) = (message.len(), entry.is_introspection());
    let start = Box::new(move || opened(&entry, cx, message, way, unreadable));
    Ok(AwaitedMessage { bytes, counted, exempt, start })
}

/// The one message of a call. Another number of them is answered as gRPC's `doc/statuscodes.md` has it.
async fn single_message(incoming: &Incoming) -> Result<Message, Status> {
    let Some(message) = incoming.next_raw().await.transpose()? else {
        return Err(Status::unimplemented("the method wants one message, and none came"));
    };
    match incoming.next_raw().await {
        None => Ok(message),
        Some(Err(status)) => Err(status),
        Some(Ok(_)) => Err(Status::unimplemented("the method wants one message, and more came")),
    }
}
