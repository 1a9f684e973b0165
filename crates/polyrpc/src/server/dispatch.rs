use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc_core::session::server::{MAX_CONVERTED_IN_PLACE, Ticket};
use polyrpc_core::session::{NotFound, OfferedStreams, RequestHead, Verdict};
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
use crate::call::streaming::{Incoming, Outgoing};
use crate::call::{
    CallKind, CallSite, ConnectionFacts, Context, Outcome, OutcomeKind, RequestedMethod, ResponseFuture,
    StreamOffer, StreamType,
};
use crate::codec::{
    Body, InPlace, decompress_in_place, decompress_message_on_blocking_pool, decompress_on_blocking_pool,
    on_blocking_pool,
};
use crate::memory_budget::{Account, ReservedBytes, exhausted};
use crate::propagation::CallScope;
use crate::service::Route;

/// Result of the first poll of a call.
pub(super) enum FirstPoll {
    /// It has finished.
    Finished(Outcome),
    /// Its handler is pending.
    Pending {
        handling: ResponseFuture,
        site: CallSite,
        deadline: Option<Instant>,
        inherited: CallScope,
        delivery: in_flight::Delivery,
        bytes: usize,
    },
    /// Its message has not arrived yet.
    AwaitingMessage {
        gathering: AwaitMessage,
        site: CallSite,
        deadline: Option<Instant>,
        inherited: CallScope,
        bytes: usize,
    },
    /// It was not started.
    Rejected(Rejection),
}

/// Reason why a call was not started.
pub(super) enum Rejection {
    /// The call cannot be started, at least not now.
    Failed(Status),
    /// The call's deadline has passed: its caller no longer waits.
    Expired,
    /// The caller is not authenticated, or not allowed.
    Unauthenticated(Status),
    /// The caller has sent too many invalid credentials: its connection is closed.
    TooManyFailures,
}

/// Dispatches the calls of one connection to their methods.
pub(super) struct Dispatcher<'a> {
    listener: &'a ListenerContext,
    registration: &'a ConnectionGuard,
    connection: Arc<ConnectionFacts>,
    authentication: Authentication<'a>,
}

/// Decision on a request by its head.
pub(super) enum HeadDecision {
    Now(Verdict),
    Later(Pin<Box<dyn Future<Output = Verdict> + Send>>),
    /// Its connection is closed.
    TooMany,
}

/// State of the connection that its calls depend on.
pub(super) struct CallEnvironment<'a> {
    /// The connection holds more than its share of the memory budget.
    pub(super) over_share: bool,
    pub(super) streams: &'a mut Streams,
    pub(super) arrival: &'a mut ArrivalTime,
}

/// Result of the checks before a call's method is called.
enum Admission<'a> {
    Now(AdmittedCall<'a>),
    /// Its credential is being checked.
    Later(Box<UnauthenticatedCall<'a>>),
}

/// A call that was admitted.
#[derive(Clone, Copy)]
struct AdmittedCall<'a> {
    entry: &'a Arc<Route>,
    deadline: Option<Instant>,
}

/// A call that is admitted if its credential is accepted.
struct UnauthenticatedCall<'a> {
    /// Its method. The error for a missing one is sent only after the credential was accepted.
    entry: Result<&'a Arc<Route>, Status>,
    deadline: Option<Instant>,
    /// `None` if the credential was accepted.
    authenticating: Option<AuthenticateFuture>,
}

