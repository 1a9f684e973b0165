use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;

use super::conversation::Conversation;
use crate::transport::{self, DatagramSink, DatagramSource, DatagramStream, Evictable, Source};

/// A conversation as a stream. Dropping it closes the conversation; data that was written is still delivered.
#[derive(Debug)]
pub(super) struct Stream {
    conversation: Arc<CloseOnDrop>,
}

/// Closes the conversation when both halves are dropped.
#[derive(Debug)]
struct CloseOnDrop(Arc<Conversation>);

impl Stream {
    pub(super) fn boxed(conversation: Arc<Conversation>) -> transport::Stream {
        transport::Stream::Carried(Box::new(Self { conversation: Arc::new(CloseOnDrop(conversation)) }))
    }

    fn conversation(&self) -> &Arc<Conversation> {
        &self.conversation.0
    }
}

impl DatagramStream for Stream {
    fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match self.conversation().try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.conversation().poll_writable(cx))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // KCP has no half-close. Written data is still delivered, and then the peer is notified of the end.
        self.conversation().close();
        Poll::Ready(Ok(()))
    }

    fn buffered_bytes(&self) -> usize {
        self.conversation().buffered_bytes()
    }

    fn set_connection(&self, connection: Arc<dyn Evictable>) {
        self.conversation().set_connection(connection);
    }

    fn signals_close(&self) -> bool {
        false
    }

    fn split(self: Box<Self>) -> (Box<dyn DatagramSource>, Box<dyn DatagramSink>) {
        (Box::new(Self { conversation: self.conversation.clone() }), self)
    }
}

impl Source for Stream {
    fn poll_read(&mut self, cx: &mut Context<'_>, inbox: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.conversation().poll_read(cx, inbox)
    }
}

impl DatagramSink for Stream {
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.conversation().try_write(slices)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.conversation().poll_writable(cx)
    }

    fn expect_replies(&self, are_expected: bool) {
        self.conversation().expect_replies(are_expected);
    }

    fn close(&self) {
        self.conversation().close();
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
