use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use polyrpc_core::Status;
use tokio::time::timeout;

use super::line::Servers;
use super::polled::{self, PollResult, PollSource, jitter};
use super::{Discover, Instance, InstanceStream, Network, list};
use crate::error::ClientResult as Result;

/// Lists servers by host names, which are resolved again at this interval: brpc's `dlist://`, which does so every 5 s.
/// The shortest interval is 100 ms.
///
/// The names are resolved by the system, including `/etc/hosts`; every resolved address is a server. brpc uses only the
/// first one. IPv6 addresses are used only if a name has no others, so that a dual-stack host does not count as two. If
/// a resolution fails, the name keeps its previous addresses.
///
/// ```
/// use std::time::Duration;
/// use polyrpc::discovery::{Instance, host_list};
///
/// let servers = host_list([Instance::tcp("a.example:8972"), Instance::tcp("b.example:8972")], Duration::from_secs(5));
/// let client = polyrpc::Client::builder("rpcx://orders").discover(servers);
/// ```
pub fn host_list(
    servers: impl IntoIterator<Item = Instance>,
    interval: Duration,
) -> impl Discover + Clone + fmt::Debug {
    HostList { interval: interval.max(Duration::from_millis(100)), ..HostList::new(servers) }
}

/// The servers of a [`host_list()`].
#[derive(Clone)]
pub(super) struct HostList {
    listed: Vec<Instance>,
    interval: Duration,
    lookup: Lookup,
}

/// Resolves the addresses of a host.
type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

impl HostList {
    /// Resolves them every 5 s, as brpc does.
    fn new(listed: impl IntoIterator<Item = Instance>) -> Self {
        Self {
            listed: listed.into_iter().collect::<Servers>().into_vec(),
            interval: Duration::from_secs(5),
            lookup: Arc::new(|host| Box::pin(system_lookup(host))),
        }
    }
}

impl FromStr for HostList {
    type Err = Status;

    /// Parses `host:port tag,host:port tag`.
    fn from_str(text: &str) -> Result<Self, Status> {
        Ok(Self::new(list::servers(text)?))
    }
}

impl fmt::Debug for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostList").field("listed", &self.listed).field("interval", &self.interval).finish()
    }
}

impl Discover for HostList {
    fn watch(&self) -> InstanceStream {
        let known = vec![Vec::new(); self.listed.len()];
        polled::sets(NamesWatch { names: self.clone(), known })
    }
}

struct NamesWatch {
    names: HostList,
    /// Last result of each name.
    known: Vec<Vec<Instance>>,
}

impl PollSource for NamesWatch {
    const POLL_TIMEOUT: Duration = Duration::from_secs(60);

    async fn query(&mut self) -> Result<PollResult> {
        // Separate tasks, since each lookup may block a thread for as long as the system's resolver takes.
        let mut found = stream::iter(self.names.listed.clone())
            .map(|listed| resolve(listed, self.names.lookup.clone()))
            .buffered(MAX_CONCURRENT_LOOKUPS);
        let mut warning = None;
        for known in &mut self.known {
            match found.next().await {
                Some(Ok(instances)) => *known = instances,
                Some(Err(status)) => warning = warning.or(Some(status)),
                None => {}
            }
        }
        let instances = self.known.iter().flatten().cloned().collect::<Servers>().into_vec();
        match (instances.is_empty(), warning) {
            (true, Some(status)) => Err(status.into()),
            (_, warning) => Ok(PollResult {
                instances: Some(instances),
                again: jitter(self.names.interval),
                warning: warning.map(Into::into),
            }),
        }
    }
}

/// Number of names that are resolved concurrently.
const MAX_CONCURRENT_LOOKUPS: usize = 16;

