use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use polyrpc::discovery::{Discover, Instance, InstanceStream};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::snapshot::ServerSnapshot;
use super::view::{ServerView, View};
use super::{brpc, http};

/// The servers of a registry, queried repeatedly.
#[derive(Debug)]
pub(crate) struct Fleet {
    view: Mutex<View>,
    orders: mpsc::Sender<Order>,
}

/// Order to drain a server, or to stop draining it.
#[derive(Debug)]
struct Order {
    address: String,
    drains: bool,
    author: String,
}

/// Interval of querying all servers, number of concurrent queries, and maximum number of servers.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const MAX_CONCURRENT_QUERIES: usize = 16;
const MAX_SERVERS: usize = 1_000;

/// Maximum number of pending orders.
const MAX_PENDING_ORDERS: usize = 64;

impl Fleet {
    /// Starts to query the servers that a discovery finds, on a thread that ends with the last reference.
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub(crate) fn start(
        registry: String,
        discover: Box<dyn Discover>,
        token: Option<String>,
    ) -> std::io::Result<Arc<Self>> {
        let (orders, ordered) = mpsc::channel(MAX_PENDING_ORDERS);
        let view = Mutex::new(View { registry, ..View::default() });
        let fleet = Arc::new(Self { view, orders });
        let weak = Arc::downgrade(&fleet);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let poller = Poller { fleet: weak, ordered, token };
        let run = move || runtime.block_on(async move { poller.run(discover.watch()).await });
        std::thread::Builder::new().name("polyrpc-fleet".into()).spawn(run)?;
        Ok(fleet)
    }

    pub(crate) fn view(&self) -> View {
        self.lock().clone()
    }

    /// Drains a listed server, or stops draining it. Returns whether it is listed.
    pub(crate) fn drain(&self, address: &str, drains: bool, author: &str) -> bool {
        let mut view = self.lock();
        let Some(server) = view.servers.get_mut(address) else { return false };
        let order = Order { address: address.to_owned(), drains, author: author.to_owned() };
        let is_sent = self.orders.try_send(order).is_ok();
        server.order = Some(if is_sent { "sent" } else { "not sent: too many orders wait" }.to_owned());
        true
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Poller {
    fleet: std::sync::Weak<Fleet>,
    ordered: mpsc::Receiver<Order>,
    token: Option<String>,
}

impl Poller {
    async fn run(mut self, mut sets: InstanceStream) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_more = true;
        loop {
            tokio::select! {
                set = sets.next(), if has_more => {
                    has_more = set.is_some();
                    let Some(fleet) = self.fleet.upgrade() else { return };
                    if let Some(set) = set {
                        apply_instances(&mut fleet.lock(), set.map_err(|error| error.to_string()));
                        ticks.reset_immediately();
                    }
                }
                order = self.ordered.recv() => match order {
                    Some(order) => {
                        let done = self.send_drain(&order).await;
                        let Some(fleet) = self.fleet.upgrade() else { return };
                        if let Some(server) = fleet.lock().servers.get_mut(&order.address) {
                            server.order = Some(done);
                        }
                        ticks.reset_immediately();
                    }
                    None => return,
                },
                _ = ticks.tick() => {
                    let Some(fleet) = self.fleet.upgrade() else { return };
                    let servers: Vec<_> = fleet.lock().servers.values().cloned().collect();
                    drop(fleet);
                    self.poll_servers(servers).await;
                }
            }
        }
    }

    /// Queries servers, at most [`MAX_CONCURRENT_QUERIES`] at a time.
    async fn poll_servers(&self, servers: Vec<ServerView>) {
        let token = self.token.as_deref();
        let snapshots = servers.iter().map(|server| async move {
            let snapshot = match &server.admin {
                Ok(admin) => fetch_snapshot(admin, token).await,
                Err(why) => Err((*why).to_owned()),
            };
            (&server.address, snapshot)
        });
        let mut snapshots = stream::iter(snapshots).buffer_unordered(MAX_CONCURRENT_QUERIES);
        while let Some((address, snapshot)) = snapshots.next().await {
            let Some(fleet) = self.fleet.upgrade() else { return };
            let mut view = fleet.lock();
            let Some(server) = view.servers.get_mut(address) else { continue };
            match snapshot {
                Ok(snapshot) => server.set_snapshot(snapshot, Instant::now()),
                Err(why) => (server.snapshot, server.failure) = (None, Some(why)),
            }
        }
    }

    /// Changes the setting that drains a server. Returns the result as text for the page.
    async fn send_drain(&self, order: &Order) -> String {
        let Some(fleet) = self.fleet.upgrade() else { return String::new() };
        let server = fleet.lock().servers.get(&order.address).cloned();
        drop(fleet);
        let Some(server) = server else { return "it is no longer listed".to_owned() };
        let admin = match &server.admin {
            Ok(admin) => admin,
            Err(why) => return format!("refused: {why}"),
        };
        let (Some(token), Some(name)) = (self.token.as_deref(), drain_setting(&server)) else {
            return match self.token {
                None => "refused: this console has no token of the servers".to_owned(),
                Some(_) => "refused: the server has no setting drain".to_owned(),
            };
        };
        tracing::info!(
            author = order.author,
            server = order.address,
            drains = order.drains,
            "a server of the fleet is drained"
        );
        let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        let target = format!("/flags/{name}?setvalue={}", order.drains);
        match http::get(admin, &target, "text/plain", Some(token)).await {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => return format!("refused with status {}", answer.status),
            Err(why) => return why,
        }
        if order.drains { "drains" } else { "serves again" }.to_owned()
    }
}

/// Returns the name of the setting that drains a server: the one with its port, or the only one, since its address may
/// have been translated.
fn drain_setting(server: &ServerView) -> Option<&str> {
    let settings = &server.snapshot.as_ref()?.settings;
    let port = server.address.rsplit_once(':').map_or("unix", |(_, port)| port);
    let mut all = settings.keys().filter_map(|name| Some((name.as_str(), name.strip_prefix("drain@")?)));
    if let Some((name, _)) = all.clone().find(|(_, own)| *own == port) {
        return Some(name);
    }
    all.next().filter(|_| all.next().is_none()).map(|(name, _)| name)
}

/// Updates the servers of the view from the registry's set of instances.
fn apply_instances(view: &mut View, set: Result<Vec<Instance>, String>) {
    let instances = match set {
        Ok(instances) => instances,
        // Known servers stay.
        Err(why) => {
            view.failure = Some(why);
            return;
        }
    };
    view.failure = None;
    view.left_out = instances.len().saturating_sub(MAX_SERVERS);
    let mut known = std::mem::take(&mut view.servers);
    for instance in instances.into_iter().take(MAX_SERVERS) {
        let Instance { address, attributes, .. } = instance;
        let admin = admin_address(attributes.value("admin"), &address);
        let server = known.remove(&address).filter(|known| known.admin == admin);
        let server = server.unwrap_or_else(|| ServerView::new(address.clone(), admin));
        let weight = attributes.value("weight").map(super::snapshot::truncate);
        view.servers.insert(address, ServerView { active: attributes.is_active(), weight, ..server });
    }
}

/// Returns the address of a server's admin pages: its attribute `admin`, or else the address of its services, as in
/// brpc. A port without a host is on the host of the server.
///
/// # Errors
///
/// If the attribute is not an address. The address of the services is no fallback then.
fn admin_address(named: Option<&str>, address: &str) -> Result<String, &'static str> {
    let Some(named) = named.filter(|named| !named.is_empty()) else { return Ok(address.to_owned()) };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let authority = named.strip_prefix("http://").unwrap_or(named).trim_end_matches('/');
    // A text that is not an address must not become part of a request.
    let is_address =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte));
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    match authority.rsplit_once(':') {
        _ if !is_address(authority) => Err(INVALID_ADMIN_ADDRESS),
        None if is_port(authority) => Ok(format!("{host}:{authority}")),
        Some(("" | "0.0.0.0" | "[::]", port)) if is_port(port) => Ok(format!("{host}:{port}")),
        Some((_, port)) if is_port(port) => Ok(authority.to_owned()),
        _ => Err(INVALID_ADMIN_ADDRESS),
    }
}

