//! Calls that wait for a slot, since their server limits the calls on a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use polyrpc_wire::Protocol;
use tokio::task::JoinHandle;

use super::frames::Lines;
use super::*;
use crate::client::Backend;
use crate::client::connection::{Backoff, Connection, ConnectionListeners};
use crate::client::pool::Pool;
use crate::client::url::Url;
use crate::transport::{DatagramSink, DatagramSource, DatagramStream, Source, Stream};

type UnaryCall = Pin<Box<dyn Future<Output = Result<String>> + Send>>;

fn call(client: &Client, method: impl Into<String>) -> UnaryCall {
    let (client, method) = (client.clone(), method.into());
    Box::pin(async move {
        let body = Body::new(Format::Raw, "x");
        let reply = client.call_raw(&method, body, CallOptions::default()).await?;
        Ok(String::from_utf8(reply.message.bytes.to_vec()).unwrap())
    })
}

/// Creates a call that waits for a slot.
fn waiting_call(client: &Client, method: impl Into<String>) -> UnaryCall {
    let mut call = call(client, method);
    assert!((&mut call).now_or_never().is_none());
    call
}

/// Makes a call on a new connection with this limit of calls.
async fn call_with_limit(
    listener: &TestListener,
    client: &Client,
    limit: usize,
) -> (Peer, JoinHandle<Result<String>>) {
    let first = tokio::spawn(call(client, "First"));
    let mut peer = listener.accept().await;
    peer.expect_frames("call 0 First x\n").await;
    let probe = tokio::spawn(call(client, "Probe"));
    peer.expect_frames("call 1 Probe x\n").await;
    peer.send_frames(&format!("most {limit}\nreply 1 y\n")).await;
    assert_eq!(probe.await.unwrap().unwrap(), "y");
    (peer, first)
}

/// Lets tasks that are ready run.
async fn run_ready_tasks() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Waits until the client has failed to connect, and pauses before the next attempt.
async fn failed_connect(client: &Client) {
    let Backend::Network(pool) = &client.backend else { panic!("the client has one server") };
    while pool.next_attempt().is_none_or(|next| next <= Instant::now()) {
        tokio::task::yield_now().await;
    }
}

/// Counts the polls of a future.
struct Counted<F> {
    future: F,
    polls: Arc<AtomicUsize>,
}

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.future).poll(cx)
    }
}

#[tokio::test]
async fn three_times_as_many_calls_as_slots_are_sent_in_order() {
    const LIMIT: usize = 50;
    let wire = Wire::default();
    let client = wire.client();
    wire.receive(&format!("most {LIMIT}\n"));
    run_ready_tasks().await;
    let calls: Vec<_> = (0..3 * LIMIT).map(|n| tokio::spawn(call(&client, format!("M{n}")))).collect();
    run_ready_tasks().await;
    let sent = |from: usize, to: usize| (from..to).map(|n| format!("call {n} M{n} x\n")).collect::<String>();
    assert_eq!(wire.take_writes().concat(), sent(0, LIMIT));
    for round in 1..=3 {
        // The calls of a round end in reverse order.
        let replies = ((round - 1) * LIMIT..round * LIMIT).rev();
        wire.receive(&replies.map(|n| format!("reply {n} y{n}\n")).collect::<String>());
        run_ready_tasks().await;
        let writes = wire.take_writes();
        let next = if round < 3 { sent(round * LIMIT, (round + 1) * LIMIT) } else { String::new() };
        assert_eq!(writes.concat(), next);
        assert!(writes.len() <= 1, "the calls that replies admit are written together");
    }
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap(), format!("y{n}"));
    }
}

#[tokio::test]
async fn call_that_waits_is_woken_once_for_its_slot_and_once_for_its_reply() {
    const CALLS: usize = 2000;
    const LIMIT: usize = 100;
    let wire = Wire::default();
    let client = wire.client();
    wire.receive(&format!("most {LIMIT}\n"));
    run_ready_tasks().await;
    let polls: Arc<AtomicUsize> = Arc::default();
    let calls: Vec<_> = (0..CALLS)
        .map(|n| tokio::spawn(Counted { future: call(&client, format!("M{n}")), polls: polls.clone() }))
        .collect();
    run_ready_tasks().await;
    for n in 0..CALLS {
        // One at a time, so that every reply finds a full connection.
        wire.receive(&format!("reply {n} y\n"));
        run_ready_tasks().await;
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "y");
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 3 * CALLS, "{polls} polls of {CALLS} calls, of which the first of each needs no wake");
}

