//! Streaming calls over a test protocol.

mod frames;
mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future, stream};
use polyrpc_core::{Code, Format, Retry, Status};
use tokio::sync::Notify;

use self::frames::{Peer, TestListener};
use super::{Builder, Client};
use crate::Streaming;
use crate::call::{CallOptions, Request, Response, StubMethod};
use crate::client::Result;
use crate::client::streams::RawCall;
use crate::codec::{Body, Raw};
use crate::layer::{Call, Layer, Next, Outcome};

const CHAT: StubMethod = StubMethod::plain("S", "Chat");

type Texts = Streaming<String>;

/// Creates a client, and the server that its first call connects to.
async fn listener_and_client() -> (TestListener, Client) {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new(""));
    (listener, client)
}

async fn chat(client: &Client, requests: impl Into<Request<Texts>>) -> Result<Response<Texts>> {
    client.invoke_streaming::<Raw, String, String>(&CHAT, requests).await
}

/// Makes a call whose response has started.
async fn start_chat(requests: Texts) -> (TestListener, Client, Peer, Texts) {
    let (listener, client) = listener_and_client().await;
    let (peer, answer) = (async {
        let mut peer = listener.accept().await;
        peer.expect_frames("open 0 Chat\n").await;
        peer.send_frames("head 0\n").await;
        peer
    })
    .join(chat(&client, requests))
    .await;
    (listener, client, peer, answer.unwrap().message)
}

trait Join: Future + Sized {
    async fn join<F: Future>(self, other: F) -> (Self::Output, F::Output) {
        future::join(self, other).await
    }
}

impl<F: Future> Join for F {}

fn silence() -> Texts {
    Streaming::from_stream(stream::pending())
}

