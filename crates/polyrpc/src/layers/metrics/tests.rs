use std::sync::Barrier;
use std::thread;

use polyrpc_core::{Code, Status};
use polyrpc_wire::Protocol;

use super::*;

fn call_start<'a>(side: Side, service: &'a str, method: &'a str) -> CallStart<'a> {
    CallStart {
        side,
        protocol: Protocol::Rpcx,
        service,
        method,
        peer: None,
        metadata: None,
        request_bytes: 0,
        arrived: None,
        declared: true,
    }
}

fn end(metrics: &Metrics, call: CountedCall, took: Duration, failure: Option<&Status>) {
    metrics.on_end(call, &CallEnd { duration: took, failure, reply_bytes: 0 });
}

/// Counts a call with this duration.
fn count(metrics: &Metrics, call: &CallStart<'_>, micros: u64, failure: Option<&Status>) {
    let counting = metrics.on_start(call);
    end(metrics, counting, Duration::from_micros(micros), failure);
}

#[test]
fn calls_are_counted_by_method_side_and_outcome() {
    let metrics = Metrics::new();
    let mul = call_start(Side::Server, "Arith", "Mul");
    (1..=100).for_each(|micros| count(&metrics, &mul, micros, None));
    count(&metrics, &mul, 7, Some(&Status::not_found("")));
    metrics.on_start(&mul);
    count(&metrics, &call_start(Side::Client, "Arith", "Mul"), 5, None);
    let methods = metrics.methods();
    let [client, server] = &methods[..] else { panic!("{methods:?}") };
    assert_eq!((client.side, client.started, client.succeeded), (Side::Client, 1, 1));
    assert_eq!((&*server.service, &*server.method, server.protocol), ("Arith", "Mul", "rpcx"));
    assert_eq!((server.started, server.succeeded, server.failed, server.in_flight()), (102, 100, 1, 1));
    assert!(server.quantile(0.99).abs_diff(Duration::from_micros(99)) < Duration::from_micros(13));
    assert_eq!(server.average, Duration::from_nanos(50_500));
}

#[test]
fn several_metrics_are_added_on_one_page() {
    let (one, other) = (Metrics::new(), Metrics::new().buckets_per_doubling(8));
    let mul = call_start(Side::Server, "Arith", "Mul");
    (0..2).for_each(|_| count(&one, &mul, 100, None));
    count(&other, &mul, 100, None);
    count(&other, &call_start(Side::Server, "Arith", "Add"), 5, None);
    let page = Metrics::text_of(&[one, other]);
    let labels = "side=\"server\",protocol=\"rpcx\",service=\"Arith\"";
    for line in [
        format!("polyrpc_calls_started_total{{{labels},method=\"Add\"}} 1\n"),
        format!("polyrpc_calls_started_total{{{labels},method=\"Mul\"}} 3\n"),
        format!("polyrpc_call_duration_seconds_count{{{labels},method=\"Mul\"}} 3\n"),
    ] {
        assert!(page.contains(&line), "{line}{page}");
    }
    for name in ["polyrpc_calls_total counter", "polyrpc_build_info gauge"] {
        assert_eq!(page.matches(&format!("# TYPE {name}\n")).count(), 1, "{page}");
    }
}

#[test]
fn concurrent_counting_loses_nothing() {
    let metrics = Metrics::new();
    let (threads, calls) = (8, 1000);
    let ready = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                ready.wait();
                for call in 0..calls {
                    count(&metrics, &call_start(Side::Client, "S", ["a", "b", "c"][call % 3]), 1, None);
                }
            });
        }
    });
    let methods = metrics.methods();
    assert_eq!(methods.len(), 3, "{methods:?}");
    assert_eq!(methods.iter().map(|method| method.succeeded).sum::<u64>(), (threads * calls) as u64);
    assert!(methods.iter().all(|method| method.in_flight() == 0));
}

#[test]
fn invented_method_names_use_bounded_memory() {
    let metrics = Metrics::with_max_series(10);
    let names: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
    for name in &names {
        count(&metrics, &call_start(Side::Server, "", name), 1, None);
        count(&metrics, &call_start(Side::Server, "", &names[0]), 1, None);
    }
    let methods = metrics.methods();
    assert_eq!(methods.len(), 11);
    let other = methods.iter().find(|method| method.method == "other").unwrap();
    assert_eq!((other.succeeded, other.side, other.protocol), (990, Side::Server, "any"));
    assert!(methods.iter().any(|method| method.method == "0" && method.succeeded == 1001));
    count(&Metrics::with_max_series(0), &call_start(Side::Client, "", "m"), 1, None);
}

