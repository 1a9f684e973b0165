use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use polyrpc_core::Metadata;
use polyrpc_wire::Protocol;
use tokio::task::JoinSet;

use super::sampler::Sampler;
use crate::call::{CallOptions, Outcome};
use crate::codec::Body;
use crate::layer::{Call, Layer, Next};
use crate::{Client, propagation};

/// Sends copies of requests to another server and discards its replies, to test a new version with real traffic.
///
/// ```no_run
/// # fn main() -> polyrpc::Result<()> {
/// use polyrpc::layers::Mirror;
/// use polyrpc::{Client, Server};
///
/// let mirror = Mirror::to(Client::new("rpcx://canary:8972")?).sample_rate(0.05);
/// let server = Server::new().layer(mirror.clone());
/// # Ok(())
/// # }
/// ```
///
/// A copy has the request's message, metadata and attachment, but no credential. If the protocol supports metadata, it
/// is marked by `polyrpc-mirrored`; marked calls are not mirrored again. The original call does not wait for its copy,
/// and is not affected by its failure. Streaming calls are not copied.
///
/// Pending copies are cancelled when the last clone is dropped.
#[derive(Clone)]
pub struct Mirror(Arc<Shared>);

#[derive(Clone)]
struct Shared {
    client: Client,
    sampler: Arc<Sampler>,
    at_most: usize,
    /// The pending copies.
    under_way: Arc<Mutex<JoinSet<()>>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
}

impl Mirror {
    /// Copies every request by this client, which may use another protocol than the request if it supports the same
    /// format; the client's timeout applies. Up to 100 copies are pending at a time.
    pub fn to(client: Client) -> Self {
        Self(Arc::new(Shared {
            client,
            sampler: Arc::new(Sampler::new(1.0)),
            at_most: 100,
            under_way: Arc::default(),
            counts: Arc::default(),
        }))
    }

    /// Copies this share of the requests: 0.01 for one percent.
    #[must_use]
    pub fn sample_rate(self, rate: f64) -> Self {
        Self(Arc::new(Shared { sampler: Arc::new(Sampler::new(rate)), ..(*self.0).clone() }))
    }

    /// Sets the maximum number of pending copies; further requests are not copied.
    #[must_use]
    pub fn max_in_flight(self, copies: usize) -> Self {
        Self(Arc::new(Shared { at_most: copies, ..(*self.0).clone() }))
    }

    /// Returns the number of copies with a successful reply so far.
    pub fn succeeded(&self) -> u64 {
        self.0.counts.answered.load(Ordering::Relaxed)
    }

    /// Returns the number of copies that failed so far.
    pub fn failed(&self) -> u64 {
        self.0.counts.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of copies so far that were not sent because too many were pending.
    pub fn skipped(&self) -> u64 {
        self.0.counts.skipped.load(Ordering::Relaxed)
    }

    /// Sends a copy if this call is selected, and the limit allows it.
    fn copy(&self, service: &str, method: &str, body: &Body, metadata: &Metadata, attachment: &Bytes) {
        let shared = &*self.0;
        if metadata.bytes(MIRRORED_KEY).is_some() || !shared.sampler.selects() {
            return;
        }
        let mut under_way = shared.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= shared.at_most {
            shared.counts.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let target = if service.is_empty() { method.to_owned() } else { format!("{service}/{method}") };
        let options = options(shared.client.protocol(), metadata, attachment);
        let (client, counts, body) = (shared.client.clone(), shared.counts.clone(), body.clone());
        under_way.spawn(async move {
            let count = match client.call_raw(&target, body, options).await {
                Ok(_) => &counts.answered,
                Err(_) => &counts.failed,
            };
            count.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// Returns the options of a copy, as far as its protocol supports them.
fn options(protocol: Protocol, metadata: &Metadata, attachment: &Bytes) -> CallOptions {
    let mut options = CallOptions::default();
    if propagation::carries_metadata(protocol) {
        options.metadata = metadata.clone();
        options.metadata.insert(MIRRORED_KEY, "1");
    }
    if protocol.descriptor().capabilities.attachments {
        options.attachment = attachment.clone();
    }
    options
}

/// Marks a call as a copy in its metadata.
const MIRRORED_KEY: &str = "polyrpc-mirrored";

impl Layer for Mirror {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        if call.stream_type().is_unary() {
            self.copy(call.service(), call.method(), call.body(), call.metadata(), call.attachment());
        }
        next.call(call).await
    }
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("client", &self.0.client).field("counts", &self.0.counts).finish()
    }
}
