use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use bytes::Bytes;
use polyrpc_wire::session::{Offered, Server as Session, Violation};
use polyrpc_wire::{Call, Credential, Head, Message, Scope, Status, StreamId};

use super::arrival::Arrival;
use super::hooks::Renamed;
use super::in_flight::{self, poll_guarded};
use super::note::Note;
use super::port::{Authenticator, Port};
use super::streams::Streams;
use crate::codec::{Body, uncompressed, uncompressed_message};
use crate::service::{ConnectionFacts, Context, Ending, Entry, Handling, Peer, Shape, Way};
use crate::streaming::{Incoming, Outgoing};
use crate::task::Inherited;

/// How far a call came when it was first looked at.
pub(super) enum Started {
    /// It has ended.
    Ended(Ending),
    /// Its handler waits for something.
    Waiting { handling: Handling, deadline: Option<Instant>, inherited: Inherited, way: in_flight::Way },
    /// It was not begun.
    Stopped(Stop),
}

/// Why a call was not begun.
pub(super) enum Stop {
    /// It cannot be, or not now.
    Failed(Status),
    /// Its deadline had passed: whoever called waits no longer.
    Expired,
    /// The caller did not prove who he is, or is not wanted.
    Refused(Status),
    /// In its protocol it ends the connection.
    Broken(Violation),
}

/// Brings the calls of one connection to their methods.
pub(super) struct Dispatch<'a> {
    port: &'a Port,
    connection: Arc<ConnectionFacts>,
    /// The peer has proved who it is, for a protocol that proves it once.
    trusted: bool,
}

/// What a call finds on its connection.
pub(super) struct Found<'a> {
    /// There are as many calls already as there may be.
    pub(super) crowded: bool,
    pub(super) streams: &'a mut Streams,
    pub(super) arrival: &'a mut Arrival,
}

/// A call that may go on.
struct Admitted<'a> {
    entry: &'a Arc<Entry>,
    deadline: Option<Instant>,
}

impl<'a> Dispatch<'a> {
    pub(super) fn new(port: &'a Port, connection: Arc<ConnectionFacts>) -> Self {
        Self { port, connection, trusted: false }
    }

    /// Who is at the other end.
    pub(super) fn caller(&self) -> &ConnectionFacts {
        &self.connection
    }

    /// Nobody will read an answer any more.
    pub(super) fn close(&self) {
        self.connection.close();
    }

    /// Brings a call to its method and polls the handler once, in place: what is ready at once needs no queue, no
    /// task and no wake-up. The method may stream where the protocol has a name for the call as a stream.
    ///
    /// With it comes a note if hooks want to hear how the call ends.
    pub(super) fn start<S: Session>(
        &mut self,
        call: Call<'_>,
        ticket: &S::Ticket,
        mut found: Found<'_>,
        cx: &mut TaskContext<'_>,
    ) -> (Started, Option<Box<Note>>) {
        let mut note = self.note(&call, found.arrival);
        let mut renamed = Renamed::default();
        let mut call = call;
        let started = match self.admit::<S>(&mut call, ticket, &mut found, &mut renamed, &mut note) {
            Ok(admitted) => self.begin::<S>(call, ticket, &admitted, found, cx),
            Err(stop) => Started::Stopped(stop),
        };
        (started, note)
    }

    /// Brings a call to its method before its messages are here. Where the method wants one message, they are
    /// gathered first.
    pub(super) fn open<S: Session>(
        &mut self,
        call: Call<'_>,
        ticket: &S::Ticket,
        stream: StreamId,
        mut found: Found<'_>,
    ) -> (Started, Option<Box<Note>>) {
        let mut note = self.note(&call, found.arrival);
        let mut renamed = Renamed::default();
        let mut call = call;
        let started = match self.admit::<S>(&mut call, ticket, &mut found, &mut renamed, &mut note) {
            Ok(admitted) => self.begin_open::<S>(call, stream, &admitted, found.streams),
            Err(stop) => Started::Stopped(stop),
        };
        (started, note)
    }

    /// What is noted of a call for hooks, if there are any.
    fn note(&self, call: &Call<'_>, arrival: &mut Arrival) -> Option<Box<Note>> {
        let hooks = &self.port.server.hooks;
        if hooks.is_empty() {
            return None;
        }
        Some(Note::new(hooks, &self.connection, arrival.at(), call))
    }

