//! Streaming calls, by a protocol made up for the tests.

mod frames;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use polyrpc_core::{Code, Format, Status};
use polyrpc_wire::Protocol;
use tokio::sync::{mpsc, oneshot};

use self::frames::Peer;
use super::{Limits, Server};
use crate::call::{CallOptions, Context};
use crate::codec::{Body, Raw};
use crate::service::ServiceBuilder;
use crate::{Result, Streaming};

/// A service under test, without any method yet.
fn service() -> ServiceBuilder {
    ServiceBuilder::new("S")
}

async fn echo(cx: Context, body: Bytes) -> (Context, Result<Bytes>) {
    (cx, Ok(body))
}

/// An endless stream of messages, each counted when it is made.
fn endless(made: &Arc<AtomicUsize>) -> Streaming<Bytes> {
    let made = made.clone();
    Streaming::from_stream(stream::repeat_with(move || {
        made.fetch_add(1, Ordering::Relaxed);
        Ok(Bytes::from_static(b"m"))
    }))
}

/// Notifies when it is dropped.
struct DropNotifier(Option<oneshot::Sender<()>>);

impl Drop for DropNotifier {
    fn drop(&mut self) {
        let _ = self.0.take().expect("it is dropped once").send(());
    }
}

fn drop_notifier() -> (DropNotifier, oneshot::Receiver<()>) {
    let (sender, receiver) = oneshot::channel();
    (DropNotifier(Some(sender)), receiver)
}

/// A handler that passes its requests to the test.
fn handing_over(name: &str) -> (ServiceBuilder, mpsc::UnboundedReceiver<Streaming<Bytes>>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let service =
        service().bidi_streaming::<Raw, Bytes, Bytes, _, _>(name, move |cx, requests: Streaming<Bytes>| {
            let _ = sender.send(requests);
            async { (cx, Ok(Streaming::from_stream(stream::pending()))) }
        });
    (service, receiver)
}

#[tokio::test]
async fn unary_call_can_arrive_in_pieces() {
    let mut peer = Peer::new(service().method::<Raw, Bytes, Bytes, _, _>("Echo", echo)).await;
    peer.send_frames("open 1 Echo\nmessage 1 hello\nend 1\n").await;
    peer.expect_frames("consumed 1 5\nreply 1 hello\n").await;
}

#[tokio::test]
async fn unary_call_requires_exactly_one_message() {
    let mut peer = Peer::new(service().method::<Raw, Bytes, Bytes, _, _>("Echo", echo)).await;
    peer.send_frames("open 1 Echo\nend 1\n").await;
    peer.expect_frames("failed 1 unimplemented\n").await;
    peer.send_frames("open 2 Echo\nmessage 2 one\nmessage 2 two\n").await;
    peer.expect_frames("consumed 2 6\nfailed 2 unimplemented\n").await;
}

#[tokio::test]
async fn unknown_method_is_rejected_before_any_message() {
    let mut peer = Peer::new(service().method::<Raw, Bytes, Bytes, _, _>("Echo", echo)).await;
    peer.send_frames("open 1 Nothing\n").await;
    peer.expect_frames("failed 1 unimplemented\n").await;
    // Messages that were already on their way are credited to the peer and dropped.
    peer.send_frames("message 1 late\nend 1\ncall 3 Echo x\n").await;
    peer.expect_frames("consumed 1 4\nreply 3 x\n").await;
}

