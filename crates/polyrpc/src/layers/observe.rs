use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::thread;
use std::time::{Duration, Instant};

use polyrpc_core::{Metadata, Status};
use polyrpc_wire::Protocol;

use crate::call::{Context, Outcome, OutcomeKind, Peer};
use crate::layer::{Call, Layer, Next, Side};
use crate::propagation::{self, CallScope, Trace};
use crate::running::TrackedCall;

/// Observer of calls, which does not change them. It is a layer of clients and of servers alike.
///
/// ```
/// use polyrpc::layers::{CallStart, CallEnd, Observe};
///
/// /// Reports slow calls.
/// #[derive(Clone)]
/// struct Slow;
///
/// impl Observe for Slow {
///     type Call = String;
///
///     fn on_start(&self, call: &CallStart<'_>) -> String {
///         format!("{} {}/{}", call.side, call.service, call.method)
///     }
///
///     fn on_end(&self, call: String, end: &CallEnd<'_>) {
///         if end.duration.as_millis() > 100 {
///             eprintln!("{call} took {:?}", end.duration);
///         }
///     }
/// }
///
/// let server = polyrpc::Server::new().layer(Slow);
/// let client = polyrpc::Client::builder("rpcx://127.0.0.1:8972").layer(Slow);
/// ```
///
/// Clones share the observer's state.
pub trait Observe: Clone + Send + Sync + 'static {
    /// State that is kept while a call is in flight.
    type Call: Send + 'static;

    /// Called when a call starts. It runs on the caller's or the connection's task and must not block.
    fn on_start(&self, call: &CallStart<'_>) -> Self::Call;

    /// Called when a call has ended, exactly once for every started call.
    fn on_end(&self, call: Self::Call, end: &CallEnd<'_>);

    /// Returns the trace that is current within the call; `None`: the one that is current outside of it.
    fn trace(&self, _call: &Self::Call) -> Option<Trace> {
        None
    }
}

/// A call that starts.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallStart<'a> {
    /// The side on which it is observed.
    pub side: Side,
    /// The protocol that carries it.
    pub protocol: Protocol,
    /// The service; empty for a plain function.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// The caller; `None` on a client.
    pub peer: Option<&'a Peer>,
    /// Its metadata; `None` where they are not kept.
    pub metadata: Option<&'a Metadata>,
    /// Size of the request, as far as it was received: not compressed, without its attachment.
    pub request_bytes: usize,
    /// When it arrived at the server, if that was [measured](crate::Context::arrived).
    pub arrived: Option<Instant>,
    /// Whether the program names the method. `false` for a [fallback](crate::Server::fallback)'s calls and a server's
    /// subscriptions: their callers may invent any names.
    pub declared: bool,
}

impl<'a> CallStart<'a> {
    /// Returns the information about a call before it is made.
    pub fn new(call: &'a Call) -> Self {
        Self {
            side: call.side(),
            protocol: call.protocol(),
            service: call.service(),
            method: call.method(),
            peer: call.peer(),
            metadata: Some(call.metadata()),
            request_bytes: call.body().bytes.len(),
            arrived: call.context().and_then(Context::arrived),
            declared: !call.context().is_some_and(Context::is_named_by_caller),
        }
    }

    /// Returns `package.Service/Method`, or the function's name, as OpenTelemetry's conventions name spans.
    pub fn full_name(&self) -> String {
        match self.service {
            "" => self.method.to_owned(),
            service => format!("{service}/{}", self.method),
        }
    }
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallEnd<'a> {
    /// Time since it started.
    pub duration: Duration,
    /// Why it failed, if it did. A cancelled call has failed as [`Cancelled`](crate::Code::Cancelled).
    pub failure: Option<&'a Status>,
    /// Size of the reply, if it is a single message: not compressed, without its attachment.
    pub reply_bytes: usize,
}

impl<O: Observe> Layer for O {
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static {
        observe(self, call, next)
    }
}