    /// Checks a call and finds its method, and notes what is called.
    fn admit<'c, S: Session>(
        &mut self,
        call: &mut Call<'c>,
        ticket: &S::Ticket,
        found: &mut Found<'_>,
        renamed: &'c mut Renamed,
        note: &mut Option<Box<Note>>,
    ) -> Result<Admitted<'a>, Stop> {
        let admitted = self.check::<S>(call, ticket, found, renamed);
        if let Some(note) = note {
            match &admitted {
                Ok(Admitted { entry, .. }) => note.found(entry),
                Err(_) => note.asked(call),
            }
        }
        admitted
    }

    /// What costs least comes first, and nothing that a stranger may ask for or that nobody waits for comes far.
    fn check<'c, S: Session>(
        &mut self,
        call: &mut Call<'c>,
        ticket: &S::Ticket,
        found: &mut Found<'_>,
        renamed: &'c mut Renamed,
    ) -> Result<Admitted<'a>, Stop> {
        let port = self.port;
        if !port.server.hooks.is_empty() {
            port.server.hooks.received(call, &self.connection, renamed).map_err(objected)?;
        }
        self.authenticate(&call.credential).map_err(Stop::Refused)?;
        let deadline = deadline(call, found.arrival);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Stop::Expired);
        }
        let entry = find::<S>(call, ticket, port, found.crowded).map_err(Stop::Failed)?;
        Ok(Admitted { entry, deadline })
    }

    fn begin<S: Session>(
        &self,
        mut call: Call<'_>,
        ticket: &S::Ticket,
        admitted: &Admitted<'_>,
        found: Found<'_>,
        cx: &mut TaskContext<'_>,
    ) -> Started {
        let (entry, offered) = (admitted.entry, S::offered(ticket));
        let body = std::mem::take(&mut call.body);
        let bytes = match uncompressed(call.head.compression, body, self.port.server.limits.decompressed) {
            Ok(bytes) => bytes,
            Err(status) => {
                return Started::Stopped(S::corrupt(ticket, status).map_or_else(Stop::Broken, Stop::Failed));
            }
        };
        if !entry.method().shape().is_unary()
            && let Some(stream) = S::stream(ticket)
        {
            return self.begin_stream::<S>(call, bytes, admitted, stream, offered, found.streams);
        }
        let Head { format, positional, .. } = call.head;
        let body = Body { format, positional, required: !S::may_be_empty(ticket), bytes };
        let offer = offered.map(|offered| found.streams.offer(offered));
        let deadline = admitted.deadline;
        let mut inherited = Inherited::from_call(deadline, &call.head.metadata);
        let context = self.context::<S>(call, admitted, found.arrival.known()).with_offer(offer);
        let begun = inherited.during(|| {
            let mut handling = entry.take(context, body, Way::Whole, S::unreadable)?;
            Ok((poll_guarded(&mut handling, cx), handling))
        });
        match begun {
            Err(status) => failed(status),
            Ok((Poll::Ready(ending), _)) => Started::Ended(ending),
            Ok((Poll::Pending, handling)) => {
                Started::Waiting { handling, deadline, inherited, way: in_flight::Way::Whole }
            }
        }
    }

    /// Brings a call to its method whose one message is here, and whose answer may have many.
    fn begin_stream<S: Session>(
        &self,
        call: Call<'_>,
        message: Bytes,
        admitted: &Admitted<'_>,
        stream: StreamId,
        offered: Option<Offered>,
        streams: &mut Streams,
    ) -> Started {
        let limit = self.port.server.limits.decompressed;
        let goes_on = offered.is_some() && admitted.entry.method().shape() == Shape::BIDI;
        // Of a call with a stream beside it, the deadline is that of the answer which accepts the stream.
        let deadline = admitted.deadline.filter(|_| offered.is_none());
        let mut inherited = Inherited::from_call(deadline, &call.head.metadata);
        let cx = self.context::<S>(call, admitted, None);
        let (message, way) = if goes_on {
            let (incoming, outgoing) = streams.open_with(stream, message, limit);
            (Bytes::new(), Way::Streams(incoming, outgoing))
        } else {
            (message, Way::Answers(streams.open(stream, limit).1))
        };
        let handling = inherited.during(|| opened(admitted.entry, cx, message, way));
        Started::Waiting { handling, deadline, inherited, way: in_flight::Way::Streamed }
    }

    fn begin_open<S: Session>(
        &self,
        call: Call<'_>,
        stream: StreamId,
        admitted: &Admitted<'_>,
        streams: &mut Streams,
    ) -> Started {
        let &Admitted { entry, deadline } = admitted;
        let mut inherited = Inherited::from_call(deadline, &call.head.metadata);
        let cx = self.context::<S>(call, admitted, None);
        let limit = self.port.server.limits.decompressed;
        let (incoming, outgoing) = streams.open(stream, limit);
        let handling = match entry.method().shape().client_streams {
            true => inherited.during(|| opened(entry, cx, Bytes::new(), Way::Streams(incoming, outgoing))),
            false => Box::pin(gathered(entry.clone(), cx, incoming, outgoing, limit)),
        };
        Started::Waiting { handling, deadline, inherited, way: in_flight::Way::Streamed }
    }

    fn context<S: Session>(
        &self,
        call: Call<'_>,
        admitted: &Admitted<'_>,
        arrived: Option<Instant>,
    ) -> Context {
        let usual_format = S::reply_format(call.head.format);
        let Admitted { entry, deadline } = admitted;
        Context::new(self.connection.clone(), *deadline, call.head, call.attachment, usual_format)
            .of((*entry).clone(), arrived)
    }

    /// Judges who wants something that is no call.
    pub(super) fn admits(&mut self, credential: &Credential) -> Result<(), Status> {
        self.authenticate(credential)
    }

    /// Judges who calls, by every credential that comes. Only where a protocol proves it once for a connection, a call
    /// without one is as good as the one before.
    fn authenticate(&mut self, credential: &Credential) -> Result<(), Status> {
        let Some(authenticator) = &self.port.authenticator else { return Ok(()) };
        let peer = &self.connection.peer;
        match credential {
            Credential::Connection(None) if self.trusted => Ok(()),
            Credential::Connection(credential) => {
                judge(authenticator, credential.as_deref(), peer)?;
                self.trusted = true;
                Ok(())
            }
            Credential::Call(credential) => judge(authenticator, credential.as_deref(), peer),
        }
    }
}