const INVALID_ADMIN_ADDRESS: &str =
    "its attribute `admin` is not a port, host:port or http://host:port; https is not supported";

/// Queries a server: `/fleet/self` of its console, or else the text pages of brpc.
async fn fetch_snapshot(admin: &str, token: Option<&str>) -> Result<ServerSnapshot, String> {
    let own = http::get(admin, "/fleet/self?format=json", "application/json", token).await?;
    if own.status == 200
        && let Some(snapshot) = ServerSnapshot::parse(&own.body)
    {
        return Ok(snapshot);
    }
    if matches!(own.status, 401 | 403) {
        return Err(format!("it answers with status {}: it wants a token", own.status));
    }
    let text = |target: &'static str| http::get(admin, target, "text/plain", token);
    let status = text("/status?console=1").await?;
    if status.status != 200 {
        return Err(format!("it answers with status {}", status.status));
    }
    let (health, version) = (text("/health").await?, text("/version?console=1").await?);
    let uptime = text("/vars/process_uptime?console=1").await?;
    let uptime = brpc::variable(&uptime.body, "process_uptime").unwrap_or(0.0);
    brpc::parse(&status.body, version.body.trim(), health.status == 200, uptime)
        .ok_or_else(|| "its pages are not those of PolyRPC or brpc".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_where_the_server_says() {
        for (named, want) in [
            (None, "10.0.0.1:8000"),
            (Some(""), "10.0.0.1:8000"),
            (Some("8001"), "10.0.0.1:8001"),
            (Some(":8001"), "10.0.0.1:8001"),
            (Some("0.0.0.0:8001"), "10.0.0.1:8001"),
            (Some("http://10.0.0.2:8001/"), "10.0.0.2:8001"),
            (Some("admin.example:8001"), "admin.example:8001"),
            (Some("[::]:8001"), "10.0.0.1:8001"),
            (Some("[::1]:8001"), "[::1]:8001"),
        ] {
            assert_eq!(admin_address(named, "10.0.0.1:8000").as_deref(), Ok(want), "{named:?}");
        }
        // The port of the services was queried instead, with the token.
        for wrong in [
            "https://10.0.0.2:8001",
            "a:1/x\r\nHost: b",
            "unix:/run/x",
            "admin.example",
            "http://",
            ":",
            "a:",
            "a:+1",
            "70000",
        ] {
            assert_eq!(admin_address(Some(wrong), "10.0.0.1:8000"), Err(INVALID_ADMIN_ADDRESS), "{wrong:?}");
        }
    }
}
