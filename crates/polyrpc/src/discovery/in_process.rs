use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Advertisement, Attributes, Discover, Instance, InstanceStream, Registrar};
use crate::error::ClientResult as Result;

/// Registry within the process, for tests and for services of the same program.
///
/// Clones share the registry. An entry that is not renewed is removed after its time to live, as in a real registry.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use futures_util::StreamExt;
/// use polyrpc::Server;
/// use polyrpc::discovery::{Discover, InProcess};
/// use polyrpc::server::Registration;
///
/// let registry = InProcess::new();
/// let server = Server::new()
///     .function("Arith/Add", |a: i64, b: i64| async move { a + b })
///     .register_in(registry.clone(), Registration::new())
///     .bind("127.0.0.1:0")
///     .await?
///     .start();
/// let mut sets = registry.discover("Arith").watch();
/// while sets.next().await.is_none_or(|set| set.unwrap().is_empty()) {}
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct InProcess(Arc<watch::Sender<Services>>);

type Services = BTreeMap<String, Vec<PublishedSet>>;

#[derive(Debug, Clone)]
struct PublishedSet {
    instance: Instance,
    /// Expiry; `None`: never.
    until: Option<Instant>,
}

impl PublishedSet {
    fn is_alive(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

impl InProcess {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the discovery of a service.
    pub fn discover(&self, service: &str) -> impl Discover + Clone + use<> {
        ServiceDiscovery { registry: self.clone(), service: service.to_owned() }
    }

    /// Returns the services that have instances now, and their instances.
    pub fn list(&self) -> BTreeMap<String, Vec<Instance>> {
        let now = Instant::now();
        let services = self.0.borrow();
        let alive = services.iter().map(|(service, kept)| (service.clone(), alive(kept, now)));
        alive.filter(|(_, instances)| !instances.is_empty()).collect()
    }

    /// Removes all entries, like a registry that has restarted without its data.
    pub fn clear(&self) {
        self.0.send_modify(BTreeMap::clear);
    }

    fn enter(&self, entry: &Advertisement) {
        let now = Instant::now();
        let kept = PublishedSet { instance: entry.instance.clone(), until: now.checked_add(entry.ttl) };
        self.0.send_if_modified(|services| {
            let all = services.entry(entry.service.clone()).or_default();
            match all.iter_mut().find(|known| is_same(&known.instance, &entry.instance)) {
                Some(known) => {
                    let changed = known.instance != kept.instance || !known.is_alive(now);
                    *known = kept;
                    changed
                }
                None => {
                    all.push(kept);
                    true
                }
            }
        });
    }

    fn remove(&self, entry: &Advertisement) {
        self.0.send_if_modified(|services| {
            let Some(all) = services.get_mut(&entry.service) else { return false };
            let before = all.len();
            all.retain(|known| !is_same(&known.instance, &entry.instance));
            all.len() < before
        });
    }
}

fn is_same(one: &Instance, other: &Instance) -> bool {
    one.network == other.network && one.address == other.address
}

fn alive(kept: &[PublishedSet], now: Instant) -> Vec<Instance> {
    kept.iter().filter(|kept| kept.is_alive(now)).map(|kept| kept.instance.clone()).collect()
}

impl InProcess {
    /// Changes the attributes of an instance, as an operator would; `false` if it is not registered.
    pub fn change(&self, service: &str, address: &str, change: impl Fn(&mut Attributes)) -> bool {
        let mut found = false;
        self.0.send_if_modified(|services| {
            let all = services.get_mut(service).into_iter().flatten();
            for kept in all.filter(|kept| kept.instance.address == address) {
                found = true;
                change(&mut kept.instance.attributes);
            }
            found
        });
        found
    }
}

impl Registrar for InProcess {
    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        let now = Instant::now();
        let services = self.0.borrow();
        let all = services.get(&entry.service).into_iter().flatten();
        let mut known = all.filter(|kept| kept.is_alive(now) && is_same(&kept.instance, &entry.instance));
        let current = known.next().map(|kept| kept.instance.attributes.clone());
        async move { Ok(current) }.boxed()
    }

    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async move {
            self.enter(entry);
            Ok(())
        }
        .boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async move {
            self.remove(entry);
            Ok(())
        }
        .boxed()
    }
}

