use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use opentelemetry::context::FutureExt;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status as Outcome, TraceContextExt, TraceFlags, TraceState, Tracer,
};
use opentelemetry::{Context as Telemetry, KeyValue};
use polyrpc_wire::Status;

use super::Begun;
use super::spans::usual_name;
use crate::layer::{Call, Ending, Layer, Next, Side};
use crate::task::{self, Inherited, Trace, TraceParent};

/// Makes a span of each call by a tracer of OpenTelemetry's API (feature `otel`), with the attributes of its semantic
/// conventions for RPC.
///
/// ```
/// use polyrpc::layers::OpenTelemetry;
///
/// // Whatever the program has installed.
/// let telemetry = OpenTelemetry::new(opentelemetry::global::tracer("polyrpc"));
/// let server = polyrpc::Server::new().layer(telemetry.clone());
/// let client = polyrpc::Client::builder("grpc://127.0.0.1:8000").layer(telemetry);
/// ```
///
/// The span is a child of the one that is active in OpenTelemetry's context; failing that, and always on a server, of the
/// one that is current within the call ([`task`]): the caller's, by W3C's `traceparent`. Within the
/// call it is active, and current, so that it travels on in whatever protocol further calls are made. No propagator of
/// OpenTelemetry's is asked.
pub struct OpenTelemetry<T>(Arc<Telling<T>>);

struct Telling<T> {
    tracer: T,
    name: Arc<dyn Fn(&Begun<'_>) -> String + Send + Sync>,
}

impl<T> OpenTelemetry<T>
where
    T: Tracer + Send + Sync + 'static,
    T::Span: Send + Sync + 'static,
{
    /// Makes spans by this tracer.
    pub fn new(tracer: T) -> Self {
        Self(Arc::new(Telling { tracer, name: Arc::new(usual_name) }))
    }

    /// Names spans otherwise than `package.Service/Method`.
    #[must_use]
    pub fn named(self, name: impl Fn(&Begun<'_>) -> String + Send + Sync + 'static) -> Self
    where
        T: Clone,
    {
        Self(Arc::new(Telling { tracer: self.0.tracer.clone(), name: Arc::new(name) }))
    }

    fn begin(&self, call: &Begun<'_>, parent: &Telemetry) -> Spanned {
        let name = (self.0.name)(call);
        let kind = match call.side {
            Side::Client => SpanKind::Client,
            Side::Server => SpanKind::Server,
        };
        let builder = self.0.tracer.span_builder(name).with_kind(kind).with_attributes(attributes(call));
        let span = self.0.tracer.build_with_context(builder, parent);
        let trace = current_trace(span.span_context());
        Spanned { telemetry: parent.with_span(span), trace, ended: false }
    }
}

fn attributes(call: &Begun<'_>) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("rpc.system", call.protocol.as_str()),
        KeyValue::new("rpc.service", call.service.to_owned()),
        KeyValue::new("rpc.method", call.method.to_owned()),
    ];
    if let Some(address) = call.peer.and_then(|peer| peer.address()) {
        attributes.push(KeyValue::new("client.address", address.ip().to_string()));
        attributes.push(KeyValue::new("client.port", i64::from(address.port())));
    }
    attributes
}

/// A call with its span.
struct Spanned {
    telemetry: Telemetry,
    /// What is current within; `None` where there is no span to speak of, as when nothing is installed.
    trace: Option<Trace>,
    ended: bool,
}

impl Spanned {
    /// What calls within this one have from it.
    fn inherited(&self) -> Inherited {
        let current = task::current();
        match &self.trace {
            None => current,
            Some(trace) => current.with_trace(trace.clone()),
        }
    }

    fn end(mut self, failure: Option<&Status>) {
        self.tell(failure);
    }