impl<'a> From<AdmittedCall<'a>> for UnauthenticatedCall<'a> {
    fn from(AdmittedCall { entry, deadline }: AdmittedCall<'a>) -> Self {
        Self { entry: Ok(entry), deadline, authenticating: None }
    }
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(
        listener: &'a ListenerContext,
        registration: &'a ConnectionGuard,
        connection: Arc<ConnectionFacts>,
    ) -> Self {
        let authentication = Authentication::new(listener.authenticator.as_ref(), registration);
        Self { listener, registration, connection, authentication }
    }

    /// Returns the facts of the connection and its peer.
    pub(super) fn caller(&self) -> &ConnectionFacts {
        &self.connection
    }

    pub(super) fn connection(&self) -> &Arc<ConnectionFacts> {
        &self.connection
    }

    /// Marks that the response will not be read.
    pub(super) fn close(&self) {
        self.connection.close();
    }

    /// Dispatches a call to its method and polls the handler once, in place: a handler that is ready at once needs no
    /// queue, no task and no wake-up. The method may stream if the protocol has an id for the call as a stream.
    ///
    /// Returns a call record with it if hooks want to observe how the call ends.
    pub(super) fn start<'c>(
        &mut self,
        mut call: Call<'c>,
        ticket: &impl Ticket,
        renamed: &'c mut RedirectedNames,
        mut found: CallEnvironment<'_>,
        cx: &mut TaskContext<'_>,
    ) -> (FirstPoll, Option<Box<CallRecord>>) {
        let mut call_record = self.call_record(&call, found.arrival);
        let started = match self.admit(&mut call, ticket, &mut found, renamed, &mut call_record) {
            Ok(Admission::Now(admitted)) => self.start_method(call, ticket, admitted, found, cx),
            Ok(Admission::Later(unauthenticated)) => {
                self.start_after_authentication(call, ticket, *unauthenticated, found)
            }
            Err(stop) => FirstPoll::Rejected(stop),
        };
        (started, call_record)
    }

    /// Dispatches a call to its method before its messages have arrived. If the method takes one message, the call
    /// waits for it first.
    pub(super) fn open<'c>(
        &mut self,
        mut call: Call<'c>,
        ticket: &impl Ticket,
        renamed: &'c mut RedirectedNames,
        stream: StreamId,
        mut found: CallEnvironment<'_>,
    ) -> (FirstPoll, Option<Box<CallRecord>>) {
        let mut call_record = self.call_record(&call, found.arrival);
        let started = match self.admit(&mut call, ticket, &mut found, renamed, &mut call_record) {
            Ok(Admission::Now(admitted)) => {
                self.start_stream(call, ticket, stream, admitted.into(), found.streams)
            }
            Ok(Admission::Later(unauthenticated)) => {
                self.start_stream(call, ticket, stream, *unauthenticated, found.streams)
            }
            Err(stop) => FirstPoll::Rejected(stop),
        };
        (started, call_record)
    }

    /// Returns the record of a call for hooks, if there are any and they observe this call.
    fn call_record(&self, call: &Call<'_>, arrival: &mut ArrivalTime) -> Option<Box<CallRecord>> {
        let hooks = &self.listener.server.hooks;
        if hooks.is_empty() {
            return None;
        }
        let is_the_users = !self.is_introspection(call.service, call.method);
        is_the_users.then(|| CallRecord::new(hooks, &self.connection, arrival.time(), call))
    }

    /// Returns whether the method is introspection of the server itself: neither hooks nor call limits apply to it.
    #[cold]
    fn is_introspection(&self, service: &str, method: &str) -> bool {
        let router = &self.listener.server.router;
        match router.entry(service, method) {
            Ok(entry) => entry.is_introspection(),
            // A request for a page has no service, and its path as the method.
            Err(_) => service.is_empty() && method.starts_with('/') && router.page(method).is_some(),
        }
    }

    /// Checks a call, finds its method, and records what is called.
    fn admit<'c>(
        &mut self,
        call: &mut Call<'c>,
        ticket: &impl Ticket,
        found: &mut CallEnvironment<'_>,
        renamed: &'c mut RedirectedNames,
        call_record: &mut Option<Box<CallRecord>>,
    ) -> Result<Admission<'a>, Rejection> {
        let agreed = match call_record {
            None => Ok(()),
            Some(_) => self
                .listener
                .server
                .hooks
                .on_request(call, &self.connection, renamed)
                .map_err(rejected_by_hook),
        };
        let admission = agreed.and_then(|()| self.check(call, ticket, found));
        if let Some(call_record) = call_record {
            let entry = match &admission {
                Ok(Admission::Now(admitted)) => Some(admitted.entry),
                Ok(Admission::Later(unauthenticated)) => unauthenticated.entry.as_ref().ok().copied(),
                Err(_) => None,
            };
            match entry {
                Some(entry) if !entry.is_fallback() => call_record.set_method(entry),
                _ => call_record.set_requested_names(call),
            }
        }
        admission
    }

    /// Cheap checks first: unauthenticated and expired calls are rejected before any real work.
    fn check(
        &mut self,
        call: &Call<'_>,
        ticket: &impl Ticket,
        found: &mut CallEnvironment<'_>,
    ) -> Result<Admission<'a>, Rejection> {
        let listener = self.listener;
        let limit = listener.server.limits.header;
        if call.service.len() + call.method.len() > limit {
            return Err(Rejection::Failed(names_too_long(limit)));
        }
        let authentication = match call.authenticated || listener.authenticator.is_none() {
            true => None,
            false => match self.authenticate(&call.credential) {
                AuthenticationResult::Accepted => None,
                AuthenticationResult::Later(authentication) => Some(authentication),
                AuthenticationResult::Refused(status) => return Err(Rejection::Unauthenticated(status)),
                AuthenticationResult::TooMany => return Err(Rejection::TooManyFailures),
            },
        };
        let deadline = deadline(call, found.arrival);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Rejection::Expired);
        }
        let entry = self.find(call, ticket, found);
        let deadline = match (listener.server.limits.call_timeout, &entry) {
            (Some(max), Ok(entry))
                if entry.method().stream_type().is_unary() || is_unary_here(entry, ticket) =>
            {
                bound_deadline(deadline, found.arrival, max)
            }
            _ => deadline,
        };
        match (entry, authentication) {
            (Ok(entry), None) => Ok(Admission::Now(AdmittedCall { entry, deadline })),
            (Err(status), None) => Err(Rejection::Failed(status)),
            // Whether a method exists is disclosed only to authenticated callers.
            (entry, authentication) => Ok(Admission::Later(Box::new(UnauthenticatedCall {
                entry,
                deadline,
                authenticating: authentication,
            }))),
        }
    }

    fn start_method(
        &self,
        mut call: Call<'_>,
        ticket: &impl Ticket,
        admitted: AdmittedCall<'_>,
        found: CallEnvironment<'_>,
        cx: &mut TaskContext<'_>,
    ) -> FirstPoll {
        let AdmittedCall { entry, deadline } = admitted;
        let offered = ticket.offered_streams();
        let body = std::mem::take(&mut call.body);
        let bytes = match call.head.compression {
            Compression::None
                if body.len() > MAX_CONVERTED_IN_PLACE && ticket.body_conversion().is_some() =>
            {
                call.body = body;
                return self.start_after_authentication(call, ticket, admitted.into(), found);
            }
            Compression::None => body,
            compression => match self.decompress_in_place(compression, body) {
                Ok(InPlace::Done(bytes)) => bytes,
                Ok(InPlace::TooLong(body)) => {
                    call.body = body;
                    return self.start_after_authentication(call, ticket, admitted.into(), found);
                }
                Err(status) => return FirstPoll::Finished(OutcomeKind::Corrupt(status).into()),
            },
        };
        if !entry.method().stream_type().is_unary()
            && !takes_as_call(entry, offered)
            && let Some(stream) = ticket.stream()
        {
            return self.begin_stream(call, bytes, ticket, admitted, stream, found.streams);
        }
        let Head { format, positional, .. } = call.head;
        let held = bytes.len() + bytes_beside_message(&call);
        let body = Body { format, positional, required: !ticket.may_be_empty(), bytes };
        let offer = offered.map(|offered| self.offer(offered, found.streams));
        let mut inherited = CallScope::from_call(deadline, &call.head.metadata);
        let context = self.context(call, ticket, (entry, deadline), found.arrival.get()).with_offer(offer);
        let begun = inherited.run(|| {
            let mut handling = entry.take(context, body, CallKind::Whole, ticket.decode_failure())?;
            Ok((poll_guarded(&mut handling, || self.site(entry), cx), handling))
        });
        match begun {
            Err(status) => reject(status),
            Ok((Poll::Ready(outcome), _)) => FirstPoll::Finished(outcome),
            Ok((Poll::Pending, handling)) => {
                let (site, delivery) = (self.site(entry), in_flight::Delivery::Whole);
                FirstPoll::Pending { handling, site, deadline, inherited, delivery, bytes: held }
            }
        }
    }

    fn decompress_in_place(&self, compression: Compression, body: Bytes) -> Result<InPlace, Status> {
        let limit = self.listener.server.limits.decompressed;
        decompress_in_place(compression, body, limit, &self.registration.connection.account)
    }

    /// Returns the streams that a caller offers with its call, unless the maximum number of streams is open.
    fn offer(&self, offered: OfferedStreams, streams: &Streams) -> StreamOffer {
        let own = self.registration.connection.account.streams() + offered.streams;
        let max = self.listener.server.limits.streams_per_connection;
        let full = offered.streams > 0 && (own > max || self.registration.connection.admit_stream().is_err());
        streams.offer(OfferedStreams { streams: if full { 0 } else { offered.streams }, ..offered })
    }

    /// Dispatches a call whose one message has arrived and whose response may have many.
    #[inline(never)]
    fn begin_stream(
        &self,
        call: Call<'_>,
        message: Bytes,
        ticket: &impl Ticket,
        AdmittedCall { entry, deadline }: AdmittedCall<'_>,
        stream: StreamId,
        streams: &mut Streams,
    ) -> FirstPoll {
        let offered = ticket.offered_streams();
        if let Err(status) = self.registration.connection.admit_stream() {
            return reject(status);
        }
        let unreadable = ticket.decode_failure();
        let limit = self.listener.server.limits.decompressed;
        let goes_on = offered.is_some() && entry.method().stream_type() == StreamType::BIDI;
        // For a call with a stream attached, the deadline is that of the response that accepts the stream.
        let deadline = deadline.filter(|_| offered.is_none());
        let mut inherited = CallScope::from_call(deadline, &call.head.metadata);
        let held = message.len() + bytes_beside_message(&call);
        let cx = self.context(call, ticket, (entry, deadline), None);
        let (message, kind) = if goes_on {
            let (incoming, outgoing) = streams.open_with(stream, ticket.carrier(), message, limit);
            (Bytes::new(), CallKind::Streams(incoming, outgoing))
        } else {
            (message, CallKind::Answers(streams.open(stream, ticket.carrier(), limit).1))
        };
        let handling = inherited.run(|| start_handler(entry, cx, message, kind, unreadable));
        let (site, delivery) = (self.site(entry), in_flight::Delivery::Streamed);
        FirstPoll::Pending { handling, site, deadline, inherited, delivery, bytes: held }
    }

    fn start_stream(
        &self,
        call: Call<'_>,
        ticket: &impl Ticket,
        stream: StreamId,
        unauthenticated: UnauthenticatedCall<'_>,
        streams: &mut Streams,
    ) -> FirstPoll {
        let unreadable = ticket.decode_failure();
        let UnauthenticatedCall { entry, deadline, authenticating: authentication } = unauthenticated;
        let held = bytes_beside_message(&call);
        let mut inherited = CallScope::from_call(deadline, &call.head.metadata);
        let entry = match (entry, &authentication) {
            (Ok(entry), _) => entry,
            (Err(status), Some(_)) => {
                let site = CallSite::new(self.connection.clone(), None);
                return authenticate_then(authentication, site, inherited, deadline, held, fail(status));
            }
            (Err(status), None) => return reject(status),
        };
        let streams_requests =
            entry.method().stream_type().client_streaming && !self.has_one_request(entry, &call, ticket);
        let (cx, site) = (self.context(call, ticket, (entry, deadline), None), self.site(entry));
        let limit = self.listener.server.limits.decompressed;
        if streams_requests && let Err(status) = self.registration.connection.admit_stream() {
            return reject(status);
        }
        let (incoming, outgoing) = streams.open(stream, ticket.carrier(), limit);
        let handle = self.registration.connection.clone();
        match (streams_requests, authentication) {
            (true, None) => {
                let kind = CallKind::Streams(incoming, outgoing);
                let handling = inherited.run(|| start_handler(entry, cx, Bytes::new(), kind, unreadable));
                let delivery = in_flight::Delivery::Streamed;
                FirstPoll::Pending { handling, site, deadline, inherited, delivery, bytes: held }
            }
            (true, authentication) => {
                let (entry, kind) = (entry.clone(), CallKind::Streams(incoming, outgoing));
                let start = async move { Ok(start_handler(&entry, cx, Bytes::new(), kind, unreadable)) };
                mark_streamed(authenticate_then(authentication, site, inherited, deadline, held, start))
            }
            (false, authentication) => {
                let gathered = await_message(
                    entry.clone(),
                    cx,
                    incoming,
                    outgoing,
                    limit,
                    handle.account.clone(),
                    unreadable,
                );
                let gathered: AwaitedMessageFuture = match authentication {
                    None => Box::pin(gathered),
                    Some(authentication) => Box::pin(async {
                        authentication.await.map_err(MessageRejection::Unproven)?;
                        gathered.await
                    }),
                };
                let gathering = AwaitMessage { gathered, entry: handle };
                FirstPoll::AwaitingMessage { gathering, site, deadline, inherited, bytes: held }
            }
        }
    }

    /// Dispatches a call to its method once its credential was checked and its message is decompressed.
    #[cold]
    #[inline(never)]
    fn start_after_authentication(
        &self,
        mut call: Call<'_>,
        ticket: &impl Ticket,
        unauthenticated: UnauthenticatedCall<'_>,
        found: CallEnvironment<'_>,
    ) -> FirstPoll {
        let UnauthenticatedCall { entry, deadline, authenticating: authentication } = unauthenticated;
        let unreadable = ticket.decode_failure();
        let inherited = CallScope::from_call(deadline, &call.head.metadata);
        let entry = match entry {
            Ok(entry) => entry.clone(),
            Err(status) => {
                let site = CallSite::new(self.connection.clone(), None);
                let held = bytes_beside_message(&call);
                return authenticate_then(authentication, site, inherited, deadline, held, fail(status));
            }
        };
        let (account, limit) =
            (self.registration.connection.account.clone(), self.listener.server.limits.decompressed);
        let Head { format, positional, compression, .. } = call.head;
        let (body, required) = (std::mem::take(&mut call.body), !ticket.may_be_empty());
        let held = body.len() + bytes_beside_message(&call);
        let offered = ticket.offered_streams();
        let streams = !entry.method().stream_type().is_unary() && !takes_as_call(&entry, offered);
        let stream = ticket.stream().filter(|_| streams);
        // As in `begin_stream`: the deadline of a call with a stream attached is that of the response that accepts it.
        let deadline = deadline.filter(|_| stream.is_none() || offered.is_none());
        let inherited = CallScope::from_call(deadline, &call.head.metadata);
        let stream_halves = match stream.map(|stream| (stream, self.registration.connection.admit_stream())) {
            Some((_, Err(status))) => {
                let site = self.site(&entry);
                return authenticate_then(authentication, site, inherited, deadline, held, fail(status));
            }
            Some((stream, Ok(()))) => Some(found.streams.open(stream, ticket.carrier(), limit)),
            None => None,
        };
        let goes_on = offered.is_some() && entry.method().stream_type() == StreamType::BIDI;
        let offer =
            offered.filter(|_| stream_halves.is_none()).map(|offered| self.offer(offered, found.streams));
        let cx = self.context(call, ticket, (&entry, deadline), found.arrival.get()).with_offer(offer);
        let is_stream = stream_halves.is_some();
        let conversion = ticket.body_conversion();
        let site = self.site(&entry);
        let started = authenticate_then(authentication, site, inherited, deadline, held, async move {
            let bytes = decompress_on_blocking_pool(compression, body, limit, account.clone()).await;
            let mut bytes = bytes.map_err(OutcomeKind::Corrupt)?;
            // The compressed size is counted with the call.
            let kept =
                ReservedBytes::new(account, if compression == Compression::None { 0 } else { bytes.len() });
            if let Some(convert) = conversion {
                bytes = on_blocking_pool(move || convert(bytes)).await.map_err(Outcome::failed)?;
            }
            let handling = match stream_halves {
                None => {
                    let body = Body { format, positional, required, bytes };
                    entry.take(cx, body, CallKind::Whole, unreadable).map_err(Outcome::failed)?
                }
                Some((incoming, outgoing)) if goes_on => {
                    incoming.preface(bytes);
                    start_handler(&entry, cx, Bytes::new(), CallKind::Streams(incoming, outgoing), unreadable)
                }
                Some((_, outgoing)) => {
                    start_handler(&entry, cx, bytes, CallKind::Answers(outgoing), unreadable)
                }
            };
            let handling: ResponseFuture = Box::pin(async move {
                let _kept = kept;
                handling.await
            });
            Ok(handling)
        });
        if is_stream { mark_streamed(started) } else { started }
    }

    /// Returns whether a call of a fallback has one request message, as far as is known.
    fn has_one_request(&self, entry: &Route, call: &Call<'_>, ticket: &impl Ticket) -> bool {
        entry.is_fallback()
            && !ticket.is_exchange()
            && self.listener.server.router.fallback_has_single_request(
                call.service,
                call.method,
                &call.head.metadata,
            )
    }

    /// Returns the call site of a call of this connection, for logs.
    fn site(&self, entry: &Arc<Route>) -> CallSite {
        CallSite::new(self.connection.clone(), Some(entry.name().clone()))
    }

    fn context(
        &self,
        call: Call<'_>,
        ticket: &impl Ticket,
        (entry, deadline): (&Arc<Route>, Option<Instant>),
        arrived: Option<Instant>,
    ) -> Context {
        if entry.is_fallback() {
            return self.fallback_context(call, ticket, (entry, deadline), arrived);
        }
        let usual_format = ticket.reply_format(call.head.format);
        Context::new(self.connection.clone(), deadline, call.head, call.attachment, usual_format)
            .with_route(entry.name().clone(), arrived)
    }

    /// The same with the requested name, which a fallback method does not imply.
    #[cold]
    #[inline(never)]
    fn fallback_context(
        &self,
        call: Call<'_>,
        ticket: &impl Ticket,
        (entry, deadline): (&Arc<Route>, Option<Instant>),
        arrived: Option<Instant>,
    ) -> Context {
        let requested =
            RequestedMethod { service: call.service.into(), method: call.method.into(), oneway: call.oneway };
        let usual_format = ticket.reply_format(call.head.format);
        Context::new(self.connection.clone(), deadline, call.head, call.attachment, usual_format)
            .with_route(entry.name().clone(), arrived)
            .with_requested(requested)
    }

    /// Returns whether calls wait for the check of the credential that they depend on.
    pub(super) fn is_authenticating(&self) -> bool {
        self.authentication.is_pending()
    }

    /// Checks a credential.
    pub(super) fn authenticate(&mut self, credential: &Credential) -> AuthenticationResult {
        self.authentication.authenticate(credential, &self.connection.peer)
    }

    /// Decides on a request by its head, before its body has arrived.
    pub(super) fn check_head(&mut self, head: &RequestHead<'_>, over_share: bool) -> HeadDecision {
        let verdict = match self.lookup(head, over_share) {
            Ok(()) => Verdict::Accepted,
            Err(verdict) => verdict,
        };
        match self.authenticate(&head.credential) {
            AuthenticationResult::Accepted => HeadDecision::Now(verdict),
            AuthenticationResult::Refused(status) => HeadDecision::Now(Verdict::Unauthenticated(status)),
            AuthenticationResult::Later(authentication) => HeadDecision::Later(Box::pin(async {
                match authentication.await {
                    Ok(()) => verdict,
                    Err(status) => Verdict::Unauthenticated(status),
                }
            })),
            AuthenticationResult::TooMany => HeadDecision::TooMany,
        }
    }

    /// Checks whether the memory budget and the call limits have room for one more call.
    #[inline]
    fn check_capacity(&self, target: Option<(&str, &str)>, over_share: bool) -> Result<(), Status> {
        match over_share || !self.registration.connection.account.has_room_for_call() {
            true => self.admit_when_full(target, over_share),
            false => Ok(()),
        }
    }

    /// The same once one of them is reached. Call limits are for the user's calls: a busy server still answers health
    /// checks and the like.
    #[cold]
    fn admit_when_full(&self, target: Option<(&str, &str)>, over_share: bool) -> Result<(), Status> {
        let entry = &self.registration.connection;
        if over_share {
            entry.record_refusal(Refusal::Memory);
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
                self.registration.connection.record_unknown_method(service, method);
                Err(Verdict::Missing(missing))
            }
            _ => Ok(()),
        }
    }

    /// Returns the fallback for a call whose method does not exist.
    ///
    /// # Errors
    ///
    /// If there is no fallback. The protocol chooses the text.
    #[cold]
    #[inline(never)]
    fn fall_back(
        &self,
        call: &Call<'_>,
        ticket: &impl Ticket,
        missing: NotFound,
    ) -> Result<&'a Arc<Route>, Status> {
        let router = &self.listener.server.router;
        let entry = match ticket.is_exchange() {
            true => router.page(call.method).or_else(|| router.http_fallback()),
            false => router.fallback(),
        };
        entry.ok_or_else(|| {
            self.registration.connection.record_unknown_method(call.service, call.method);
            ticket.not_found_failure(call, missing)
        })
    }

    /// Checks a call in the same order as the peers (brpc `policy/baidu_rpc_protocol.cpp`, `ProcessRpcRequest`) and
    /// finds its method.
    fn find(
        &self,
        call: &Call<'_>,
        ticket: &impl Ticket,
        found: &CallEnvironment<'_>,
    ) -> Result<&'a Arc<Route>, Status> {
        self.check_capacity(Some((call.service, call.method)), found.over_share)?;
        let entry = match self.listener.server.router.entry(call.service, call.method) {
            Ok(entry) => entry,
            Err(missing) => self.fall_back(call, ticket, missing)?,
        };
        match &call.malformed {
            None => Ok(entry),
            Some(status) => Err(status.clone()),
        }
    }
}

