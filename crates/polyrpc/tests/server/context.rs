//! What a handler knows of its call, and what it sends beside its reply.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use polyrpc::client::{CallOptions, Request};
use polyrpc::codec::{Body, Raw};
use polyrpc::service::{Peer, ServiceBuilder};
use polyrpc::{Checksum, Code, Compression, Context, Format, Json, Protocol, Result, Server};
use tokio::sync::oneshot;

use crate::common::{ADORNED, Gate, PATIENCE, PROTOCOLS, Wire, client, json_call, serve, soon};

#[polyrpc::service]
trait Told {
    /// Remaining milliseconds, if the caller set a deadline.
    async fn remaining(&self, cx: &mut Context) -> Result<Option<u64>>;
    /// Never returns.
    async fn hang(&self) -> Result<()>;
    /// Runs until the call is cancelled.
    #[rpc(blocking)]
    async fn spin(&self, cx: &mut Context) -> Result<()>;
    /// Returns every metadata pair whose key starts with `k`, with the prefix `r-`.
    async fn metadata(&self, cx: &mut Context) -> Result<()>;
    async fn peer(&self, cx: &mut Context) -> Result<String>;
    async fn chosen(&self, cx: &mut Context, choice: String) -> Result<String>;
    async fn close(&self, cx: &mut Context) -> Result<()>;
}

#[derive(Clone, Default)]
struct Teller {
    gate: Gate,
    dropped: Arc<Mutex<Option<oneshot::Sender<Instant>>>>,
    cancelled: Arc<Mutex<Option<oneshot::Sender<()>>>>,
}

/// Reports when it is dropped.
struct Guard(Option<oneshot::Sender<Instant>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(reported) = self.0.take() {
            let _ = reported.send(Instant::now());
        }
    }
}

impl Told for Teller {
    async fn remaining(&self, cx: &mut Context) -> Result<Option<u64>> {
        assert_eq!(cx.deadline().is_some(), cx.remaining().is_some());
        Ok(cx.remaining().map(|left| left.as_millis() as u64))
    }

    async fn hang(&self) -> Result<()> {
        let _guard = Guard(self.dropped.lock().unwrap().take());
        self.gate.pass().await;
        Ok(())
    }

    async fn spin(&self, cx: &mut Context) -> Result<()> {
        let reported = self.cancelled.lock().unwrap().take();
        let give_up = Instant::now() + PATIENCE;
        while !cx.is_cancelled() && Instant::now() < give_up {
            std::thread::yield_now();
        }
        if let Some(reported) = reported.filter(|_| cx.is_cancelled()) {
            let _ = reported.send(());
        }
        Ok(())
    }

    async fn metadata(&self, cx: &mut Context) -> Result<()> {
        let pairs: Vec<_> = cx
            .metadata()
            .iter()
            .filter(|(key, _)| key.starts_with('k'))
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        for (key, value) in pairs {
            cx.reply_options().metadata.insert(format!("r-{key}"), value);
        }
        Ok(())
    }

    async fn peer(&self, cx: &mut Context) -> Result<String> {
        Ok(cx.peer().to_string())
    }

    async fn chosen(&self, cx: &mut Context, choice: String) -> Result<String> {
        let reply = cx.reply_options();
        match choice.as_str() {
            "gzip" => reply.compression = Compression::Gzip,
            "zlib" => reply.compression = Compression::Zlib,
            "snappy" => reply.compression = Compression::Snappy,
            "checksum" => reply.checksum = Checksum::MessageAndAttachment,
            "json" => reply.format = Some(Format::Json(Json::Brpc)),
            "msgpack" => reply.format = Some(Format::MessagePack),
            _ => {}
        }
        Ok("x".repeat(4096))
    }

    async fn close(&self, cx: &mut Context) -> Result<()> {
        cx.reply_options().close_connection = true;
        Ok(())
    }
}

async fn reported(teller: &Teller) -> polyrpc::server::ServerHandle {
    serve(Server::new().service(ToldServer::new(teller.clone()))).await
}

