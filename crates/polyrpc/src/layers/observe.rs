use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use polyrpc_core::Status;
use polyrpc_wire::Protocol;

use crate::call::{Outcome, Peer};
use crate::layer::{Call, Layer, Next, Side};
use crate::propagation::{self, Trace};

/// What watches calls and leaves them as they are. It is a layer of clients and of servers alike.
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
    fn on_start(&self, call: &CallStart<'_>) -> Self::Call;

    /// A call has ended. Every call that began ends once.
    fn on_end(&self, call: Self::Call, end: &CallEnd<'_>);

    /// The trace that is current within the call; `None`: the one that is current without it.
    fn trace(&self, _call: &Self::Call) -> Option<Trace> {
        None
    }
}

/// A call that begins.
#[derive(Debug, Clone, Copy)]
pub struct CallStart<'a> {
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

impl<'a> CallStart<'a> {
    pub(super) fn of(call: &'a Call) -> Self {
        Self {
            side: call.side(),
            protocol: call.protocol(),
            service: call.service(),
            method: call.method(),
            peer: call.peer(),
            request: call.body().bytes.len(),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub struct CallEnd<'a> {
    /// From its beginning.
    pub took: Duration,
    /// Why it failed, if it did. One that was given up has failed as [`Cancelled`](crate::Code::Cancelled).
    pub failure: Option<&'a Status>,
    /// How many bytes the reply has, where it is one message: not compressed, without what is beside it.
    pub reply: usize,
}

impl<O: Observe> Layer for O {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        let watch = ObservedCall::start(self, &CallStart::of(&call));
        let ending = match watch.trace() {
            None => next.call(call).await,
            // Whatever is inside begins within the trace too.
            Some(trace) => {
                let within = propagation::current().with_trace(trace);
                propagation::scope(within, async { next.call(call).await }).await
            }
        };
        watch.finish(&ending);
        ending
    }
}

/// A call that is watched until it ends, or is given up.
struct ObservedCall<O: Observe> {
    observer: Arc<O>,
    call: Option<O::Call>,
    began: Instant,
}

impl<O: Observe> ObservedCall<O> {
    fn start(observer: Arc<O>, call: &CallStart<'_>) -> Self {
        let call = Some(observer.on_start(call));
        Self { observer, call, began: Instant::now() }
    }

    fn trace(&self) -> Option<Trace> {
        self.observer.trace(self.call.as_ref()?)
    }

    fn finish(mut self, ending: &Outcome) {
        let reply = match ending {
            Outcome::Reply(reply) => reply.result.as_ref().map_or(0, |body| body.len()),
            _ => 0,
        };
        self.notify(ending.failure(), reply);
    }

    fn notify(&mut self, failure: Option<&Status>, reply: usize) {
        if let Some(call) = self.call.take() {
            self.observer.on_end(call, &CallEnd { took: self.began.elapsed(), failure, reply });
        }
    }
}

impl<O: Observe> Drop for ObservedCall<O> {
    fn drop(&mut self) {
        if self.call.is_some() {
            self.notify(Some(&abandoned()), 0);
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