/// Returns whether a call with attached streams is handled as one call: a fallback may accept them, as any handler may.
fn takes_as_call(entry: &Route, offered: Option<OfferedStreams>) -> bool {
    offered.is_some() && entry.is_fallback()
}

/// Returns whether a fallback is called with one message each way.
#[cold]
fn is_unary_here(entry: &Route, ticket: &impl Ticket) -> bool {
    entry.is_fallback() && (ticket.stream().is_none() || ticket.offered_streams().is_some())
}

#[cold]
fn reject(status: Status) -> FirstPoll {
    FirstPoll::Rejected(Rejection::Failed(status))
}

/// Returns the failure of a call whose names alone exceed the limit of a head.
#[cold]
fn names_too_long(limit: usize) -> Status {
    Status::resource_exhausted(format!("service and method have names of more than {limit} bytes"))
}

/// Returns the rejection for a call that a hook has rejected.
#[cold]
fn rejected_by_hook(status: Status) -> Rejection {
    match status.scope() {
        Scope::Call => Rejection::Failed(status),
        Scope::Connection => Rejection::Unauthenticated(status),
    }
}

/// Returns a call that continues with `start` after its credential was accepted. It holds `bytes` while it is pending.
fn authenticate_then(
    authentication: Option<AuthenticateFuture>,
    site: CallSite,
    inherited: CallScope,
    deadline: Option<Instant>,
    bytes: usize,
    start: impl Future<Output = Result<ResponseFuture, Outcome>> + Send + 'static,
) -> FirstPoll {
    let handling = Box::pin(async {
        if let Some(authentication) = authentication
            && let Err(status) = authentication.await
        {
            return OutcomeKind::Unauthenticated(status).into();
        }
        match start.await {
            Ok(handling) => handling.await,
            Err(outcome) => outcome,
        }
    });
    FirstPoll::Pending { handling, site, deadline, inherited, delivery: in_flight::Delivery::Whole, bytes }
}

