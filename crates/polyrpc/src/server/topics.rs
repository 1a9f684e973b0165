use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError};
use std::{fmt, iter, mem};

use bytes::Bytes;
use polyrpc_core::{Status, Topic};
use polyrpc_wire::rest_rpc;
use serde::Serialize;

use super::connections::{ConnectionHandle, ServerPush};
use super::incidents::Refusal;
use crate::client::Result;
use crate::contention::{Mutex, MutexGuard};
use crate::{codec, memory_budget};

/// Publishes messages to subscribed clients (rest_rpc).
///
/// Clones publish to the same subscribers. A subscription is for a key and, up to v0.20, a token that narrows it down;
/// messages under another key or another token are not delivered.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polyrpc::Result<()> {
/// use polyrpc::rest_rpc::Version;
/// use polyrpc::Server;
/// use polyrpc::server::Listen;
/// use polyrpc::Client;
///
/// let server = Server::new();
/// let publisher = server.publisher();
/// let server = server.bind(Listen::on("127.0.0.1:0").rest_rpc(Version::V0_20)).await?.start();
///
/// let client = Client::new(&format!("rest-rpc://{}?version=0.20", server.address()))?;
/// let mut news = client.subscribe::<String>("news", "").await?;
/// // A subscription is not acknowledged: this waits until it has come.
/// while publisher.publish("news", "", &"hello")? == 0 {
///     tokio::task::yield_now().await;
/// }
/// assert_eq!(news.message().await?.as_deref(), Some("hello"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Publisher(Arc<Topics>);

/// The subscribers of all topics.
#[derive(Default)]
pub(super) struct Topics {
    /// The peers choose the names, so this uses the standard hash, which resists collision attacks.
    subscribers: Mutex<HashMap<Topic, BTreeMap<usize, Subscriber>>>,
}

/// A connection that has subscribed to a topic, keyed by the address of its handle: removing one costs the others
/// nothing.
struct Subscriber {
    entry: Arc<ConnectionHandle>,
    /// How often it has subscribed; it receives every message as often.
    times: usize,
}

impl Publisher {
    pub(super) fn topics(&self) -> &Arc<Topics> {
        &self.0
    }

    /// Publishes a value under a key and a token, which is empty if there is none; neither need be UTF-8. Returns to
    /// how many subscriptions it is sent; a client that does not read its earlier messages is skipped.
    ///
    /// # Errors
    ///
    /// If the value cannot be encoded.
    pub fn publish<T>(&self, key: impl AsRef<[u8]>, token: impl AsRef<[u8]>, value: &T) -> Result<usize>
    where
        T: Serialize + ?Sized,
    {
        let name = name(key, token);
        let (named, numbered) = self.0.subscribers(&name);
        let mut reached = 0;
        if !named.is_empty() {
            reached += push(&named, &name, &codec::publish(value)?);
        }
        if !numbered.is_empty() {
            reached += push(&numbered, &name, &codec::publish_coded(value)?);
        }
        Ok(reached)
    }

    /// Publishes a value that a client has encoded: the last argument of the functions `publish` and
    /// `publish_by_token`, by which rest_rpc's clients up to v0.20 publish through a server.
    /// [`Server::allow_publish`](super::Server::allow_publish) adds both. Returns the same as
    /// [`publish`](Self::publish).
    pub fn publish_packed(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
        packed: impl Into<Bytes>,
    ) -> usize {
        let name = name(key, token);
        let (named, numbered) = self.0.subscribers(&name);
        let data = codec::unpack(packed.into());
        push(&named, &name, &data) + push(&numbered, &name, &data)
    }
}

/// Returns a topic's name: key and token in one.
fn name(key: impl AsRef<[u8]>, token: impl AsRef<[u8]>) -> Bytes {
    [key.as_ref(), token.as_ref()].concat().into()
}

/// Returns the key of a connection among subscribers.
fn connection_key(entry: &Arc<ConnectionHandle>) -> usize {
    Arc::as_ptr(entry).addr()
}

/// Queues a message; returns the number of subscriptions that accepted it.
fn push(subscribers: &[Arc<ConnectionHandle>], topic: &Bytes, data: &Bytes) -> usize {
    let published = || ServerPush::Published(topic.clone(), data.clone());
    subscribers.iter().filter(|entry| entry.push(published()).is_ok()).count()
}

impl Topics {
    /// Returns the subscribers of a topic by its name, and those by its number.
    fn subscribers(&self, name: &Bytes) -> (Vec<Arc<ConnectionHandle>>, Vec<Arc<ConnectionHandle>>) {
        let subscribers = self.lock();
        let find = |topic| {
            let subscribers = subscribers.get(&topic).into_iter().flat_map(BTreeMap::values);
            subscribers.flat_map(|one| iter::repeat_n(&one.entry, one.times)).cloned().collect()
        };
        (find(Topic::Name(name.clone())), find(Topic::Id(rest_rpc::number(name))))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Topic, BTreeMap<usize, Subscriber>>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("topics", &self.0.lock().len()).finish()
    }
}