#[test]
fn names_that_callers_invent_never_take_the_room_of_declared_methods() {
    fn by_fallback<'a>(service: &'a str, method: &'a str) -> CallStart<'a> {
        CallStart { declared: false, ..call_start(Side::Server, service, method) }
    }

    let metrics = Metrics::with_max_series(40);
    metrics.declare([("Arith", "Mul"), ("Arith", "Mul")]);
    for name in (0..1000).map(|n| n.to_string()) {
        count(&metrics, &by_fallback("Svc", &name), 1, None);
    }
    count(&metrics, &by_fallback("Svc", &"m".repeat(1000)), 1, None);
    count(&metrics, &by_fallback("Arith", "Mul"), 1, None);
    for name in (0..29).map(|n| n.to_string()) {
        count(&metrics, &call_start(Side::Server, "Own", &name), 1, None);
    }
    let methods = metrics.methods();
    let count = |service: &str| methods.iter().filter(|method| method.service == service).count();
    assert_eq!((count("Svc"), count("Arith"), count("Own")), (10, 1, 29));
    let other = methods.iter().find(|method| method.method == "other").unwrap();
    assert_eq!(other.succeeded, 991);
    assert!(methods.iter().any(|method| method.method == "9" && method.service == "Svc"), "they keep it");
}

#[test]
fn page_shows_every_series_with_its_labels() {
    let metrics = Metrics::new();
    let call = call_start(Side::Server, "a\"b\\\n", "Mul");
    count(&metrics, &call, 20, None);
    count(&metrics, &call, 300, None);
    count(&metrics, &call, 1, Some(&Status::deadline_exceeded("")));
    let text = metrics.text();
    let labels = r#"side="server",protocol="rpcx",service="a\"b\\\n",method="Mul""#;
    for line in [
        format!("polyrpc_calls_started_total{{{labels}}} 3"),
        format!("polyrpc_calls_total{{{labels},code=\"ok\"}} 2"),
        format!("polyrpc_calls_total{{{labels},code=\"deadline_exceeded\"}} 1"),
        format!("polyrpc_calls_in_flight{{{labels}}} 0"),
        format!("polyrpc_call_duration_seconds_bucket{{{labels},le=\"0.0000152587890625\"}} 0"),
        format!("polyrpc_call_duration_seconds_bucket{{{labels},le=\"0.000030517578125\"}} 1"),
        format!("polyrpc_call_duration_seconds_bucket{{{labels},le=\"0.00048828125\"}} 2"),
        format!("polyrpc_call_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
        format!("polyrpc_call_duration_seconds_sum{{{labels}}} 0.00032"),
        format!("polyrpc_call_duration_seconds_count{{{labels}}} 2"),
        format!("polyrpc_calls_recent_per_second{{{labels}}} 0.2"),
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n in\n{text}");
    }
    assert_well_formed(&text);
}

#[test]
fn server_metrics_have_the_names_of_brpc() {
    let metrics = Metrics::new();
    let echo = call_start(Side::Server, "example.EchoService", "Echo");
    count(&metrics, &echo, 100, None);
    count(&metrics, &CallStart { protocol: Protocol::BaiduStd, ..echo }, 300, None);
    count(&metrics, &echo, 1, Some(&Status::internal("")));
    count(&metrics, &call_start(Side::Server, "", "plus"), 1, None);
    count(&metrics, &call_start(Side::Client, "example.EchoService", "Echo"), 1, None);
    let text = metrics.brpc_text("8000");
    let name = "rpc_server_8000_example_echo_service_echo";
    for line in [
        "rpc_server_8000_error 1".to_owned(),
        "# HELP rpc_server_8000_concurrency".to_owned(),
        format!("# TYPE {name} summary"),
        format!("{name}_avg 200"),
        format!("{name}_sum 400"),
        format!("{name}_count 2"),
        format!("{name}_error 1"),
        format!("{name}_concurrency 0"),
        format!("# TYPE {name}_qps gauge"),
        "rpc_server_8000_plus_count 1".to_owned(),
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n in\n{text}");
    }
    assert_well_formed(&text);
}

/// Computes a quantile from buckets as Prometheus does (`histogram_quantile`): linear within a bucket.
fn quantile(buckets: &[(f64, f64)], share: f64) -> f64 {
    let rank = share * buckets.last().unwrap().1;
    let last = buckets.iter().position(|(_, count)| *count >= rank).unwrap();
    let (from, below) = if last == 0 { (0.0, 0.0) } else { buckets[last - 1] };
    let (to, until) = buckets[last];
    from + (to - from) * (rank - below) / (until - below)
}

#[test]
fn p99_from_buckets_is_accurate_to_a_tenth() {
    let metrics = Metrics::new().buckets_per_doubling(8);
    let call = call_start(Side::Server, "S", "m");
    // A long tail: the slowest of a hundred take from 9.801 ms on.
    let took = |n: u64| n * n / 100_000;
    (1..=100_000).for_each(|n| count(&metrics, &call, took(n), None));
    let p99 = took(99_000) as f64 / 1e6;
    let text = metrics.text();
    let buckets = text.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("polyrpc_call_duration_seconds_bucket")?.split_once("le=\"")?;
        let (bound, count) = rest.split_once("\"} ")?;
        Some((bound.parse().unwrap(), count.parse().unwrap()))
    });
    let buckets: Vec<(f64, f64)> = buckets.collect();
    assert_eq!(buckets.len(), 162);
    let told = quantile(&buckets, 0.99);
    assert!((told / p99 - 1.0).abs() < 0.1, "{told} for {p99}");
    let recent = text.lines().find_map(|line| {
        line.strip_prefix("polyrpc_call_duration_recent_seconds")?.split_once("quantile=\"0.99\"} ")
    });
    let recent: f64 = recent.unwrap().1.parse().unwrap();
    assert!((recent / p99 - 1.0).abs() < 0.1, "{recent} for {p99}");
}