#[cold]
fn failed(status: Status) -> Started {
    Started::Stopped(Stop::Failed(status))
}

/// What becomes of a call to which a hook objects.
#[cold]
fn objected(status: Status) -> Stop {
    match status.scope() {
        Scope::Call => Stop::Failed(status),
        Scope::Connection => Stop::Refused(status),
    }
}

/// Who cannot be judged is not let in; the other calls of the connection go on.
fn judge(authenticator: &Authenticator, credential: Option<&[u8]>, peer: &Peer) -> Result<(), Status> {
    catch_unwind(AssertUnwindSafe(|| authenticator(credential, peer)))
        .unwrap_or_else(|_| Err(Status::unauthenticated("the authenticator panicked")))
}

/// Checks a call in the order in which the peers do (brpc `policy/baidu_rpc_protocol.cpp`,
/// `ProcessRpcRequest`) and finds its method.
fn find<'p, S: Session>(
    call: &Call<'_>,
    ticket: &S::Ticket,
    port: &'p Port,
    crowded: bool,
) -> Result<&'p Arc<Entry>, Status> {
    let server = &port.server;
    if crowded {
        return Err(overloaded(server.limits.in_flight_per_connection));
    }
    if server.in_flight.load(Ordering::Relaxed) >= server.limits.in_flight {
        return Err(overloaded(server.limits.in_flight));
    }
    let entry = server
        .router
        .entry(call.service, call.method)
        .map_err(|missing| S::unknown_to(ticket, call, missing))?;
    match &call.spoiled {
        None => Ok(entry),
        Some(status) => Err(status.clone()),
    }
}

fn deadline(call: &Call<'_>, arrival: &mut Arrival) -> Option<Instant> {
    call.timeout.and_then(|timeout| arrival.at().checked_add(timeout))
}

/// Takes a call to its method whose handler is polled later.
fn opened(entry: &Arc<Entry>, cx: Context, message: Bytes, way: Way) -> Handling {
    // brpc's gRPC takes an empty message whatever its format (`policy/http_rpc_protocol.cpp`), and a stream offered
    // beside a call may bring them all.
    let body = Body { positional: cx.positional(), ..Body::new(cx.format(), message) };
    entry
        .take(cx, body, way, std::convert::identity)
        .unwrap_or_else(|status| Box::pin(std::future::ready(Ending::failed(status))))
}

/// Waits for the one message of a call, then answers it.
async fn gathered(
    entry: Arc<Entry>,
    mut cx: Context,
    incoming: Incoming,
    outgoing: Outgoing,
    limit: usize,
) -> Ending {
    let read = |message: Message| {
        cx.came(message.compression);
        uncompressed_message(message, limit)
    };
    let message = match sole(&incoming).await.and_then(read) {
        Ok(message) => message,
        Err(status) => return Ending::failed(status),
    };
    let way = if entry.method().shape().server_streams { Way::Answers(outgoing) } else { Way::Whole };
    opened(&entry, cx, message, way).await
}

/// The one message of a call. Another number of them is answered as gRPC's `doc/statuscodes.md` has it.
async fn sole(incoming: &Incoming) -> Result<Message, Status> {
    let Some(message) = incoming.next_raw().await.transpose()? else {
        return Err(Status::unimplemented("the method wants one message, and none came"));
    };
    match incoming.next_raw().await {
        None => Ok(message),
        Some(Err(status)) => Err(status),
        Some(Ok(_)) => Err(Status::unimplemented("the method wants one message, and more came")),
    }
}

#[cold]
fn overloaded(limit: usize) -> Status {
    Status::resource_exhausted(format!("Reached server's max_concurrency={limit}"))
}