    fn tell(&mut self, failure: Option<&Status>) {
        self.ended = true;
        let span = self.telemetry.span();
        if let Some(status) = failure {
            span.set_attribute(KeyValue::new("error.type", status.code().as_str().replace(' ', "_")));
            span.set_status(Outcome::error(status.message().to_owned()));
        }
        span.end();
    }
}

impl Drop for Spanned {
    fn drop(&mut self) {
        if !self.ended {
            self.tell(Some(&Status::cancelled("it was given up")));
        }
    }
}

/// The trace that calls within a span carry, with what the current one says beside.
fn current_trace(span: &SpanContext) -> Option<Trace> {
    let trace = u128::from_be_bytes(span.trace_id().to_bytes());
    let me = TraceParent::new(trace, u64::from_be_bytes(span.span_id().to_bytes()), span.is_sampled())?;
    let current = task::current();
    let mut within = current.trace().map_or_else(|| Trace::new(me), |trace| trace.within(me));
    within.state = span.trace_state().header().into();
    Some(within)
}

/// The span that is current, as a parent that is elsewhere.
fn remote() -> Telemetry {
    let current = task::current();
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
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Ending {
        let active = Telemetry::current();
        let is_within = call.side() == Side::Client && active.has_active_span();
        let parent = if is_within { active } else { remote() };
        let spanned = self.begin(&Begun::of(&call), &parent);
        let answer = task::scope(spanned.inherited(), async { next.call(call).await });
        let ending = answer.with_context(spanned.telemetry.clone()).await;
        spanned.end(ending.failure());
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

    use super::*;
    use crate::codec::Serde;
    use crate::{Client, Protocol, Server};

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// A tracer whose spans are kept.
    fn tracer() -> (SdkTracer, InMemorySpanExporter) {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        (provider.tracer("test"), exporter)
    }

    #[tokio::test]
    async fn a_span_goes_on_in_the_server_and_in_what_the_program_does_there() {
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
        let server = Server::new().register("work", handler).layer(telemetry.clone());
        let server = server.bind("127.0.0.1:0").await.unwrap().start();
        let client = Client::builder(&format!("rpcx://{}", server.address())).layer(telemetry);
        let client = client.build().unwrap();
        let mut trace = Trace::new(PARENT.parse().unwrap());
        trace.baggage = "a=1".into();
        let call = client.call::<()>("work", &());
        task::scope(Inherited::default().with_trace(trace), call).await.unwrap();
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
        for attribute in ["rpc.system", "rpc.service", "rpc.method", "client.address", "client.port"] {
            assert!(attributes.contains(&attribute), "{attributes:?}");
        }
    }

    #[tokio::test]
    async fn a_failure_is_told_of_its_span_and_names_are_the_programs() {
        let (tracer, exporter) = tracer();
        let failing = Client::mock(|_| Err(Status::not_found("no such thing").into()));
        // A provider that is dropped with its last tracer forgets what was exported.
        let telemetry = OpenTelemetry::new(tracer.clone());
        let telemetry = telemetry.named(|call| format!("rpcx.client..{}", call.method));
        let _ = failing.layered(telemetry).call::<()>("m", &()).await;
        let spans = exporter.get_finished_spans().unwrap();
        assert_eq!(spans[0].name, "rpcx.client..m");
        assert_eq!(spans[0].status, Outcome::error("no such thing"));
        assert!(spans[0].attributes.contains(&KeyValue::new("error.type", "not_found")));
    }

    #[tokio::test]
    async fn where_nothing_is_installed_the_trace_goes_on_as_it_came() {
        let nothing = opentelemetry::global::tracer("polyrpc");
        let seen = Client::mock(|call| {
            let current = task::current();
            let parent = current.trace().and_then(|trace| trace.parent);
            call.answer::<Serde, _>(&parent.map(|parent| parent.to_string()))
        });
        let client = seen.layered(OpenTelemetry::new(nothing));
        let inherited = Inherited::default().with_trace(Trace::new(PARENT.parse().unwrap()));
        let parent: Option<String> = task::scope(inherited, client.call("m", &())).await.unwrap();
        assert_eq!(parent.as_deref(), Some(PARENT));
        assert_eq!(client.protocol(), Protocol::Rpcx);
    }
}
