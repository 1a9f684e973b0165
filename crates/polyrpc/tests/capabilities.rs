//! What each protocol carries: the table of `docs/protocols/README.md`, cell by cell.

mod common;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::Request;
use polyrpc::codec::{Body, Raw};
use polyrpc::propagation::{self, CallScope, Trace, TraceParent};
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Error, Format, Result, Server, Status};
use polyrpc_core::protocol::MetadataSupport;
use tokio::sync::Mutex as AsyncMutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};

use crate::common::{serve, soon, unreachable_address, url_of};

/// The rows of the table, and the scheme of each.
const ROWS: [(&str, &str); 9] = [
    ("baidu_std", "baidu-std"),
    ("rpcx", "rpcx"),
    ("gRPC", "grpc"),
    ("Connect", "connect"),
    ("HTTP/JSON", "http"),
    ("JSON-RPC 2.0", "http?dialect=json-rpc"),
    ("net/rpc", "net-rpc"),
    ("rest_rpc", "rest-rpc"),
    ("fb_rpc", "fb-rpc"),
];

const COLUMNS: [&str; 7] =
    ["deadline", "trace", "metadata", "attachment", "error number", "details", "typed details"];

/// A typed detail: `google.rpc.ErrorInfo` with a reason.
const ERROR_INFO: (&str, &[u8]) = ("type.googleapis.com/google.rpc.ErrorInfo", b"\x0a\x08STOCKOUT");

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Lets one test run at a time: a subscriber that is set while another thread emits an event for the first time may never
/// receive that event.
static ALONE: AsyncMutex<()> = AsyncMutex::const_new(());

#[polyrpc::service]
trait Survey {
    /// Whether it arrived with the call: `yes` or `no`.
    async fn look(&self, cx: &mut Context, what: String) -> Result<String>;
}

struct Surveyor;

impl Survey for Surveyor {
    async fn look(&self, cx: &mut Context, what: String) -> Result<String> {
        look(cx, &what).await
    }
}

async fn look(cx: &Context, what: &str) -> Result<String> {
    let came = match what {
        "deadline" => cx.remaining().is_some_and(|left| left < Duration::from_secs(8)),
        "trace" => cx.metadata().get("traceparent") == Some(PARENT),
        "metadata" => cx.metadata().get("key") == Some("value"),
        "attachment" => cx.attachment() == "beside",
        "sleep" => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            false
        }
        "typed details" => {
            return Err(Status::not_found("not here").with_detail(ERROR_INFO.0, ERROR_INFO.1).into());
        }
        _ => return Err(Status::not_found("not here").with_number(54321).with_details("more").into()),
    };
    Ok(if came { "yes" } else { "no" }.to_owned())
}

/// The same for a protocol that carries no plain strings.
fn raw() -> ServiceBuilder {
    ServiceBuilder::new("Raw").method::<Raw, String, String, _, _>(
        "Look",
        |cx: Context, what: String| async move {
            let looked = look(&cx, &what).await;
            (cx, looked)
        },
    )
}

async fn surveyed(limits: Limits) -> ServerHandle {
    serve(Server::new().limits(limits).service(SurveyServer::new(Surveyor)).service(raw())).await
}

async fn ask(scheme: &str, server: &ServerHandle, what: &str) -> polyrpc::client::Result<String> {
    let client = Client::new(&url_of(scheme, server.address())).unwrap();
    let mut request = Request::new(what.to_owned());
    match what {
        "deadline" => request = request.with_timeout(Duration::from_secs(7)),
        "metadata" => request.options.metadata.insert("key", "value"),
        "attachment" => request.options.attachment = Bytes::from_static(b"beside"),
        _ => {}
    }
    let trace = Trace::new(PARENT.parse::<TraceParent>().unwrap());
    let inherited =
        if what == "trace" { CallScope::default().with_trace(trace) } else { CallScope::default() };
    let call = async {
        match scheme {
            "fb-rpc" => {
                let body = Body::new(Format::Raw, what.to_owned());
                let reply = client.call_raw("Raw/#0", body, request.options).await?;
                Ok::<_, Error>(String::from_utf8(reply.message.bytes.to_vec()).unwrap())
            }
            _ => Ok(SurveyClient::new(client).look_with(request).await?.message),
        }
    };
    soon(propagation::scope(inherited, call)).await
}

/// The observed cell of one feature and one protocol.
async fn observe(scheme: &str, server: &ServerHandle, column: &str) -> String {
    let reported = |error: Error| match column {
        "error number" if error.status().number() == Some(54321) => "yes",
        "details" if error.status().details()[..] == *b"more" => "yes",
        "typed details" if has_error_info(error.status()) => "yes",
        "error number" | "details" | "typed details" => {
            // fb_rpc carries no text.
            assert!(error.message().contains("not here") || scheme == "fb-rpc", "{scheme}: {error}");
            "no"
        }
        _ => {
            assert!(matches!(error.code(), Code::InvalidArgument | Code::Unimplemented), "{scheme}: {error}");
            assert!(!error.message().is_empty());
            "refused"
        }
    };
    ask(scheme, server, column).await.unwrap_or_else(|error| reported(error).to_owned())
}

fn has_error_info(status: &Status) -> bool {
    let details = status.typed_details();
    details.iter().any(|detail| detail.type_url == ERROR_INFO.0 && detail.value[..] == *ERROR_INFO.1)
}

