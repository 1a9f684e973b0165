use std::fmt;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use polyrpc_core::Status;

use super::{Method, trace_span};
use crate::call::streaming::Incoming;
use crate::call::{CallKind, Context, MethodName, Outcome, ResponseFuture};
use crate::codec::{Body, MAX_IN_PLACE_BYTES, Permit, on_blocking_pool, permit};
use crate::layer::{Call, Erased, Innermost, Layers, Next};
use crate::propagation;
use crate::running::CarriedLabel;
use crate::runtime::{AbortOnDrop, wait};

/// Role of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MethodRole {
    /// A method of the user.
    User,
    /// Introspection of the server itself: health, reflection, pages. No layers or limits of the user's own methods
    /// apply to it.
    Introspection,
    /// Issues tokens for data connections. Limits do not apply, since it finishes at once; layers do, since the data
    /// are the user's.
    Transfer,
    /// Handles calls that no other method handles: see [`RequestedMethod`](crate::call::RequestedMethod).
    Fallback,
    /// A subscription: the method's name is the topic.
    Subscription,
}

/// A method in the router: its names, and the layers around it.
pub(crate) struct Route {
    name: Arc<MethodName>,
    method: Arc<dyn Method>,
    role: MethodRole,
    /// Set when the server binds, since layers may be added after methods.
    layers: OnceLock<Layers>,
}

impl Route {
    pub(crate) fn new(service: &str, name: &str, method: Arc<dyn Method>, role: MethodRole) -> Arc<Self> {
        let name = match role {
            MethodRole::Subscription => MethodName::topic(name),
            _ => MethodName::new(service, name, role == MethodRole::Fallback),
        };
        Arc::new(Self { name: Arc::new(name), method, role, layers: OnceLock::new() })
    }

    /// Returns the names of service and method.
    pub(crate) fn name(&self) -> &Arc<MethodName> {
        &self.name
    }

    pub(crate) fn method(&self) -> &Arc<dyn Method> {
        &self.method
    }

    /// Returns whether it is one of the framework's own methods.
    pub(crate) fn is_standard(&self) -> bool {
        matches!(self.role, MethodRole::Introspection | MethodRole::Transfer)
    }

    /// Returns whether it handles calls that no other method handles.
    pub(crate) fn is_fallback(&self) -> bool {
        self.role == MethodRole::Fallback
    }

    /// Returns whether it is introspection of the server itself.
    pub(crate) fn is_introspection(&self) -> bool {
        self.role == MethodRole::Introspection
    }

    /// Sets the layers around the method. The first setting wins: a route exists once, however many names lead to it.
    pub(crate) fn layer(&self, layers: Layers) {
        let _ = self.layers.set(layers);
    }

    pub(crate) fn layers(&self) -> &Layers {
        self.layers.get().unwrap_or(&Layers::NONE)
    }

    /// Passes a call through the layers to the method. A panic on the way surfaces when the returned future is polled.
    ///
    /// # Errors
    ///
    /// If a layer rejects the call, or if the method cannot decode its request.
    #[inline]
    pub(crate) fn take(
        self: &Arc<Self>,
        cx: Context,
        body: Body,
        kind: CallKind,
        unreadable: fn(Status) -> Status,
    ) -> Result<ResponseFuture, Status> {
        match trace_span::is_wanted() {
            true => self.take_traced(cx, body, kind, unreadable),
            false => self.take_untraced(cx, body, kind, unreadable),
        }
    }

    #[cold]
    fn take_traced(
        self: &Arc<Self>,
        cx: Context,
        body: Body,
        kind: CallKind,
        unreadable: fn(Status) -> Status,
    ) -> Result<ResponseFuture, Status> {
        trace_span::start(cx, |cx| self.take_untraced(cx, body, kind, unreadable))
    }

    #[inline]
    fn take_untraced(
        self: &Arc<Self>,
        cx: Context,
        body: Body,
        kind: CallKind,
        unreadable: fn(Status) -> Status,
    ) -> Result<ResponseFuture, Status> {
        let begin = || match self.layers().is_empty() {
            true => self.start(cx, body, kind, unreadable),
            false => Ok(self.run_layers(cx, body, kind, unreadable)),
        };
        catch_unwind(AssertUnwindSafe(begin))
            .unwrap_or_else(|panic| Ok(Box::pin(async { resume_unwind(panic) })))
    }

    /// Passes a call through the layers.
    #[cold]
    fn run_layers(
        self: &Arc<Self>,
        cx: Context,
        body: Body,
        kind: CallKind,
        unreadable: fn(Status) -> Status,
    ) -> ResponseFuture {
        let call = Call::incoming(cx, body, self.method.stream_type());
        Next::new(RoutedCall { entry: self.clone(), kind, unreadable }).run(call)
    }

