use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use polyrpc_wire::session::{Offered, Server as Session};
use polyrpc_wire::{Call, Credential, Message, Reply, Status, StreamId};

use super::in_flight::{Way, panicked, poll_guarded};
use super::port::{Authenticator, Port};
use super::streams::Streams;
use crate::codec::{Body, uncompressed};
use crate::runtime::{Owned, wait};
use crate::service::{ConnectionFacts, Context, Ending, Handling, Method, Offer, Peer, Shape};
use crate::streaming::{Incoming, Outgoing};
use crate::task::{self, Inherited};

/// How far a call came when it was first looked at.
pub(super) enum Started {
    /// It has ended.
    Ended(Ending),
    /// Its handler waits for something.
    Waiting { handling: Handling, deadline: Option<Instant>, inherited: Inherited, way: Way },
    /// The caller did not prove who he is.
    Unauthenticated(Status),
}

/// Brings the calls of one connection to their methods.
pub(super) struct Dispatch<'a> {
    port: &'a Port,
    connection: Arc<ConnectionFacts>,
    /// The peer has proved who it is, for a protocol that proves it once.
    trusted: bool,
}

impl<'a> Dispatch<'a> {
    pub(super) fn new(port: &'a Port, connection: Arc<ConnectionFacts>) -> Self {
        Self { port, connection, trusted: false }
    }

    /// Nobody will read an answer any more.
    pub(super) fn close(&self) {
        self.connection.close();
    }

    /// Brings a call to its method and polls the handler once, in place: what is ready at once needs no queue, no
    /// task and no wake-up.
    ///
    /// The method may stream where the protocol has a name for the call as a stream. `arrived` is when the calls that are at hand came, once one of them wanted to know.
    pub(super) fn start<S: Session>(
        &mut self,
        call: Call<'_>,
        ticket: &S::Ticket,
        streams: &mut Streams,
        arrived: &mut Option<Instant>,
        cx: &mut TaskContext<'_>,
    ) -> Started {
        if let Err(status) = self.authenticate(&call.credential) {
            return Started::Unauthenticated(status);
        }
        let method = match find::<S>(&call, ticket, self.port) {
            Ok(method) => method,
            Err(status) => return failed(status),
        };
        if !method.shape().is_unary()
            && let Some(stream) = S::stream(ticket)
        {
            let offered = S::offered(ticket);
            return self.start_stream::<S>(call, method, stream, offered, streams, arrived);
        }
        let offer = S::offered(ticket).map(|offered| streams.offer(offered));
        let deadline = deadline(&call, arrived);
        let mut inherited = Inherited::from_call(deadline, &call.head.metadata);
        let begun = inherited.during(|| {
            let mut handling = begin::<S>(call, method, self.port, &self.connection, deadline, offer)?;
            Ok((poll_guarded(&mut handling, cx), handling))
        });
        match begun {
            Err(status) => failed(status),
            Ok((Poll::Ready(ending), _)) => Started::Ended(ending),
            Ok((Poll::Pending, handling)) => {
                Started::Waiting { handling, deadline, inherited, way: Way::Whole }
            }
        }
    }

    /// Brings a call to its method whose one message is here, and whose answer may have many.
    fn start_stream<S: Session>(
        &self,
        call: Call<'_>,
        method: &Arc<dyn Method>,
        stream: StreamId,
        offered: Option<Offered>,
        streams: &mut Streams,
        arrived: &mut Option<Instant>,
    ) -> Started {
        let limit = self.port.server.limits.decompressed;
        let body = match uncompressed(call.head.compression, call.body.clone(), limit) {
            Ok(body) => body,
            Err(status) => return failed(status),
        };
        let deadline = deadline(&call, arrived);
        // Of a call with a stream beside it, the deadline is that of the answer which accepts the stream.
        let lasting = deadline.filter(|_| offered.is_none());
        let mut inherited = Inherited::from_call(lasting, &call.head.metadata);
        let cx = context::<S>(call, &self.connection, deadline);
        let goes_on = offered.is_some() && method.shape() == Shape::BIDI;
        let (incoming, outgoing) = match goes_on {
            true => streams.open_with(stream, body, limit),
            false => (Incoming::once(body), streams.open(stream, limit).1),
        };
        Started::Waiting {
            handling: inherited.during(|| opened(&**method, cx, incoming, outgoing)),
            deadline: lasting,
            inherited,
            way: Way::Streamed,
        }
    }

    /// Brings a call to its method before its messages are here. Where the method wants one message, they are
    /// gathered first.
    pub(super) fn open<S: Session>(
        &mut self,
        call: Call<'_>,
        ticket: &S::Ticket,
        stream: StreamId,
        streams: &mut Streams,
        arrived: &mut Option<Instant>,
    ) -> Started {
        if let Err(status) = self.authenticate(&call.credential) {
            return Started::Unauthenticated(status);
        }
        let method = match find::<S>(&call, ticket, self.port) {
            Ok(method) => method,
            Err(status) => return failed(status),
        };
        let deadline = deadline(&call, arrived);
        let mut inherited = Inherited::from_call(deadline, &call.head.metadata);
        let cx = context::<S>(call, &self.connection, deadline);
        let limit = self.port.server.limits.decompressed;
        let (incoming, outgoing) = streams.open(stream, limit);
        let handling = match method.shape().client_streams {
            true => inherited.during(|| opened(&**method, cx, incoming, outgoing)),
            false => Box::pin(gathered(method.clone(), cx, incoming, outgoing, limit)),
        };
        Started::Waiting { handling, deadline, inherited, way: Way::Streamed }
    }