/// The subscriptions of one connection; removed on drop.
pub(super) struct Subscriptions {
    topics: Arc<Topics>,
    entry: Arc<ConnectionHandle>,
    /// Each topic, once.
    own: Vec<Topic>,
    /// The last number that the client has subscribed to, which may not be admitted yet.
    requested: Option<Topic>,
    /// How many subscriptions it has by name, and bytes of these names.
    named: usize,
    bytes: usize,
    /// Bytes that are charged to the account.
    held: usize,
}

impl Subscriptions {
    pub(super) fn new(topics: Arc<Topics>, entry: Arc<ConnectionHandle>) -> Self {
        Self { topics, entry, own: Vec::new(), requested: None, named: 0, bytes: 0, held: 0 }
    }

    /// Counts a requested subscription, before it is authenticated and passes layers; one with a number replaces the
    /// previous one. Returns whether there is anything to do: repeated subscriptions by number cause no work.
    ///
    /// # Errors
    ///
    /// If the connection has too many, or the memory budget has no room for one more.
    pub(super) fn begin(&mut self, topic: &Topic) -> Result<bool, Status> {
        match topic {
            Topic::Id(_) if self.requested.as_ref() == Some(topic) => return Ok(false),
            Topic::Id(_) => {
                self.clear();
                self.requested = Some(topic.clone());
            }
            Topic::Name(name) => {
                self.named += 1;
                self.bytes += name.len();
                if self.named > MAX_SUBSCRIPTIONS || self.bytes > MAX_NAME_BYTES {
                    return Err(Status::resource_exhausted("the connection has too many subscriptions"));
                }
                if self.times(topic) >= MAX_REPEATED {
                    return Err(Status::resource_exhausted(
                        "the connection has subscribed too often to this topic",
                    ));
                }
            }
        }
        self.reserve(topic)?;
        Ok(true)
    }

    /// Subscribes to a topic that was [requested](Self::begin). A duplicate subscription by name receives every message
    /// twice (rest_rpc `rpc_server.h`, whose `sub_map_` is a multimap).
    pub(super) fn add(&mut self, topic: Topic) {
        // Another number may have been requested in the meantime.
        if matches!(topic, Topic::Id(_)) && self.requested.as_ref() != Some(&topic) {
            return;
        }
        let mut topics = self.topics.lock();
        let subscribers = topics.entry(topic.clone()).or_default();
        let own = subscribers
            .entry(connection_key(&self.entry))
            .or_insert_with(|| Subscriber { entry: self.entry.clone(), times: 0 });
        // Several may have been admitted before the first one was added.
        own.times = (own.times + 1).min(MAX_REPEATED);
        if own.times == 1 {
            self.own.push(topic);
        }
    }

    /// Returns how many times the connection has subscribed to a topic.
    fn times(&self, topic: &Topic) -> usize {
        let topics = self.topics.lock();
        let own = topics.get(topic).and_then(|subscribers| subscribers.get(&connection_key(&self.entry)));
        own.map_or(0, |own| own.times)
    }

    /// Charges the connection for one more.
    fn reserve(&mut self, topic: &Topic) -> Result<(), Status> {
        let name = match topic {
            Topic::Id(_) => 0,
            Topic::Name(name) => name.len(),
        };
        let bytes = name + SUBSCRIPTION_OVERHEAD_BYTES;
        if bytes > self.entry.account.remaining() {
            self.entry.record_refusal(Refusal::Memory);
            return Err(memory_budget::exhausted());
        }
        self.entry.account.keep(bytes);
        self.held += bytes;
        Ok(())
    }

    /// Returns whether the client has no way to send a keepalive: where topics have numbers, there are no heartbeats.
    pub(super) fn cannot_send_keepalive(&self) -> bool {
        matches!(self.own[..], [Topic::Id(_)])
    }

    /// Returns the bytes that the subscriptions hold for as long as the connection is open.
    pub(super) fn held_bytes(&self) -> usize {
        self.held
    }

    fn clear(&mut self) {
        self.entry.account.release(mem::take(&mut self.held));
        if self.own.is_empty() {
            return;
        }
        let mut subscribers = self.topics.lock();
        for topic in self.own.drain(..) {
            if let Some(others) = subscribers.get_mut(&topic) {
                others.remove(&connection_key(&self.entry));
                if others.is_empty() {
                    subscribers.remove(&topic);
                }
            }
        }
        let few = subscribers.len() * 2;
        if subscribers.capacity() > few.max(KEPT_CAPACITY) * 2 {
            subscribers.shrink_to(few);
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Maximum number of subscriptions of a connection.
const MAX_SUBSCRIPTIONS: usize = 1024;

/// Maximum number of subscriptions of a connection to one topic by its name. A message is queued once for each, at the
/// expense of its publisher.
const MAX_REPEATED: usize = 16;

/// Maximum number of bytes of their names.
const MAX_NAME_BYTES: usize = 64 << 10;

/// Approximate memory of a subscription without its name.
const SUBSCRIPTION_OVERHEAD_BYTES: usize = 512;

/// Capacity that is kept for this many topics, whether they exist or not.
const KEPT_CAPACITY: usize = 64;
