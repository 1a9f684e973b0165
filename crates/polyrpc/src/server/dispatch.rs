use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use polyrpc_wire::session::Server as Session;
use polyrpc_wire::{Call, Credential, Reply, Status};

use super::in_flight::{panicked, poll_guarded};
use super::port::{Authenticator, Port};
use crate::codec::{Body, uncompressed};
use crate::runtime::{Owned, wait};
use crate::service::{ConnectionFacts, Context, Ending, Handling, Method, Peer};

/// How far a call came when it was first looked at.
pub(super) enum Started {
    /// It has ended.
    Ended(Ending),
    /// Its handler waits for something.
    Waiting { handling: Handling, deadline: Option<Instant> },
    /// The caller did not prove who he is.
    Unauthenticated(Status),
}

/// Brings a call to its method and polls the handler once, in place: what is ready at once needs no queue, no
/// task and no wake-up.
pub(super) fn start<S: Session>(
    call: Call<'_>,
    port: &Port,
    connection: &Arc<ConnectionFacts>,
    trusted: &mut bool,
    arrived: &mut Option<Instant>,
    cx: &mut TaskContext<'_>,
) -> Started {
    if let Err(status) = authenticate(&call.credential, port, connection, trusted) {
        return Started::Unauthenticated(status);
    }
    match begin::<S>(call, port, connection, arrived) {
        Err(status) => Started::Ended(Ending::Reply(Reply::failure(status))),
        Ok((mut handling, deadline)) => match poll_guarded(&mut handling, cx) {
            Poll::Ready(ending) => Started::Ended(ending),
            Poll::Pending => Started::Waiting { handling, deadline },
        },
    }
}

/// Judges who calls: once for a connection whose protocol proves it once, else on every call.
fn authenticate(
    credential: &Credential,
    port: &Port,
    connection: &ConnectionFacts,
    trusted: &mut bool,
) -> Result<(), Status> {
    let Some(authenticator) = &port.authenticator else { return Ok(()) };
    match credential {
        Credential::Connection(_) if *trusted => Ok(()),
        Credential::Connection(credential) => {
            judge(authenticator, credential.as_deref(), &connection.peer)?;
            *trusted = true;
            Ok(())
        }
        Credential::Call(credential) => judge(authenticator, credential.as_deref(), &connection.peer),
    }
}

/// Who cannot be judged is not let in; the other calls of the connection go on.
fn judge(authenticator: &Authenticator, credential: Option<&[u8]>, peer: &Peer) -> Result<(), Status> {
    catch_unwind(AssertUnwindSafe(|| authenticator(credential, peer)))
        .unwrap_or_else(|_| Err(Status::unauthenticated("the authenticator panicked")))
}

/// Checks a call in the order in which the peers do (brpc `policy/baidu_rpc_protocol.cpp`,
/// `ProcessRpcRequest`) and hands it to its method.
fn begin<S: Session>(
    call: Call<'_>,
    port: &Port,
    connection: &Arc<ConnectionFacts>,
    arrived: &mut Option<Instant>,
) -> Result<(Handling, Option<Instant>), Status> {
    let server = &port.server;
    if server.in_flight.load(Ordering::Relaxed) >= server.limits.in_flight {
        return Err(overloaded(server.limits.in_flight));
    }
    let method =
        server.router.find(call.service, call.method).map_err(|missing| S::unknown(&call, missing))?;
    if let Some(status) = call.spoiled {
        return Err(status);
    }
    let bytes = uncompressed(call.head.compression, call.body, server.limits.decompressed)?;
    let deadline =
        call.timeout.and_then(|timeout| arrived.get_or_insert_with(Instant::now).checked_add(timeout));
    let body = Body { format: call.head.format, positional: call.head.positional, bytes };
    let usual_format = S::reply_format(body.format);
    let cx = Context::new(connection.clone(), deadline, call.head, call.attachment, usual_format);
    let handling =
        if method.blocking() { aside(method.clone(), cx, body) } else { in_place(&**method, cx, body)? };
    Ok((handling, deadline))
}

/// Lets a method read its request here; a panic in reading is the end of this call only.
fn in_place(method: &dyn Method, cx: Context, body: Body) -> Result<Handling, Status> {
    match catch_unwind(AssertUnwindSafe(|| method.start(cx, body))) {
        Ok(started) => started,
        Err(panic) => Ok(Box::pin(std::future::ready(panicked(&*panic)))),
    }
}

/// Runs a method that may hold its thread on one where that harms nobody.
fn aside(method: Arc<dyn Method>, cx: Context, body: Body) -> Handling {
    let running = Owned::from(tokio::task::spawn_blocking(move || match method.start(cx, body) {
        Ok(handling) => wait(handling),
        Err(status) => Ending::Reply(Reply::failure(status)),
    }));
    Box::pin(async move {
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
