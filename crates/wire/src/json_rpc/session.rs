//! Pending responses: one for a message, or one array for a whole batch.

use polyrpc_core::{Format, Reply, Status};

use super::{frame, status};

/// Data needed to answer one request.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    /// The request's id in its original text.
    id: bytes::Bytes,
    dotted: bool,
    /// The request had no parameters.
    bare: bool,
}

impl PendingResponse {
    /// Creates the pending response to `request`; `None` if it is a notification.
    pub(crate) fn new(request: &frame::Request) -> Option<Self> {
        let (dotted, bare) = (request.is_dotted(), request.params.is_empty());
        request.id.clone().map(|id| Self { id, dotted, bare })
    }

    /// Creates the pending response to a message that was rejected before it was parsed.
    pub(crate) fn without_id() -> Self {
        Self { id: bytes::Bytes::from_static(b"null"), dotted: true, bare: false }
    }

    /// Returns the response with `reply`. JSON-RPC cannot carry an attachment.
    pub(crate) fn answer(&self, reply: &Reply) -> Vec<u8> {
        let mut text = Vec::new();
        match (&reply.result, reply.head.format) {
            (Ok(result), Format::Json(_)) => frame::write_result(&mut text, result, &self.id),
            (Ok(_), other) => {
                let reason = format!("the result is {}, not json", other.as_str());
                self.fail(&Status::internal(reason), &mut text);
            }
            (Err(status), _) => self.fail(status, &mut text),
        }
        text
    }

    #[cold]
    fn fail(&self, failure: &Status, text: &mut Vec<u8>) {
        let code = status::write(failure, self.dotted, self.bare);
        frame::write_error(text, code, failure.message_or_code(), failure.number(), &self.id);
    }
}

/// Responses to a batch, collected until all are complete. They are in order of completion, which JSON-RPC 2.0 §6
/// allows.
#[derive(Debug)]
pub(crate) struct Batch {
    text: Vec<u8>,
    missing: usize,
}

impl Batch {
    /// Creates a batch with the error responses `refused` and `missing` pending responses.
    pub(crate) fn new(refused: &[Vec<u8>], missing: usize) -> Self {
        let mut batch = Self { text: Vec::new(), missing };
        refused.iter().for_each(|response| batch.append(response));
        batch
    }

    /// Returns the number of bytes of the responses so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Adds the response to one request.
    pub(crate) fn add(&mut self, response: &[u8]) {
        self.missing = self.missing.saturating_sub(1);
        self.append(response);
    }

    /// Returns the whole response once all are complete; empty if every request was a notification.
    pub(crate) fn finish(&mut self) -> Option<Vec<u8>> {
        if self.missing > 0 {
            return None;
        }
        if !self.text.is_empty() {
            self.text.push(b']');
        }
        Some(std::mem::take(&mut self.text))
    }

    fn append(&mut self, response: &[u8]) {
        self.text.push(if self.text.is_empty() { b'[' } else { b',' });
        self.text.extend_from_slice(response);
    }
}