/// Resolves the servers of one entry of the list.
async fn resolve(listed: Instance, lookup: Lookup) -> Result<Vec<Instance>, Status> {
    let Some((host, port)) = named_host(&listed) else {
        return Ok(vec![listed]);
    };
    let nameless = |why: &str| Status::unavailable(format!("cannot look `{host}` up: {why}"));
    let addresses = match timeout(LOOKUP_TIMEOUT, lookup(host.to_owned())).await {
        Ok(Ok(addresses)) => keep_one_family(addresses),
        Ok(Err(error)) => return Err(nameless(&error.to_string())),
        Err(_) => return Err(nameless("the system's resolver did not respond")),
    };
    if addresses.is_empty() {
        return Err(nameless("it has no address"));
    }
    let at = |address| Instance { address: SocketAddr::new(address, port).to_string(), ..listed.clone() };
    Ok(addresses.into_iter().map(at).collect())
}

const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Host and port, unless there is nothing to resolve.
fn named_host(listed: &Instance) -> Option<(&str, u16)> {
    // Certificates and virtual hosts depend on the name, which is resolved at connect.
    if matches!(listed.network, Network::Unix | Network::Wss) || listed.address.parse::<SocketAddr>().is_ok()
    {
        return None;
    }
    let (host, port) = listed.address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// Keeps the IPv4 addresses, or those of IPv6 if there are none. Sorted, since resolvers shuffle them.
pub(super) fn keep_one_family(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    if addresses.iter().any(IpAddr::is_ipv4) {
        addresses.retain(IpAddr::is_ipv4);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Resolves a host by the system, on the blocking pool.
pub(super) async fn system_lookup(host: String) -> io::Result<Vec<IpAddr>> {
    Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::*;
    use crate::discovery::testing::next_text;

    #[derive(Clone, Default)]
    struct Hosts(Arc<Mutex<HashMap<&'static str, Vec<&'static str>>>>);

    impl Hosts {
        fn set(&self, host: &'static str, addresses: &[&'static str]) {
            self.0.lock().unwrap().insert(host, addresses.to_vec());
        }

        fn resolving(&self, text: &str) -> HostList {
            let hosts = self.clone();
            let lookup = move |host: String| {
                let found = hosts.0.lock().unwrap().get(&*host).cloned();
                let found = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host"));
                let addresses = found.map(|all| all.iter().map(|one| one.parse().unwrap()).collect());
                Box::pin(std::future::ready(addresses)) as BoxFuture<'_, _>
            };
            HostList { lookup: Arc::new(lookup), ..text.parse().unwrap() }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_lookup_keeps_the_last_addresses() {
        let hosts = Hosts::default();
        let names = hosts.resolving("a:1 3,10.0.0.9:2,b:3");
        hosts.set("a", &["10.0.0.2", "::1", "10.0.0.1", "10.0.0.2"]);
        let mut sets = names.watch();
        assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.1:1?tag=3 tcp@10.0.0.2:1?tag=3 tcp@10.0.0.9:2");
        assert_eq!(next_text(&mut sets).await, "cannot look `b` up: no such host");
        hosts.set("a", &[]);
        hosts.set("b", &["::2"]);
        assert_eq!(
            next_text(&mut sets).await,
            "tcp@10.0.0.1:1?tag=3 tcp@10.0.0.2:1?tag=3 tcp@10.0.0.9:2 tcp@[::2]:3"
        );
        assert_eq!(next_text(&mut sets).await, "cannot look `a` up: it has no address");
        hosts.set("a", &["10.0.0.1"]);
        assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.1:1?tag=3 tcp@10.0.0.9:2 tcp@[::2]:3");
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_names_are_an_error_until_they_resolve() {
        let hosts = Hosts::default();
        let mut sets = hosts.resolving("a:1").watch();
        assert_eq!(next_text(&mut sets).await, "cannot look `a` up: no such host");
        hosts.set("a", &["10.0.0.1"]);
        assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.1:1");
    }

    #[tokio::test]
    async fn localhost_resolves() {
        let names: HostList = "localhost:80,unix:/run/x".parse().unwrap();
        assert_eq!(next_text(&mut names.watch()).await, "tcp@127.0.0.1:80 unix@/run/x");
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_names_are_resolved() {
        let hosts = Hosts::default();
        hosts.set("a", &["10.0.0.1"]);
        let text: Vec<_> = (1..=10_000).map(|port| format!("a:{port}")).collect();
        let set = hosts.resolving(&text.join(",")).watch().next().await.unwrap().unwrap();
        assert_eq!(set.len(), 10_000);
    }
}