fn texts(texts: &[&str]) -> Texts {
    Streaming::from_iter(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

/// Endless requests, each counted when it is created.
fn endless(made: &Arc<AtomicUsize>, size: usize) -> Texts {
    let made = made.clone();
    Streaming::from_stream(stream::repeat_with(move || {
        made.fetch_add(1, Ordering::Relaxed);
        Ok("m".repeat(size))
    }))
}

async fn all(mut answer: Texts) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(message) = answer.message().await.unwrap() {
        all.push(message);
    }
    all
}

#[tokio::test]
async fn both_sides_send_concurrently_and_messages_keep_their_order() {
    let (sender, requests) = Streaming::channel(1);
    let (_listener, _client, mut peer, mut answer) = start_chat(requests).await;
    for n in 0..3 {
        sender.send(format!("ask{n}")).await.unwrap();
        assert!(answer.message().now_or_never().is_none());
        peer.expect_frames(&format!("message 0 ask{n}\n")).await;
        peer.send_frames(&format!("message 0 a{n}\nmessage 0 b{n}\n")).await;
        assert_eq!(answer.message().await.unwrap().unwrap(), format!("a{n}"));
        assert_eq!(answer.message().await.unwrap().unwrap(), format!("b{n}"));
        assert!(answer.message().now_or_never().is_none());
        peer.expect_frames("consumed 0 4\n").await;
    }
    drop(sender);
    assert!(answer.message().now_or_never().is_none());
    peer.expect_frames("end 0\n").await;
    peer.send_frames("end 0 sum=3\n").await;
    assert_eq!(answer.message().await.unwrap(), None);
    assert_eq!(answer.trailers().get("sum"), Some("3"));
}

#[tokio::test]
async fn head_messages_and_end_are_written_together() {
    let (listener, client) = listener_and_client().await;
    let server = async {
        let mut peer = listener.accept().await;
        peer.expect_frames("open 0 Chat\nmessage 0 one\nmessage 0 two\nend 0\n").await;
        peer.send_frames("head 0 key=value\nmessage 0 x\nend 0\n").await;
        peer
    };
    let (_peer, answer) = server.join(chat(&client, texts(&["one", "two"]))).await;
    let answer = answer.unwrap();
    assert_eq!(answer.metadata.get("key"), Some("value"));
    assert_eq!(all(answer.message).await, ["x"]);
}

#[tokio::test]
async fn response_can_start_with_a_message_or_be_empty() {
    for (says, gets) in [("message 0 x\nend 0\n", &["x"][..]), ("end 0\n", &[])] {
        let (listener, client) = listener_and_client().await;
        let server = async {
            let mut peer = listener.accept().await;
            peer.expect_frames("open 0 Chat\nend 0\n").await;
            peer.send_frames(says).await;
            peer
        };
        let (_peer, answer) = server.join(chat(&client, Streaming::empty())).await;
        assert_eq!(all(answer.unwrap().message).await, gets);
    }
}

#[tokio::test]
async fn window_is_credited_only_when_messages_are_consumed() {
    let (_listener, _client, mut peer, mut answer) = start_chat(silence()).await;
    let large = "m".repeat(20 << 10);
    peer.send_frames(&format!("message 0 {large}\nmessage 0 {large}\nmessage 0 x\n")).await;
    assert_eq!(answer.message().await.unwrap().unwrap().len(), large.len());
    assert_eq!(answer.message().await.unwrap().unwrap().len(), large.len());
    peer.expect_frames(&format!("consumed 0 {}\n", 2 * large.len())).await;
    // The last message received so far is credited at once: the server may wait for that.
    assert_eq!(answer.message().await.unwrap().unwrap(), "x");
    peer.expect_frames("consumed 0 1\n").await;
    drop(answer);
    peer.expect_frames("cancel 0\n").await;
}

#[tokio::test]
async fn requests_wait_for_window_and_wake_when_it_opens() {
    let made = Arc::new(AtomicUsize::new(0));
    let (listener, client) = listener_and_client().await;
    let first = client.open_raw("S/First", CallOptions::default(), Format::Raw);
    let (mut peer, first) = listener.accept().join(first).await;
    peer.send_frames("tight\nhead 0\n").await;
    let mut first = first.unwrap();
    first.metadata().await.unwrap();
    peer.expect_frames("open 0 First\n").await;

    let call = tokio::spawn({
        let (client, made) = (client.clone(), made.clone());
        async move { chat(&client, endless(&made, 1)).await }
    });
    peer.expect_frames("open 1 Chat\n").await;
    for room in 1..4 {
        peer.send_frames(&format!("room 1 {room}\n")).await;
        peer.expect_frames(&"message 1 m\n".repeat(room)).await;
    }
    assert!(made.load(Ordering::Relaxed) <= 64, "a batch is made ahead, not more");
    call.abort();
    peer.expect_frames("cancel 1\n").await;
}

#[tokio::test]
async fn server_that_does_not_read_applies_backpressure() {
    let made = Arc::new(AtomicUsize::new(0));
    let requests = endless(&made, 32 << 10).take(1000);
    let (listener, client) = listener_and_client().await;
    let call = tokio::spawn(async move { chat(&client, Streaming::from_stream(requests)).await });
    let mut peer = listener.accept().await;
    peer.expect_frames("open 0 Chat\n").await;
    let message = format!("message 0 {}\n", "m".repeat(32 << 10));
    for n in 0..1000 {
        peer.expect_frames(&message).await;
        assert!(made.load(Ordering::Relaxed) < n + 700, "the rest lies in the buffers of the system");
    }
    peer.expect_frames("end 0\n").await;
    peer.send_frames("end 0\n").await;
    assert!(all(call.await.unwrap().unwrap().message).await.is_empty());
}

#[tokio::test]
async fn dropping_a_response_cancels_the_call() {
    let (_listener, _client, mut peer, answer) = start_chat(silence()).await;
    drop(answer);
    peer.expect_frames("cancel 0\n").await;
}

#[tokio::test]
async fn dropping_a_pending_call_cancels_it() {
    let (listener, client) = listener_and_client().await;
    let call = tokio::spawn(async move { chat(&client, silence()).await });
    let mut peer = listener.accept().await;
    peer.expect_frames("open 0 Chat\n").await;
    call.abort();
    peer.expect_frames("cancel 0\n").await;
}

#[tokio::test]
async fn ended_call_is_not_cancelled() {
    let (_listener, client, mut peer, answer) = start_chat(silence()).await;
    peer.send_frames("end 0\n").await;
    assert!(all(answer).await.is_empty());
    let second = tokio::spawn(async move { chat(&client, silence()).await });
    peer.expect_frames("open 1 Chat\n").await;
    second.abort();
    peer.expect_frames("cancel 1\n").await;
}

#[tokio::test]
async fn late_messages_are_dropped_and_credited() {
    let (_listener, client, mut peer, answer) = start_chat(silence()).await;
    drop(answer);
    peer.expect_frames("cancel 0\n").await;
    let second = tokio::spawn(async move { all(chat(&client, silence()).await.unwrap().message).await });
    peer.expect_frames("open 1 Chat\n").await;
    peer.send_frames("head 0 late=yes\nmessage 0 late\nroom 0 1\nfail 0\nmessage 1 x\n").await;
    peer.expect_frames("consumed 0 4\n").await;
    peer.expect_frames("consumed 1 1\n").await;
    peer.send_frames("end 1\n").await;
    assert_eq!(second.await.unwrap(), ["x"]);
}

#[tokio::test]
async fn deadline_ends_the_whole_call() {
    let (listener, client) = listener_and_client().await;
    // Longer than a machine stalls, as a rule: the response starts before that.
    let request = Request::new(silence()).with_timeout(Duration::from_secs(3));
    let server = async {
        let mut peer = listener.accept().await;
        peer.expect_frames("open 0 Chat\n").await;
        peer.send_frames("head 0\nmessage 0 x\n").await;
        peer
    };
    let (mut peer, answer) = server.join(chat(&client, request)).await;
    let mut answer = answer.unwrap().message;
    assert_eq!(answer.message().await.unwrap().unwrap(), "x");
    assert_eq!(answer.message().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(answer.message().await.unwrap(), None);
    peer.expect_frames("consumed 0 1\ncancel 0\n").await;
}

#[tokio::test]
async fn stream_has_no_deadline_by_default() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").timeout(Duration::ZERO));
    let call = tokio::spawn(async move { chat(&client, silence()).await });
    let mut peer = listener.accept().await;
    peer.expect_frames("open 0 Chat\n").await;
    peer.send_frames("end 0\n").await;
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn failure_follows_earlier_messages() {
    let (_listener, _client, mut peer, mut answer) = start_chat(silence()).await;
    peer.send_frames("message 0 x\nfail 0 too bad\n").await;
    assert_eq!(answer.message().await.unwrap().unwrap(), "x");
    let error = answer.message().await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Aborted, "too bad"));
    assert_eq!(answer.message().await.unwrap(), None);
    assert_eq!(answer.trailers().get("failed"), Some("yes"));
}

