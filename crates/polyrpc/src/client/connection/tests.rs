use std::io::IoSlice;
use std::sync::Mutex;

use bytes::BytesMut;
use polyrpc_core::Format;
use polyrpc_wire::{baidu_std, rpcx};

use super::*;
use crate::transport::{DatagramSink, DatagramSource, DatagramStream, Source};

/// A stream over datagrams that takes everything, and records the notifications about replies.
#[derive(Debug, Default, Clone)]
struct Recorder {
    expected: Arc<Mutex<Vec<bool>>>,
    /// Bytes that have arrived. They wake no task, as if they had arrived while the process was paused.
    arrived: Arc<Mutex<BytesMut>>,
}

impl Source for Recorder {
    fn poll_read(&mut self, _cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        let arrived = std::mem::take(&mut *self.arrived.lock().unwrap());
        if arrived.is_empty() {
            return Poll::Pending;
        }
        inbox.extend_from_slice(&arrived);
        Poll::Ready(Ok(arrived.len()))
    }
}

impl DatagramSink for Recorder {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn poll_writable(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn expect_replies(&self, are_expected: bool) {
        self.expected.lock().unwrap().push(are_expected);
    }

    fn close(&self) {}
}

impl DatagramStream for Recorder {
    fn poll_write(&mut self, _cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.try_write(slices))
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn signals_close(&self) -> bool {
        false
    }

    fn split(self: Box<Self>) -> (Box<dyn DatagramSource>, Box<dyn DatagramSink>) {
        (self.clone(), self)
    }
}

#[tokio::test]
async fn transport_is_notified_of_only_the_first_and_the_last_call_in_flight() {
    let recorder = Recorder::default();
    let expected = || recorder.expected.lock().unwrap().clone();
    let stream = Stream::Carried(Box::new(recorder.clone()));
    let session = baidu_std::Client::new(baidu_std::ClientConfig::default());
    let connection = Connection::start(stream, session, None, ConnectionListeners::default());
    let submit = || {
        let mut call = Some(Call::new("Echo", "echo", Format::Raw, Bytes::from_static(b"hello")));
        connection.submit(&mut call, None, false, Waker::noop()).unwrap().unwrap()
    };
    let calls = [submit(), submit(), submit()];
    assert_eq!(expected(), [true]);
    connection.abandon(calls[1]);
    connection.abandon(calls[0]);
    assert_eq!(expected(), [true]);
    connection.abandon(calls[2]);
    assert_eq!(expected(), [true, false]);
    connection.abandon(submit());
    assert_eq!(expected(), [true, false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn answer_to_a_heartbeat_that_arrived_during_a_pause_is_read_before_the_server_is_given_up() {
    const INTERVAL: Duration = Duration::from_secs(10);
    let recorder = Recorder::default();
    let stream = Stream::Carried(Box::new(recorder.clone()));
    let session = rpcx::Client::new(rpcx::ClientConfig::default());
    let keepalive = Some(Keepalive::with_interval(INTERVAL));
    let connection = Connection::start(stream, session, keepalive, ConnectionListeners::default());
    let mut call = Some(Call::new("Echo", "echo", Format::Raw, Bytes::from_static(b"hello")));
    let id = connection.submit(&mut call, None, false, Waker::noop()).unwrap().unwrap();
    let outcome = || connection.poll_reply(id, &mut Context::from_waker(Waker::noop()));
    tokio::time::sleep(INTERVAL * 3 / 2).await;
    // A heartbeat was sent. What arrives, even the beginning of an answer, is read when the next one is due.
    recorder.arrived.lock().unwrap().extend_from_slice(&[8]);
    tokio::time::sleep(INTERVAL).await;
    assert!(recorder.arrived.lock().unwrap().is_empty());
    assert!(outcome().is_pending());
    // The next one is not answered.
    tokio::time::sleep(INTERVAL).await;
    let Poll::Ready(Err(status)) = outcome() else { panic!("the server was not given up") };
    assert_eq!(status.message(), "the server does not answer heartbeats");
}

#[test]
fn calls_beside_an_oversized_response_may_be_retried_and_its_own_may_not() {
    let session = baidu_std::Client::new(baidu_std::ClientConfig::default());
    let violation = Violation::message_too_large(7, 5);
    for (alone, code, retry) in
        [(true, Code::ResourceExhausted, Retry::Never), (false, Code::Unavailable, Retry::IfIdempotent)]
    {
        let status = broken_protocol(&violation, &session, b"", alone);
        assert_eq!((status.code(), status.retry()), (code, retry));
        assert!(status.message().ends_with("message is too long: 7 bytes where 5 are allowed"), "{status}");
    }
}
