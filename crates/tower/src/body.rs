use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use polyrpc::Streaming;

/// Body of a request that was received by a polyrpc server. It is read from the peer on demand.
pub struct RequestBody {
    pieces: Streaming<Bytes>,
    /// Remaining number of bytes, if the peer announced the length.
    left: Option<u64>,
}

impl RequestBody {
    pub(crate) fn new(pieces: Streaming<Bytes>, length: Option<u64>) -> Self {
        Self { pieces, left: length }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = polyrpc::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, polyrpc::Error>>> {
        let next = Pin::new(&mut self.pieces).poll_next(cx);
        if let (Poll::Ready(Some(Ok(piece))), Some(left)) = (&next, &mut self.left) {
            *left = left.saturating_sub(piece.len() as u64);
        }
        next.map(|piece| piece.map(|piece| piece.map(Frame::data).map_err(polyrpc::Error::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("left", &self.left).finish_non_exhaustive()
    }
}

/// Body of a response of a polyrpc server, followed by the trailers.
pub struct ResponseBody(Content);

enum Content {
    Of(
        Incoming,
        #[expect(dead_code, reason = "it counts as a response in progress until it is dropped")] Arc<()>,
    ),
    Text(Option<Bytes>),
}

impl ResponseBody {
    pub(crate) fn new(incoming: Incoming, in_flight: Arc<()>) -> Self {
        Self(Content::Of(incoming, in_flight))
    }

    pub(crate) fn text(text: &'static str) -> Self {
        Self(Content::Text(Some(Bytes::from_static(text.as_bytes()))))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Content::Of(incoming, _) => Pin::new(incoming).poll_frame(cx),
            Content::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Of(incoming, _) => incoming.is_end_stream(),
            Content::Text(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Of(incoming, _) => incoming.size_hint(),
            Content::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseBody")
    }
}
