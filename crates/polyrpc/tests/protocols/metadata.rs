//! Metadata arrives unchanged, or the call fails with an error that names the key: nothing is lost silently.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::{CallOptions, Request};
use polyrpc::codec::Body;
use polyrpc::fallback::RawRequest;
use polyrpc::propagation::{self, CallScope, Trace, TraceParent};
use polyrpc::server::ServerHandle;
use polyrpc::{
    Client, Code, Context, Error, Format, Json, Metadata, Protocol, Result, Retry, Server, Status, Streaming,
};

use crate::common::{failure_of, serve, soon, url_of};

#[polyrpc::service]
trait Look {
    /// Returns the value of a key.
    async fn seen(&self, cx: &mut Context, key: String) -> Result<String>;
    /// Replies with metadata under this key, in headers or trailers.
    async fn answer(&self, cx: &mut Context, key: String, behind: bool) -> Result<String>;
    /// The same for a failure.
    async fn fail(&self, cx: &mut Context, key: String) -> Result<String>;
    /// Replies with two values of this key.
    async fn repeat(&self, cx: &mut Context, key: String) -> Result<String>;
    /// The same as `answer` for a stream.
    async fn stream(&self, cx: &mut Context, key: String) -> Result<Streaming<String>>;
}

#[derive(Clone, Default)]
struct Looker(Arc<AtomicUsize>);

impl Look for Looker {
    async fn seen(&self, cx: &mut Context, key: String) -> Result<String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let value = cx.metadata().bytes(&key).map(|value| value.escape_ascii().to_string());
        Ok(value.unwrap_or_else(|| "nothing".to_owned()))
    }

    async fn answer(&self, cx: &mut Context, key: String, behind: bool) -> Result<String> {
        let reply = cx.reply_options();
        if behind { &mut reply.trailers } else { &mut reply.metadata }.insert(key, "value");
        Ok("answered".to_owned())
    }

    async fn fail(&self, cx: &mut Context, key: String) -> Result<String> {
        cx.reply_options().metadata.insert(key, "value");
        Err(Status::not_found("not here").into())
    }

    async fn repeat(&self, cx: &mut Context, key: String) -> Result<String> {
        ["a", "b"].into_iter().for_each(|value| cx.reply_options().metadata.append(key.clone(), value));
        Ok("answered".to_owned())
    }

    async fn stream(&self, cx: &mut Context, key: String) -> Result<Streaming<String>> {
        cx.reply_options().metadata.insert(key, "value");
        Ok(Streaming::from_iter(["first".to_owned()]))
    }
}

/// How metadata is carried.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Grpc,
    Http,
    Map,
    None,
}

const SCHEMES: [(&str, By); 11] = [
    ("grpc", By::Grpc),
    ("grpc-web", By::Grpc),
    ("grpc-web?http_version=2", By::Grpc),
    ("connect", By::Grpc),
    ("connect?http_version=2", By::Grpc),
    ("http", By::Http),
    ("http?dialect=json-rpc", By::Map),
    ("baidu-std", By::Map),
    ("rpcx", By::Map),
    ("net-rpc", By::None),
    ("rest-rpc", By::None),
];

/// Key, value, and the protocols that carry them.
const TABLE: [(&str, &[u8], &[By]); 21] = [
    ("tenant", b"a b", &[By::Grpc, By::Http, By::Map]),
    ("content-language", b"de", &[By::Grpc, By::Map]),
    ("data-bin", b"\0\r\n\xff", &[By::Grpc, By::Map]),
    ("utf-8", "\u{e4}".as_bytes(), &[By::Http, By::Map]),
    ("control", b"a\r\nb: c", &[By::Map]),
    ("blank", b" a", &[By::Map]),
    ("a b", b"c", &[By::Map]),
    ("a\r\nb", b"c", &[By::Map]),
    ("\u{e4}", b"c", &[By::Map]),
    (":path", b"/", &[By::Map]),
    ("grpc-status", b"0", &[By::Map]),
    ("grpc-timeout", b"1n", &[By::Map]),
    ("content-type", b"text/plain", &[By::Map]),
    ("Content-Length", b"1", &[By::Map]),
    ("host", b"elsewhere", &[By::Map]),
    ("te", b"trailers", &[By::Map]),
    ("connection", b"close", &[By::Map]),
    ("Transfer-Encoding", b"chunked", &[By::Map]),
    ("keep-alive", b"1", &[By::Map]),
    ("upgrade", b"h2c", &[By::Map]),
    ("trailer", b"x", &[By::Map]),
];