/// The cells of the table by row, in the order of the columns.
fn documented() -> Vec<(String, Vec<String>)> {
    let text = include_str!("../../../docs/protocols/README.md");
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.starts_with("| | deadline"));
    assert_eq!(cells(lines.next().expect("a table"))[1..], COLUMNS);
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    rows.map(|mut row| (row.remove(0), row)).collect()
}

#[tokio::test]
async fn observed_capabilities_of_each_protocol_equal_the_table() {
    let _alone = ALONE.lock().await;
    let documented = documented();
    let names: Vec<_> = documented.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ROWS.map(|(name, _)| name));
    let server = surveyed(Limits::default()).await;
    let mut differs = Vec::new();
    for ((name, scheme), (_, cells)) in ROWS.iter().zip(&documented) {
        for (column, said) in COLUMNS.iter().zip(cells) {
            let seen = observe(scheme, &server, column).await;
            if seen != *said {
                differs.push(format!("{name}, {column}: {said} is said, {seen} is so"));
            }
        }
    }
    assert!(differs.is_empty(), "\n{}", differs.join("\n"));
}

#[tokio::test]
async fn failure_of_a_server_is_remote_and_one_of_the_client_is_local() {
    let _alone = ALONE.lock().await;
    let server = surveyed(Limits::default()).await;
    let closed = unreachable_address();
    let others = ["rest-rpc?version=0.20", "net-rpc?codec=json", "grpc-web"];
    for scheme in ROWS.iter().map(|(_, scheme)| *scheme).chain(others) {
        let failed = ask(scheme, &server, "details").await.unwrap_err();
        assert!(failed.status().is_remote(), "{scheme}: {failed}");
        let client = Client::new(&url_of(scheme, &closed)).unwrap();
        let target = if scheme == "fb-rpc" { "Raw/#0" } else { "Survey/Look" };
        let body = Body::new(Format::Raw, Bytes::new());
        let failed = soon(client.call_raw(target, body, <_>::default())).await.unwrap_err();
        assert!(!failed.status().is_remote(), "{scheme}: {failed}");
    }
}

#[test]
fn protocol_descriptors_equal_the_table() {
    for ((name, scheme), (_, cells)) in ROWS.iter().zip(documented()) {
        let client = Client::new(&url_of(scheme, "127.0.0.1:1")).unwrap();
        let can = client.protocol().descriptor().capabilities;
        let metadata = match can.metadata {
            MetadataSupport::Carried(_) => "yes",
            MetadataSupport::Refused => "refused",
        };
        let cell = |column| &*cells[COLUMNS.iter().position(|known| *known == column).unwrap()];
        assert_eq!(can.deadline, cell("deadline") == "yes", "{name}");
        assert_eq!(can.carries_metadata(), cell("trace") == "yes", "{name}");
        assert_eq!(metadata, cell("metadata"), "{name}");
        assert_eq!(can.attachments, cell("attachment") == "yes", "{name}");
    }
}

#[test]
fn client_is_not_multiplexed_if_a_connection_has_one_call_at_a_time() {
    for (scheme, is_multiplexed) in [
        ("baidu-std", true),
        ("rpcx", true),
        ("grpc", true),
        ("grpc-web", false),
        ("grpc-web?http_version=2", true),
        ("connect", false),
        ("connect?http_version=2", true),
        ("http", false),
        ("rest-rpc?version=0.20", true),
        ("rest-rpc?version=0.21", false),
    ] {
        let client = Client::new(&url_of(scheme, "127.0.0.1:1")).unwrap();
        assert_eq!(client.is_multiplexed(), is_multiplexed, "{scheme}");
    }
}

#[tokio::test]
async fn server_timeout_applies_if_the_protocol_carries_no_deadline() {
    let _alone = ALONE.lock().await;
    let limits = Limits { call_timeout: Some(Duration::from_millis(200)), ..Limits::default() };
    let server = surveyed(limits).await;
    for (name, scheme) in ROWS {
        let began = std::time::Instant::now();
        let error = ask(scheme, &server, "sleep").await.unwrap_err();
        // JSON-RPC has no code for it, and fb_rpc no text.
        let is_told = error.message() == "the method did not answer in time";
        assert!(is_told || error.code() == Code::DeadlineExceeded, "{name}: {error}");
        // Before the client's timeout.
        assert!(began.elapsed() < Duration::from_secs(5), "{name}");
    }
}

#[tokio::test]
async fn client_logs_once_what_its_protocol_cannot_carry() {
    let _alone = ALONE.lock().await;
    let server = surveyed(Limits::default()).await;
    for (scheme, said) in [("net-rpc", 2), ("rest-rpc", 2), ("fb-rpc", 2), ("rpcx", 0), ("grpc", 0)] {
        let events = Events::default();
        let _guard = tracing::subscriber::set_default(events.clone());
        let client = Client::new(&url_of(scheme, server.address())).unwrap();
        let trace = Trace::new(PARENT.parse::<TraceParent>().unwrap());
        for _ in 0..3 {
            let options = polyrpc::client::CallOptions::default();
            let body = Body::new(Format::Raw, "trace");
            let call = client.call_raw("Raw/#0", body, options);
            // Whether the server accepts it does not matter here.
            let _ = soon(propagation::scope(CallScope::default().with_trace(trace.clone()), call)).await;
        }
        let reported = events.0.lock().unwrap().clone();
        assert_eq!(reported.len(), said, "{scheme}: {reported:?}");
    }
}

/// Collects the events about unsupported features.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Events {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut words = MessageVisitor::default();
        event.record(&mut words);
        if words.0.contains("this protocol") {
            self.0.lock().unwrap().push(words.0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct MessageVisitor(String);

impl Visit for MessageVisitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