#[tokio::test]
async fn server_stream_answers_with_many_messages() {
    let numbers = |mut cx: Context, body: Bytes| async move {
        cx.reply_options().metadata.insert("key", "head");
        cx.reply_options().trailers.insert("key", "tail");
        let trailers = cx.trailers();
        let messages = Streaming::from_iter([body.clone(), body]).chain(stream::once(async move {
            trailers.insert("late", "too");
            Ok(Bytes::from_static(b"last"))
        }));
        (cx, Ok(Streaming::from_stream(messages)))
    };
    let service = service().server_streaming::<Raw, Bytes, Bytes, _, _>("Numbers", numbers);
    let mut peer = Peer::new(service).await;
    let answer =
        "begin 1 key=head\nmessage 1 x\nmessage 1 x\nmessage 1 last\nfinish 1 ok key=tail late=too\n";
    peer.send_frames("room 1 9\ncall 1 Numbers x\n").await;
    peer.expect_frames(answer).await;
    peer.send_frames("room 2 9\nopen 2 Numbers\nmessage 2 x\nend 2\n").await;
    peer.expect_frames(&format!("consumed 2 1\n{}", answer.replace(" 1 ", " 2 "))).await;
}

#[tokio::test]
async fn client_stream_is_answered_with_one_message() {
    let join = |cx: Context, mut requests: Streaming<Bytes>| async move {
        let mut all = Vec::new();
        loop {
            match requests.message().await {
                Ok(Some(message)) => all.extend_from_slice(&message),
                Ok(None) => return (cx, Ok(Bytes::from(all))),
                Err(error) => return (cx, Err(error.into())),
            }
        }
    };
    let service = service().client_streaming::<Raw, Bytes, Bytes, _, _>("Join", join);
    let mut peer = Peer::new(service).await;
    peer.send_frames("open 1 Join\nmessage 1 a\nmessage 1 b\nend 1\n").await;
    peer.expect_frames("consumed 1 2\nreply 1 ab\n").await;
    peer.send_frames("call 2 Join c\nopen 3 Join\nend 3\n").await;
    peer.expect_frames("reply 2 c\nreply 3 \n").await;
}

#[tokio::test]
async fn both_sides_send_concurrently() {
    let echo = |cx: Context, requests: Streaming<Bytes>| async move { (cx, Ok(requests)) };
    let mut peer = Peer::new(service().bidi_streaming::<Raw, Bytes, Bytes, _, _>("Echo", echo)).await;
    peer.send_frames("room 1 9\nopen 1 Echo\n").await;
    peer.expect_frames("begin 1\n").await;
    for _ in 0..3 {
        peer.send_frames("message 1 x\n").await;
        peer.expect_frames("consumed 1 1\nmessage 1 x\n").await;
    }
    peer.send_frames("end 1\n").await;
    peer.expect_frames("finish 1 ok\n").await;
}

#[tokio::test]
async fn handler_produces_only_what_the_window_holds() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let endless = move |cx: Context, _: Bytes| {
        let messages = endless(&counted);
        async { (cx, Ok(messages)) }
    };
    let echo = service().method::<Raw, Bytes, Bytes, _, _>("Echo", echo);
    let mut peer = Peer::new(echo.server_streaming::<Raw, Bytes, Bytes, _, _>("Endless", endless)).await;
    peer.send_frames("call 1 Endless x\n").await;
    peer.expect_frames("begin 1\n").await;
    // The connection is not blocked.
    peer.send_frames("call 2 Echo x\n").await;
    peer.expect_frames("reply 2 x\n").await;
    let ahead = made.load(Ordering::Relaxed);
    assert!(ahead <= 32, "{ahead} messages were produced ahead");
    peer.send_frames("room 1 100\n").await;
    peer.expect_frames(&"message 1 m\n".repeat(100)).await;
    peer.send_frames("call 3 Echo x\n").await;
    peer.expect_frames("reply 3 x\n").await;
    let made = made.load(Ordering::Relaxed);
    assert!((100..=132).contains(&made), "{made} messages were produced for 100");
}