/// Fails a call once its credential was accepted.
async fn fail(status: Status) -> Result<ResponseFuture, Outcome> {
    Err(Outcome::failed(status))
}

/// Returns the bytes that a pending call holds beside its message. Long names count twice: protocols, hooks and proxies
/// copy them, and so does the text of a failure; usual ones are part of the fixed amount.
fn bytes_beside_message(call: &Call<'_>) -> usize {
    let names = call.service.len() + call.method.len();
    let names = if names > USUAL_NAMES_BYTES { 2 * names } else { 0 };
    call.attachment.len() + call.head.metadata.footprint() + names
}

/// Length of service and method name up to which they count as part of a call's fixed amount.
const USUAL_NAMES_BYTES: usize = 256;

/// Marks a call as one that streams messages in a direction.
fn mark_streamed(started: FirstPoll) -> FirstPoll {
    match started {
        FirstPoll::Pending { handling, site, deadline, inherited, bytes, .. } => FirstPoll::Pending {
            handling,
            site,
            deadline,
            inherited,
            delivery: in_flight::Delivery::Streamed,
            bytes,
        },
        started => started,
    }
}

fn deadline(call: &Call<'_>, arrival: &mut ArrivalTime) -> Option<Instant> {
    call.timeout.and_then(|timeout| arrival.time().checked_add(timeout))
}

