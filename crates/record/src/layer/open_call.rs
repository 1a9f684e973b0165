//! A call that a handler records itself.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use polyrpc::Status;
use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::layer::StreamType;

use super::Recorder;
use super::captured::Pending;

/// A call that a [fallback](polyrpc::Server::fallback) records itself, as a gateway does: it has the messages that
/// layers do not see. [`Recorder::begin`] returns it.
///
/// For a stream, the first 1,000 messages are kept, up to 1 MiB in total; the recording has the number of omitted ones.
/// Clones denote the same call. If all are dropped before its end, it is recorded as cancelled.
#[derive(Clone)]
pub struct OpenCall(Arc<Mutex<Option<Pending>>>);

impl Recorder {
    /// Starts to record a call under these names of service and method. Returns `None` if it will not be recorded,
    /// whatever its outcome.
    ///
    /// `shape`: `None` for an undeclared method; if then one message each way is [sent](OpenCall::request) and
    /// [received](OpenCall::response), the call is recorded as unary. `request`: the only message of a call that has
    /// one, if it is already available.
    pub fn begin(
        &self,
        call: &RawRequest,
        names: (&str, &str),
        shape: Option<StreamType>,
        request: Option<&Body>,
    ) -> Option<OpenCall> {
        let sampled = self.0.sampler.selects();
        let is_watched = sampled || self.0.failures || self.0.slow.is_some();
        let open = || Pending::from_request(self, sampled, call, names, shape, request);
        is_watched.then(|| OpenCall(Arc::new(Mutex::new(Some(open())))))
    }
}

impl OpenCall {
    /// Adds a message of the caller's stream.
    pub fn request(&self, message: &Bytes) {
        self.change(|pending| pending.message(message, false));
    }

    /// Adds a message of the server's stream.
    pub fn response(&self, message: &Bytes) {
        self.change(|pending| pending.message(message, true));
    }

    /// Records the answer of a call with one message each way.
    pub fn record_answer(&self, message: Body, response: &RawResponse) {
        if let Some(pending) = self.take() {
            pending.record_answer(message, response);
        }
    }

    /// Records the end of a call: of streams, or a failure.
    pub fn record_end(&self, result: Result<(), &Status>) {
        if let Some(pending) = self.take() {
            pending.record_end(result);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Pending)) {
        if let Some(pending) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            change(pending);
        }
    }

    fn take(&self) -> Option<Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl std::fmt::Debug for OpenCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenCall")
    }
}