async fn looked() -> (ServerHandle, Looker) {
    let looker = Looker::default();
    (serve(Server::new().service(LookServer::new(looker.clone()))).await, looker)
}

fn client(scheme: &str, server: &ServerHandle) -> LookClient {
    LookClient::new(Client::new(&url_of(scheme, server.address())).unwrap())
}

fn with(key: &str, metadata: Metadata) -> Request<String> {
    let mut request = Request::new(key.to_owned());
    request.options.metadata = metadata;
    request
}

/// Asserts that a call was not sent, and why.
fn assert_refused(error: &Error, key: &str, case: &str) {
    assert_eq!((error.code(), error.status().retry()), (Code::InvalidArgument, Retry::Never), "{case}");
    assert!(error.message().contains(&format!("{key:?}")), "{case}: {error}");
}

#[tokio::test]
async fn metadata_arrives_unchanged_or_the_call_is_rejected() {
    for (scheme, by) in SCHEMES {
        let (server, looker) = looked().await;
        let client = client(scheme, &server);
        for (key, value, carried_by) in TABLE {
            let case = format!("{scheme}, {key:?}");
            let metadata = [(key.to_owned(), value)].into_iter().collect();
            let before = looker.0.load(Ordering::SeqCst);
            let seen = soon(client.seen_with(with(key, metadata))).await.map(|response| response.message);
            if carried_by.contains(&by) {
                assert_eq!(seen.unwrap(), value.escape_ascii().to_string(), "{case}");
                continue;
            }
            let error = seen.unwrap_err();
            match by {
                By::None => assert!(error.message().contains("metadata"), "{case}: {error}"),
                _ => assert_refused(&error, key, &case),
            }
            assert_eq!(looker.0.load(Ordering::SeqCst), before, "{case} was sent");
            // The connection is unaffected.
            assert_eq!(soon(client.seen(key.to_owned())).await.unwrap(), "nothing", "{case}");
        }
    }
}

#[tokio::test]
async fn repeated_metadata_keys_arrive_or_are_rejected() {
    for (scheme, by) in SCHEMES {
        let (server, _) = looked().await;
        let mut metadata = Metadata::new();
        metadata.append("twice", "a");
        metadata.append("twice", "b");
        let seen = soon(client(scheme, &server).seen_with(with("twice", metadata))).await;
        match by {
            By::Grpc => assert_eq!(seen.unwrap().message, "a", "{scheme}"),
            By::Http => assert_eq!(seen.unwrap().message, "a, b", "{scheme}"),
            By::Map => assert_refused(&seen.unwrap_err(), "twice", scheme),
            By::None => assert!(seen.is_err(), "{scheme}"),
        }
    }
}

#[tokio::test]
async fn framework_metadata_is_sent_with_user_metadata() {
    let (server, _) = looked().await;
    let parent: TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
    let incoming: Metadata =
        [("traceparent", parent.to_string()), ("baggage", " user=7 ".to_owned())].into_iter().collect();
    let trace = Trace::read(&incoming).unwrap();
    for (scheme, by) in SCHEMES {
        let url = url_of(scheme, server.address());
        let metadata = match by {
            By::None => continue,
            _ => [("tenant", "a")].into_iter().collect(),
        };
        let client = LookClient::new(Client::builder(&url).credential("mine").build().unwrap());
        let request = with("baggage", metadata).with_timeout(Duration::from_secs(5));
        let seen =
            propagation::scope(CallScope::default().with_trace(trace.clone()), client.seen_with(request));
        assert_eq!(soon(seen).await.unwrap().message, "user=7", "{scheme}");
    }
}

