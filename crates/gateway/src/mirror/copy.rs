//! One copy of a call.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use polyrpc::Protocol;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc_core::protocol::MetadataSupport;

use super::comparison::{self, Answer, Outcome};
use super::{CopyPermit, MARK, Shared, budget};
use crate::pairs::Pair;
use crate::upstream::Upstream;

/// A call to copy once its caller has been answered.
#[derive(Debug)]
pub(crate) struct CallCopy {
    admitted: CopyPermit,
    /// The method in the report.
    method: String,
    body: Body,
    candidate: Leg,
    second: Leg,
}

/// How to send a copy to one upstream.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) pair: Arc<Pair>,
    pub(crate) target: String,
    pub(crate) options: CallOptions,
}

/// A copy with the answer that the caller received.
#[derive(Debug)]
pub(super) struct Job {
    shared: Arc<Shared>,
    copy: Parts,
    primary: (Arc<Pair>, Protocol, Answer),
}

#[derive(Debug)]
struct Parts {
    _permit: budget::Permit,
    method: String,
    body: Body,
    candidate: Leg,
    second: Leg,
}

impl CallCopy {
    pub(crate) fn new(
        admitted: CopyPermit,
        method: String,
        body: &Body,
        candidate: Leg,
        second: Leg,
    ) -> Self {
        let body = Body { bytes: detach(&body.bytes), ..body.clone() };
        let (candidate, second) = (candidate.with_mark(), second.with_mark());
        Self { admitted, method, body, candidate, second }
    }

    /// Makes the copy, and compares its answer with the one that the caller got. Returns at once. `pair`, `protocol`: the
    /// translators and the protocol of the upstream that answered the caller.
    pub(crate) fn compare(self, pair: Arc<Pair>, protocol: Protocol, answer: Answer) {
        let Self { admitted, method, body, candidate, second } = self;
        let answer = answer.map(|body| Body { bytes: detach(&body.bytes), ..body });
        let mirror = admitted.mirror.clone();
        let Some(permit) = admitted.take(answer.as_ref().map_or(0, |body| body.bytes.len())) else { return };
        let copy = Parts { _permit: permit, method, body, candidate, second };
        mirror.submit(Job { shared: mirror.shared.clone(), copy, primary: (pair, protocol, answer) });
    }
}

/// A small message that waits must not keep the large buffer that it is a part of.
fn detach(bytes: &Bytes) -> Bytes {
    if bytes.len() < MIN_SHARED_LEN { Bytes::copy_from_slice(bytes) } else { bytes.clone() }
}

const MIN_SHARED_LEN: usize = 4 << 10;

impl Leg {
    /// Marks the call as a copy for the server, if its protocol has metadata.
    fn with_mark(mut self) -> Self {
        let protocol = self.upstream.protocol();
        if let MetadataSupport::Carried(_) = protocol.descriptor().capabilities.metadata {
            self.options.metadata.insert(MARK, "1");
        }
        // The caller's deadline may have passed; a copy has its own timeout.
        self.options.timeout = self.upstream.spec.timeout.map(|timeout| timeout.0);
        self
    }

    /// Calls the upstream; `None` if the message cannot be sent there.
    async fn call(&self, body: Body) -> Option<Outcome> {
        let body = self.pair.request.as_ref().ok()?.translate(body).ok()?.body;
        let called = self.upstream.client().call_raw(&self.target, body, self.options.clone()).await;
        let answer = called.map(|response| response.message).map_err(|error| error.code());
        Some(Outcome::decode(&self.pair, self.upstream.protocol(), answer))
    }
}

impl Job {
    pub(super) async fn run(self) {
        let Self { shared, copy, primary: (pair, protocol, answer) } = self;
        let counts = &shared.counts;
        let calls = tokio::join!(copy.candidate.call(copy.body.clone()), copy.second.call(copy.body.clone()));
        let (Some(candidate), second) = calls else {
            return counts.untranslatable.add();
        };
        shared.pause.record(candidate.is_answer(), Instant::now());
        if !candidate.is_answer() {
            return counts.failed.add();
        }
        let Some(second) = second.filter(Outcome::is_answer) else {
            return counts.unmeasured.add();
        };
        let primary = Outcome::decode(&pair, protocol, answer);
        let compare =
            |renames, other| comparison::compare(&shared.rules, &shared.samples, renames, &primary, other);
        let (differences, noise) = (compare(true, &candidate), compare(false, &second));
        match differences.is_empty() {
            true => counts.equal.add(),
            false => counts.different.add(),
        }
        shared.findings().record(&copy.method, differences, &noise);
    }
}
