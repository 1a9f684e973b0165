//! What is owed for a message: one response, or one array for a whole batch.

use polyrpc_core::{Format, Reply, Status};

use super::{frame, status};

/// What answering one request takes.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    /// The request's id as written.
    id: bytes::Bytes,
    dotted: bool,
    /// The request brought no parameters.
    bare: bool,
}

impl PendingResponse {
    /// What is owed to `request`; nothing if it is a notification.
    pub(crate) fn to(request: &frame::Request) -> Option<Self> {
        let (dotted, bare) = (request.is_dotted(), request.params.is_empty());
        request.id.clone().map(|id| Self { id, dotted, bare })
    }

    /// What is owed for a message that was refused before it was read.
    pub(crate) fn without_id() -> Self {
        Self { id: bytes::Bytes::from_static(b"null"), dotted: true, bare: false }
    }

    /// The response that holds `reply`. There is no room for an attachment beside the result.
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

/// The responses to a batch, gathered until none is missing. They stand in the order in which they came,
/// which JSON-RPC 2.0 §6 allows.
#[derive(Debug)]
pub(crate) struct Batch {
    text: Vec<u8>,
    missing: usize,
}

impl Batch {
    /// A batch of which `refused` is answered and `missing` are not.
    pub(crate) fn new(refused: &[Vec<u8>], missing: usize) -> Self {
        let mut batch = Self { text: Vec::new(), missing };
        refused.iter().for_each(|response| batch.append(response));
        batch
    }

    /// Bytes of the responses so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Adds the response to one request.
    pub(crate) fn add(&mut self, response: &[u8]) {
        self.missing = self.missing.saturating_sub(1);
        self.append(response);
    }

    /// The whole response once nothing is missing; empty if every request was a notification.
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