#[tokio::test]
async fn call_that_is_dropped_while_it_waits_loses_no_slot() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").max_shared_connections(1));
    let (mut peer, first) = call_with_limit(&listener, &client, 1).await;
    for dropped in 0..4 {
        let mut calls: Vec<_> = (0..4).map(|n| waiting_call(&client, format!("M{n}"))).collect();
        drop(calls.remove(dropped));
    }
    let mut last = waiting_call(&client, "Last");
    peer.send_frames("reply 0 y\n").await;
    assert_eq!(first.await.unwrap().unwrap(), "y");
    run_ready_tasks().await;
    assert!((&mut last).now_or_never().is_none());
    peer.expect_frames("call 2 Last x\n").await;
    peer.send_frames("reply 2 z\n").await;
    assert_eq!(last.await.unwrap(), "z");
}

#[tokio::test]
async fn call_that_is_dropped_with_its_slot_leaves_it_to_the_next() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").max_shared_connections(1));
    let (mut peer, first) = call_with_limit(&listener, &client, 1).await;
    let [one, two] = ["One", "Two"].map(|method| waiting_call(&client, method));
    let three = tokio::spawn(call(&client, "Three"));
    run_ready_tasks().await;
    peer.send_frames("reply 0 y\n").await;
    assert_eq!(first.await.unwrap().unwrap(), "y");
    // It has got the slot, and was not polled since.
    drop(one);
    // The slot is now that of the second call, and none is free for a new one.
    let four = tokio::spawn(call(&client, "Four"));
    run_ready_tasks().await;
    drop(two);
    peer.expect_frames("call 2 Three x\n").await;
    peer.send_frames("reply 2 3\n").await;
    peer.expect_frames("call 3 Four x\n").await;
    peer.send_frames("reply 3 4\n").await;
    assert_eq!((three.await.unwrap().unwrap(), four.await.unwrap().unwrap()), ("3".into(), "4".into()));
}

#[tokio::test]
async fn new_call_does_not_take_the_slot_of_one_that_was_woken() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").max_shared_connections(1));
    let (mut peer, first) = call_with_limit(&listener, &client, 1).await;
    let waiting = waiting_call(&client, "Waiting");
    peer.send_frames("reply 0 y\n").await;
    assert_eq!(first.await.unwrap().unwrap(), "y");
    run_ready_tasks().await;
    // The queue is empty now, and the slot is not used yet.
    let new = waiting_call(&client, "New");
    let (waiting, new) = (tokio::spawn(waiting), tokio::spawn(new));
    peer.expect_frames("call 2 Waiting x\n").await;
    peer.send_frames("reply 2 w\n").await;
    peer.expect_frames("call 3 New x\n").await;
    peer.send_frames("reply 3 n\n").await;
    assert_eq!((waiting.await.unwrap().unwrap(), new.await.unwrap().unwrap()), ("w".into(), "n".into()));
}

#[tokio::test]
async fn calls_that_wait_use_another_connection_once_theirs_is_lost_or_drained() {
    for drains in [false, true] {
        let listener = TestListener::new().await;
        let client = listener.client(Builder::new("").max_shared_connections(1));
        let (mut peer, first) = call_with_limit(&listener, &client, 1).await;
        let calls: Vec<_> = (0..3).map(|n| tokio::spawn(call(&client, format!("M{n}")))).collect();
        run_ready_tasks().await;
        if drains {
            peer.send_frames("goaway\n").await;
        } else {
            drop(peer);
            assert!(first.await.unwrap().is_err());
            peer = listener.accept().await;
        }
        let mut other = if drains { listener.accept().await } else { peer };
        other.expect_frames("call 0 M0 x\ncall 1 M1 x\ncall 2 M2 x\n").await;
        other.send_frames("reply 0 y\nreply 1 y\nreply 2 y\n").await;
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), "y");
        }
    }
}

#[tokio::test]
async fn call_takes_a_slot_that_becomes_free_while_the_server_cannot_be_reached() {
    let listener = TestListener::new().await;
    let client = listener.client(Builder::new("").max_shared_connections(2));
    let (mut peer, first) = call_with_limit(&listener, &client, 1).await;
    drop(listener);
    let [one, two] = ["One", "Two"].map(|method| tokio::spawn(call(&client, method)));
    failed_connect(&client).await;
    peer.send_frames("reply 0 y\n").await;
    assert_eq!(first.await.unwrap().unwrap(), "y");
    peer.expect_frames("call 2 One x\n").await;
    peer.send_frames("reply 2 1\n").await;
    peer.expect_frames("call 3 Two x\n").await;
    peer.send_frames("reply 3 2\n").await;
    assert_eq!((one.await.unwrap().unwrap(), two.await.unwrap().unwrap()), ("1".into(), "2".into()));
}

