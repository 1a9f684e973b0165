use std::fmt;
use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use polyrpc_wire::{Protocol, Status};

use crate::client::{self, Outgoing, Response};
use crate::codec::Body;
use crate::service::{self, Context, Ending, Handling, Peer};
use crate::task::{self, Trace};

/// What watches calls and leaves them as they are. It is a layer of clients and of servers alike.
///
/// A server sees calls of every shape; a client those that are one message each way.
///
/// ```
/// use polyrpc::layers::{Begun, Ended, Observe};
///
/// /// Tells which calls are slow.
/// #[derive(Clone)]
/// struct Slow;
///
/// impl Observe for Slow {
///     type Call = String;
///
///     fn began(&self, call: &Begun<'_>) -> String {
///         format!("{} {}/{}", call.side, call.service, call.method)
///     }
///
///     fn ended(&self, call: String, end: &Ended<'_>) {
///         if end.took.as_millis() > 100 {
///             eprintln!("{call} took {:?}", end.took);
///         }
///     }
/// }
///
/// let server = polyrpc::Server::new().layer(Slow);
/// let client = polyrpc::Client::builder("rpcx://127.0.0.1:8972").layer(Slow);
/// ```
///
/// Clones watch for the same.
pub trait Observe: Clone + Send + Sync + 'static {
    /// What is kept of a call while it is under way.
    type Call: Send + 'static;

    /// A call begins. It runs in the caller's or the connection's task and must not wait.
    fn began(&self, call: &Begun<'_>) -> Self::Call;

    /// A call has ended. Every call that began ends once.
    fn ended(&self, call: Self::Call, end: &Ended<'_>);

    /// The trace that is current within the call; `None`: the one that is current without it.
    fn trace(&self, _call: &Self::Call) -> Option<Trace> {
        None
    }
}

/// On which side of a call one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Where it is made.
    Client,
    /// Where it is answered.
    Server,
}

impl Side {
    /// `client` or `server`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A call that begins.
#[derive(Debug, Clone, Copy)]
pub struct Begun<'a> {
    /// On which side it is seen.
    pub side: Side,
    /// The protocol that carries it.
    pub protocol: Protocol,
    /// The service; empty for a plain function.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// Who called; not known to who calls.
    pub peer: Option<&'a Peer>,
    /// How many bytes the request has, as far as it is here: not compressed, without what is beside it.
    pub request: usize,
}

impl<'a> Begun<'a> {
    pub(super) fn outgoing(call: &Outgoing<'a>) -> Self {
        Self {
            side: Side::Client,
            protocol: call.protocol,
            service: call.service,
            method: call.method,
            peer: None,
            request: call.body.bytes.len(),
        }
    }

    pub(super) fn incoming(cx: &'a Context, body: &Body) -> Self {
        Self {
            side: Side::Server,
            protocol: cx.protocol(),
            service: cx.service(),
            method: cx.method(),
            peer: Some(cx.peer()),
            request: body.bytes.len(),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// From its beginning.
    pub took: Duration,
    /// Why it failed, if it did. One that was given up has failed as [`Cancelled`](crate::Code::Cancelled).
    pub failure: Option<&'a Status>,
    /// How many bytes the reply has, where it is one message: not compressed, without what is beside it.
    pub reply: usize,
}

impl<O: Observe> client::Layer for O {
    fn call<'a>(
        &'a self,
        call: Outgoing<'a>,
        next: client::Next<'a>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        let watch = Watch::begin(self, &Begun::outgoing(&call));
        Box::pin(async move {
            let ended = match watch.trace() {
                None => next.call(call).await,
                // Whatever is inside begins within the trace too.
                Some(trace) => {
                    let within = task::current().with_trace(trace);
                    task::scope(within, async { next.call(call).await }).await
                }
            };
            match &ended {
                Ok(response) => watch.end(None, response.message.bytes.len()),
                Err(status) => watch.end(Some(status), 0),
            }
            ended
        })
    }
}

impl<O: Observe> service::Layer for O {
    fn call(&self, cx: Context, body: Body, next: service::Next<'_>) -> Result<Handling, Status> {
        let watch = Watch::begin(Own(self.clone()), &Begun::incoming(&cx, &body));
        let mut inherited = watch.trace().map(|trace| task::current().with_trace(trace));
        let begun = match &mut inherited {
            None => next.call(cx, body),
            Some(inherited) => inherited.during(|| next.call(cx, body)),
        };
        let handling = match begun {
            Ok(handling) => handling,
            Err(status) => {
                watch.end(Some(&status), 0);
                return Err(status);
            }
        };
        Ok(Box::pin(async move {
            let ending = match inherited {
                None => handling.await,
                Some(inherited) => task::scope(inherited, handling).await,
            };
            match &ending {
                Ending::Reply(reply) => {
                    watch.end(ending.failure(), reply.result.as_ref().map_or(0, |body| body.len()))
                }
                ending => watch.end(ending.failure(), 0),
            }
            ending
        }))
    }
}

/// A call that is watched until it ends, or is given up.
struct Watch<P: Deref<Target: Observe>> {
    observer: P,
    call: Option<<P::Target as Observe>::Call>,
    began: Instant,
}

impl<P: Deref<Target: Observe>> Watch<P> {
    fn begin(observer: P, call: &Begun<'_>) -> Self {
        let call = Some(observer.began(call));
        Self { observer, call, began: Instant::now() }
    }

    fn trace(&self) -> Option<Trace> {
        self.observer.trace(self.call.as_ref()?)
    }

    fn end(mut self, failure: Option<&Status>, reply: usize) {
        self.tell(failure, reply);
    }

    fn tell(&mut self, failure: Option<&Status>, reply: usize) {
        if let Some(call) = self.call.take() {
            self.observer.ended(call, &Ended { took: self.began.elapsed(), failure, reply });
        }
    }
}

impl<P: Deref<Target: Observe>> Drop for Watch<P> {
    fn drop(&mut self) {
        if self.call.is_some() {
            self.tell(Some(&abandoned()), 0);
        }
    }
}

/// How a call ended that has no end of its own.
#[cold]
fn abandoned() -> Status {
    match thread::panicking() {
        true => Status::internal("it panicked"),
        false => Status::cancelled("it was given up"),
    }
}

/// An observer that goes with the call.
struct Own<O>(O);

impl<O> Deref for Own<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.0
    }
}