#[tokio::test]
async fn handler_sees_the_deadline_of_the_caller() {
    let server = reported(&Teller::default()).await;
    for protocol in ADORNED {
        let stub = ToldClient::new(client(protocol, &server));
        let request = Request::new(()).with_timeout(Duration::from_secs(60));
        let left = stub.remaining_with(request).await.unwrap().message.expect("a deadline");
        assert!((30_000..=60_000).contains(&left), "{protocol:?}: {left}");
        let patient =
            polyrpc::Client::builder(&crate::common::url(protocol, &server)).timeout(None).build().unwrap();
        assert_eq!(ToldClient::new(patient).remaining().await.unwrap(), None, "{protocol:?}");
    }
}

#[tokio::test]
async fn handler_is_dropped_at_the_deadline_even_if_the_caller_waits() {
    for protocol in ADORNED {
        let teller = Teller::default();
        let (tell, dropped) = oneshot::channel();
        *teller.dropped.lock().unwrap() = Some(tell);
        let server = reported(&teller).await;
        // A caller that waits longer than its deadline: the server ends the call.
        let mut wire = Wire::connect(protocol, &server).await;
        let mut call = json_call("Told", "Hang", "");
        call.timeout = Some(Duration::from_millis(60));
        let begun = Instant::now();
        wire.send(1, &call).await;
        let (_, reply) = wire.reply().await.expect("an answer");
        let status = reply.result.unwrap_err();
        assert!(status.message().contains("did not answer in time"), "{protocol:?}: {status}");
        assert_eq!(status.code(), Code::DeadlineExceeded, "{protocol:?}");
        let at = soon(dropped).await.unwrap();
        assert!(at - begun >= Duration::from_millis(60), "{protocol:?}");
        assert!(at <= Instant::now());
    }
}

