use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use polyrpc::{Scope, Status};

use super::connection::HttpConnection;

/// The lines of an answer that goes on, as they come.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    /// What has come and was not given yet, and how much of it has no end of a line.
    rest: BytesMut,
    searched: usize,
    /// The connection lives as long as its answer.
    _line: HttpConnection,
}

impl Lines {
    pub(super) fn new(body: Incoming, line: HttpConnection) -> Self {
        Self { body, rest: BytesMut::new(), searched: 0, _line: line }
    }

    /// The next one that is not empty; `None` when the server has ended the answer.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            match self.cut() {
                Some(line) if line.is_empty() => {}
                Some(line) => return Ok(Some(line)),
                None if self.rest.len() > LINE => {
                    return Err(broken(&format!("a line has more than {LINE} bytes")));
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

    fn cut(&mut self) -> Option<Bytes> {
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
    Status::unavailable(format!("the registry's answer broke off: {why}")).with_scope(Scope::Connection)
}

/// A slice of Kubernetes has at most a thousand endpoints, of some 500 bytes each.
const LINE: usize = 4 << 20;
