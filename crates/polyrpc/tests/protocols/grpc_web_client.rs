//! Calls over gRPC-Web and Connect, over HTTP/1.1 and HTTP/2.
use polyrpc::client::{CallOptions, CancelHandle, Request};
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::{Client, Code, Context, Format, Result, Server, Status, Streaming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::common::{soon, url_of};

#[polyrpc::service]
trait Numbers {
    async fn plain(&self, cx: &mut Context, n: u64) -> Result<u64>;
    async fn count(&self, to: u64) -> Result<Streaming<u64>>;
    async fn sum(&self, numbers: Streaming<u64>) -> Result<u64>;
    async fn double(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>>;
    async fn blobs(&self, times: usize) -> Result<Streaming<String>>;
}

struct Counting;

impl Numbers for Counting {
    async fn plain(&self, cx: &mut Context, n: u64) -> Result<u64> {
        cx.reply_options().metadata.insert("before", "it");
        cx.reply_options().trailers.insert("behind", "it");
        match n {
            0 => Err(Status::not_found("nothing").into()),
            1 => std::future::pending().await,
            n => Ok(n),
        }
    }

    async fn count(&self, to: u64) -> Result<Streaming<u64>> {
        Ok(Streaming::from_iter(0..to))
    }

    async fn sum(&self, mut numbers: Streaming<u64>) -> Result<u64> {
        let mut sum = 0;
        while let Some(n) = numbers.message().await? {
            sum += n;
        }
        Ok(sum)
    }

    async fn double(&self, mut numbers: Streaming<u64>) -> Result<Streaming<u64>> {
        Ok(Streaming::produce(|sender| async move {
            while let Some(n) = numbers.message().await? {
                sender.send(2 * n).await?;
            }
            Ok(())
        }))
    }

    async fn blobs(&self, times: usize) -> Result<Streaming<String>> {
        Ok(Streaming::from_iter((0..times).map(|_| "x".repeat(100_000))))
    }
}

async fn all<T: Send + 'static>(mut messages: Streaming<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(message) = soon(messages.message()).await.unwrap() {
        all.push(message);
    }
    all
}

#[tokio::test]
async fn every_call_kind_works_over_both_http_versions_and_tls() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let identity =
        Identity::new(Pem::bytes(certified.cert.pem()), Pem::bytes(certified.signing_key.serialize_pem()));
    let listen = polyrpc::server::Listen::on("127.0.0.1:0");
    let server = Server::new().service(NumbersServer::new(Counting));
    let bound = server.bind(listen.tls(tls::Server::new(identity).unwrap())).await.unwrap().start();
    let port = bound.address().to_string().rsplit_once(':').unwrap().1.to_owned();
    let trusts = tls::Client::new().ca(Pem::bytes(certified.cert.pem()));
    let by_web = ["grpc-web", "grpc-web?http_version=2", "grpc-web+tls", "grpc-web+tls?http_version=2"];
    let by_connect = ["connect", "connect?http_version=2", "connect+tls", "connect+tls?http_version=2"];
    for scheme in by_web.into_iter().chain(by_connect) {
        let builder = Client::builder(&url_of(scheme, format_args!("localhost:{port}")));
        let builder = if scheme.contains("+tls") { builder.tls(trusts.clone()) } else { builder };
        let client = NumbersClient::new(builder.build().unwrap());

        let answer = soon(client.plain_with(Request::new(5))).await.unwrap();
        assert_eq!((answer.message, answer.metadata.get("before")), (5, Some("it")), "{scheme}");
        assert_eq!(answer.trailers.get("behind"), Some("it"), "{scheme}");
        let failed = soon(client.plain(0)).await.unwrap_err();
        assert_eq!((failed.code(), failed.message()), (Code::NotFound, "nothing"), "{scheme}");
        assert_eq!(failed.headers().get("before"), Some("it"), "{scheme}");
        assert_eq!(failed.trailers().get("behind"), Some("it"), "{scheme}");

        assert_eq!(all(soon(client.count(3)).await.unwrap()).await, [0, 1, 2], "{scheme}");
        assert_eq!(soon(client.sum(Streaming::from_iter(0..5))).await.unwrap(), 10, "{scheme}");
        assert_eq!(all(soon(client.double(Streaming::from_iter(1..4))).await.unwrap()).await, [2, 4, 6]);

        let cancel = CancelHandle::new();
        let calling = client.plain_with(Request::new(1).with_cancel(&cancel));
        let (ended, ()) = tokio::join!(soon(calling), async { cancel.cancel() });
        assert_eq!(ended.unwrap_err().code(), Code::Cancelled, "{scheme}");
        assert_eq!(soon(client.plain(6)).await.unwrap(), 6, "{scheme}: calls go on");
    }
}

#[tokio::test]
async fn unconsumed_response_is_not_read_over_http_1() {
    let limits = polyrpc::client::Limits { message: 1 << 20, ..Default::default() };
    let bound =
        Server::new().service(NumbersServer::new(Counting)).bind("127.0.0.1:0").await.unwrap().start();
    let client = Client::builder(&format!("grpc-web://{}", bound.address())).limits(limits).build().unwrap();
    let client = NumbersClient::new(client);
    // 50 MB, of which this side may hold one message's limit and what is in flight.
    let mut blobs = soon(client.blobs(500)).await.unwrap();
    for _ in 0..500 {
        assert_eq!(soon(blobs.message()).await.unwrap().map(|blob| blob.len()), Some(100_000));
    }
    assert!(soon(blobs.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn fields_of_a_refusal_are_in_the_error_of_a_raw_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("grpc-web://{}", listener.local_addr().unwrap())).unwrap();
    let refusing = async {
        let (mut peer, _) = listener.accept().await.unwrap();
        assert!(peer.read(&mut [0; 4096]).await.unwrap() > 0, "the head of the request");
        let refusal = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n";
        peer.write_all(refusal.as_bytes()).await.unwrap();
        peer
    };
    let calling = async {
        let mut call = client.open_raw("S/M", CallOptions::default(), Format::Protobuf).await.unwrap();
        call.next().await.unwrap_err()
    };
    let (_peer, error) = soon(async { tokio::join!(refusing, calling) }).await;
    assert_eq!((error.code(), error.headers().get("retry-after")), (Code::Unavailable, Some("5")));
}