/// Returns the caller's deadline, or the server's own limit if that is earlier.
#[cold]
fn bound_deadline(deadline: Option<Instant>, arrival: &mut ArrivalTime, max: Duration) -> Option<Instant> {
    let latest = arrival.time().checked_add(max);
    deadline.map_or(latest, |deadline| Some(latest.map_or(deadline, |latest| latest.min(deadline))))
}

/// Passes a call to its method; the handler is polled later.
fn start_handler(
    entry: &Arc<Route>,
    cx: Context,
    message: Bytes,
    kind: CallKind,
    unreadable: fn(Status) -> Status,
) -> ResponseFuture {
    // brpc's gRPC accepts an empty message regardless of its format (`policy/http_rpc_protocol.cpp`), and a stream
    // attached to a call may carry all messages.
    let body = Body { positional: cx.positional(), ..Body::new(cx.format(), message) };
    entry
        .take(cx, body, kind, unreadable)
        .unwrap_or_else(|status| Box::pin(std::future::ready(Outcome::failed(status))))
}

/// Waits for the single message of a call.
async fn await_message(
    entry: Arc<Route>,
    mut cx: Context,
    incoming: Incoming,
    outgoing: Outgoing,
    limit: usize,
    account: Arc<Account>,
    unreadable: fn(Status) -> Status,
) -> Result<AwaitedMessage, MessageRejection> {
    let message = single_message(&incoming).await?;
    cx.record_compression(message.compression);
    let message = decompress_message_on_blocking_pool(message, limit, account).await?;
    let streams = entry.method().stream_type().server_streaming;
    let (counted, kind) = match streams {
        true => (CountedAs::Stream, CallKind::Answers(outgoing)),
        false => (CountedAs::Call, CallKind::Whole),
    };
    let (bytes, exempt) = (message.len(), entry.is_introspection());
    let start = Box::new(move || start_handler(&entry, cx, message, kind, unreadable));
    Ok(AwaitedMessage { bytes, counted, exempt, start })
}

/// Returns the single message of a call. Any other number of messages is answered as gRPC's `doc/statuscodes.md`
/// specifies.
async fn single_message(incoming: &Incoming) -> Result<Message, Status> {
    let Some(message) = incoming.next_raw().await.transpose()? else {
        return Err(Status::unimplemented("the method takes one message and received none"));
    };
    match incoming.next_raw().await {
        None => Ok(message),
        Some(Err(status)) => Err(status),
        Some(Ok(_)) => Err(Status::unimplemented("the method takes one message and received more")),
    }
}