#[tokio::test]
async fn failure_before_the_response_fails_the_call() {
    let (listener, client) = listener_and_client().await;
    let server = async {
        let mut peer = listener.accept().await;
        peer.expect_frames("open 0 Chat\n").await;
        peer.send_frames("fail 0 no\n").await;
        peer
    };
    let (_peer, answer) = server.join(chat(&client, silence())).await;
    assert_eq!(answer.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn failed_request_stream_ends_the_call_with_its_error() {
    let (sender, requests) = Streaming::channel(2);
    let (_listener, _client, mut peer, mut answer) = start_chat(requests).await;
    sender.send("one".to_owned()).await.unwrap();
    sender.fail(Status::not_found("no two")).await;
    assert_eq!(answer.message().await.unwrap_err().code(), Code::NotFound);
    peer.expect_frames("cancel 0\n").await;
}

#[tokio::test]
async fn closed_connection_ends_its_streams() {
    let (_listener, _client, mut peer, mut answer) = start_chat(silence()).await;
    peer.send_frames("message 0 x\n").await;
    drop(peer);
    assert_eq!(answer.message().await.unwrap().unwrap(), "x");
    let status = answer.message().await.unwrap_err().into_status();
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::IfIdempotent));
}

#[tokio::test]
async fn server_can_respond_before_the_requests_end() {
    let made = Arc::new(AtomicUsize::new(0));
    let (listener, client) = listener_and_client().await;
    let server = async {
        let mut peer = listener.accept().await;
        peer.expect_frames("open 0 Chat\nmessage 0 m\n").await;
        peer.send_frames("message 0 enough\nend 0\n").await;
        tokio::spawn(async move { while peer.read().await {} });
    };
    let (_, answer) = server.join(chat(&client, endless(&made, 1))).await;
    assert_eq!(all(answer.unwrap().message).await, ["enough"]);
}

