mod announcer;
mod packet;
mod socket;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use polyrpc_core::Status;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use self::announcer::Announcer;
use self::packet::{Announcement, Names, Query};
use super::polled::{self, PollResult, PollSource, jitter};
use super::{Advertisement, Discover, Instance, InstanceStream, Registrar};
use crate::error::ClientResult as Result;

/// Servers on the local network, by multicast DNS; compatible with rpcx's clients and servers.
///
/// rpcx announces all services of all servers as instances of the single type `_rpcxservices.local.`, each with a text
/// that contains service, address and attributes. Its clients use them all; here only those of the requested service
/// are used.
///
/// Clients send a query every 5 s, and remove a server that leaves three queries unanswered. Servers answer, and send a
/// goodbye when they leave.
///
/// A text has room for 255 bytes after escaping. A server whose attributes do not fit is announced in several texts,
/// which rpcx's clients do not read.
#[derive(Debug, Clone)]
pub struct Mdns {
    service: String,
    names: Names,
    interfaces: Option<Vec<Ipv4Addr>>,
    interval: Duration,
    port: u16,
    announcer: Arc<Announcer>,
}

impl Mdns {
    /// Discovers the servers of this service. It may be empty for a server that only [registers](Registrar).
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            names: Names::default(),
            interfaces: None,
            interval: Duration::from_secs(5),
            port: PORT,
            announcer: Arc::default(),
        }
    }

    /// Sets the domain in which services are announced. Default: `local.`, as in rpcx.
    ///
    /// # Errors
    ///
    /// If it is no valid DNS name.
    pub fn domain(mut self, domain: &str) -> Result<Self> {
        self.names = Names::new(domain)?;
        Ok(self)
    }

    /// Sets the addresses of the network interfaces to use. Default: the one that leads to the Internet, and the
    /// loopback interface.
    #[must_use]
    pub fn interfaces(mut self, addresses: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        self.interfaces = Some(addresses.into_iter().collect());
        self
    }

    /// Sets the interval of the queries. Default: every 5 s.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_secs(1));
        self
    }

    fn interfaces_or_default(&self) -> Vec<Ipv4Addr> {
        self.interfaces.clone().unwrap_or_else(socket::default_interfaces)
    }
}

/// Port of multicast DNS (RFC 6762).
const PORT: u16 = 5353;

impl FromStr for Mdns {
    type Err = Status;

    /// Parses the name of a service, optionally preceded by the domain: `Arith`, `local./Arith`.
    fn from_str(text: &str) -> Result<Self, Status> {
        let (domain, service) = text.rsplit_once('/').unwrap_or(("", text));
        if service.is_empty() {
            return Err(Status::invalid_argument("expected the name of a service"));
        }
        let mdns = Self::new(service);
        if domain.is_empty() { Ok(mdns) } else { mdns.domain(domain).map_err(crate::Error::into_status) }
    }
}

impl Discover for Mdns {
    fn watch(&self) -> InstanceStream {
        polled::sets(MdnsWatch {
            mdns: self.clone(),
            sockets: Vec::new(),
            known_instances: BTreeMap::new(),
            round: 0,
        })
    }
}

struct MdnsWatch {
    mdns: Mdns,
    sockets: Vec<Arc<UdpSocket>>,
    /// Servers that have answered, with the round of the last answer.
    known_instances: BTreeMap<String, (u64, Instance)>,
    round: u64,
}

impl PollSource for MdnsWatch {
    async fn query(&mut self) -> Result<PollResult> {
        self.round += 1;
        if self.sockets.is_empty() {
            self.sockets = socket::query_sockets(&self.mdns.interfaces_or_default())
                .await
                .map_err(Status::from_error)?;
        }
        let queried = self.query_all().await;
        if let Err(error) = queried {
            // The machine may have moved to another network.
            self.sockets.clear();
            return Err(error);
        }
        self.listen(Instant::now() + WINDOW).await;
        self.known_instances.retain(|_, (round, _)| *round + MAX_MISSED_ROUNDS > self.round);
        if self.known_instances.is_empty() {
            let text = format!("no server on the local network announces `{}`", self.mdns.service);
            return Err(Status::unavailable(text).into());
        }
        let instances = self.known_instances.values().map(|(_, instance)| instance.clone()).collect();
        let again = jitter(self.mdns.interval).saturating_sub(WINDOW);
        Ok(PollResult { instances: Some(instances), again, warning: None })
    }

    /// A query costs the same after failures, so there is no backoff.
    fn pause(&self, _failures: u32) -> Duration {
        self.mdns.interval.saturating_sub(WINDOW)
    }
}

/// Time to wait for answers.
const WINDOW: Duration = Duration::from_secs(1);
/// Number of unanswered queries after which a server is removed.
const MAX_MISSED_ROUNDS: u64 = 3;
/// Maximum number of servers that are kept, whatever is announced.
const MAX_SERVERS: usize = 10_000;

impl MdnsWatch {
    /// Sends the query to every network; success in one is enough.
    async fn query_all(&self) -> Result<()> {
        let query = Query::query(&self.mdns.names)?;
        let mut last = None;
        for socket in &self.sockets {
            match socket.send_to(&query, (socket::GROUP, self.mdns.port)).await {
                Ok(_) => return self.query_others(&query, socket).await,
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or_else(|| "there is no network".to_owned(), |error| error.to_string());
        Err(Status::unavailable(format!("cannot query the local network: {why}")).into())
    }

    async fn query_others(&self, query: &[u8], queried: &Arc<UdpSocket>) -> Result<()> {
        for socket in self.sockets.iter().filter(|socket| !Arc::ptr_eq(socket, queried)) {
            let _ = socket.send_to(query, (socket::GROUP, self.mdns.port)).await;
        }
        Ok(())
    }

    /// Receives answers until the deadline.
    async fn listen(&mut self, until: Instant) {
        let mut receiving: FuturesUnordered<_> = self.sockets.iter().cloned().map(socket::receive).collect();
        while let Ok(Some((socket, packet))) = timeout_at(until, receiving.next()).await {
            if let Some(packet) = packet {
                self.handle_packet(&packet);
            }
            receiving.push(socket::receive(socket));
        }
    }

    fn handle_packet(&mut self, packet: &[u8]) {
        let announced = packet::announcements(packet, &self.mdns.names);
        for Announcement { service, instance } in announced {
            let is_wanted = service == self.mdns.service;
            if is_wanted
                && (self.known_instances.len() < MAX_SERVERS
                    || self.known_instances.contains_key(&instance.to_string()))
            {
                self.known_instances.insert(instance.to_string(), (self.round, instance));
            }
        }
    }
}

impl Registrar for Mdns {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        self.announcer.publish(self, entry).boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        self.announcer.withdraw(self, entry).boxed()
    }
}
