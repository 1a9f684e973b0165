mod exposition;
mod family;
mod histogram;
mod page;
mod process;
mod protobuf;
#[cfg(feature = "metrics")]
mod recorder;
mod series;
mod text;

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(crate) use self::page::pages;

#[cfg(feature = "metrics")]
pub use self::recorder::Recorder;

use self::family::Family;
use self::series::{SeriesIndex, Table};
use super::{CallEnd, CallStart, Observe, Side};
use crate::call::{Countable, Totals};

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
/// Latencies are those of calls that succeeded, as in brpc, and known to a tenth. What is told of lately is what
/// happened since it was asked for before, but at least of the last ten seconds.
#[derive(Clone)]
pub struct Metrics(Arc<Counted>);

struct Counted {
    table: Table,
    since: Instant,
    /// Servers whose own counts stand beside those of their calls.
    servers: Mutex<Vec<Weak<dyn Countable>>>,
    /// How many buckets every doubling of a latency has in the text.
    buckets: AtomicI32,
    #[cfg(feature = "metrics")]
    own: Recorder,
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
            buckets: AtomicI32::new(1),
            #[cfg(feature = "metrics")]
            own: Recorder::default(),
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
    /// | `polyrpc_call_duration_recent_seconds` | the same of lately: quantiles, each known to a tenth |
    /// | `polyrpc_calls_recent_per_second` | how many succeeded, lately |
    ///
    /// and, of the servers that [show](crate::Server::metrics) them, together and without labels but `cause`:
    ///
    /// | name | what |
    /// |---|---|
    /// | `polyrpc_connections`, `polyrpc_connections_accepted_total` | open connections, and all there were |
    /// | `polyrpc_received_bytes_total`, `polyrpc_sent_bytes_total` | bytes of all connections, without what TLS adds |
    /// | `polyrpc_held_bytes` | bytes that peers make the servers hold |
    /// | `polyrpc_waiting_calls`, `polyrpc_open_streams` | calls whose handlers wait, open streams |
    /// | `polyrpc_queued_calls` | calls of blocking methods that wait for a thread, of the whole process |
    /// | `polyrpc_queued_pushes` | messages that wait to be pushed to clients |
    /// | `polyrpc_refusals_total` | calls and connections that were refused, by `cause` |
    /// | `polyrpc_connections_closed_total` | connections that a server closed, by `cause` |
    /// | `polyrpc_unknown_fields_total` | values of requests in JSON or MessagePack that no field was there for |
    ///
    /// and `polyrpc_build_info`, whose label `version` is that of this crate, and `process_…`: CPU time, memory, file
    /// descriptors, threads and when the process began, as Prometheus' client libraries name them (Linux).
    pub fn text(&self) -> String {
        exposition::text(&self.families(), self.0.buckets.load(Ordering::Relaxed))
    }

    /// The same in Prometheus' protobuf format, as a scraper gets it that [asks](crate::Server::metrics) for it: histograms
    /// are native ones (schema 3) then, with eight buckets for every doubling.
    pub fn protobuf(&self) -> Vec<u8> {
        protobuf::page(&self.families())
    }

    /// Gives the histograms of the text so many buckets for every doubling of a latency: 1, 2, 4 or 8. 1 by default: 21
    /// buckets from 15 µs to 16 s, which are enough to see what changes. With 8 any quantile that is worked out of them is
    /// known to a tenth, and the scraper keeps 161 series for each method, protocol and side; native histograms have the
    /// same for less.
    ///
    /// # Panics
    ///
    /// With any other number.
    #[must_use]
    pub fn buckets_per_doubling(self, buckets: u32) -> Self {
        assert!(matches!(buckets, 1 | 2 | 4 | 8), "there may be 1, 2, 4 or 8 buckets, not {buckets}");
        self.0.buckets.store(buckets as i32, Ordering::Relaxed);
        self
    }

    /// Takes what the program measures by the crate `metrics` (feature `metrics`), so that it stands on the same page.
    /// What is counted by other clones of this stands there too.
    ///
    /// ```
    /// let metrics = polyrpc::layers::Metrics::new();
    /// metrics::set_global_recorder(metrics.recorder()).expect("there is one recorder in a process");
    /// metrics::counter!("orders_total", "kind" => "book").increment(1);
    /// assert!(metrics.text().contains("orders_total{kind=\"book\"} 1"));
    /// ```
    #[cfg(feature = "metrics")]
    pub fn recorder(&self) -> Recorder {
        self.0.own.clone()
    }

    fn families(&self) -> Vec<Family> {
        #[allow(unused_mut, reason = "the program's own are a feature")]
        let mut families = text::families(&self.0.table, self.servers(), Instant::now());
        #[cfg(feature = "metrics")]
        families.extend(self.0.own.families());
        families
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
    /// `…_concurrency`, `…_error`, `…_eps` and `…_avg` (brpc: the quantile `avg`) beside it, in microseconds; for the server as a whole
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
    type Call = CountedCall;

    fn on_start(&self, call: &CallStart<'_>) -> CountedCall {
        let place = self.0.table.find(call);
        self.0.table.at(place).record_start();
        CountedCall(place)
    }

    fn on_end(&self, CountedCall(place): CountedCall, end: &CallEnd<'_>) {
        self.0.table.at(place).record_end(end.took, end.failure);
    }
}

/// A call that [`Metrics`] counts.
#[derive(Debug)]
pub struct CountedCall(SeriesIndex);

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

    /// What this share of the calls that succeeded took at most, to a tenth: 0.99 for the slowest of a hundred.
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