/// The same for observers of this crate, which have a private type for the state of a call.
pub(super) trait Observer: Send + Sync + 'static {
    type Call: Send + 'static;

    fn on_start(&self, call: &CallStart<'_>) -> Self::Call;

    fn on_end(&self, call: Self::Call, end: &CallEnd<'_>);

    /// Returns the scope that is current within the call; `None`: the outer one.
    fn scope(&self, _call: &Self::Call) -> Option<CallScope> {
        None
    }

    /// Returns the identity of a call in flight, if it is watched.
    fn track(&self, _call: &Self::Call, _began: Instant) -> Option<TrackedCall> {
        None
    }
}

impl<O: Observe> Observer for O {
    type Call = O::Call;

    fn on_start(&self, call: &CallStart<'_>) -> O::Call {
        Observe::on_start(self, call)
    }

    fn on_end(&self, call: O::Call, end: &CallEnd<'_>) {
        Observe::on_end(self, call, end);
    }

    fn scope(&self, call: &O::Call) -> Option<CallScope> {
        Observe::trace(self, call).map(|trace| propagation::current().with_trace(trace))
    }
}

/// Makes a call and reports it to the observer.
pub(super) async fn observe(observer: Arc<impl Observer>, call: Call, next: Next) -> Outcome {
    let watch = ObservedCall::start(observer, &CallStart::new(&call));
    let mut tracked = watch.track();
    let outcome = match watch.scope() {
        None => {
            let mut run = pin!(match &tracked {
                None => next.run(call),
                Some(tracked) => tracked.start(next.is_blocking(), || next.run(call)),
            });
            poll_fn(|cx| poll(&mut tracked, run.as_mut(), cx)).await
        }
        // The inner call starts within the scope too.
        Some(within) => {
            let mut run = pin!(propagation::scope(within, async { next.run(call).await }));
            poll_fn(|cx| poll(&mut tracked, run.as_mut(), cx)).await
        }
    };
    watch.finish(&outcome);
    outcome
}

/// Polls a call, which is in the list of calls in flight if it is watched.
#[inline]
fn poll<F: Future>(
    tracked: &mut Option<TrackedCall>,
    call: Pin<&mut F>,
    cx: &mut TaskContext<'_>,
) -> Poll<F::Output> {
    match tracked {
        None => call.poll(cx),
        Some(tracked) => tracked.poll(|| call.poll(cx)),
    }
}

/// A call that is observed until it ends or is dropped.
struct ObservedCall<O: Observer> {
    observer: Arc<O>,
    call: Option<O::Call>,
    began: Instant,
}

impl<O: Observer> ObservedCall<O> {
    fn start(observer: Arc<O>, call: &CallStart<'_>) -> Self {
        let call = Some(observer.on_start(call));
        Self { observer, call, began: Instant::now() }
    }

    fn scope(&self) -> Option<CallScope> {
        self.observer.scope(self.call.as_ref()?)
    }

    fn track(&self) -> Option<TrackedCall> {
        self.observer.track(self.call.as_ref()?, self.began)
    }

    fn finish(mut self, outcome: &Outcome) {
        let reply = match &outcome.0 {
            OutcomeKind::Reply(reply) => reply.result.as_ref().map_or(0, |body| body.len()),
            _ => 0,
        };
        self.notify(outcome.failure(), reply);
    }

    fn notify(&mut self, failure: Option<&Status>, reply: usize) {
        if let Some(call) = self.call.take() {
            self.observer
                .on_end(call, &CallEnd { duration: self.began.elapsed(), failure, reply_bytes: reply });
        }
    }
}

impl<O: Observer> Drop for ObservedCall<O> {
    fn drop(&mut self) {
        if self.call.is_some() {
            self.notify(Some(&abandoned()), 0);
        }
    }
}

/// Status of a call that was dropped before it ended.
#[cold]
fn abandoned() -> Status {
    match thread::panicking() {
        true => Status::internal("it panicked"),
        false => Status::cancelled("it was cancelled"),
    }
}
