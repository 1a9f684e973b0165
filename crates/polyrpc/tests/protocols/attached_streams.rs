//! Streams attached to a call, over baidu_std.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::{RawCall, Request, Response};
use polyrpc::codec::{Raw, Serde};
use polyrpc::layer::{Call as LayeredCall, Layer, Next, Outcome};
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Code, Context, Format, Protocol, Result, Server, Status, Streaming};
use polyrpc_core::session::client::Streaming as _;
use polyrpc_core::{Call, CallId, Credential, Head, Outbox};
use polyrpc_wire::baidu_std;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime;

use crate::common::{client, serve, soon, until};

#[polyrpc::service]
trait Talk {
    /// Accepts a stream and uses it as the request says.
    async fn talk(&self, cx: &mut Context, what: String) -> Result<String>;
    async fn plain(&self, n: u64) -> Result<u64>;
}

#[derive(Default, Clone)]
struct Talker {
    /// Number of sent messages.
    sent: Arc<AtomicUsize>,
    /// Number of received messages.
    taken: Arc<AtomicUsize>,
    /// Outcomes of ended streams.
    ended_streams: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Talker {
    fn ended_streams(&self) -> Vec<String> {
        self.ended_streams.lock().unwrap().clone()
    }
}

impl Talk for Talker {
    async fn talk(&self, cx: &mut Context, what: String) -> Result<String> {
        cx.reply_options().metadata.insert("asked", what.clone());
        if what == "refuse" {
            return Ok("no stream".into());
        }
        let me = self.clone();
        let idle_timeout = (what == "patient").then_some(Duration::from_millis(300));
        let options = StreamOptions { idle_timeout, ..StreamOptions::default() };
        for (mut incoming, sender) in cx.accept_streams::<Raw, Bytes>(options)? {
            let (me, what) = (me.clone(), what.clone());
            tokio::spawn(async move {
                let result: Result<()> = async {
                    match what.as_str() {
                        "echo" => {
                            while let Some(message) = incoming.message().await? {
                                me.taken.fetch_add(1, Ordering::SeqCst);
                                sender.send(message).await?;
                            }
                        }
                        "patient" => while incoming.message().await?.is_some() {},
                        "count" => {
                            drop(incoming);
                            for n in 0..3 {
                                sender.send(n.to_string().into()).await?;
                            }
                        }
                        "flood" => loop {
                            sender.send(Bytes::from(vec![0; 10_000])).await?;
                            me.sent.fetch_add(1, Ordering::SeqCst);
                        },
                        "listen" => {
                            drop(sender);
                            while incoming.message().await?.is_some() {
                                me.taken.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        "ignore" => {
                            drop(incoming);
                            sender.closed().await;
                        }
                        "close" => {
                            for n in 0..3 {
                                sender.send(n.to_string().into()).await?;
                            }
                            // Its messages are still read: brpc's streams end in both directions at once.
                            sender.close().await?;
                            assert!(incoming.message().await?.is_none());
                        }
                        "boom" => {
                            sender.closed().await;
                            incoming.message().await?;
                        }
                        "hold" => {
                            sender.closed().await;
                            drop(incoming);
                        }
                        _ => sender.fail(Status::internal("as asked")).await,
                    }
                    Ok(())
                }
                .await;
                let outcome_text =
                    result.map_or_else(|error| format!("{:?}", error.code()), |()| "well".into());
                me.ended_streams.lock().unwrap().push(outcome_text);
            });
        }
        match what.as_str() {
            "boom" => Err(Status::internal("boom").into()),
            _ => Ok(format!("{what} it is")),
        }
    }

    async fn plain(&self, n: u64) -> Result<u64> {
        Ok(n)
    }
}

async fn talker() -> (Client, Talker, ServerHandle) {
    let talker = Talker::default();
    let server = serve(Server::new().service(TalkServer::new(talker.clone()))).await;
    (client(Protocol::BaiduStd, &server), talker, server)
}

async fn open(client: &Client, what: &str) -> polyrpc::client::Result<(Response<String>, RawCall)> {
    let request = Request::new(what.to_owned());
    soon(client.open_stream::<Serde, String, String>("Talk/Talk", request, StreamOptions::default())).await
}

#[tokio::test]
async fn attached_stream_is_bidirectional() {
    let (client, talker, _server) = talker().await;
    let (response, mut stream) = open(&client, "echo").await.unwrap();
    assert_eq!(response.message, "echo it is");
    for n in 0..100 {
        soon(stream.send(format!("message {n}"))).await.unwrap();
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, format!("message {n}"));
    }
    drop(stream);
    until(|| talker.ended_streams() == ["well"]).await;
}

#[tokio::test]
async fn attached_stream_carries_typed_values() {
    let (client, _talker, _server) = talker().await;
    let (_, stream) = open(&client, "echo").await.unwrap();
    let (sender, outgoing) = Streaming::<u64>::channel(1);
    let mut incoming = stream.into_streaming::<Serde, u64, u64>(outgoing);
    for n in 0..10 {
        sender.send(n).await.unwrap();
        assert_eq!(soon(incoming.message()).await.unwrap(), Some(n));
    }
}

#[tokio::test]
async fn stream_ends_when_the_handler_drops_both_halves() {
    let (client, _talker, _server) = talker().await;
    let (_, mut stream) = open(&client, "count").await.unwrap();
    for n in 0..3 {
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, n.to_string());
    }
    assert!(soon(stream.next()).await.unwrap().is_none());
    assert_eq!(soon(stream.send("late")).await.unwrap_err().code(), Code::Cancelled);
}

#[tokio::test]
async fn handler_that_fails_its_stream_resets_it() {
    let (client, _talker, _server) = talker().await;
    let (_, mut stream) = open(&client, "fail").await.unwrap();
    let error = soon(stream.next()).await.unwrap_err();
    assert_eq!((error.code(), error.status().retry()), (Code::Unknown, polyrpc::Retry::Never));
}

#[tokio::test]
async fn failed_or_unaccepting_call_has_no_stream() {
    let (client, talker, _server) = talker().await;
    let error = open(&client, "refuse").await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, "The server didn't accept the stream")
    );
    assert!(open(&client, "boom").await.unwrap_err().message().ends_with("boom"));
    until(|| talker.ended_streams() == ["Unavailable"]).await;
    let error = soon(client.call::<u64>("Talk/Talk", &"echo")).await.unwrap_err();
    assert!(error.message().contains("the caller offers no stream"), "{error}");
}