#[tokio::test]
async fn peer_that_does_not_read_applies_backpressure() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let large = move |cx: Context, _: Bytes| {
        let messages = endless(&counted).take(4096).map(|_| Ok(Bytes::from(vec![b'x'; 1 << 10])));
        async { (cx, Ok(Streaming::from_stream(messages))) }
    };
    let service = service().server_streaming::<Raw, Bytes, Bytes, _, _>("Large", large);
    let limits = Limits { unsent_per_connection: 16 << 10, ..Limits::default() };
    let mut peer = Peer::with_limits(limits, service).await;
    peer.send_frames("room 1 5000\ncall 1 Large x\n").await;
    peer.expect_frames("begin 1\n").await;
    assert!(made.load(Ordering::Relaxed) < 4096);
    peer.expect_frames(&format!("message 1 {}\n", "x".repeat(1 << 10)).repeat(4096)).await;
    peer.expect_frames("finish 1 ok\n").await;
}

#[tokio::test]
async fn window_is_credited_only_when_a_message_is_consumed() {
    let (service, mut calls) = handing_over("Take");
    let mut peer = Peer::new(service.method::<Raw, Bytes, Bytes, _, _>("Echo", echo)).await;
    peer.send_frames("room 1 9\nopen 1 Take\nmessage 1 one\nmessage 1 three\ncall 2 Echo x\n").await;
    peer.expect_frames("reply 2 x\nbegin 1\n").await;
    let mut requests = calls.recv().await.unwrap();
    // It is consumed outside of the connection's task, which must be woken.
    assert_eq!(requests.message().await.unwrap().unwrap(), "one");
    peer.expect_frames("consumed 1 3\n").await;
    // Messages that will not be received must not block another stream.
    drop(requests);
    peer.expect_frames("consumed 1 5\n").await;
    peer.send_frames("message 1 more\n").await;
    peer.expect_frames("consumed 1 4\n").await;
}

#[tokio::test]
async fn cancelled_call_drops_its_handler() {
    let (guard, mut gone) = drop_notifier();
    let guard = std::sync::Mutex::new(Some(guard));
    let hang = move |_: Context, _: Bytes| {
        let guard = guard.lock().unwrap().take();
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    };
    let mut peer = Peer::new(service().method::<Raw, Bytes, Bytes, _, _>("Hang", hang)).await;
    peer.send_frames("call 1 Hang x\n").await;
    assert!(gone.try_recv().is_err());
    peer.send_frames("cancel 1\n").await;
    gone.await.unwrap();
}

#[tokio::test]
async fn cancelled_stream_drops_its_messages_and_fails_its_reader() {
    let (service, mut calls) = handing_over("Take");
    let mut peer = Peer::new(service).await;
    peer.send_frames("open 1 Take\n").await;
    peer.expect_frames("begin 1\n").await;
    let mut requests = calls.recv().await.unwrap();
    peer.send_frames("cancel 1\n").await;
    assert_eq!(requests.message().await.unwrap_err().code(), Code::Cancelled);
    assert_eq!(peer.calls(), 0);
}

#[tokio::test]
async fn blocking_handler_observes_cancellation() {
    let (sender, mut started) = mpsc::unbounded_channel();
    let (done, mut ended) = mpsc::unbounded_channel();
    let wait = move |cx: Context, body: Bytes| {
        let (sender, done) = (sender.clone(), done.clone());
        async move {
            let _ = sender.send(());
            while !cx.is_cancelled() {
                std::thread::yield_now();
            }
            let _ = done.send(());
            (cx, Ok(body))
        }
    };
    let mut peer = Peer::new(service().blocking_method::<Raw, Bytes, Bytes, _, _>("Wait", wait)).await;
    peer.send_frames("call 1 Wait x\n").await;
    started.recv().await.unwrap();
    peer.send_frames("cancel 1\n").await;
    ended.recv().await.unwrap();
}