async fn gather(says: &str) -> Result<Response<String>> {
    let (listener, client) = listener_and_client().await;
    let server = async {
        let mut peer = listener.accept().await;
        peer.expect_frames("open 0 Chat\nmessage 0 one\nmessage 0 two\nend 0\n").await;
        peer.send_frames(says).await;
        peer
    };
    let requests = texts(&["one", "two"]);
    server.join(client.invoke_client_streaming::<Raw, String, String>(&CHAT, requests)).await.1
}

#[tokio::test]
async fn client_stream_is_answered_with_one_message() {
    let answer = gather("head 0 key=head\nmessage 0 x\nend 0 key=tail\n").await.unwrap();
    assert_eq!(answer.message, "x");
    assert_eq!((answer.metadata.get("key"), answer.trailers.get("key")), (Some("head"), Some("tail")));
    assert_eq!(gather("head 0\nend 0\n").await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(gather("head 0\nmessage 0 x\nmessage 0 y\n").await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(gather("message 0 x\nfail 0 no\n").await.unwrap_err().code(), Code::Aborted);
}

async fn raw(client: &Client, method: &str) -> RawCall {
    client.open_raw(&format!("S/{method}"), CallOptions::default(), Format::Raw).await.unwrap()
}

#[tokio::test]
async fn raw_call_sends_and_receives_raw_messages() {
    let (listener, client) = listener_and_client().await;
    let (mut peer, mut call) = listener.accept().join(raw(&client, "Talk")).await;
    peer.expect_frames("open 0 Talk\n").await;
    call.send("one").await.unwrap();
    peer.expect_frames("message 0 one\n").await;
    peer.send_frames("head 0 key=value\nmessage 0 x\n").await;
    assert_eq!(call.metadata().await.unwrap().get("key"), Some("value"));
    assert_eq!(call.next().await.unwrap().unwrap().bytes, "x");
    call.finish_sending().await.unwrap();
    assert_eq!(call.send("two").await.unwrap_err().code(), Code::FailedPrecondition);
    peer.expect_frames("consumed 0 1\nend 0\n").await;
    peer.send_frames("end 0 key=tail\n").await;
    assert!(call.next().await.unwrap().is_none());
    assert!(call.next().await.unwrap().is_none());
    assert_eq!(call.trailers().get("key"), Some("tail"));
}

#[tokio::test]
async fn halves_of_a_raw_call_proceed_independently() {
    let (listener, client) = listener_and_client().await;
    let (mut peer, call) = listener.accept().join(raw(&client, "Talk")).await;
    let (mut sender, mut receiver) = call.split();
    peer.expect_frames("open 0 Talk\n").await;
    let receiving = tokio::spawn(async move { receiver.next().await });
    sender.send("one").await.unwrap();
    peer.expect_frames("message 0 one\n").await;
    peer.send_frames("fail 0 no\n").await;
    assert_eq!(receiving.await.unwrap().unwrap_err().code(), Code::Aborted);
    assert_eq!(sender.send("two").await.unwrap_err().code(), Code::Cancelled);
}

#[tokio::test]
async fn raw_call_is_cancelled_when_both_halves_are_dropped() {
    let (listener, client) = listener_and_client().await;
    let (mut peer, call) = listener.accept().join(raw(&client, "Talk")).await;
    let (sender, receiver) = call.split();
    drop(sender);
    peer.expect_frames("open 0 Talk\n").await;
    peer.send_frames("message 0 x\n").await;
    let mut receiver = receiver;
    assert_eq!(receiver.next().await.unwrap().unwrap().bytes, "x");
    drop(receiver);
    peer.expect_frames("consumed 0 1\ncancel 0\n").await;
}

#[tokio::test]
async fn message_that_cannot_be_decompressed_ends_a_raw_call() {
    let (listener, client) = listener_and_client().await;
    let (mut peer, call) = listener.accept().join(raw(&client, "Talk")).await;
    let (mut sender, mut receiver) = call.split();
    peer.expect_frames("open 0 Talk\n").await;
    peer.send_frames("head 0\ngzip 0 torn\n").await;
    assert_eq!(receiver.next().await.unwrap_err().code(), Code::Internal);
    let next = receiver.next().now_or_never().expect("nothing more is awaited");
    assert!(next.unwrap().is_none());
    peer.expect_frames("consumed 0 4\ncancel 0\n").await;
    assert_eq!(sender.send("one").await.unwrap_err().code(), Code::Cancelled);
}

#[tokio::test]
async fn sending_half_that_waits_ends_with_a_call_that_a_layer_ends() {
    /// Ends calls when notified.
    struct Ender(Arc<Notify>);
    impl Layer for Ender {
        async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
            tokio::select! {
                ending = next.call(call) => ending,
                () = self.0.notified() => Outcome::failed(Status::deadline_exceeded("no longer")),
            }
        }
    }
    let (listener, client) = listener_and_client().await;
    let is_over = Arc::new(Notify::new());
    let client = client.layered(Ender(is_over.clone()));
    let (mut peer, call) = listener.accept().join(raw(&client, "Talk")).await;
    let (mut sender, mut receiver) = call.split();
    peer.expect_frames("open 0 Talk\n").await;
    peer.send_frames("tight\nhead 0\n").await;
    receiver.metadata().await.unwrap();
    let sending = tokio::spawn(async move { sender.send("one").await });
    // Until the sender waits for the server.
    tokio::task::yield_now().await;
    is_over.notify_one();
    assert_eq!(receiver.next().await.unwrap_err().code(), Code::DeadlineExceeded);
    peer.expect_frames("cancel 0\n").await;
    let sent = tokio::time::timeout(Duration::from_secs(60), sending).await.expect("it is woken").unwrap();
    assert_eq!(sent.unwrap_err().code(), Code::Cancelled);
}

/// Makes a unary call in a task of its own.
fn spawn_unary(client: &Client, method: &'static str) -> tokio::task::JoinHandle<Result<Bytes>> {
    let client = client.clone();
    tokio::spawn(async move {
        let body = Body::new(Format::Raw, "x");
        Ok(client.call_raw(method, body, CallOptions::default()).await?.message.bytes)
    })
}

#[tokio::test]
async fn unary_calls_and_streams_share_a_connection() {
    let (_listener, client, mut peer, answer) = start_chat(silence()).await;
    let call = spawn_unary(&client, "Echo");
    peer.expect_frames("call 1 Echo x\n").await;
    peer.send_frames("reply 1 y\nmessage 0 z\nend 0\n").await;
    assert_eq!(call.await.unwrap().unwrap(), "y");
    assert_eq!(all(answer).await, ["z"]);
}

#[tokio::test]
async fn full_connection_opens_another_and_excess_calls_wait_in_order() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").max_shared_connections(2));
    let (mut one, first) = listener.accept().join(raw(&client, "A")).await;
    one.expect_frames("open 0 A\n").await;
    one.send_frames("most 1\nhead 0\n").await;
    let mut first = first;
    first.metadata().await.unwrap();

    let (mut two, mut second) = listener.accept().join(raw(&client, "B")).await;
    two.expect_frames("open 0 B\n").await;
    two.send_frames("most 1\nhead 0\n").await;
    second.metadata().await.unwrap();

    let mut third = Box::pin(raw(&client, "C"));
    assert!(third.as_mut().now_or_never().is_none());
    let mut fourth = Box::pin(raw(&client, "D"));
    assert!(fourth.as_mut().now_or_never().is_none());
    drop(second);
    let _third = third.await;
    two.expect_frames("cancel 0\nopen 1 C\n").await;
    one.send_frames("end 0\n").await;
    let _fourth = fourth.await;
    one.expect_frames("open 1 D\n").await;
}