#[tokio::test]
async fn metadata_of_the_reply_precede_the_messages_of_the_stream() {
    let (client, _talker, _server) = talker().await;
    let (reply, mut stream) = open(&client, "echo").await.unwrap();
    assert_eq!(reply.metadata.get("asked"), Some("echo"));
    // The server sends no message before it receives one.
    assert_eq!(soon(stream.metadata()).await.unwrap().get("asked"), Some("echo"));
}

#[tokio::test]
async fn streams_of_one_call_are_independent() {
    let (client, _talker, _server) = talker().await;
    let body = polyrpc::codec::Body::new(polyrpc::Format::Json(polyrpc::Json::Brpc), "\"echo\"");
    let opened = client.open_streams_raw("Talk/Talk", body, Default::default(), StreamOptions::default(), 3);
    let (_, mut streams) = soon(opened).await.unwrap();
    for (n, stream) in streams.iter_mut().enumerate() {
        soon(stream.send(format!("to {n}"))).await.unwrap();
    }
    for (n, stream) in streams.iter_mut().enumerate().rev() {
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, format!("to {n}"));
    }
}

#[tokio::test]
async fn slow_reader_blocks_only_its_sender() {
    let (client, talker, _server) = talker().await;
    let (_, mut stream) = open(&client, "flood").await.unwrap();
    let plain = TalkClient::new(client.clone());
    assert!(soon(stream.next()).await.unwrap().is_some());
    let sent = loop {
        let before = talker.sent.load(Ordering::SeqCst);
        for n in 0..50 {
            assert_eq!(soon(plain.plain(n)).await.unwrap(), n);
        }
        if talker.sent.load(Ordering::SeqCst) == before {
            break before;
        }
    };
    // The window, plus what is queued in front of it.
    assert!(sent * 10_000 < (2 << 20) + (256 << 10), "{sent} were sent");
    for _ in 0..1000 {
        assert!(soon(stream.next()).await.unwrap().is_some());
    }
    drop(stream);
    until(|| talker.ended_streams() == ["Cancelled"]).await;
}