    /// Inside all layers: passes the call to the method.
    ///
    /// # Errors
    ///
    /// If the method cannot decode its request.
    // Inlined into `take`, where most calls have no layers: 50 instructions a call.
    #[inline]
    fn start(
        &self,
        cx: Context,
        body: Body,
        kind: CallKind,
        unreadable: fn(Status) -> Status,
    ) -> Result<ResponseFuture, Status> {
        if body.bytes.len() > MAX_IN_PLACE_BYTES && self.decodes_aside(&body, &kind) {
            return Ok(start_aside(self.method.clone(), cx, body, kind, unreadable));
        }
        match kind {
            CallKind::Whole if self.method.is_blocking() => {
                Ok(run_blocking(self.method.clone(), cx, body, unreadable, None))
            }
            CallKind::Whole => self.method.start(cx, body).map_err(unreadable),
            CallKind::Answers(outgoing) => {
                self.method.open(cx, Incoming::once(body.bytes), outgoing).map_err(unreadable)
            }
            CallKind::Streams(incoming, outgoing) => self.method.open(cx, incoming, outgoing),
        }
    }

    /// Whether a long message is decoded on a blocking thread. Messages of a stream are decoded when they are received.
    #[cold]
    fn decodes_aside(&self, body: &Body, kind: &CallKind) -> bool {
        !matches!(kind, CallKind::Streams(..)) && self.method.decodes_slowly(body)
    }
}

/// A call on its way through layers to its method.
struct RoutedCall {
    entry: Arc<Route>,
    kind: CallKind,
    /// Converts a decoding error of the method's request into the protocol's own status.
    unreadable: fn(Status) -> Status,
}

impl Innermost for RoutedCall {
    fn layers(&self) -> &[Arc<dyn Erased>] {
        self.entry.layers().as_slice()
    }

    fn call(self: Box<Self>, call: Call) -> ResponseFuture {
        let Self { entry, kind, unreadable } = *self;
        let begun = call.into_incoming().and_then(|(cx, body)| entry.start(cx, body, kind, unreadable));
        begun.unwrap_or_else(|status| Box::pin(ready(Outcome::failed(status))))
    }

    fn is_blocking(&self) -> bool {
        self.entry.method().is_blocking()
    }
}

/// Returns how many calls of blocking methods wait for a thread, in the whole process.
pub(crate) fn queued_calls() -> usize {
    QUEUED.load(Ordering::Relaxed)
}

static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// A call that waits for a thread.
struct BlockingQueueGuard;

impl BlockingQueueGuard {
    fn new() -> Self {
        QUEUED.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for BlockingQueueGuard {
    fn drop(&mut self) {
        QUEUED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a method whose long message is decoded on the blocking pool: in place, all other connections of the thread
/// would wait for it.
#[cold]
fn start_aside(
    method: Arc<dyn Method>,
    cx: Context,
    body: Body,
    kind: CallKind,
    unreadable: fn(Status) -> Status,
) -> ResponseFuture {
    let (mut inherited, label) = (propagation::current(), CarriedLabel::take());
    Box::pin(async move {
        if matches!(kind, CallKind::Whole) && method.is_blocking() {
            let permit = permit().await;
            return run_blocking(method, cx, body, unreadable, Some(permit)).await;
        }
        let start = move || match kind {
            CallKind::Whole => method.start(cx, body),
            CallKind::Answers(outgoing) => method.open(cx, Incoming::once(body.bytes), outgoing),
            CallKind::Streams(incoming, outgoing) => method.open(cx, incoming, outgoing),
        };
        match on_blocking_pool(move || inherited.run(|| label.run(start))).await {
            Ok(handling) => handling.await,
            Err(status) => Outcome::failed(unreadable(status)),
        }
    })
}

/// Runs a method that may block on the blocking pool; a long message is decoded with a permit.
fn run_blocking(
    method: Arc<dyn Method>,
    mut cx: Context,
    body: Body,
    unreadable: fn(Status) -> Status,
    permit: Option<Permit>,
) -> ResponseFuture {
    let abandon = cx.cancel_on_drop();
    let site = cx.site();
    let (mut inherited, label) = (propagation::current(), CarriedLabel::take());
    let queued = BlockingQueueGuard::new();
    let answer = move || {
        drop(queued);
        // It may have waited for a thread in the meantime.
        if cx.is_cancelled() {
            return Outcome::expired();
        }
        label.run(|| {
            let started = method.start(cx, body);
            drop(permit);
            match started {
                Ok(handling) => wait(handling),
                Err(status) => Outcome::failed(unreadable(status)),
            }
        })
    };
    let running = AbortOnDrop::from(tokio::task::spawn_blocking(move || inherited.run(answer)));
    Box::pin(async move {
        let _abandon = abandon;
        match running.await {
            Ok(outcome) => outcome,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => site.handle_panic(&*panic),
                Err(_) => Outcome::failed(Status::unavailable("the server is stopping")),
            },
        }
    })
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}
