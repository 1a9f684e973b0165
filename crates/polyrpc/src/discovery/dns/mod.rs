mod resolver;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyrpc_core::digits::parse_decimal;
use polyrpc_core::{Code, Status};

use self::resolver::{Lookup, Resolver, SrvTarget};
use super::polled::{self, PollResult, PollSource, jitter};
use super::{Attributes, Discover, Instance, InstanceStream, Network};
use crate::error::ClientResult as Result;

/// Servers from DNS: all addresses of a host, or the targets of SRV records.
///
/// The records are resolved again when their time to live is over, with a jitter of a tenth, within
/// [bounds](Self::refresh_interval). If resolution fails, the previous result is kept.
///
/// ```
/// use polyrpc::discovery::Dns;
///
/// let headless: Dns = "greeter.default.svc.cluster.local:8000".parse()?;
/// let named: Dns = "_grpc._tcp.example.org".parse()?;
/// let from_server: Dns = "10.0.0.2:5353/greeter.internal:8000".parse()?;
/// # Ok::<(), polyrpc::Status>(())
/// ```
///
/// The name servers and the search domains of short names are those of `/etc/resolv.conf`. A host that is in
/// `/etc/hosts`, or unknown to DNS, is resolved by the system. If a host has IPv4 addresses, only these are used: those
/// of IPv6 would be the same servers again ([`prefer_ipv6`](Self::prefer_ipv6) reverses that).
///
/// Of SRV records those with the lowest priority value are used; their weight becomes the attribute `weight`.
#[derive(Debug, Clone)]
pub struct Dns {
    question: Question,
    server: Option<SocketAddr>,
    network: Network,
    ipv6_first: bool,
    shortest: Duration,
    longest: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    /// Addresses of a host.
    Host(String, u16),
    /// SRV records of a service.
    Service(String),
}

impl Dns {
    /// Resolves all addresses of a host, with this port.
    pub fn host(host: impl Into<String>, port: u16) -> Self {
        Self::new(Question::Host(host.into(), port))
    }

    /// Resolves the SRV records of a service: `_grpc._tcp.example.org`.
    pub fn service(name: impl Into<String>) -> Self {
        Self::new(Question::Service(name.into()))
    }

    fn new(question: Question) -> Self {
        Self {
            question,
            server: None,
            network: Network::Tcp,
            ipv6_first: false,
            shortest: Duration::from_secs(1),
            longest: Duration::from_secs(300),
        }
    }

    /// Uses only this name server.
    #[must_use]
    pub fn server(mut self, server: SocketAddr) -> Self {
        self.server = Some(server);
        self
    }

    /// Sets the network of the instances. Default: TCP.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Prefers IPv6 addresses if a host has any.
    #[must_use]
    pub fn prefer_ipv6(mut self) -> Self {
        self.ipv6_first = true;
        self
    }

    /// Sets the shortest and longest time between two resolutions, whatever the records' time to live. Default: 1 s and
    /// 5 min.
    #[must_use]
    pub fn refresh_interval(mut self, shortest: Duration, longest: Duration) -> Self {
        self.shortest = shortest.max(Duration::from_millis(100));
        self.longest = longest.max(self.shortest);
        self
    }
}

impl FromStr for Dns {
    type Err = Status;

    /// Parses `host:port`, or `_service._proto.domain` for SRV records; the name server may precede it as
    /// `server:port/`.
    fn from_str(text: &str) -> Result<Self, Status> {
        let wrong = |why: &str| {
            Status::invalid_argument(format!("`{}` cannot be resolved by DNS: {why}", super::redacted(text)))
        };
        let (server, name) = text.rsplit_once('/').unwrap_or(("", text));
        let dns = match name.rsplit_once(':') {
            Some((host, port)) => match parse_decimal::<u16>(port) {
                Some(port @ 1..) if !host.is_empty() => Self::host(host, port),
                _ => return Err(wrong("expected host:port")),
            },
            None if name.starts_with('_') => Self::service(name),
            None => return Err(wrong("expected host:port, or _service._tcp.domain for SRV records")),
        };
        resolver::check(match &dns.question {
            Question::Host(host, _) => host,
            Question::Service(name) => name,
        })?;
        if server.is_empty() {
            return Ok(dns);
        }
        let address = server.parse().or_else(|_| server.parse().map(|ip: IpAddr| (ip, 53).into()));
        Ok(dns.server(
            address.map_err(|_| wrong("the DNS server must be an IP address with an optional port"))?,
        ))
    }
}