#[tokio::test]
async fn blocking_method_observes_cancellation() {
    for protocol in ADORNED {
        // By the deadline.
        let teller = Teller::default();
        let (tell, cancelled) = oneshot::channel();
        *teller.cancelled.lock().unwrap() = Some(tell);
        let server = reported(&teller).await;
        let stub = ToldClient::new(client(protocol, &server));
        // On a busy machine the deadline may pass before the method starts: then it is called again.
        while teller.cancelled.lock().unwrap().is_some() {
            let request = Request::new(()).with_timeout(Duration::from_millis(30));
            // It answers just when the caller gives up.
            let _ = stub.spin_with(request).await;
        }
        soon(cancelled).await.expect("the method saw it");

        // By the end of the server.
        let (tell, cancelled) = oneshot::channel();
        *teller.cancelled.lock().unwrap() = Some(tell);
        let spinning = tokio::spawn(async move { stub.spin().await });
        crate::common::until(|| teller.cancelled.lock().unwrap().is_none()).await;
        drop(server);
        soon(cancelled).await.expect("the method saw it");
        soon(spinning).await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn metadata_round_trips() {
    let server = reported(&Teller::default()).await;
    for protocol in ADORNED {
        let stub = ToldClient::new(client(protocol, &server));
        let request = Request::new(()).with_metadata("k1", "v1").with_metadata("k2", "two words, and more");
        let reply = stub.metadata_with(request).await.unwrap();
        assert_eq!(reply.metadata.get("r-k1"), Some("v1"), "{protocol:?}");
        assert_eq!(reply.metadata.get("r-k2"), Some("two words, and more"), "{protocol:?}");
        // None of it stays for the next call.
        let reply = stub.metadata_with(Request::new(())).await.unwrap();
        assert_eq!(reply.metadata.get("r-k1"), None, "{protocol:?}");
    }
}

#[tokio::test]
async fn attachment_round_trips_with_the_message() {
    let double = ServiceBuilder::new("Double").method::<Raw, Bytes, Bytes, _, _>(
        "Call",
        |mut cx: Context, body| async move {
            let twice = [&cx.attachment()[..], &cx.attachment()[..]].concat();
            cx.reply_options().attachment = twice.into();
            (cx, Ok(body))
        },
    );
    let server = serve(Server::new().service(double)).await;
    let client = client(Protocol::BaiduStd, &server);
    for size in [0, 1, 10_000, 1 << 20] {
        let attachment = Bytes::from(vec![7; size]);
        let options =
            CallOptions { attachment, checksum: Checksum::MessageAndAttachment, ..CallOptions::default() };
        let body = Body::new(Format::Protobuf, &b"\x0a\x01x"[..]);
        let reply = client.call_raw("Double/Call", body, options).await.unwrap();
        assert_eq!(reply.attachment.len(), 2 * size);
        assert_eq!(&reply.message.bytes[..], b"\x0a\x01x");
    }
    // Protocols without attachments reject it before sending.
    for protocol in [Protocol::Rpcx, Protocol::Http, Protocol::Grpc] {
        let client = crate::common::client(protocol, &server);
        let options = CallOptions { attachment: Bytes::from_static(b"a"), ..CallOptions::default() };
        let error = client.call_raw("Double/Call", Body::new(Format::Raw, ""), options).await.unwrap_err();
        assert!(error.message().contains("attachment"), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn handler_sees_its_peer() {
    let server = reported(&Teller::default()).await;
    for protocol in PROTOCOLS {
        let stub = ToldClient::new(client(protocol, &server));
        let peer = stub.peer().await.unwrap();
        assert!(
            peer.starts_with("127.0.0.1:") && peer != server.address().to_string(),
            "{protocol:?}: {peer}"
        );
        assert_eq!(ToldClient::new(server.client(protocol).unwrap()).peer().await.unwrap(), "in-process");
    }
    assert_eq!(*Context::for_test().peer(), Peer::InProcess);
}

#[tokio::test]
async fn handler_selects_the_response_encoding() {
    let server = reported(&Teller::default()).await;
    let format = Format::Json(Json::Brpc);
    for (protocol, choices) in [
        // Its table of formats has no MessagePack, that of HTTP has.
        (Protocol::BaiduStd, &["gzip", "zlib", "snappy", "checksum", "json"][..]),
        (Protocol::Rpcx, &["json", "msgpack", "gzip"]),
        (Protocol::Http, &["msgpack", "gzip", "json"]),
    ] {
        for choice in choices {
            let client = client(protocol, &server);
            let body = Body::new(format, format!("\"{choice}\""));
            let reply = client.call_raw("Told/Chosen", body, CallOptions::default()).await.unwrap();
            if *choice == "msgpack" {
                assert_eq!(reply.message.format, Format::MessagePack);
            }
            let stub = ToldClient::new(client);
            let request = Request::new((*choice).to_owned()).with_format(format);
            let reply =
                stub.chosen_with(request).await.unwrap_or_else(|e| panic!("{protocol:?} {choice}: {e}"));
            assert_eq!(reply.message.len(), 4096, "{protocol:?} {choice}");
        }
    }
}

#[tokio::test]
async fn selected_encoding_is_used_on_the_wire() {
    let server = reported(&Teller::default()).await;
    for (choice, compression) in [
        ("gzip", Compression::Gzip),
        ("zlib", Compression::Zlib),
        ("snappy", Compression::Snappy),
        ("", Compression::None),
    ] {
        let mut wire = Wire::connect(Protocol::BaiduStd, &server).await;
        wire.send(1, &json_call("Told", "Chosen", &format!("\"{choice}\""))).await;
        let (_, reply) = wire.reply().await.unwrap();
        assert_eq!(reply.head.compression, compression);
        assert_eq!(reply.result.unwrap().len() < 4096, compression != Compression::None);
    }
}

#[tokio::test]
async fn handler_can_close_the_connection_instead_of_answering() {
    let server = reported(&Teller::default()).await;
    for protocol in PROTOCOLS {
        let stub = ToldClient::new(client(protocol, &server));
        let error = soon(stub.close()).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{protocol:?}: {error}");
        // The next call uses another connection.
        assert!(soon(stub.peer()).await.is_ok(), "{protocol:?}");
    }
}

#[tokio::test]
async fn oneway_call_runs_without_a_waiting_caller() {
    for protocol in PROTOCOLS {
        let teller = Teller::default();
        let server = reported(&teller).await;
        let stub = ToldClient::new(client(protocol, &server));
        let mut request = Request::new(());
        request.options.oneway = true;
        soon(stub.hang_with(request)).await.unwrap_or_else(|error| panic!("{protocol:?}: {error}"));
        teller.gate.came(1).await;
        teller.gate.open();
        assert!(soon(stub.peer()).await.is_ok(), "{protocol:?}");
    }
}
