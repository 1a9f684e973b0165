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
use super::polled::{self, PollResult, PollSource, jittered};
use super::{Advertisement, Discover, Instance, Registrar, Sets};
use crate::error::ClientResult as Result;

/// Servers on the local network, by multicast DNS: found by rpcx's clients, and finding rpcx's servers.
///
/// rpcx announces all services of all servers as instances of the one kind `_rpcxservices.local.`, each with a text
/// that names service, address and attributes. Its clients take them all; here only those of the wanted service are.
///
/// Clients ask every 5 s, and take a server for gone when it leaves three such questions without an answer. Servers
/// answer, and say when they leave.
///
/// A text has room for 255 bytes, once escaped: a server whose attributes do not fit is announced in several texts, which
/// clients of rpcx do not read.
#[derive(Debug, Clone)]
pub struct Mdns {
    service: String,
    names: Names,
    interfaces: Option<Vec<Ipv4Addr>>,
    every: Duration,
    port: u16,
    announcer: Arc<Announcer>,
}

impl Mdns {
    /// The servers of this service. For a server that only [registers](Registrar) it may be empty.
    pub fn new(service: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            names: Names::default(),
            interfaces: None,
            every: Duration::from_secs(5),
            port: PORT,
            announcer: Arc::default(),
        }
    }

    /// The domain in which services are announced. Default: `local.`, as in rpcx.
    ///
    /// # Errors
    ///
    /// When it is no name of DNS.
    pub fn domain(mut self, domain: &str) -> Result<Self> {
        self.names = Names::of(domain)?;
        Ok(self)
    }

    /// Asks and announces by the networks in which this machine has these addresses. By default by the one that leads to the
    /// Internet, and within the machine.
    #[must_use]
    pub fn interfaces(mut self, addresses: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        self.interfaces = Some(addresses.into_iter().collect());
        self
    }

    /// How often to ask who is there. Default: every 5 s.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(Duration::from_secs(1));
        self
    }

    fn interfaces_or_usual(&self) -> Vec<Ipv4Addr> {
        self.interfaces.clone().unwrap_or_else(socket::usual_interfaces)
    }
}

/// Where multicast DNS is spoken (RFC 6762).
const PORT: u16 = 5353;

impl FromStr for Mdns {
    type Err = Status;

    /// Reads the name of a service, before which may stand the domain: `Arith`, `local./Arith`.
    fn from_str(text: &str) -> Result<Self, Status> {
        let (domain, service) = text.rsplit_once('/').unwrap_or(("", text));
        if service.is_empty() {
            return Err(Status::invalid_argument("want the name of a service"));
        }
        let mdns = Self::new(service);
        if domain.is_empty() { Ok(mdns) } else { mdns.domain(domain).map_err(crate::Error::into_status) }
    }
}

impl Discover for Mdns {
    fn watch(&self) -> Sets {
        polled::sets(MdnsWatch { mdns: self.clone(), sockets: Vec::new(), heard: BTreeMap::new(), round: 0 })
    }
}

struct MdnsWatch {
    mdns: Mdns,
    sockets: Vec<Arc<UdpSocket>>,
    /// Who has answered, and in which round.
    heard: BTreeMap<String, (u64, Instance)>,
    round: u64,
}

impl PollSource for MdnsWatch {
    async fn ask(&mut self) -> Result<PollResult> {
        self.round += 1;
        if self.sockets.is_empty() {
            self.sockets =
                socket::asking(&self.mdns.interfaces_or_usual()).await.map_err(Status::from_error)?;
        }
        let asked = self.ask_all().await;
        if let Err(error) = asked {
            // The machine may have moved to another network.
            self.sockets.clear();
            return Err(error);
        }
        self.listen(Instant::now() + WINDOW).await;
        self.heard.retain(|_, (round, _)| *round + ROUNDS > self.round);
        if self.heard.is_empty() {
            let text = format!("nobody on the local network answers for `{}`", self.mdns.service);
            return Err(Status::unavailable(text).into());
        }
        let instances = self.heard.values().map(|(_, instance)| instance.clone()).collect();
        let again = jittered(self.mdns.every).saturating_sub(WINDOW);
        Ok(PollResult { instances: Some(instances), again, complaint: None })
    }

    /// To ask costs the same whoever answers.
    fn pause(&self, _failures: u32) -> Duration {
        self.mdns.every.saturating_sub(WINDOW)
    }
}

/// How long to wait for answers.
const WINDOW: Duration = Duration::from_secs(1);
/// How many questions without an answer tell that a server is gone.
const ROUNDS: u64 = 3;
/// How many servers are kept, whatever is announced.
const MOST: usize = 10_000;

impl MdnsWatch {
    /// Asks by every network; one that works is enough.
    async fn ask_all(&self) -> Result<()> {
        let query = Query::who(&self.mdns.names)?;
        let mut last = None;
        for socket in &self.sockets {
            match socket.send_to(&query, (socket::GROUP, self.mdns.port)).await {
                Ok(_) => return self.ask_others(&query, socket).await,
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or_else(|| "there is no network".to_owned(), |error| error.to_string());
        Err(Status::unavailable(format!("cannot ask the local network: {why}")).into())
    }

    async fn ask_others(&self, query: &[u8], asked: &Arc<UdpSocket>) -> Result<()> {
        for socket in self.sockets.iter().filter(|socket| !Arc::ptr_eq(socket, asked)) {
            let _ = socket.send_to(query, (socket::GROUP, self.mdns.port)).await;
        }
        Ok(())
    }

    /// Takes answers in until it is time.
    async fn listen(&mut self, until: Instant) {
        let mut receiving: FuturesUnordered<_> = self.sockets.iter().cloned().map(socket::receive).collect();
        while let Ok(Some((socket, packet))) = timeout_at(until, receiving.next()).await {
            if let Some(packet) = packet {
                self.hear(&packet);
            }
            receiving.push(socket::receive(socket));
        }
    }

    fn hear(&mut self, packet: &[u8]) {
        let announced = packet::announced(packet, &self.mdns.names);
        for Announcement { service, instance } in announced {
            let is_wanted = service == self.mdns.service;
            if is_wanted && (self.heard.len() < MOST || self.heard.contains_key(&instance.to_string())) {
                self.heard.insert(instance.to_string(), (self.round, instance));
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