#[tokio::test]
async fn closed_connection_ends_its_streams() {
    let (service, mut calls) = handing_over("Take");
    let mut peer = Peer::new(service).await;
    peer.send_frames("open 1 Take\n").await;
    peer.expect_frames("begin 1\n").await;
    let mut requests = calls.recv().await.unwrap();
    peer.close().await;
    assert!(requests.message().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_stream_and_pending_reads() {
    let (service, _calls) = handing_over("Take");
    let mut peer = Peer::new(service.method::<Raw, Bytes, Bytes, _, _>("Echo", echo)).await;
    peer.send_frames("within 1000\nopen 1 Take\n").await;
    peer.expect_frames("begin 1\nfinish 1 deadline exceeded\n").await;
    peer.send_frames("within 1000\nopen 2 Echo\nmessage 2 x\n").await;
    peer.expect_frames("consumed 2 1\nfailed 2 deadline exceeded\n").await;
}

#[tokio::test]
async fn error_ends_the_stream_after_earlier_messages() {
    let fails = |cx: Context, _: Bytes| async {
        let messages = [Ok(Bytes::from_static(b"one")), Err(Status::not_found("two").into())];
        (cx, Ok(Streaming::from_stream(stream::iter(messages))))
    };
    let refuses = |cx: Context, _: Bytes| async { (cx, Err(Status::not_found("none").into())) };
    let service = service()
        .server_streaming::<Raw, Bytes, Bytes, _, _>("Fails", fails)
        .server_streaming::<Raw, Bytes, Bytes, _, _>("Refuses", refuses);
    let mut peer = Peer::new(service).await;
    // Whether there is room or not: the end must not wait for it.
    peer.send_frames("call 1 Fails x\n").await;
    peer.expect_frames("begin 1\nmessage 1 one\nfinish 1 not found\n").await;
    peer.send_frames("call 2 Refuses x\n").await;
    peer.expect_frames("failed 2 not found\n").await;
}

#[tokio::test]
async fn panic_fails_its_call_only() {
    let panics = |cx: Context, _: Bytes| async {
        let messages = stream::iter([1, 2]).map(|n| match n {
            1 => Ok(Bytes::from_static(b"one")),
            _ => panic!("two"),
        });
        (cx, Ok(Streaming::from_stream(messages)))
    };
    let echo = service().method::<Raw, Bytes, Bytes, _, _>("Echo", echo);
    let mut peer = Peer::new(echo.server_streaming::<Raw, Bytes, Bytes, _, _>("Panics", panics)).await;
    peer.send_frames("call 1 Panics x\n").await;
    peer.expect_frames("begin 1\nmessage 1 one\nfinish 1 internal\n").await;
    peer.send_frames("call 2 Echo x\n").await;
    peer.expect_frames("reply 2 x\n").await;
}

#[tokio::test]
async fn full_connection_still_reads_open_streams() {
    let (service, mut calls) = handing_over("Take");
    let limits = Limits { in_flight_per_connection: 1, streams_per_connection: 1, ..Limits::default() };
    let mut peer = Peer::with_limits(limits, service).await;
    peer.send_frames("open 1 Take\nopen 2 Take\nmessage 1 one\n").await;
    peer.expect_frames("failed 2 resource exhausted\nbegin 1\n").await;
    let mut requests = calls.recv().await.unwrap();
    assert_eq!(requests.message().await.unwrap().unwrap(), "one");
}

#[tokio::test]
async fn protocol_without_streams_rejects_them() {
    let made = Arc::new(AtomicUsize::new(0));
    let streams = move |cx: Context, _: Bytes| {
        let messages = endless(&made);
        async { (cx, Ok(messages)) }
    };
    let service = service().server_streaming::<Raw, Bytes, Bytes, _, _>("Endless", streams);
    let server = Server::new().service(service).bind("127.0.0.1:0").await.unwrap().start();
    let client = server.client(Protocol::BaiduStd).unwrap();
    let body = Body::new(Format::Protobuf, "");
    let error = client.call_raw("S/Endless", body, CallOptions::default()).await.unwrap_err();
    assert!(error.message().contains("baidu_std cannot carry"), "{error}");
}

#[tokio::test]
async fn peer_that_violates_the_protocol_is_closed_soon() {
    let mut peer = Peer::new(service()).await;
    peer.send_frames("nonsense 1\n").await;
    peer.flood().await;
}