#[tokio::test]
async fn slow_handler_applies_backpressure_to_the_client() {
    let (client, _talker, _server) = talker().await;
    let (_, stream) = open(&client, "hold").await.unwrap();
    let (mut sender, _receiver) = stream.split();
    let mut sent = 0;
    // Longer than a machine stalls, as a rule.
    while tokio::time::timeout(Duration::from_secs(3), sender.send(vec![0; 10_000])).await.is_ok() {
        sent += 1;
    }
    assert!((200..240).contains(&sent), "{sent} were sent");
}

#[tokio::test]
async fn discarded_messages_do_not_block_the_sender() {
    let (client, talker, _server) = talker().await;
    let (_, mut stream) = open(&client, "ignore").await.unwrap();
    for _ in 0..1000 {
        soon(stream.send(vec![0; 10_000])).await.unwrap();
    }
    drop(stream);
    until(|| talker.ended_streams() == ["well"]).await;
}

#[tokio::test]
async fn error_of_a_call_with_a_stream_has_the_metadata_of_the_reply() {
    let (client, _talker, _server) = talker().await;
    for (what, code) in [("boom", Code::Internal), ("refuse", Code::InvalidArgument)] {
        let error = open(&client, what).await.unwrap_err();
        assert_eq!((error.code(), error.headers().get("asked")), (code, Some(what)));
    }
}

#[tokio::test]
async fn client_layer_sees_the_default_timeout_of_a_call_with_a_stream() {
    /// Fails calls with the time that they have left.
    struct Remaining;

    impl Layer for Remaining {
        async fn call(self: Arc<Self>, call: LayeredCall, _: Next) -> Outcome {
            Outcome::failed(Status::aborted(format!("{:?}", call.remaining())))
        }
    }

    let (client, _talker, _server) = talker().await;
    let error = open(&client.layered(Remaining), "echo").await.unwrap_err();
    assert_eq!(error.message(), "Some(10s)");
}

#[tokio::test]
async fn deadline_applies_to_the_call_and_not_the_stream() {
    let (client, _talker, _server) = talker().await;
    let mut stream = opened_with_deadline(async || {
        let request = Request::new("echo".to_owned()).with_timeout(Duration::from_millis(300));
        let options = StreamOptions::default();
        let opened = client.open_stream::<Serde, String, String>("Talk/Talk", request, options).await;
        opened.map(|(_, stream)| stream)
    })
    .await;
    assert!(tokio::time::timeout(Duration::from_millis(500), stream.next()).await.is_err());
    soon(stream.send("still there")).await.unwrap();
    assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, "still there");
}

