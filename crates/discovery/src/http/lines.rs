use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use polyrpc::{Scope, Status};

use super::connection::HttpConnection;

/// Lines of a streamed response body.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    /// Received bytes that were not returned yet, and how many of them contain no line end.
    rest: BytesMut,
    searched: usize,
    /// Keeps the connection alive as long as the response.
    _connection: HttpConnection,
}

impl Lines {
    pub(super) fn new(body: Incoming, connection: HttpConnection) -> Self {
        Self { body, rest: BytesMut::new(), searched: 0, _connection: connection }
    }

    /// Returns the next non-empty line; `None` when the server has ended the response.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            match self.take_line() {
                Some(line) if line.is_empty() => {}
                Some(line) => return Ok(Some(line)),
                None if self.rest.len() > MAX_LINE_LEN => {
                    return Err(broken(&format!("a line has more than {MAX_LINE_LEN} bytes")));
                }
                None => match self.body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(broken(&error)),
                    Some(Ok(frame)) => {
                        self.rest.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
                    }
                },
            }
        }
    }

    fn take_line(&mut self) -> Option<Bytes> {
        let unseen = self.rest.get(self.searched..)?;
        let Some(end) = unseen.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.rest.len();
            return None;
        };
        let line = self.rest.split_to(self.searched + end + 1).freeze();
        self.searched = 0;
        Some(line.slice(..line.trim_ascii_end().len()))
    }
}

#[cold]
fn broken(why: &impl std::fmt::Display) -> Status {
    Status::unavailable(format!("the registry's response was truncated: {why}")).with_scope(Scope::Connection)
}

/// A Kubernetes slice has at most a thousand endpoints, of some 500 bytes each.
const MAX_LINE_LEN: usize = 4 << 20;