#[tokio::test]
async fn call_that_waits_for_a_slot_keeps_its_deadline() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").max_shared_connections(1));
    let (mut peer, first) = listener.accept().join(raw(&client, "A")).await;
    let mut first = first;
    peer.send_frames("most 1\nhead 0\n").await;
    first.metadata().await.unwrap();
    let request = Request::new(silence()).with_timeout(Duration::from_millis(20));
    assert_eq!(chat(&client, request).await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn draining_server_finishes_started_calls() {
    let (listener, client, mut peer, mut answer) = start_chat(silence()).await;
    peer.send_frames("message 0 x\ngoaway\n").await;
    assert_eq!(answer.message().await.unwrap().unwrap(), "x");
    let call = spawn_unary(&client, "Echo");
    let mut other = listener.accept().await;
    other.expect_frames("call 0 Echo x\n").await;
    other.send_frames("reply 0 y\n").await;
    assert_eq!(call.await.unwrap().unwrap(), "y");
    peer.send_frames("message 0 z\nend 0\n").await;
    assert_eq!(all(answer).await, ["z"]);
    peer.expect_frames("consumed 0 1\n").await;
    peer.hears_the_end().await;
}

#[tokio::test]
async fn call_unseen_by_the_server_is_sent_again() {
    let (listener, client) = listener_and_client().await;
    let call = spawn_unary(&client, "Echo");
    let mut peer = listener.accept().await;
    peer.expect_frames("call 0 Echo x\n").await;
    peer.send_frames("goaway\nrefuse 0\n").await;
    let mut other = listener.accept().await;
    other.expect_frames("call 0 Echo x\n").await;
    other.send_frames("refuse 0\n").await;
    assert_eq!(call.await.unwrap().unwrap_err().message(), "refused");
}

#[tokio::test]
async fn refused_stream_is_sent_again_from_its_first_message() {
    let (sender, requests) = Streaming::channel(1);
    let (listener, client) = listener_and_client().await;
    let call = tokio::spawn(async move { chat(&client, requests).await });
    let mut peer = listener.accept().await;
    sender.send("one".to_owned()).await.unwrap();
    peer.expect_frames("open 0 Chat\nmessage 0 one\n").await;
    peer.send_frames("goaway\nrefuse 0\n").await;
    let mut other = listener.accept().await;
    sender.send("two".to_owned()).await.unwrap();
    other.expect_frames("open 0 Chat\nmessage 0 one\nmessage 0 two\n").await;
    other.send_frames("message 0 x\n").await;
    let mut answer = call.await.unwrap().unwrap().message;
    assert_eq!(answer.message().await.unwrap().unwrap(), "x");
    other.send_frames("refuse 0\n").await;
    assert_eq!(answer.message().await.unwrap_err().message(), "refused");
}

#[tokio::test]
async fn unanswered_heartbeat_closes_the_connection() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").keepalive(Duration::from_millis(300)));
    let call = tokio::spawn(async move { chat(&client, silence()).await });
    let mut peer = listener.accept().await;
    peer.expect_frames("open 0 Chat\nalive?\n").await;
    peer.send_frames("alive\n").await;
    peer.expect_frames("alive?\n").await;
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn mocked_client_rejects_streams() {
    let client = Client::mock(|call| Ok(call.body));
    assert_eq!(chat(&client, silence()).await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn protocol_without_streams_rejects_them() {
    let listener = TestListener::new().await;
    let client = Client::new(&format!("rpcx://{}", listener.url().address)).unwrap();
    let (_peer, answer) = listener.accept().join(chat(&client, silence())).await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
}
