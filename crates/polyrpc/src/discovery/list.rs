use std::str::FromStr;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use polyrpc_core::Status;
use tokio::sync::watch;

use super::line::{Servers, server};
use super::{Discover, Instance, InstanceStream};

/// Static list of servers: brpc's `list://`, rpcx's `Peer2PeerDiscovery` and `MultipleServersDiscovery`.
///
/// Clones share the list, which may be [updated](Self::update) while clients watch it.
///
/// ```
/// use polyrpc::discovery::List;
///
/// let list: List = "10.0.0.1:8000 3, 10.0.0.2:8000 weight=5&group=a".parse()?;
/// list.update(["10.0.0.3:8000".parse()?]);
/// # Ok::<(), polyrpc::Status>(())
/// ```
///
/// Blanks, and brpc's tag or attributes, may follow an address. A duplicate address is one server. If its tags differ,
/// it has both, where brpc would treat it as two servers.
#[derive(Debug, Clone)]
pub struct List(Arc<watch::Sender<Vec<Instance>>>);

impl List {
    /// Creates a list of these servers.
    pub fn new(instances: impl IntoIterator<Item = Instance>) -> Self {
        Self(Arc::new(watch::Sender::new(dedup(instances))))
    }

    /// Replaces the servers. Watchers are notified if that changes anything.
    pub fn update(&self, instances: impl IntoIterator<Item = Instance>) {
        let instances = dedup(instances);
        self.0.send_if_modified(|known| {
            let changed = *known != instances;
            *known = instances;
            changed
        });
    }
}

fn dedup(instances: impl IntoIterator<Item = Instance>) -> Vec<Instance> {
    instances.into_iter().collect::<Servers>().into_vec()
}

impl FromStr for List {
    type Err = Status;

    /// Parses `host:port tag,host:port tag`.
    fn from_str(text: &str) -> Result<Self, Status> {
        Ok(Self::new(servers(text)?))
    }
}

/// Parses a comma-separated list of at least one server.
pub(super) fn servers(text: &str) -> Result<Vec<Instance>, Status> {
    let texts = text.split(',').filter(|text| !text.trim().is_empty());
    let servers = texts.map(server).collect::<Result<Servers, _>>()?.into_vec();
    match servers.is_empty() {
        true => Err(Status::invalid_argument("the list names no server: expected host:port,host:port")),
        false => Ok(servers),
    }
}

impl Discover for List {
    /// Ends when no clone of the list is left that could change it.
    fn watch(&self) -> InstanceStream {
        let mut receiver = self.0.subscribe();
        receiver.mark_changed();
        let sets = stream::unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok()?;
            let instances = receiver.borrow_and_update().clone();
            Some((Ok(instances), receiver))
        });
        sets.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn list_is_yielded_at_once_and_on_each_change() {
        let list: List = " a:1 3 ,b:2,, c:3 weight=5 ".parse().unwrap();
        let mut sets = list.watch();
        let first = sets.next().await.unwrap().unwrap();
        let weights: Vec<_> = first.iter().map(|one| (one.to_string(), one.attributes.weight())).collect();
        assert_eq!(weights, [("tcp@a:1".into(), 3), ("tcp@b:2".into(), 1), ("tcp@c:3".into(), 5)]);

        list.update(first);
        list.update([Instance::tcp("d:4")]);
        assert_eq!(sets.next().await.unwrap().unwrap(), [Instance::tcp("d:4")]);
        drop(list);
        assert!(sets.next().await.is_none());
    }

    #[tokio::test]
    async fn last_set_is_yielded_after_the_list_is_dropped() {
        let mut sets = List::new([Instance::tcp("a:1")]).watch();
        assert_eq!(sets.next().await.unwrap().unwrap().len(), 1);
        assert!(sets.next().await.is_none());
    }

    #[tokio::test]
    async fn list_of_ten_thousand_servers_is_read() {
        let text: Vec<_> = (0..10_000).map(|n| format!("10.0.{}.{}:80 {n}", n / 250, n % 250)).collect();
        let list: List = text.join(",").parse().unwrap();
        assert_eq!(list.watch().next().await.unwrap().unwrap().len(), 10_000);
    }

    #[test]
    fn invalid_list_is_rejected() {
        for wrong in ["", ",", "a", "a:1,b"] {
            assert!(wrong.parse::<List>().is_err(), "{wrong}");
        }
    }
}
