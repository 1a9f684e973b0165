use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::task::AtomicWaker;
use quinn::{Connection, ReadError, RecvStream, SendStream, VarInt};
use tokio::io::AsyncReadExt;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::answers::AnswerWatch;
use super::kept_connections::KeptConnections;
use crate::transport::{self, DatagramSink, DatagramSource, DatagramStream, Source};

/// A connection with its one stream.
#[derive(Debug)]
pub(super) struct Stream {
    send: Sender,
    receive: Receiver,
}

impl Stream {
    /// The client's end. `answers` watches whether the server answers.
    pub(super) fn new_client(
        connection: Connection,
        send: SendStream,
        receive: RecvStream,
        answers: Arc<AnswerWatch>,
    ) -> transport::Stream {
        let receive = Receiver { receive, answers: Some(answers.clone()) };
        let send = Sender { send, connection, answers: Some(answers), ended: None };
        transport::Stream::Carried(Box::new(Self { send, receive }))
    }

    /// The server's end. When it is dropped, `ended` keeps the connection until the client has received everything.
    pub(super) fn new_server(
        connection: Connection,
        send: SendStream,
        receive: RecvStream,
        ended: Arc<KeptConnections>,
    ) -> transport::Stream {
        let receive = Receiver { receive, answers: None };
        let send = Sender { send, connection, answers: None, ended: Some(ended) };
        transport::Stream::Carried(Box::new(Self { send, receive }))
    }
}

impl DatagramStream for Stream {
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.send.poll_write(cx, slices)
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send.finish();
        Poll::Ready(Ok(()))
    }

    fn signals_close(&self) -> bool {
        true
    }

    fn split(self: Box<Self>) -> (Box<dyn DatagramSource>, Box<dyn DatagramSink>) {
        let Self { send, receive } = *self;
        (Box::new(receive), Box::new(Sink { sender: Mutex::new(send), room: Arc::default() }))
    }
}

impl Source for Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.receive.poll_read(cx, inbox)
    }
}

/// The receiving direction.
#[derive(Debug)]
struct Receiver {
    receive: RecvStream,
    answers: Option<Arc<AnswerWatch>>,
}

impl Source for Receiver {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        let read = pin!(self.receive.read_buf(inbox)).poll(cx);
        read.map_err(|error| self.explain(error))
    }
}

impl Receiver {
    /// Adds why the connection was lost, which quinn's message leaves out.
    #[cold]
    fn explain(&self, error: io::Error) -> io::Error {
        if self.answers.as_ref().is_some_and(|answers| answers.is_given_up()) {
            return io::Error::new(io::ErrorKind::TimedOut, "the peer does not acknowledge sent data");
        }
        let read = error.get_ref().and_then(|inner| inner.downcast_ref());
        match read {
            Some(ReadError::ConnectionLost(cause)) => io::Error::new(error.kind(), cause.clone()),
            _ => error,
        }
    }
}

/// The sending direction, which keeps the connection open.
#[derive(Debug)]
struct Sender {
    send: SendStream,
    connection: Connection,
    answers: Option<Arc<AnswerWatch>>,
    /// The connections of a listener that have ended.
    ended: Option<Arc<KeptConnections>>,
}

impl Sender {
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match Pin::new(&mut self.send).poll_write(cx, slice) {
                Poll::Ready(Ok(taken)) => {
                    written += taken;
                    if taken < slice.len() {
                        break;
                    }
                }
                // Bytes written before count; an error is returned by the next call again.
                _ if written > 0 => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
        if let Some(answers) = self.answers.as_ref().filter(|_| written > 0) {
            answers.on_sent();
        }
        Poll::Ready(Ok(written))
    }

    fn finish(&mut self) {
        // An error means that it was already finished.
        let _ = self.send.finish();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.finish();
        let Ok(runtime) = Handle::try_current() else { return };
        // Dropping the connection would discard data that the peer has not received yet.
        let (arrived, connection, ended) = (self.send.stopped(), self.connection.clone(), self.ended.take());
        if let Some(ended) = &ended {
            ended.enter(connection.clone());
        }
        runtime.spawn(async move {
            let _ = timeout(CLOSE_TIMEOUT, arrived).await;
            connection.close(VarInt::from_u32(0), b"");
            if let Some(ended) = &ended {
                ended.leave(&connection);
            }
        });
    }
}

/// The write half, which any task may use.
#[derive(Debug)]
struct Sink {
    sender: Mutex<Sender>,
    room: Arc<WriteWaker>,
}

/// Waker of the writing task. quinn wakes the last caller, which may have been another one.
#[derive(Debug, Default)]
struct WriteWaker {
    is_lacking: AtomicBool,
    waiting: AtomicWaker,
}

impl DatagramSink for Sink {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = Waker::from(self.room.clone());
        // Before the attempt: room may become available right after it.
        self.room.is_lacking.store(true, Ordering::Release);
        match sender.poll_write(&mut Context::from_waker(&waker), slices) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(written) => {
                self.room.is_lacking.store(false, Ordering::Release);
                written
            }
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.room.waiting.register(cx.waker());
        if self.room.is_lacking.load(Ordering::Acquire) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn expect_replies(&self, are_expected: bool) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answers) = &sender.answers {
            answers.expect_replies(are_expected);
        }
    }

    fn close(&self) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.connection.close(VarInt::from_u32(0), b"");
    }
}

impl Wake for WriteWaker {
    fn wake(self: Arc<Self>) {
        self.is_lacking.store(false, Ordering::Release);
        self.waiting.wake();
    }
}

/// How long written data is still delivered after the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
