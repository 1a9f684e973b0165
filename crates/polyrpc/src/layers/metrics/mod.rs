mod histogram;
mod page;
mod series;
mod text;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(crate) use self::page::pages;

use self::series::{Place, Table};
use super::{Begun, Ended, Observe, Side};
use crate::introspection::{Countable, Totals};

/// Counts calls, and how long they take, for each method, protocol, side and outcome.
///
/// One may count for any number of servers and clients of a process: clones share what they count. Nothing runs beside
/// the calls, and a call takes no lock; threads count apart.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use polyrpc::layers::Metrics;
/// use polyrpc::{Client, Server};
///
/// let metrics = Metrics::new();
/// // Its pages are `GET /metrics` and, by brpc's names, `GET /brpc_metrics`.
/// let server = Server::new().register("echo", |text: String| async move { text }).metrics(&metrics);
/// let running = server.bind("127.0.0.1:8000").await?.start();
/// let client = Client::builder("rpcx://127.0.0.1:8000").layer(metrics.clone()).build()?;
///
/// let _: String = client.call("echo", &"hello").await?;
/// println!("{}", metrics.text());
/// # Ok(())
/// # }
/// ```
///
/// Latencies are those of calls that succeeded, as in brpc, and known to an eighth. What is told of lately is what
/// happened since it was asked for before, but at least of the last ten seconds.
#[derive(Clone)]
pub struct Metrics(Arc<Counted>);

struct Counted {
    table: Table,
    since: Instant,
    /// Servers whose own counts stand beside those of their calls.
    servers: Mutex<Vec<Weak<dyn Countable>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Counts up to 1024 methods, by protocol and side; what comes beyond is counted together, as `other`.
    pub fn new() -> Self {
        Self::with_room(1024)
    }

    /// The same with room for so many, at most 2²⁰.
    pub fn with_room(methods: usize) -> Self {
        Self(Arc::new(Counted {
            table: Table::new(methods.min(1 << 20)),
            since: Instant::now(),
            servers: Mutex::default(),
        }))
    }

    /// Everything in the text format of Prometheus, with labels `side`, `protocol`, `service` and `method`:
    ///
    /// | name | what |
    /// |---|---|
    /// | `polyrpc_calls_started_total` | calls that began |
    /// | `polyrpc_calls_total` | calls that ended, by `code`: `ok`, or why they failed |
    /// | `polyrpc_calls_in_flight` | calls under way |
    /// | `polyrpc_call_duration_seconds` | how long those that succeeded took: a histogram |
    /// | `polyrpc_call_duration_recent_seconds` | the same of lately: quantiles |
    /// | `polyrpc_calls_recent_per_second` | how many succeeded, lately |
    ///
    /// and, of the servers that [show](crate::Server::metrics) them, without labels but `cause`:
    ///
    /// | name | what |
    /// |---|---|
    /// | `polyrpc_connections` | open connections |
    /// | `polyrpc_held_bytes` | bytes that peers make the servers hold |
    /// | `polyrpc_waiting_calls`, `polyrpc_open_streams` | calls whose handlers wait, open streams |
    /// | `polyrpc_refusals_total` | calls and connections that were refused, by `cause` |
    /// | `polyrpc_connections_closed_total` | connections that a server closed, by `cause` |
    /// | `polyrpc_unknown_fields_total` | values of requests in JSON or MessagePack that no field was there for |
    pub fn text(&self) -> String {
        text::prometheus(&self.0.table, self.servers(), Instant::now())
    }

    /// Shows the counts of a server beside those of its calls, for as long as there is one.
    pub(crate) fn attach(&self, server: Weak<dyn Countable>) {
        let mut servers = self.0.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|server| server.strong_count() > 0);
        servers.push(server);
    }

    /// The sums over all servers; `None` if there is none.
    fn servers(&self) -> Option<Totals> {
        let servers = self.0.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let all = servers.iter().filter_map(Weak::upgrade).map(|server| server.totals());
        all.reduce(|mut sum, server| {
            sum.add(server);
            sum
        })
    }

    /// What servers have answered, in the text format of Prometheus by brpc's names: for each method, whatever
    /// protocols called it, a summary `rpc_server_8000_example_echo_service_echo` with the gauges `…_qps`,
    /// `…_concurrency`, `…_error` and `…_eps` beside it, in microseconds; for the server as a whole
    /// `rpc_server_8000_concurrency`, `…_error`, `…_eps` and `…_uptime`. `name` is what stands in place of the port,
    /// brpc's `server_info_name`.
    pub fn brpc_text(&self, name: &str) -> String {
        text::brpc(&self.0.table, name, self.0.since, Instant::now())
    }

    /// What was counted of every method so far, by their names, clients' first.
    pub fn methods(&self) -> Vec<Method> {
        self.0.table.all().into_iter().map(Method::of).collect()
    }
}

impl Observe for Metrics {
    type Call = Counting;

    fn began(&self, call: &Begun<'_>) -> Counting {
        let place = self.0.table.find(call);
        self.0.table.at(place).begin();
        Counting(place)
    }

    fn ended(&self, Counting(place): Counting, end: &Ended<'_>) {
        self.0.table.at(place).end(end.took, end.failure);
    }
}

/// A call that [`Metrics`] counts.
#[derive(Debug)]
pub struct Counting(Place);

/// What [`Metrics`] has counted of a method, by one protocol and seen from one side.
#[derive(Debug, Clone)]
pub struct Method {
    /// Where the calls were seen.
    pub side: Side,
    /// The protocol that carried them, as [`Protocol::as_str`](polyrpc_wire::Protocol::as_str) names it; `any` of those that were counted together.
    pub protocol: &'static str,
    /// The service; empty for plain functions.
    pub service: String,
    /// The method, or the function's name.
    pub method: String,
    /// Calls that began.
    pub started: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// How long those that succeeded took, on the average.
    pub average: Duration,
    took: histogram::Counts,
}

impl Method {
    fn of(series: &series::Series) -> Self {
        let (key, totals) = (&series.key, series.totals());
        Self {
            side: key.side,
            protocol: key.protocol,
            service: key.service.to_string(),
            method: key.method.to_string(),
            started: totals.started,
            succeeded: totals.succeeded(),
            failed: totals.failures(),
            average: totals.average(),
            took: totals.took,
        }
    }

    /// Calls under way.
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded).saturating_sub(self.failed)
    }

    /// What this share of the calls that succeeded took at most, to an eighth: 0.99 for the slowest of a hundred.
    pub fn percentile(&self, share: f64) -> Duration {
        self.took.percentile(share)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods()).finish()
    }
}

#[cfg(test)]
mod tests;
