#![doc = include_str!("../README.md")]

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::context::FutureExt;
use opentelemetry::metrics::{Histogram, Meter};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status as SpanStatus, TraceContextExt, TraceFlags, TraceState, Tracer,
};
use opentelemetry::{Context as Telemetry, KeyValue};
use polyrpc::layer::{Call, Layer, Next, Outcome, Side, StreamType};
use polyrpc::layers::CallStart;
use polyrpc::propagation::{self, CallScope, Trace, TraceParent};
use polyrpc::{Code, Status};

/// Layer that reports each call to OpenTelemetry's API: a span of a tracer, and its duration to a
/// [meter](Self::meter). Names follow OpenTelemetry's semantic conventions for RPC, 1.45.
///
/// ```
/// use polyrpc_otel::OpenTelemetry;
///
/// // Whatever the program has installed.
/// let telemetry = OpenTelemetry::new(opentelemetry::global::tracer("polyrpc"))
///     .meter(&opentelemetry::global::meter("polyrpc"));
/// let server = polyrpc::Server::new().layer(telemetry.clone());
/// let client = polyrpc::Client::builder("grpc://127.0.0.1:8000").layer(telemetry);
/// ```
///
/// The parent of the span is the active one of OpenTelemetry's context; without one, and always on a server, the
/// current one of the call ([`propagation`]): the caller's, by W3C's `traceparent`. Within the call the span is active
/// and current, so that further calls propagate it in any protocol. OpenTelemetry's propagators are not used.
///
/// | attribute | span | metric | what |
/// |---|---|---|---|
/// | `rpc.system.name` | ✓ | ✓ | the protocol: `grpc`, `rpcx`, `baidu_std`, … |
/// | `rpc.method` | ✓ | ✓ | `package.Service/Method`, or the function's name; `_OTHER` on a server if callers may invent it |
/// | `rpc.method_original` | ✓ | | that name: of a call to a [fallback](polyrpc::Server::fallback), or the topic of a subscription |
/// | `rpc.status_code` | ✓ | ✓ | `OK`, or the [code](polyrpc::Code) of the failure in gRPC's spelling: `NOT_FOUND` |
/// | `error.type` | ✓ | ✓ | the same, if the call counts as failed |
/// | `server.address`, `server.port` | client | client | the server in the client's URL, or the registry's URL |
/// | `network.peer.address`, `network.peer.port` | server | | the caller |
///
/// On a client, every failure counts. On a server, following the conventions for gRPC, those count that are its own
/// fault: `UNKNOWN`, `DEADLINE_EXCEEDED`, `UNIMPLEMENTED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`. Spans and durations
/// of streaming calls include all messages.
pub struct OpenTelemetry<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// Shared, since `opentelemetry::global::tracer` returns a type that is not `Clone`.
    tracer: Arc<T>,
    name: Arc<dyn Fn(&CallStart<'_>) -> String + Send + Sync>,
    /// `None` without metrics.
    durations: Option<Durations>,
}

// A derived implementation would require a tracer that is `Clone`.
impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self { tracer: self.tracer.clone(), name: self.name.clone(), durations: self.durations.clone() }
    }
}

/// Histograms of the duration of calls, in seconds.
#[derive(Clone)]
struct Durations {
    client: Histogram<f64>,
    server: Histogram<f64>,
}

impl Durations {
    fn new(meter: &Meter) -> Self {
        let histogram = |name: &'static str, what: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(what);
            histogram.with_boundaries(BOUNDARIES.to_vec()).build()
        };
        Self {
            client: histogram(
                "rpc.client.call.duration",
                "Measures the duration of an outgoing Remote Procedure Call (RPC).",
            ),
            server: histogram(
                "rpc.server.call.duration",
                "Measures the duration of an incoming Remote Procedure Call (RPC).",
            ),
        }
    }

    fn record(&self, side: Side, took: Duration, attributes: &[KeyValue]) {
        let histogram = match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        };
        histogram.record(took.as_secs_f64(), attributes);
    }
}

/// Bucket boundaries recommended by the conventions.
const BOUNDARIES: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