#[tokio::test]
async fn call_that_waits_while_the_server_cannot_be_reached_connects_later() {
    let listener = TestListener::new().await;
    let backoff =
        Backoff { initial: Duration::from_millis(50), max: Duration::from_millis(50), ..Backoff::default() };
    let client = listener.client(Builder::new("").max_shared_connections(2).connect_backoff(backoff));
    let (mut peer, first) = call_with_limit(&listener, &client, 1).await;
    let address = listener.url().address.to_string();
    drop(listener);
    let waiting = tokio::spawn(call(&client, "Waiting"));
    failed_connect(&client).await;
    assert!(!waiting.is_finished(), "the open connection suffices");
    let listener = TestListener::at(&address).await;
    let mut other = listener.accept().await;
    other.expect_frames("call 0 Waiting x\n").await;
    other.send_frames("reply 0 w\n").await;
    assert_eq!(waiting.await.unwrap().unwrap(), "w");
    peer.send_frames("reply 0 y\n").await;
    assert_eq!(first.await.unwrap().unwrap(), "y");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_are_dropped_at_any_time_lose_no_slot_and_no_wake() {
    const LIMIT: usize = 7;
    const CALLERS: usize = 60;
    let wire = Wire::default();
    let client = wire.client();
    wire.receive(&format!("most {LIMIT}\n"));
    let server = {
        let wire = wire.clone();
        tokio::spawn(async move {
            loop {
                wire.reply_to_all();
                tokio::task::yield_now().await;
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let client = client.clone();
            tokio::spawn(async move {
                for n in 0..50 {
                    let mut call = call(&client, "M");
                    // Some are dropped after a few polls, whatever they wait for then.
                    let polls = (caller * 31 + n * 17) % 8;
                    for _ in 0..polls {
                        if (&mut call).now_or_never().is_some() {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                    if polls == 0 {
                        assert_eq!(call.await.unwrap(), "y");
                    }
                }
            })
        })
        .collect();
    let all = async {
        for caller in callers {
            caller.await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("no call waits forever");
    server.abort();
    assert!(server.await.is_err());
    wire.take_writes();
    let calls: Vec<_> = (0..=LIMIT).map(|_| waiting_call(&client, "Last")).collect();
    while wire.written_calls() < LIMIT {
        tokio::task::yield_now().await;
    }
    assert_eq!(wire.written_calls(), LIMIT);
    drop(calls);
}

/// Both directions of a connection, without a socket.
#[derive(Debug, Default, Clone)]
struct Wire(Arc<Mutex<WireState>>);

#[derive(Debug, Default)]
struct WireState {
    received: BytesMut,
    reader: Option<Waker>,
    writes: Vec<String>,
}

impl Wire {
    /// Creates a client whose only connection is this one.
    fn client(&self) -> Client {
        let stream = Stream::Carried(Box::new(self.clone()));
        let connection = Connection::start(stream, Lines::default(), None, ConnectionListeners::default());
        Client {
            backend: Backend::Network(Arc::new(Pool::from_connection(connection))),
            defaults: Builder::new("").defaults(&Url::without_server(Protocol::Rpcx)).into(),
            layers: Default::default(),
        }
    }

    /// Lets the client receive this at once.
    fn receive(&self, lines: &str) {
        let reader = {
            let mut state = self.0.lock().unwrap();
            state.received.extend_from_slice(lines.as_bytes());
            state.reader.take()
        };
        reader.into_iter().for_each(Waker::wake);
    }

    fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    /// Replies to every call that was written since.
    fn reply_to_all(&self) {
        let written = self.take_writes().concat();
        let calls = written.lines().filter_map(|line| line.strip_prefix("call ")?.split(' ').next());
        self.receive(&calls.map(|number| format!("reply {number} y\n")).collect::<String>());
    }

    /// Number of calls that were written since.
    fn written_calls(&self) -> usize {
        self.0
            .lock()
            .unwrap()
            .writes
            .iter()
            .flat_map(|write| write.lines())
            .filter(|line| line.starts_with("call "))
            .count()
    }
}

impl Source for Wire {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock().unwrap();
        if state.received.is_empty() {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let received = state.received.split();
        inbox.extend_from_slice(&received);
        Poll::Ready(Ok(received.len()))
    }
}

impl DatagramSink for Wire {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
        let len = bytes.len();
        self.0.lock().unwrap().writes.push(String::from_utf8(bytes).unwrap());
        Ok(len)
    }

    fn poll_writable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn expect_replies(&self, _: bool) {}

    fn close(&self) {}
}

impl DatagramStream for Wire {
    fn poll_write(&mut self, _: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.try_write(slices))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn signals_close(&self) -> bool {
        false
    }

    fn split(self: Box<Self>) -> (Box<dyn DatagramSource>, Box<dyn DatagramSink>) {
        (self.clone(), self)
    }
}