    /// Judges who wants something that is no call.
    pub(super) fn admits(&mut self, credential: &Credential) -> Result<(), Status> {
        self.authenticate(credential)
    }

    /// Judges who calls: once for a connection whose protocol proves it once, else on every call.
    fn authenticate(&mut self, credential: &Credential) -> Result<(), Status> {
        let Some(authenticator) = &self.port.authenticator else { return Ok(()) };
        let peer = &self.connection.peer;
        match credential {
            Credential::Connection(_) if self.trusted => Ok(()),
            Credential::Connection(credential) => {
                judge(authenticator, credential.as_deref(), peer)?;
                self.trusted = true;
                Ok(())
            }
            Credential::Call(credential) => judge(authenticator, credential.as_deref(), peer),
        }
    }
}

/// The end of a call that is one too many for its connection.
#[cold]
pub(super) fn crowded(limit: usize) -> Started {
    failed(overloaded(limit))
}

#[cold]
fn failed(status: Status) -> Started {
    Started::Ended(Ending::Reply(Reply::failure(status)))
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
) -> Result<&'p Arc<dyn Method>, Status> {
    let server = &port.server;
    if server.in_flight.load(Ordering::Relaxed) >= server.limits.in_flight {
        return Err(overloaded(server.limits.in_flight));
    }
    let method = server
        .router
        .find(call.service, call.method)
        .map_err(|missing| S::unknown_to(ticket, call, missing))?;
    match &call.spoiled {
        None => Ok(method),
        Some(status) => Err(status.clone()),
    }
}

/// Hands a call to its method.
fn begin<S: Session>(
    mut call: Call<'_>,
    method: &Arc<dyn Method>,
    port: &Port,
    connection: &Arc<ConnectionFacts>,
    deadline: Option<Instant>,
    offer: Option<Offer>,
) -> Result<Handling, Status> {
    let body = std::mem::take(&mut call.body);
    let bytes = uncompressed(call.head.compression, body, port.server.limits.decompressed)?;
    let body = Body { format: call.head.format, positional: call.head.positional, bytes };
    let cx = context::<S>(call, connection, deadline).with_offer(offer);
    started(method, cx, body).map_err(S::unreadable)
}

fn deadline(call: &Call<'_>, arrived: &mut Option<Instant>) -> Option<Instant> {
    call.timeout.and_then(|timeout| arrived.get_or_insert_with(Instant::now).checked_add(timeout))
}

fn context<S: Session>(
    call: Call<'_>,
    connection: &Arc<ConnectionFacts>,
    deadline: Option<Instant>,
) -> Context {
    let usual_format = S::reply_format(call.head.format);
    Context::new(connection.clone(), deadline, call.head, call.attachment, usual_format)
}

fn started(method: &Arc<dyn Method>, cx: Context, body: Body) -> Result<Handling, Status> {
    if method.blocking() { Ok(aside(method.clone(), cx, body)) } else { in_place(&**method, cx, body) }
}

/// Opens a call of a method that streams; a panic in doing so is the end of this call only.
fn opened(method: &dyn Method, cx: Context, incoming: Incoming, outgoing: Outgoing) -> Handling {
    let ending = match catch_unwind(AssertUnwindSafe(|| method.open(cx, incoming, outgoing))) {
        Ok(Ok(handling)) => return handling,
        Ok(Err(status)) => Ending::Reply(Reply::failure(status)),
        Err(panic) => panicked(&*panic),
    };
    Box::pin(std::future::ready(ending))
}

/// Waits for the one message of a call, then answers it.
async fn gathered(
    method: Arc<dyn Method>,
    mut cx: Context,
    incoming: Incoming,
    outgoing: Outgoing,
    limit: usize,
) -> Ending {
    let read = |message: Message| {
        cx.came(message.compression);
        uncompressed(message.compression, message.body, limit)
    };
    let bytes = match sole(&incoming).await.and_then(read) {
        Ok(bytes) => bytes,
        Err(status) => return Ending::Reply(Reply::failure(status)),
    };
    if method.shape().server_streams {
        return opened(&*method, cx, Incoming::once(bytes), outgoing).await;
    }
    let body = Body { format: cx.format(), positional: cx.positional(), bytes };
    match started(&method, cx, body) {
        Ok(handling) => handling.await,
        Err(status) => Ending::Reply(Reply::failure(status)),
    }
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

/// Lets a method read its request here; a panic in reading is the end of this call only.
fn in_place(method: &dyn Method, cx: Context, body: Body) -> Result<Handling, Status> {
    match catch_unwind(AssertUnwindSafe(|| method.start(cx, body))) {
        Ok(started) => started,
        Err(panic) => Ok(Box::pin(std::future::ready(panicked(&*panic)))),
    }
}

/// Runs a method that may hold its thread on one where that harms nobody.
fn aside(method: Arc<dyn Method>, mut cx: Context, body: Body) -> Handling {
    let abandon = cx.abandon();
    let mut inherited = task::current();
    let answer = move || match method.start(cx, body) {
        Ok(handling) => wait(handling),
        Err(status) => Ending::Reply(Reply::failure(status)),
    };
    let running = Owned::from(tokio::task::spawn_blocking(move || inherited.during(answer)));
    Box::pin(async move {
        let _abandon = abandon;
        match running.await {
            Ok(ending) => ending,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => panicked(&*panic),
                Err(_) => Ending::Reply(Reply::failure(Status::unavailable("the server is stopping"))),
            },
        }
    })
}

#[cold]
fn overloaded(limit: usize) -> Status {
    Status::resource_exhausted(format!("Reached server's max_concurrency={limit}"))
}