impl<T> OpenTelemetry<T>
where
    T: Tracer + Send + Sync + 'static,
    T::Span: Send + Sync + 'static,
{
    /// Creates a layer with spans of this tracer.
    pub fn new(tracer: T) -> Self {
        Self(Arc::new(Shared {
            tracer: Arc::new(tracer),
            name: Arc::new(|call: &CallStart<'_>| call.full_name()),
            durations: None,
        }))
    }

    /// Records durations with this meter: the histograms `rpc.client.call.duration` and `rpc.server.call.duration`, in
    /// seconds.
    #[must_use]
    pub fn meter(self, meter: &Meter) -> Self {
        Self(Arc::new(Shared { durations: Some(Durations::new(meter)), ..(*self.0).clone() }))
    }

    /// Sets the names of spans. Default: `package.Service/Method`.
    #[must_use]
    pub fn span_name(self, name: impl Fn(&CallStart<'_>) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { name: Arc::new(name), ..(*self.0).clone() }))
    }

    fn start(&self, call: &Call, target: Option<(&str, Option<u16>)>, parent: &Telemetry) -> SpanGuard {
        let begun = CallStart::new(call);
        let kind = match begun.side {
            Side::Client => SpanKind::Client,
            Side::Server => SpanKind::Server,
        };
        let shared = shared_attributes(&begun, target);
        let name = match is_subscription(call) {
            false => (self.0.name)(&begun),
            true => begun.protocol.as_str().to_owned(),
        };
        let (now, clock) = (SystemTime::now(), Instant::now());
        let all: Vec<_> = shared.iter().cloned().chain(span_attributes(&begun)).collect();
        let builder = self.0.tracer.span_builder(name).with_kind(kind).with_attributes(all);
        let span = self.0.tracer.build_with_context(builder.with_start_time(now), parent);
        let trace = current_trace(span.span_context());
        SpanGuard {
            telemetry: parent.with_span(span),
            trace,
            side: begun.side,
            began: (now, clock),
            durations: self.0.durations.clone(),
            shared,
            ended: false,
        }
    }
}

/// Whether a call is a subscription on a server, whose method is the topic.
fn is_subscription(call: &Call) -> bool {
    call.side() == Side::Server
        && call.protocol().descriptor().capabilities.topics
        && call.stream_type() != StreamType::UNARY
}

/// Returns the attributes of both span and duration. The cardinality of names that callers invent is unlimited.
fn shared_attributes(call: &CallStart<'_>, target: Option<(&str, Option<u16>)>) -> Vec<KeyValue> {
    let method = match call.declared {
        true => call.full_name(),
        false => "_OTHER".to_owned(),
    };
    let mut attributes = Vec::with_capacity(6);
    attributes.push(KeyValue::new("rpc.system.name", call.protocol.as_str()));
    attributes.push(KeyValue::new("rpc.method", method));
    if let Some((address, port)) = target {
        attributes.push(KeyValue::new("server.address", address.to_owned()));
        attributes.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
    }
    attributes
}

/// Returns attributes whose cardinality is too high for metrics.
fn span_attributes(call: &CallStart<'_>) -> impl Iterator<Item = KeyValue> {
    let original = (!call.declared).then(|| KeyValue::new("rpc.method_original", call.full_name()));
    let peer = call.peer.and_then(|peer| peer.address()).map(|address| {
        [
            KeyValue::new("network.peer.address", address.ip().to_string()),
            KeyValue::new("network.peer.port", i64::from(address.port())),
        ]
    });
    original.into_iter().chain(peer.into_iter().flatten())
}

/// Returns the name of a code in gRPC's spelling.
fn code(failure: Option<&Status>) -> Cow<'static, str> {
    match failure {
        None => "OK".into(),
        Some(status) => status.code().as_str().replace(' ', "_").to_ascii_uppercase().into(),
    }
}

/// Whether a failure counts as an error on this side.
fn is_error(side: Side, status: &Status) -> bool {
    side == Side::Client
        || matches!(
            status.code(),
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        )
}

/// A call with its span.
struct SpanGuard {
    telemetry: Telemetry,
    /// The current trace within the span; `None` if the span is not recorded, for example without an installed
    /// provider.
    trace: Option<Trace>,
    side: Side,
    began: (SystemTime, Instant),
    durations: Option<Durations>,
    /// Attributes of both span and duration.
    shared: Vec<KeyValue>,
    ended: bool,
}

impl SpanGuard {
    /// Returns the scope that nested calls inherit.
    fn inherited_scope(&self) -> CallScope {
        let current = propagation::current();
        match &self.trace {
            None => current,
            Some(trace) => current.with_trace(trace.clone()),
        }
    }

    fn finish(mut self, failure: Option<&Status>) {
        self.record_end(failure);
    }

    fn record_end(&mut self, failure: Option<&Status>) {
        self.ended = true;
        let (began, clock) = self.began;
        let took = clock.elapsed();
        let code = code(failure);
        let error = failure.filter(|status| is_error(self.side, status));
        let mut outcome = vec![KeyValue::new("rpc.status_code", code.clone())];
        outcome.extend(error.map(|_| KeyValue::new("error.type", code)));
        let span = self.telemetry.span();
        span.set_attributes(outcome.clone());
        if let Some(status) = error {
            span.set_status(SpanStatus::error(status.message().to_owned()));
        }
        span.end_with_timestamp(began + took);
        if let Some(durations) = &self.durations {
            self.shared.extend(outcome);
            durations.record(self.side, took, &self.shared);
        }
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        if !self.ended {
            let abandoned = match thread::panicking() {
                true => Status::internal("it panicked"),
                false => Status::cancelled("it was cancelled"),
            };
            self.record_end(Some(&abandoned));
        }
    }
}

/// Returns the trace of calls within a span, with the other fields of the current one.
fn current_trace(span: &SpanContext) -> Option<Trace> {
    let trace = u128::from_be_bytes(span.trace_id().to_bytes());
    let me = TraceParent::new(trace, u64::from_be_bytes(span.span_id().to_bytes()), span.is_sampled())?;
    let current = propagation::current();
    let mut within = current.trace().map_or_else(|| Trace::new(me), |trace| trace.with_parent(me));
    within.state = span.trace_state().header().into();
    Some(within)
}

/// Returns the current span as a remote parent.
fn remote() -> Telemetry {
    let current = propagation::current();
    let Some((trace, parent)) = current.trace().and_then(|trace| Some((trace, trace.parent?))) else {
        return Telemetry::new();
    };
    let state = std::str::from_utf8(&trace.state).ok().and_then(|state| TraceState::from_str(state).ok());
    let flags = TraceFlags::new(parent.flags());
    let (trace, span) = (parent.trace_id().into(), parent.span_id().into());
    let parent = SpanContext::new(trace, span, flags, true, state.unwrap_or_default());
    Telemetry::new().with_remote_span_context(parent)
}

impl<T> Layer for OpenTelemetry<T>
where
    T: Tracer + Send + Sync + 'static,
    T::Span: Send + Sync + 'static,
{
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        let active = Telemetry::current();
        let is_within = call.side() == Side::Client && active.has_active_span();
        let parent = if is_within { active } else { remote() };
        let spanned = self.start(&call, next.target(), &parent);
        let answer = propagation::scope(spanned.inherited_scope(), async { next.call(call).await });
        let ending = answer.with_context(spanned.telemetry.clone()).await;
        spanned.finish(ending.failure());
        ending
    }
}

