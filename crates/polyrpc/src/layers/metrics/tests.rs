use std::sync::Barrier;
use std::thread;

use polyrpc_wire::{Code, Protocol, Status};

use super::*;

fn begun<'a>(side: Side, service: &'a str, method: &'a str) -> Begun<'a> {
    Begun { side, protocol: Protocol::Rpcx, service, method, peer: None, request: 0 }
}

fn end(metrics: &Metrics, call: Counting, took: Duration, failure: Option<&Status>) {
    metrics.ended(call, &Ended { took, failure, reply: 0 });
}

/// Counts a call that takes so long.
fn count(metrics: &Metrics, call: &Begun<'_>, micros: u64, failure: Option<&Status>) {
    let counting = metrics.began(call);
    end(metrics, counting, Duration::from_micros(micros), failure);
}

#[test]
fn calls_are_counted_by_method_side_and_outcome() {
    let metrics = Metrics::new();
    let mul = begun(Side::Server, "Arith", "Mul");
    (1..=100).for_each(|micros| count(&metrics, &mul, micros, None));
    count(&metrics, &mul, 7, Some(&Status::not_found("")));
    metrics.began(&mul);
    count(&metrics, &begun(Side::Client, "Arith", "Mul"), 5, None);
    let methods = metrics.methods();
    let [client, server] = &methods[..] else { panic!("{methods:?}") };
    assert_eq!((client.side, client.started, client.succeeded), (Side::Client, 1, 1));
    assert_eq!((&*server.service, &*server.method, server.protocol), ("Arith", "Mul", "rpcx"));
    assert_eq!((server.started, server.succeeded, server.failed, server.in_flight()), (102, 100, 1, 1));
    assert!(server.percentile(0.99).abs_diff(Duration::from_micros(99)) < Duration::from_micros(13));
    assert_eq!(server.average, Duration::from_nanos(50_500));
}

#[test]
fn threads_that_count_at_once_lose_nothing() {
    let metrics = Metrics::new();
    let (threads, calls) = (8, 1000);
    let ready = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                ready.wait();
                for call in 0..calls {
                    count(&metrics, &begun(Side::Client, "S", ["a", "b", "c"][call % 3]), 1, None);
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
fn names_that_somebody_makes_up_take_no_room() {
    let metrics = Metrics::with_room(10);
    let names: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
    for name in &names {
        count(&metrics, &begun(Side::Server, "", name), 1, None);
        count(&metrics, &begun(Side::Server, "", &names[0]), 1, None);
    }
    let methods = metrics.methods();
    assert_eq!(methods.len(), 11);
    let other = methods.iter().find(|method| method.method == "other").unwrap();
    assert_eq!((other.succeeded, other.side, other.protocol), (990, Side::Server, "any"));
    assert!(methods.iter().any(|method| method.method == "0" && method.succeeded == 1001));
    count(&Metrics::with_room(0), &begun(Side::Client, "", "m"), 1, None);
}

#[test]
fn the_page_has_every_number_with_its_labels() {
    let metrics = Metrics::new();
    let call = begun(Side::Server, "a\"b\\\n", "Mul");
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
        format!("polyrpc_call_duration_seconds_bucket{{{labels},le=\"0.000016384\"}} 0"),
        format!("polyrpc_call_duration_seconds_bucket{{{labels},le=\"0.000065536\"}} 1"),
        format!("polyrpc_call_duration_seconds_bucket{{{labels},le=\"0.001048576\"}} 2"),
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
fn servers_are_told_of_by_brpcs_names() {
    let metrics = Metrics::new();
    let echo = begun(Side::Server, "example.EchoService", "Echo");
    count(&metrics, &echo, 100, None);
    count(&metrics, &Begun { protocol: Protocol::BaiduStd, ..echo }, 300, None);
    count(&metrics, &echo, 1, Some(&Status::internal("")));
    count(&metrics, &begun(Side::Server, "", "plus"), 1, None);
    count(&metrics, &begun(Side::Client, "example.EchoService", "Echo"), 1, None);
    let text = metrics.brpc_text("8000");
    let name = "rpc_server_8000_example_echo_service_echo";
    for line in [
        "rpc_server_8000_error 1".to_owned(),
        "# HELP rpc_server_8000_concurrency".to_owned(),
        format!("# TYPE {name} summary"),
        format!("{name}{{quantile=\"avg\"}} 200"),
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

#[test]
fn names_are_underscored_as_bvar_does() {
    for (name, want) in [
        ("example.EchoService.Echo", "example_echo_service_echo"),
        ("HTTPServer", "httpserver"),
        ("a..B--c", "a_b_c"),
        ("Foo2Bar", "foo2_bar"),
        ("größe", "gr_e"),
        ("", ""),
    ] {
        assert_eq!(text::underscored(name), want);
    }
}

#[test]
fn what_is_told_of_lately_is_what_happened_since() {
    let metrics = Metrics::new();
    let call = begun(Side::Server, "S", "m");
    count(&metrics, &call, 1000, None);
    let place = metrics.0.table.find(&call);
    let series = metrics.0.table.at(place);
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let lately = |seconds| {
        let (recent, lately) = series.recent(&series.totals(), at(seconds));
        (recent.succeeded(), lately.as_secs())
    };
    assert_eq!(lately(0), (1, 10), "all there was");
    count(&metrics, &call, 1, None);
    assert_eq!(lately(5), (2, 10));
    assert_eq!(lately(15), (1, 15));
    assert_eq!(lately(20), (1, 20));
    assert_eq!(lately(30), (0, 15));
}

#[test]
fn every_code_has_a_place() {
    let metrics = Metrics::new();
    let call = begun(Side::Client, "", "m");
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
