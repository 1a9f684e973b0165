use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polyrpc_core::Status;
use polyrpc_wire::Protocol;

use super::observe::{Observer, observe};
use super::sampler::Sampler;
use super::{CallEnd, CallStart};
use crate::call::{Outcome, Peer};
use crate::layer::{Call, Layer, Next, Side};
use crate::propagation::{self, CallScope, Trace, TraceParent};

/// Creates a span for each call and passes it, when the call has ended, to a function of the program, to log it or to
/// send it to a collector.
///
/// The span is a child of the current one ([`propagation`](crate::propagation)): on a server that is the caller's, from
/// the `traceparent` in the protocol's metadata. Within the call the new span is current, so that further calls are its
/// children. If no span is current, a trace starts.
///
/// ```
/// use polyrpc::layers::{Span, Spans};
///
/// let spans = Spans::new(|span: &Span<'_>| {
///     println!("{} {} took {:?}: {:?}", span.context, span.name, span.duration, span.failure);
/// });
/// // As rpcx's OpenTelemetry plugin names them.
/// let spans = spans.span_name(|call| match call.side {
///     polyrpc::layer::Side::Client => format!("rpcx.client.{}.{}", call.service, call.method),
///     polyrpc::layer::Side::Server => format!("rpcx.service.{}.{}", call.service, call.method),
/// });
/// let server = polyrpc::Server::new().layer(spans.clone());
/// let client = polyrpc::Client::builder("rpcx://127.0.0.1:8972").layer(spans);
/// ```
///
/// Spans of traces that are not sampled are propagated but not reported; they allocate nothing but the trace.
#[derive(Clone)]
pub struct Spans(Arc<Tracer>);

#[derive(Clone)]
struct Tracer {
    sink: Arc<dyn Fn(&Span<'_>) + Send + Sync>,
    name: Arc<dyn Fn(&CallStart<'_>) -> String + Send + Sync>,
    /// Sampling of the traces that start here.
    sampler: Arc<Sampler>,
}

/// A call as a span of a trace.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Span<'a> {
    /// `package.Service/Method`, unless a [name function](Spans::span_name) is set.
    pub name: &'a str,
    /// The trace's id and the span's own.
    pub context: TraceParent,
    /// The parent span; `None` if the trace starts here.
    pub parent: Option<u64>,
    /// The side on which the call was observed.
    pub side: Side,
    /// The protocol that carried it.
    pub protocol: Protocol,
    /// The service; empty for a plain function.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// The caller; `None` on a client.
    pub peer: Option<&'a Peer>,
    /// When it started.
    pub start_time: SystemTime,
    /// Its duration.
    pub duration: Duration,
    /// Why it failed, if it did.
    pub failure: Option<&'a Status>,
}

impl Spans {
    /// Reports every span of traces that start here and of those that are sampled elsewhere. `sink` runs on the
    /// caller's or the connection's task and must not block.
    pub fn new(sink: impl Fn(&Span<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Tracer {
            sink: Arc::new(sink),
            name: Arc::new(|call: &CallStart<'_>| call.full_name()),
            sampler: Arc::new(Sampler::new(1.0)),
        }))
    }

    /// Samples this share of the traces that start here: 0.01 for one percent. Default: 1.0.
    #[must_use]
    pub fn sample_rate(self, rate: f64) -> Self {
        Self(Arc::new(Tracer { sampler: Arc::new(Sampler::new(rate)), ..(*self.0).clone() }))
    }

    /// Sets the function that names a call's span. Default: `package.Service/Method`.
    #[must_use]
    pub fn span_name(self, name: impl Fn(&CallStart<'_>) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(Tracer { name: Arc::new(name), ..(*self.0).clone() }))
    }
}

impl Layer for Spans {
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static {
        observe(self, call, next)
    }
}

impl Observer for Spans {
    type Call = TracedCall;

    fn on_start(&self, call: &CallStart<'_>) -> TracedCall {
        let current = propagation::current();
        let parent = current.trace().and_then(|trace| trace.parent);
        let me = match parent {
            Some(parent) => parent.child(),
            None => TraceParent::root(self.0.sampler.selects()),
        };
        let trace = current.trace().map_or_else(|| Trace::new(me), |trace| trace.with_parent(me));
        let noted = me.is_sampled().then(|| {
            Box::new(RecordedSpan {
                name: (self.0.name)(call),
                parent: parent.map(|parent| parent.span_id()),
                side: call.side,
                protocol: call.protocol,
                service: call.service.to_owned(),
                method: call.method.to_owned(),
                peer: call.peer.cloned(),
                began: SystemTime::now(),
            })
        });
        TracedCall { trace, me, noted }
    }

    fn on_end(&self, TracedCall { me, noted, .. }: TracedCall, end: &CallEnd<'_>) {
        let Some(noted) = noted else { return };
        (self.0.sink)(&Span {
            name: &noted.name,
            context: me,
            parent: noted.parent,
            side: noted.side,
            protocol: noted.protocol,
            service: &noted.service,
            method: &noted.method,
            peer: noted.peer.as_ref(),
            start_time: noted.began,
            duration: end.duration,
            failure: end.failure,
        });
    }

    fn scope(&self, call: &TracedCall) -> Option<CallScope> {
        Some(propagation::current().with_trace(call.trace.clone()))
    }
}

/// A call that [`Spans`] observes.
#[derive(Debug)]
pub(super) struct TracedCall {
    trace: Trace,
    me: TraceParent,
    /// The data to report.
    noted: Option<Box<RecordedSpan>>,
}

#[derive(Debug)]
struct RecordedSpan {
    name: String,
    parent: Option<u64>,
    side: Side,
    protocol: Protocol,
    service: String,
    method: String,
    peer: Option<Peer>,
    began: SystemTime,
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spans")
    }
}