impl Discover for Dns {
    fn watch(&self) -> InstanceStream {
        polled::sets(DnsWatch { dns: self.clone(), resolver: None, known: HashMap::new() })
    }
}

struct DnsWatch {
    dns: Dns,
    resolver: Option<Resolver>,
    /// Last known addresses of the hosts of SRV records.
    known: HashMap<String, Vec<IpAddr>>,
}

impl PollSource for DnsWatch {
    const POLL_TIMEOUT: Duration = Duration::from_secs(30);

    async fn query(&mut self) -> Result<PollResult> {
        let resolver = match self.resolver.take() {
            Some(resolver) => resolver,
            None => Resolver::new(self.dns.server, self.dns.ipv6_first).await,
        };
        let (mut instances, ttl, warning) = match &self.dns.question {
            Question::Host(host, port) => {
                let Lookup { records, ttl } = resolver.addresses(host).await?;
                (records.into_iter().map(|ip| self.at(ip, *port)).collect(), ttl, None)
            }
            Question::Service(name) => {
                let found = resolver.service_records(name).await?;
                self.instances(&resolver, found).await?
            }
        };
        // Servers shuffle their answers.
        instances.sort_by(|one: &Instance, other| one.address.cmp(&other.address));
        // After a failure the system's configuration is read again, since it may be the cause.
        self.resolver = Some(resolver);
        let again = jitter(ttl.clamp(self.dns.shortest, self.dns.longest));
        Ok(PollResult { instances: Some(instances), again, warning })
    }
}

impl DnsWatch {
    /// Returns the servers at these targets, and their time to live. A host whose resolution fails keeps its previous
    /// addresses.
    async fn instances(
        &mut self,
        resolver: &Resolver,
        found: Lookup<SrvTarget>,
    ) -> Result<(Vec<Instance>, Duration, Option<crate::Error>)> {
        let lookups = found.records.into_iter().map(|record| async move {
            let outcome = resolver.addresses(&record.host).await;
            (record, outcome)
        });
        let mut lookups = stream::iter(lookups).buffered(MAX_CONCURRENT_LOOKUPS);
        let (mut instances, mut ttl, mut warning) = (Vec::new(), found.ttl, None);
        let mut known = HashMap::new();
        while let Some((record, outcome)) = lookups.next().await {
            let addresses = match outcome {
                Ok(found) => {
                    ttl = ttl.min(found.ttl);
                    found.records
                }
                Err(status) => {
                    let not_found = status.code() == Code::NotFound;
                    warning.get_or_insert(status);
                    if not_found {
                        Vec::new()
                    } else {
                        self.known.get(&record.host).cloned().unwrap_or_default()
                    }
                }
            };
            let weight = Attributes::new().with("weight", record.weight.max(1).to_string());
            instances.extend(addresses.iter().map(|ip| self.at(*ip, record.port).with(weight.clone())));
            known.insert(record.host, addresses);
        }
        self.known = known;
        match (instances.is_empty(), warning) {
            (true, Some(status)) => Err(status.into()),
            (_, warning) => {
                // A failed resolution is repeated soon.
                let ttl = if warning.is_some() { self.dns.shortest } else { ttl };
                Ok((instances, ttl, warning.map(Into::into)))
            }
        }
    }

    fn at(&self, ip: IpAddr, port: u16) -> Instance {
        let address = SocketAddr::new(ip, port).to_string();
        Instance { network: self.dns.network, ..Instance::tcp(address) }
    }
}

/// Number of hosts that are resolved concurrently.
const MAX_CONCURRENT_LOOKUPS: usize = 16;