/// Opens a stream by a call with a short deadline, which may pass before the call is answered on a busy machine: then it
/// is opened again.
async fn opened_with_deadline(open: impl AsyncFn() -> polyrpc::client::Result<RawCall>) -> RawCall {
    soon(async {
        loop {
            match open().await {
                Ok(stream) => return stream,
                Err(error) => assert_eq!(error.code(), Code::DeadlineExceeded, "{error}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn deadline_does_not_apply_to_the_stream_of_a_streaming_method() {
    let server = serve(Server::new().service(chat_service())).await;
    let client = Client::new(&format!("baidu-std://{}", server.address())).unwrap();
    expect_stream_beyond_deadline(&client).await;
}

#[tokio::test]
async fn deadline_does_not_apply_to_a_stream_whose_credential_was_checked_later() {
    let listen = polyrpc::server::Listen::on("127.0.0.1:0").authenticate_async(|_, _| async {
        tokio::task::yield_now().await;
        Ok(())
    });
    let server = Server::new().service(chat_service()).bind(listen).await.unwrap().start();
    let url = format!("baidu-std://{}", server.address());
    let client = Client::builder(&url).credential("known").build().unwrap();
    expect_stream_beyond_deadline(&client).await;
}

/// A service whose method `Chat` echoes the messages of a stream.
fn chat_service() -> ServiceBuilder {
    let chat = |cx: Context, messages: Streaming<String>| async move { (cx, Result::Ok(messages)) };
    ServiceBuilder::new("S").bidi_streaming::<Serde, String, String, _, _>("Chat", chat)
}

/// Opens a stream by a call of `S/Chat` with a deadline, and checks that it is still open later.
async fn expect_stream_beyond_deadline(client: &Client) {
    let mut stream = opened_with_deadline(async || {
        let request = Request::new("first".to_owned()).with_timeout(Duration::from_millis(300));
        let options = StreamOptions::default();
        let opened = client.open_stream::<Serde, String, ()>("S/Chat", request, options).await;
        opened.map(|(_, stream)| stream)
    })
    .await;
    // It may echo the request first; then nothing comes, for longer than the deadline.
    while let Ok(message) = tokio::time::timeout(Duration::from_millis(500), stream.next()).await {
        assert!(message.unwrap().is_some(), "the stream is open");
    }
    soon(stream.send("\"still there\"")).await.unwrap();
    assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, "\"still there\"");
}

#[tokio::test]
async fn closed_connection_ends_its_streams() {
    let (client, talker, server) = talker().await;
    let (_, mut stream) = open(&client, "listen").await.unwrap();
    soon(stream.send("one")).await.unwrap();
    until(|| talker.taken.load(Ordering::SeqCst) == 1).await;
    soon(server.shutdown(Duration::ZERO)).await;
    assert_eq!(soon(stream.next()).await.unwrap_err().code(), Code::Unavailable);
    until(|| talker.ended_streams() == ["Unavailable"] || talker.ended_streams() == ["Cancelled"]).await;
}

#[tokio::test]
async fn handler_observes_the_end_of_the_client() {
    let (client, talker, _server) = talker().await;
    let (_, stream) = open(&client, "hold").await.unwrap();
    drop((stream, client));
    until(|| talker.ended_streams() == ["well"]).await;
}

#[tokio::test]
async fn protocol_switch_ends_attached_streams() {
    let talker = Talker::default();
    let server = Server::new().service(TalkServer::new(talker.clone()));
    let listen = polyrpc::server::Listen::on("127.0.0.1:0").allow_protocol_switch();
    let server = server.bind(listen).await.unwrap().start();
    let mut peer = TcpStream::connect(server.address().to_string()).await.unwrap();
    peer.write_all(&request_with_a_stream("echo")).await.unwrap();
    let mut answer = [0; 4];
    soon(peer.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"STRM");
    peer.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    soon(peer.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.windows(12).any(|part| part == b"HTTP/1.1 200"), "{}", rest.escape_ascii());
    until(|| talker.ended_streams().len() == 1).await;
}

/// Frames as a peer writes them.
fn request_with_a_stream(what: &str) -> Vec<u8> {
    let mut session = baidu_std::Client::new(Default::default());
    let mut out = Outbox::new();
    let call = Call {
        service: "Talk",
        method: "Talk",
        body: serde_json::to_vec(what).unwrap().into(),
        attachment: Bytes::new(),
        head: Head { format: Format::Json(polyrpc::Json::Brpc), ..Default::default() },
        timeout: None,
        oneway: false,
        credential: Credential::Connection(None),
        authenticated: false,
        malformed: None,
    };
    let options = StreamOptions::default();
    session.send_with_streams(CallId(1), call, &[CallId(2)], &options, &mut out).unwrap();
    out.take()
}

#[tokio::test]
async fn stream_of_an_answered_call_does_not_count_as_in_flight() {
    let limits = Limits { in_flight: 1, in_flight_per_connection: 1, ..Limits::default() };
    let talker = Talker::default();
    let server = serve(Server::new().limits(limits).service(TalkServer::new(talker.clone()))).await;
    let client = client(Protocol::BaiduStd, &server);
    let (_, mut stream) = open(&client, "echo").await.unwrap();
    assert_eq!(soon(TalkClient::new(client).plain(5)).await.unwrap(), 5);
    soon(stream.send("still there")).await.unwrap();
    assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, "still there");
}

#[tokio::test]
async fn thousand_streams_share_a_connection() {
    let (client, _talker, server) = talker().await;
    let mut streams = Vec::new();
    for _ in 0..1000 {
        streams.push(open(&client, "echo").await.unwrap().1);
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        soon(stream.send(n.to_string())).await.unwrap();
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, n.to_string());
    }
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn other_protocols_reject_attached_streams() {
    let (_, _talker, server) = talker().await;
    for protocol in [Protocol::Rpcx, Protocol::Http, Protocol::Grpc] {
        let error = open(&client(protocol, &server), "echo").await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{protocol:?}");
    }
}

#[tokio::test]
async fn closing_half_of_a_brpc_stream_is_an_error() {
    let (client, talker, _server) = talker().await;
    let (_, mut stream) = open(&client, "echo").await.unwrap();
    let error = soon(stream.finish_sending()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("close the stream"), "{error}");
    soon(stream.send("still there")).await.unwrap();
    assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, "still there");
    drop(stream);
    until(|| talker.ended_streams() == ["well"]).await;
}

#[tokio::test]
async fn client_close_delivers_all_messages_first() {
    let (client, talker, _server) = talker().await;
    let (_, mut stream) = open(&client, "listen").await.unwrap();
    for n in 0..100 {
        soon(stream.send(n.to_string())).await.unwrap();
    }
    soon(stream.close()).await.unwrap();
    until(|| talker.ended_streams() == ["well"]).await;
    assert_eq!(talker.taken.load(Ordering::SeqCst), 100);
    // The halves behave the same: the reader sees the end.
    let (sender, mut receiver) = open(&client, "echo").await.unwrap().1.split();
    soon(sender.close()).await.unwrap();
    assert!(soon(receiver.next()).await.unwrap().is_none());
    // A stream that the server has closed is closed.
    let (_, mut stream) = open(&client, "count").await.unwrap();
    while soon(stream.next()).await.unwrap().is_some() {}
    soon(stream.close()).await.unwrap();
    // A failed stream reports its failure.
    let (_, stream) = open(&client, "fail").await.unwrap();
    assert_eq!(soon(stream.close()).await.unwrap_err().code(), Code::Unknown);
}

#[tokio::test]
async fn server_can_close_a_stream_it_reads_from() {
    let (client, talker, _server) = talker().await;
    let (_, mut stream) = open(&client, "close").await.unwrap();
    for n in 0..3 {
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, n.to_string());
    }
    assert!(soon(stream.next()).await.unwrap().is_none());
    until(|| talker.ended_streams() == ["well"]).await;
}

#[tokio::test]
async fn idle_stream_ends_by_the_shorter_timeout_of_both_sides() {
    let (client, talker, _server) = talker().await;
    let request = Request::new("echo".to_owned());
    let options = StreamOptions { idle_timeout: Some(Duration::from_secs(3)), ..<_>::default() };
    let (_, mut stream) =
        soon(client.open_stream::<Serde, String, String>("Talk/Talk", request, options)).await.unwrap();
    // Messages keep it alive for longer than that.
    for _ in 0..8 {
        soon(stream.send("again")).await.unwrap();
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, "again");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let error = soon(stream.next()).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::DeadlineExceeded, "the stream was idle for too long"));
    until(|| talker.ended_streams() == ["well"]).await;

    let (_, mut stream) = open(&client, "patient").await.unwrap();
    assert_eq!(soon(stream.next()).await.unwrap_err().code(), Code::Unknown);
    until(|| talker.ended_streams().len() == 2).await;
}

