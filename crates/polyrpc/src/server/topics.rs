use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, iter, mem};

use bytes::Bytes;
use polyrpc_core::{Status, Topic};
use polyrpc_wire::rest_rpc;
use serde::Serialize;

use super::connections::{ConnectionHandle, ServerPush};
use super::incidents::Refusal;
use crate::client::Result;
use crate::{codec, memory_budget};

/// Publishes to those who have subscribed (rest_rpc).
///
/// Clones publish to the same subscribers. A subscription is for a key and, up to v0.20, a token that narrows it
/// down; nobody is told of a message under another key or another token.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polyrpc::Result<()> {
/// use polyrpc::rest_rpc::Generation;
/// use polyrpc::server::{Listen, Server};
/// use polyrpc::Client;
///
/// let server = Server::new();
/// let publisher = server.publisher();
/// let server = server.bind(Listen::on("127.0.0.1:0").rest_rpc(Generation::V0_20)).await?.start();
///
/// let client = Client::new(&format!("rest-rpc+v0.20://{}", server.address()))?;
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

/// Who has subscribed to what.
#[derive(Default)]
pub(super) struct Topics {
    /// The peers choose the names, so the standard hash it is, which withstands those that are chosen to collide.
    subscribers: Mutex<HashMap<Topic, BTreeMap<usize, Subscriber>>>,
}

/// A connection that has subscribed to a topic, found by where its entry is: one that leaves costs the others nothing.
struct Subscriber {
    entry: Arc<ConnectionHandle>,
    /// How often it has subscribed; so often it is pushed everything.
    times: usize,
}

impl Publisher {
    pub(super) fn topics(&self) -> &Arc<Topics> {
        &self.0
    }

    /// Publishes a value under a key and a token, which is empty where there is none; neither need be UTF-8. Returns for
    /// how many subscriptions it is on its way; a client that does not read what it was sent before is left out.
    ///
    /// # Errors
    ///
    /// When the value cannot be written.
    pub fn publish<T>(&self, key: impl AsRef<[u8]>, token: impl AsRef<[u8]>, value: &T) -> Result<usize>
    where
        T: Serialize + ?Sized,
    {
        let name = name(key, token);
        let (named, numbered) = self.0.subscribed(&name);
        let mut reached = 0;
        if !named.is_empty() {
            reached += push(&named, &name, &codec::publish(value)?);
        }
        if !numbered.is_empty() {
            reached += push(&numbered, &name, &codec::publish_coded(value)?);
        }
        Ok(reached)
    }

    /// Publishes what a client has packed: the last argument of the functions `publish` and `publish_by_token`, by
    /// which rest_rpc's clients up to v0.20 publish through a server. [`Server::publishing`](super::Server::publishing)
    /// offers both. Returns as [`publish`](Self::publish).
    pub fn publish_packed(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
        packed: impl Into<Bytes>,
    ) -> usize {
        let name = name(key, token);
        let (named, numbered) = self.0.subscribed(&name);
        let data = codec::unpack(packed.into());
        push(&named, &name, &data) + push(&numbered, &name, &data)
    }
}

/// A topic's name: key and token in one.
fn name(key: impl AsRef<[u8]>, token: impl AsRef<[u8]>) -> Bytes {
    [key.as_ref(), token.as_ref()].concat().into()
}

/// By what a connection is found among subscribers.
fn connection_key(entry: &Arc<ConnectionHandle>) -> usize {
    Arc::as_ptr(entry).addr()
}

/// For how many subscriptions it is taken.
fn push(subscribers: &[Arc<ConnectionHandle>], topic: &Bytes, data: &Bytes) -> usize {
    let published = || ServerPush::Published(topic.clone(), data.clone());
    subscribers.iter().filter(|entry| entry.push(published()).is_ok()).count()
}

