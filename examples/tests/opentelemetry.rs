//! OTLP data of the example `opentelemetry`: a PolyRPC server receives it over gRPC, and the test checks it.

use std::process::Command;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, metric};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use polyrpc::codec::Raw;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Context, Server};
use prost::Message;

/// The received data.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    /// The last reported metrics.
    metrics: Arc<Mutex<Vec<Metric>>>,
}

impl Collector {
    fn server(&self) -> Server {
        let (spans, metrics) = (self.spans.clone(), self.metrics.clone());
        let traces = service("opentelemetry.proto.collector.trace.v1.TraceService", move |request| {
            let told = ExportTraceServiceRequest::decode(request).expect("a request to export spans");
            for resource in told.resource_spans {
                let said = resource.resource.expect("a resource").attributes;
                assert_eq!(text(&said, "service.name").as_deref(), Some("shop"));
                spans.lock().unwrap().extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        });
        let measured = service("opentelemetry.proto.collector.metrics.v1.MetricsService", move |request| {
            let told = ExportMetricsServiceRequest::decode(request).expect("a request to export metrics");
            let scopes = told.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
            *metrics.lock().unwrap() = scopes.flat_map(|scope| scope.metrics).collect();
        });
        Server::new().service(traces).service(measured)
    }

    /// The only span with this name, kind and status.
    fn span(&self, name: &str, kind: SpanKind, code: &str) -> Span {
        let spans = self.spans.lock().unwrap();
        let is_it = |span: &&Span| {
            let ended = text(&span.attributes, "rpc.status_code");
            span.name == name && span.kind == kind as i32 && ended.as_deref() == Some(code)
        };
        let found: Vec<_> = spans.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{name} {kind:?} {code} in {spans:#?}");
        found[0].clone()
    }

    /// The data points of a histogram in seconds.
    fn points(&self, name: &str) -> Vec<HistogramDataPoint> {
        let metrics = self.metrics.lock().unwrap();
        let metric = metrics.iter().find(|metric| metric.name == name);
        let metric = metric.unwrap_or_else(|| panic!("no {name} in {metrics:#?}"));
        assert_eq!(metric.unit, "s");
        match &metric.data {
            Some(metric::Data::Histogram(histogram)) => histogram.data_points.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// A collector service: accepts everything, and returns an empty response.
fn service(name: &str, take: impl Fn(Bytes) + Send + Sync + 'static) -> ServiceBuilder {
    let take = Arc::new(take);
    ServiceBuilder::new(name).method::<Raw, Bytes, Bytes, _, _>("Export", move |cx: Context, request| {
        take(request);
        async move { (cx, Ok(Bytes::new())) }
    })
}

fn value(attributes: &[KeyValue], name: &str) -> Option<Value> {
    let named = attributes.iter().find(|attribute| attribute.key == name)?;
    named.value.clone()?.value
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    match value(attributes, name)? {
        Value::StringValue(text) => Some(text),
        other => panic!("{name}: {other:?}"),
    }
}

fn number(attributes: &[KeyValue], name: &str) -> Option<i64> {
    match value(attributes, name)? {
        Value::IntValue(number) => Some(number),
        other => panic!("{name}: {other:?}"),
    }
}

fn seconds(span: &Span) -> f64 {
    (span.end_time_unix_nano - span.start_time_unix_nano) as f64 / 1e9
}

/// The example's calls: method, protocol, and status.
const CALLS: [(&str, &str, &str); 4] = [
    ("order", "rpcx", "OK"),
    ("Shop/Price", "grpc", "OK"),
    ("Shop/Price", "grpc", "NOT_FOUND"),
    ("Shop/Things", "grpc", "OK"),
];

#[test]
fn collector_receives_spans_and_durations_of_both_sides_by_otlp() {
    let collector = Collector::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(collector.server().bind("127.0.0.1:0")).unwrap();
    let server = runtime.block_on(async { server.start() });
    let mut example = Command::new(env!("CARGO_BIN_EXE_opentelemetry"));
    let output = example.arg(format!("http://{}", server.address())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = "two green teas: 6\na blue one: no blue tea\nthere is green tea\nthere is black tea\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), said);

    assert_span_names(&collector);
    assert_server_spans_are_children_of_client_spans(&collector);
    assert_durations_match_the_spans(&collector);
    assert_eq!(collector.spans.lock().unwrap().len(), 2 * CALLS.len());
}

fn assert_span_names(collector: &Collector) {
    for (method, system, code) in CALLS {
        let caller = collector.span(method, SpanKind::Client, code);
        let served = collector.span(method, SpanKind::Server, code);
        for span in [&caller, &served] {
            assert_eq!(text(&span.attributes, "rpc.system.name").as_deref(), Some(system), "{span:?}");
            assert_eq!(text(&span.attributes, "rpc.method").as_deref(), Some(method), "{span:?}");
        }
        assert_eq!(text(&caller.attributes, "server.address").as_deref(), Some("127.0.0.1"));
        assert!(number(&caller.attributes, "server.port").is_some_and(|port| port > 1023));
        assert_eq!(text(&served.attributes, "network.peer.address").as_deref(), Some("127.0.0.1"));
        assert!(number(&served.attributes, "network.peer.port").is_some_and(|port| port > 1023));
        // "Not found" is an error of the caller, not of the server.
        let error = (code != "OK").then(|| code.to_owned());
        assert_eq!(text(&caller.attributes, "error.type"), error);
        assert_eq!(text(&served.attributes, "error.type"), None);
        let status = |span: &Span| span.status.clone().unwrap_or_default();
        let wanted = if error.is_some() { StatusCode::Error } else { StatusCode::Unset };
        assert_eq!(status(&caller).code, wanted as i32);
        assert_eq!(status(&served).code, StatusCode::Unset as i32);
        assert_eq!(status(&caller).message, if error.is_some() { "no blue tea" } else { "" });
    }
}

fn assert_server_spans_are_children_of_client_spans(collector: &Collector) {
    for (method, _, code) in CALLS {
        let caller = collector.span(method, SpanKind::Client, code);
        let served = collector.span(method, SpanKind::Server, code);
        assert_eq!(served.parent_span_id, caller.span_id, "{method} {code}");
        assert_eq!(served.trace_id, caller.trace_id);
        assert!(caller.start_time_unix_nano <= served.start_time_unix_nano, "{method} {code}");
    }
    let ordered = collector.span("order", SpanKind::Server, "OK");
    let asked = collector.span("Shop/Price", SpanKind::Client, "OK");
    assert_eq!((asked.parent_span_id, asked.trace_id), (ordered.span_id, ordered.trace_id));
    let first = collector.span("order", SpanKind::Client, "OK");
    assert!(first.parent_span_id.is_empty());
    assert_ne!(collector.span("Shop/Things", SpanKind::Client, "OK").trace_id, first.trace_id);
}

fn assert_durations_match_the_spans(collector: &Collector) {
    for (name, kind) in
        [("rpc.client.call.duration", SpanKind::Client), ("rpc.server.call.duration", SpanKind::Server)]
    {
        let points = collector.points(name);
        assert_eq!(points.len(), CALLS.len(), "{points:#?}");
        for (method, system, code) in CALLS {
            let is_it = |point: &&HistogramDataPoint| {
                let said = |name| text(&point.attributes, name);
                said("rpc.method").as_deref() == Some(method)
                    && said("rpc.status_code").as_deref() == Some(code)
            };
            let point = points.iter().find(is_it).unwrap_or_else(|| panic!("{method} in {points:#?}"));
            let span = collector.span(method, kind, code);
            assert_eq!(text(&point.attributes, "rpc.system.name").as_deref(), Some(system));
            assert_eq!(text(&point.attributes, "error.type"), text(&span.attributes, "error.type"));
            assert_eq!(
                number(&point.attributes, "server.port"),
                number(&span.attributes, "server.port").filter(|_| kind == SpanKind::Client)
            );
            assert_eq!(value(&point.attributes, "network.peer.port"), None, "it has too many values");
            assert_eq!(point.explicit_bounds, BOUNDS);
            assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (1, 1));
            assert!((point.sum.unwrap() - seconds(&span)).abs() < 1e-6, "{point:?} {}", seconds(&span));
        }
    }
}

/// The bucket boundaries recommended by the conventions.
const BOUNDS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