#[test]
fn message_that_arrived_while_the_client_was_paused_keeps_the_stream_alive() {
    let of_server = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_, talker, server) = of_server.block_on(talker());
    let of_client = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    of_client.block_on(async {
        let client = client(Protocol::BaiduStd, &server);
        let idle = Duration::from_millis(200);
        let options = StreamOptions { idle_timeout: Some(idle), ..<_>::default() };
        let request = Request::new("echo".to_owned());
        let opened = client.open_stream::<Serde, String, String>("Talk/Talk", request, options);
        let (_, mut stream) = soon(opened).await.unwrap();
        soon(stream.send("hello")).await.unwrap();
        // The pause: nothing of the client runs.
        while talker.taken.load(Ordering::SeqCst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(5 * idle);
        assert_eq!(soon(stream.next()).await.unwrap().unwrap().bytes, "hello");
        let error = soon(stream.next()).await.unwrap_err();
        assert_eq!(error.message(), "the stream was idle for too long");
    });
}

#[tokio::test]
async fn grpc_call_is_closed_when_its_response_is_complete() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counts = seen.clone();
    let take = move |cx: Context, mut requests: Streaming<Bytes>| {
        let counts = counts.clone();
        async move {
            let answer = Streaming::produce(|sender| async move {
                while let Some(message) = requests.message().await? {
                    sender.send(message).await?;
                }
                counts.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
            (cx, Ok(answer))
        }
    };
    let service =
        polyrpc::service::ServiceBuilder::new("S").bidi_streaming::<Raw, Bytes, Bytes, _, _>("Take", take);
    let server = serve(Server::new().service(service)).await;
    let client = client(Protocol::Grpc, &server);
    let mut call = soon(client.open_raw("S/Take", Default::default(), Format::Raw)).await.unwrap();
    soon(call.send("one")).await.unwrap();
    soon(call.close()).await.unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}