#[tokio::test]
async fn response_with_unsendable_metadata_is_a_failure_naming_the_key() {
    let (server, _) = looked().await;
    for (scheme, by) in SCHEMES {
        let client = client(scheme, &server);
        for key in ["te", "a b", "grpc-status", "connection"] {
            let case = format!("{scheme}, {key:?}");
            let answered = soon(client.answer(key.to_owned(), false)).await;
            if matches!(by, By::Map | By::None) {
                assert_eq!(answered.unwrap(), "answered", "{case}");
                continue;
            }
            let error = answered.unwrap_err();
            assert_eq!(error.code(), Code::Internal, "{case}: {error}");
            assert!(error.message().contains(&format!("{key:?}")), "{case}: {error}");
            // A failure stays the same.
            let error = soon(client.fail(key.to_owned())).await.unwrap_err();
            assert_eq!((error.code(), error.message()), (Code::NotFound, "not here"), "{case}");
            if by == By::Grpc {
                let error = soon(client.answer(key.to_owned(), true)).await.unwrap_err();
                assert_eq!(error.code(), Code::Internal, "{case}, behind");
                let messages = soon(client.stream(key.to_owned())).await.unwrap();
                let error = failure_of(messages).await;
                assert!(error.message().contains(&format!("{key:?}")), "{case}, streamed: {error}");
            }
        }
        for key in ["answered", "content-type", "content-disposition"] {
            assert!(soon(client.answer(key.to_owned(), false)).await.is_ok(), "{scheme}, {key}");
        }
    }
}

#[tokio::test]
async fn repeated_metadata_keys_of_a_response_arrive_or_fail_the_call() {
    let (server, _) = looked().await;
    for (scheme, by) in SCHEMES {
        let client = client(scheme, &server);
        let answered = soon(client.repeat("twice".to_owned())).await;
        match by {
            By::Map => {
                let error = answered.unwrap_err();
                assert!(error.message().contains("\"twice\""), "{scheme}: {error}");
                assert!(error.message().contains("several values"), "{scheme}: {error}");
                // The connection is unaffected.
                assert_eq!(
                    soon(client.answer("once".to_owned(), false)).await.unwrap(),
                    "answered",
                    "{scheme}"
                );
            }
            By::Grpc | By::Http | By::None => assert_eq!(answered.unwrap(), "answered", "{scheme}"),
        }
    }
}

#[tokio::test]
async fn proxy_drops_hop_by_hop_headers_and_rejects_other_invalid_ones() {
    let (backend, _) = looked().await;
    for onward in ["grpc", "http", "rpcx"] {
        let backend = Client::new(&url_of(onward, backend.address())).unwrap();
        let proxy = Server::new().fallback(move |call: RawRequest| {
            let backend = backend.clone();
            async move { call.forward(&backend).await }
        });
        let proxy = serve(proxy).await;
        let client = crate::common::client(Protocol::Rpcx, &proxy);
        let call = async |looked_for: &str, metadata: &[(&'static str, &'static str)]| {
            let format = Format::Json(Json::Go);
            let body = Body::new(format, Bytes::from(format!("{looked_for:?}")));
            let metadata = metadata.iter().copied().collect();
            let options = CallOptions { metadata, ..CallOptions::default() };
            soon(client.call_raw("Look/Seen", body, options)).await.map(|answer| answer.message.bytes)
        };
        let beside = [("te", "trailers"), ("Connection", "close"), ("grpc-status", "0"), ("tenant", "a")];
        assert_eq!(call("tenant", &beside).await.unwrap(), "\"a\"", "{onward}");
        let of_connection = if onward == "rpcx" { "\"trailers\"" } else { "\"nothing\"" };
        assert_eq!(call("te", &beside).await.unwrap(), of_connection, "{onward}");
        let strange = call("a b", &[("a b", "c")]).await;
        match onward {
            "rpcx" => assert_eq!(strange.unwrap(), "\"c\""),
            _ => {
                let text = strange.unwrap_err().to_string();
                assert!(text.contains("\"a b\""), "{onward}: {text}");
            }
        }
    }
}