impl<T> Clone for OpenTelemetry<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for OpenTelemetry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenTelemetry")
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracer, SdkTracerProvider};
    use polyrpc::codec::Serde;
    use polyrpc::fallback::{RawRequest, RawResponse};
    use polyrpc::{Client, Protocol, Server};

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// Returns a tracer whose spans are kept.
    fn tracer() -> (SdkTracer, InMemorySpanExporter) {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        (provider.tracer("test"), exporter)
    }

    #[tokio::test]
    async fn span_continues_in_the_server_and_its_handler() {
        let (tracer, exporter) = tracer();
        let telemetry = OpenTelemetry::new(tracer.clone());
        let inner = tracer.clone();
        let handler = move || {
            let tracer = inner.clone();
            async move {
                tokio::task::yield_now().await;
                tracer.start("inner").end();
            }
        };
        let server = Server::new().function("work", handler).layer(telemetry.clone());
        let server = server.bind("127.0.0.1:0").await.unwrap().start();
        let client = Client::builder(&format!("rpcx://{}", server.address())).layer(telemetry);
        let client = client.build().unwrap();
        let mut trace = Trace::new(PARENT.parse().unwrap());
        trace.baggage = "a=1".into();
        let call = client.call::<()>("work", &());
        propagation::scope(CallScope::default().with_trace(trace), call).await.unwrap();
        let spans = exporter.get_finished_spans().unwrap();
        let named = |name: &str, kind: SpanKind| {
            spans.iter().find(|span| span.name == *name && span.span_kind == kind).unwrap()
        };
        let (caller, served) = (named("work", SpanKind::Client), named("work", SpanKind::Server));
        let inner = named("inner", SpanKind::Internal);
        assert_eq!(caller.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(served.parent_span_id, caller.span_context.span_id());
        assert_eq!(inner.parent_span_id, served.span_context.span_id());
        assert_eq!(inner.span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let attributes: Vec<_> = served.attributes.iter().map(|pair| pair.key.as_str()).collect();
        for attribute in
            ["rpc.system.name", "rpc.method", "rpc.status_code", "network.peer.address", "network.peer.port"]
        {
            assert!(attributes.contains(&attribute), "{attributes:?}");
        }
    }

    #[tokio::test]
    async fn method_that_a_caller_may_have_invented_is_only_on_the_span() {
        let (tracer, exporter) = tracer();
        let server = Server::new()
            .fallback(
                |mut call: RawRequest| async move { Ok(RawResponse::message(call.body().await?.bytes)) },
            )
            .layer(OpenTelemetry::new(tracer.clone()));
        let server = server.bind("127.0.0.1:0").await.unwrap().start();
        let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
        let _: String = client.call("Some/Name", "x").await.unwrap();
        let spans = exporter.get_finished_spans().unwrap();
        assert_eq!(spans[0].name, "Some/Name");
        for attribute in
            [KeyValue::new("rpc.method", "_OTHER"), KeyValue::new("rpc.method_original", "Some/Name")]
        {
            assert!(spans[0].attributes.contains(&attribute), "{:?}", spans[0].attributes);
        }
    }

    #[tokio::test]
    async fn panic_of_a_handler_is_an_error_of_the_server() {
        async fn fail() -> i32 {
            panic!("as asked")
        }

        let (tracer, exporter) = tracer();
        let server = Server::new().function("fail", fail).layer(OpenTelemetry::new(tracer.clone()));
        let server = server.bind("127.0.0.1:0").await.unwrap().start();
        let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
        client.call::<i32>("fail", &()).await.unwrap_err();
        let spans = exporter.get_finished_spans().unwrap();
        assert_eq!(spans[0].status, SpanStatus::error("it panicked"));
        assert!(spans[0].attributes.contains(&KeyValue::new("error.type", "INTERNAL")));
    }

    #[tokio::test]
    async fn failure_is_recorded_on_the_span_and_span_names_are_configurable() {
        let (tracer, exporter) = tracer();
        let failing = Client::mock(|_| Err(Status::not_found("no such thing").into()));
        // A provider that is dropped with its last tracer discards exported spans.
        let telemetry = OpenTelemetry::new(tracer.clone());
        let telemetry = telemetry.span_name(|call| format!("rpcx.client..{}", call.method));
        let _ = failing.layered(telemetry).call::<()>("m", &()).await;
        let spans = exporter.get_finished_spans().unwrap();
        assert_eq!(spans[0].name, "rpcx.client..m");
        assert_eq!(spans[0].status, SpanStatus::error("no such thing"));
        assert!(spans[0].attributes.contains(&KeyValue::new("error.type", "NOT_FOUND")));
    }

    #[tokio::test]
    async fn without_a_tracer_the_trace_is_propagated_unchanged() {
        let nothing = opentelemetry::global::tracer("polyrpc");
        let seen = Client::mock(|call| {
            let current = propagation::current();
            let parent = current.trace().and_then(|trace| trace.parent);
            call.encode_reply::<Serde, _>(&parent.map(|parent| parent.to_string()))
        });
        let client = seen.layered(OpenTelemetry::new(nothing));
        let inherited = CallScope::default().with_trace(Trace::new(PARENT.parse().unwrap()));
        let parent: Option<String> = propagation::scope(inherited, client.call("m", &())).await.unwrap();
        assert_eq!(parent.as_deref(), Some(PARENT));
        assert_eq!(client.protocol(), Protocol::Rpcx);
    }
}