/// The needed part of `io.prometheus.client` (`metrics.proto` of Prometheus' client_model).
const MODEL: &str = r#"
syntax = "proto2";
package io.prometheus.client;
message LabelPair { optional string name = 1; optional string value = 2; }
enum MetricType { COUNTER = 0; GAUGE = 1; SUMMARY = 2; UNTYPED = 3; HISTOGRAM = 4; }
message Gauge { optional double value = 1; }
message Counter { optional double value = 1; }
message Quantile { optional double quantile = 1; optional double value = 2; }
message Summary {
  optional uint64 sample_count = 1; optional double sample_sum = 2; repeated Quantile quantile = 3;
}
message BucketSpan { optional sint32 offset = 1; optional uint32 length = 2; }
message Histogram {
  optional uint64 sample_count = 1; optional double sample_sum = 2; optional sint32 schema = 5;
  optional double zero_threshold = 6; optional uint64 zero_count = 7;
  repeated BucketSpan positive_span = 12; repeated sint64 positive_delta = 13 [packed = true];
}
message Metric {
  repeated LabelPair label = 1; optional Gauge gauge = 2; optional Counter counter = 3;
  optional Summary summary = 4; optional Histogram histogram = 7;
}
message MetricFamily {
  optional string name = 1; optional string help = 2; optional MetricType type = 3; repeated Metric metric = 4;
}
"#;