impl Topics {
    /// Who subscribed to a topic by its name, and who by its number.
    fn subscribed(&self, name: &Bytes) -> (Vec<Arc<ConnectionHandle>>, Vec<Arc<ConnectionHandle>>) {
        let subscribers = self.lock();
        let of = |topic| {
            let subscribers = subscribers.get(&topic).into_iter().flat_map(BTreeMap::values);
            subscribers.flat_map(|one| iter::repeat_n(&one.entry, one.times)).cloned().collect()
        };
        (of(Topic::Name(name.clone())), of(Topic::Id(rest_rpc::number(name))))
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

/// What one connection has subscribed to; given up when dropped.
pub(super) struct Subscriptions {
    topics: Arc<Topics>,
    entry: Arc<ConnectionHandle>,
    /// Each of them once.
    own: Vec<Topic>,
    /// How often it has subscribed by name, and bytes of these names.
    named: usize,
    bytes: usize,
    /// Bytes for which the account is charged.
    held: usize,
}

impl Subscriptions {
    pub(super) fn new(topics: Arc<Topics>, entry: Arc<ConnectionHandle>) -> Self {
        Self { topics, entry, own: Vec::new(), named: 0, bytes: 0, held: 0 }
    }

    /// Subscribes to one more topic; one with a number takes the place of the last. Who subscribes to a name twice is
    /// pushed everything twice (rest_rpc `rpc_server.h`, whose `sub_map_` is a multimap).
    ///
    /// # Errors
    ///
    /// When the connection has too many, or the memory budget has no room for one more.
    pub(super) fn add(&mut self, topic: Topic) -> Result<(), Status> {
        match &topic {
            // It is there already: a peer that says so again and again makes no work for others.
            Topic::Id(_) if self.own.first() == Some(&topic) => return Ok(()),
            Topic::Id(_) => self.clear(),
            Topic::Name(name) => {
                self.named += 1;
                self.bytes += name.len();
                if self.named > SUBSCRIPTIONS || self.bytes > NAMES {
                    return Err(Status::resource_exhausted("the connection subscribes to too much"));
                }
            }
        }
        self.reserve(&topic)?;
        let mut topics = self.topics.lock();
        let subscribers = topics.entry(topic.clone()).or_default();
        let own = subscribers
            .entry(connection_key(&self.entry))
            .or_insert_with(|| Subscriber { entry: self.entry.clone(), times: 0 });
        own.times += 1;
        if own.times == 1 {
            self.own.push(topic);
        }
        Ok(())
    }

    /// Has the connection pay for one more.
    fn reserve(&mut self, topic: &Topic) -> Result<(), Status> {
        let name = match topic {
            Topic::Id(_) => 0,
            Topic::Name(name) => name.len(),
        };
        let bytes = name + SUBSCRIPTION;
        if bytes > self.entry.account.remaining() {
            self.entry.refused(Refusal::Memory);
            return Err(memory_budget::exhausted());
        }
        self.entry.account.keep(bytes);
        self.held += bytes;
        Ok(())
    }

    /// Whether the client has no way to say that it is still there: where topics have numbers, there are no
    /// heartbeats.
    pub(super) fn expect_silence(&self) -> bool {
        matches!(self.own[..], [Topic::Id(_)])
    }

    /// Bytes that they hold for as long as the connection is open.
    pub(super) fn held_bytes(&self) -> usize {
        self.held
    }

    fn clear(&mut self) {
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
        if subscribers.capacity() > few.max(ROOM) * 2 {
            subscribers.shrink_to(few);
        }
        drop(subscribers);
        self.entry.account.release(mem::take(&mut self.held));
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.clear();
    }
}

/// How often a connection may subscribe.
const SUBSCRIPTIONS: usize = 1024;

/// How many bytes their names may have.
const NAMES: usize = 64 << 10;

/// About as many bytes as a subscription takes beside its name.
const SUBSCRIPTION: usize = 512;

/// For so many topics room is kept, whether they are there or not.
const ROOM: usize = 64;