#[derive(Debug, Clone)]
struct ServiceDiscovery {
    registry: InProcess,
    service: String,
}

impl Discover for ServiceDiscovery {
    /// The first set may be empty.
    fn watch(&self) -> InstanceStream {
        let watching = InProcessWatch {
            service: self.service.clone(),
            services: self.registry.0.subscribe(),
            last_set: None,
            _registry: self.registry.clone(),
        };
        stream::unfold(watching, |mut watching| async move { Some((Ok(watching.next().await), watching)) })
            .boxed()
    }
}

struct InProcessWatch {
    service: String,
    services: watch::Receiver<Services>,
    last_set: Option<Vec<Instance>>,
    /// Keeps the sender alive.
    _registry: InProcess,
}

impl InProcessWatch {
    async fn next(&mut self) -> Vec<Instance> {
        loop {
            let (instances, until) = self.snapshot();
            if self.last_set.as_ref() != Some(&instances) {
                self.last_set = Some(instances.clone());
                return instances;
            }
            let expired = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.services.changed() => {}
                () = expired => {}
            }
        }
    }

    /// Returns the current instances, and the time of the next expiry.
    fn snapshot(&mut self) -> (Vec<Instance>, Option<Instant>) {
        let now = Instant::now();
        let services = self.services.borrow_and_update();
        let kept = services.get(&self.service).map_or(&[][..], Vec::as_slice);
        let until = kept.iter().filter(|kept| kept.is_alive(now)).filter_map(|kept| kept.until).min();
        (alive(kept, now), until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::discovery::Attributes;
    use crate::discovery::testing::next_text;

    fn entry(address: &str, weight: &str) -> Advertisement {
        Advertisement {
            service: "S".into(),
            instance: Instance::tcp(address).with(Attributes::new().with("weight", weight)),
            ttl: Duration::from_secs(10),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn published_instance_is_found_until_withdrawn_or_expired() {
        let registry = InProcess::new();
        let mut sets = registry.discover("S").watch();
        assert_eq!(next_text(&mut sets).await, "");
        registry.publish(&entry("a:1", "1")).await.unwrap();
        assert_eq!(next_text(&mut sets).await, "tcp@a:1?weight=1");
        registry.publish(&entry("b:1", "1")).await.unwrap();
        assert_eq!(next_text(&mut sets).await, "tcp@a:1?weight=1 tcp@b:1?weight=1");
        registry.publish(&entry("a:1", "2")).await.unwrap();
        assert_eq!(next_text(&mut sets).await, "tcp@a:1?weight=2 tcp@b:1?weight=1");
        registry.withdraw(&entry("a:1", "1")).await.unwrap();
        registry.withdraw(&entry("c:1", "1")).await.unwrap();
        assert_eq!(next_text(&mut sets).await, "tcp@b:1?weight=1");

        let before = Instant::now();
        assert_eq!(next_text(&mut sets).await, "");
        assert_eq!(before.elapsed().as_secs(), 10);
        assert!(registry.list().is_empty());
        registry.publish(&entry("b:1", "1")).await.unwrap();
        assert_eq!(next_text(&mut sets).await, "tcp@b:1?weight=1");
        registry.clear();
        assert_eq!(next_text(&mut sets).await, "");
    }

    #[tokio::test]
    async fn services_are_separate() {
        let registry = InProcess::new();
        registry.publish(&entry("a:1", "1")).await.unwrap();
        assert_eq!(next_text(&mut registry.discover("S2").watch()).await, "");
        assert_eq!(registry.list().into_keys().collect::<Vec<_>>(), ["S"]);
    }
}