#[test]
fn native_histograms_equal_those_of_the_text_format() {
    use prost_reflect::{DescriptorPool, DynamicMessage, Value};

    let file =
        protox::Compiler::with_file_resolver(Model).open_file("metrics.proto").unwrap().file_descriptor_set();
    let pool = DescriptorPool::from_file_descriptor_set(file).unwrap();
    let family = pool.get_message_by_name("io.prometheus.client.MetricFamily").unwrap();
    let metrics = Metrics::new();
    let call = call_start(Side::Server, "S", "m");
    for micros in [1000, 1000, 1001, 1300, 900_000] {
        count(&metrics, &call, micros, None);
    }
    let page = metrics.protobuf();
    let (mut rest, mut families) = (&page[..], Vec::new());
    while !rest.is_empty() {
        let length = prost_reflect::prost::decode_length_delimiter(&mut rest).unwrap();
        let (one, more) = rest.split_at(length);
        families.push(DynamicMessage::decode(family.clone(), one).unwrap());
        rest = more;
    }
    let field = |message: &DynamicMessage, name: &str| message.get_field_by_name(name).unwrap().into_owned();
    let name = |family: &DynamicMessage| field(family, "name").as_str().unwrap().to_owned();
    assert!(families.iter().any(|family| name(family) == "process_cpu_seconds_total"));
    let known = families.iter().find(|family| name(family) == "polyrpc_call_duration_seconds").unwrap();
    assert_eq!(field(known, "type"), Value::EnumNumber(4));
    let metric = field(known, "metric").as_list().unwrap()[0].as_message().unwrap().clone();
    let histogram = field(&metric, "histogram").as_message().unwrap().clone();
    assert_eq!(field(&histogram, "sample_count"), Value::U64(5));
    assert_eq!(field(&histogram, "schema"), Value::I32(3));
    let (mut index, mut count, mut buckets) = (0, 0, Vec::new());
    let deltas = field(&histogram, "positive_delta");
    let mut deltas = deltas.as_list().unwrap().iter().map(|delta| delta.as_i64().unwrap());
    for span in field(&histogram, "positive_span").as_list().unwrap() {
        let span = span.as_message().unwrap();
        index += field(span, "offset").as_i32().unwrap();
        for _ in 0..field(span, "length").as_u32().unwrap() {
            count += deltas.next().unwrap();
            buckets.push((f64::exp2(f64::from(index) / 8.0), count));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    for seconds in [0.001, 0.001_001, 0.0013, 0.9] {
        let within = |bound: f64| seconds <= bound && bound < seconds * 1.1;
        assert!(buckets.iter().any(|(bound, _)| within(*bound)), "{seconds} in {buckets:?}");
    }
    assert_eq!(buckets.iter().map(|(_, count)| count).sum::<i64>(), 5);
}

struct Model;

impl protox::file::FileResolver for Model {
    fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
        protox::file::File::from_source(name, MODEL)
    }
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_of_the_program_are_on_the_same_page() {
    let metrics = Metrics::new();
    ::metrics::with_local_recorder(&metrics.recorder(), || {
        ::metrics::describe_counter!("orders.total", "Orders that came.");
        for kind in ["book", "pen", "book"] {
            ::metrics::counter!("orders.total", "kind" => kind, "le" => "x").increment(1);
        }
        ::metrics::gauge!("queue_length").set(2.5);
        for bytes in [10.0, 1000.0, 1e9] {
            ::metrics::histogram!("upload_bytes").record(bytes);
        }
        // Of another kind, and with a reserved name.
        ::metrics::gauge!("orders_total").set(1.0);
        ::metrics::counter!("polyrpc_connections").increment(7);
    });
    let text = metrics.text();
    for line in [
        "# HELP orders_total Orders that came.",
        "# TYPE orders_total counter",
        "orders_total{exported_le=\"x\",kind=\"book\"} 2",
        "orders_total{exported_le=\"x\",kind=\"pen\"} 1",
        "queue_length 2.5",
        "upload_bytes_bucket{le=\"64\"} 1",
        "upload_bytes_bucket{le=\"1024\"} 2",
        "upload_bytes_bucket{le=\"1073741824\"} 3",
        "upload_bytes_bucket{le=\"+Inf\"} 3",
        "upload_bytes_sum 1000001010",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n in\n{text}");
    }
    assert!(!text.contains("polyrpc_connections 7") && !text.contains("# TYPE orders_total gauge"), "{text}");
    assert_well_formed(&text);
}

#[test]
fn names_are_normalized_as_by_bvar() {
    for (name, want) in [
        ("example.EchoService.Echo", "example_echo_service_echo"),
        ("HTTPServer", "httpserver"),
        ("a..B--c", "a_b_c"),
        ("Foo2Bar", "foo2_bar"),
        ("größe", "gr_e"),
        ("", ""),
    ] {
        assert_eq!(text::to_underscored(name), want);
    }
}

#[test]
fn recent_values_cover_the_last_interval() {
    let metrics = Metrics::new();
    let call = call_start(Side::Server, "S", "m");
    count(&metrics, &call, 1000, None);
    let index = metrics.0.table.find(&call);
    let series = metrics.0.table.at(index);
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let lately = |seconds| {
        let (recent, lately) = series.recent_totals(&series.totals(), at(seconds));
        (recent.successes(), lately.as_secs())
    };
    assert_eq!(lately(0), (1, 10), "everything recorded");
    count(&metrics, &call, 1, None);
    assert_eq!(lately(5), (2, 10));
    assert_eq!(lately(15), (1, 15));
    assert_eq!(lately(20), (1, 20));
    assert_eq!(lately(30), (0, 15));
}

#[test]
fn every_code_has_a_series() {
    let metrics = Metrics::new();
    let call = call_start(Side::Client, "", "m");
    for code in Code::ALL {
        count(&metrics, &call, 1, Some(&Status::new(code, "")));
    }
    let text = metrics.text();
    for code in Code::ALL {
        let label = format!("code=\"{}\"}} 1", code.as_str().replace(' ', "_"));
        assert!(text.contains(&label), "{label}");
    }
}

/// Every line is a comment, or a name with labels and a number; every name has its type.
fn assert_well_formed(text: &str) {
    let mut known = Vec::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            known.push(kind.split(' ').next().unwrap());
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect(line);
        value.parse::<f64>().expect(line);
        let name = name.split('{').next().unwrap();
        let is_known = |kind: &&str| {
            name == *kind || ["_bucket", "_sum", "_count"].iter().any(|end| name == format!("{kind}{end}"))
        };
        assert!(known.iter().any(is_known), "{line}");
    }
}
