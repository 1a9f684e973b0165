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
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use polyrpc_core::Code;

pub(crate) use self::page::pages;

use self::family::Family;
#[cfg(feature = "metrics")]
use self::recorder::Recorder;
use self::series::{Key, SeriesIndex, Table, Totals};
use super::observe::{Observer, observe};
use super::{CallEnd, CallStart, CallTracer};
use crate::call::{self, Countable, Outcome, Peer};
use crate::layer::{Call, Layer, Next, Side};
use crate::propagation::{self, CallScope, CallTrace};
use crate::running::{self, CallKey, Entry, RunningCall, RunningPoll, TrackedCall};

/// Counters and latencies of calls, for each method, protocol, side and outcome.
///
/// One instance may count for any number of servers and clients of a process: clones share their counts. No background
/// task runs, and a call takes no lock; threads count separately.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use polyrpc::layers::Metrics;
/// use polyrpc::{Client, Server};
///
/// let metrics = Metrics::new();
/// // Its pages are `GET /metrics` and, by brpc's names, `GET /brpc_metrics`.
/// let server = Server::new().function("echo", |text: String| async move { text }).metrics(&metrics);
/// let running = server.bind("127.0.0.1:8000").await?.start();
/// let client = Client::builder("rpcx://127.0.0.1:8000").layer(metrics.clone()).build()?;
///
/// let _: String = client.call("echo", &"hello").await?;
/// println!("{}", metrics.text());
/// # Ok(())
/// # }
/// ```
///
/// Latencies are those of successful calls, as in brpc, and accurate to a tenth. "Recent" values cover the time since
/// they were last read, but at least the last ten seconds.
#[derive(Clone)]
pub struct Metrics(Arc<MetricsInner>);

struct MetricsInner {
    /// Unique within the process.
    number: u32,
    table: Table,
    since: Instant,
    /// Servers whose own counters are exported with those of their calls.
    servers: Mutex<Vec<Weak<dyn Countable>>>,
    /// Number of buckets per doubling of a latency in the text format.
    buckets: AtomicI32,
    tracer: OnceLock<Arc<dyn CallTracer>>,
    #[cfg(feature = "metrics")]
    own: Recorder,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates metrics with room for 1024 series; a series is one method over one protocol on one side. Calls
    /// beyond are counted together, as `other`.
    ///
    /// A quarter of the series may be of methods that a [fallback](crate::Server::fallback) is called for,
    /// and of topics that are subscribed to, that were not [declared](Self::declare): callers invent their
    /// names.
    pub fn new() -> Self {
        Self::with_max_series(1024)
    }

    /// Creates metrics with room for this many series, at most 2²⁰.
    pub fn with_max_series(series: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(Arc::new(MetricsInner {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            table: Table::new(series.min(1 << 20)),
            since: Instant::now(),
            servers: Mutex::default(),
            buckets: AtomicI32::new(1),
            tracer: OnceLock::new(),
            #[cfg(feature = "metrics")]
            own: Recorder::default(),
        }))
    }

    /// Declares methods that a [fallback](crate::Server::fallback) answers, such as those of a schema: calls of them are
    /// counted by their names, whatever other names callers invent. At most as many as there is room for are kept.
    pub fn declare<'n>(&self, methods: impl IntoIterator<Item = (&'n str, &'n str)>) {
        self.0.table.declare(methods);
    }

    /// Formats everything in Prometheus' text format, with labels `side`, `protocol`, `service` and `method`:
    ///
    /// | name | meaning |
    /// |---|---|
    /// | `polyrpc_calls_started_total` | calls started |
    /// | `polyrpc_calls_total` | calls finished, by `code`: `ok`, or why they failed |
    /// | `polyrpc_calls_in_flight` | calls in flight |
    /// | `polyrpc_call_duration_seconds` | duration of successful calls: a histogram |
    /// | `polyrpc_call_duration_recent_seconds` | the same, recently: quantiles, each accurate to a tenth |
    /// | `polyrpc_calls_recent_per_second` | recent rate of successful calls |
    ///
    /// and of the servers that [export](crate::Server::metrics) them, summed, with no label except `cause`:
    ///
    /// | name | meaning |
    /// |---|---|
    /// | `polyrpc_connections`, `polyrpc_connections_accepted_total` | open connections, and all accepted so far |
    /// | `polyrpc_received_bytes_total`, `polyrpc_sent_bytes_total` | bytes of all connections, without TLS overhead |
    /// | `polyrpc_buffered_bytes` | bytes that the servers hold for peers |
    /// | `polyrpc_pending_handlers`, `polyrpc_open_streams` | calls with a pending handler, open streams |
    /// | `polyrpc_queued_calls` | calls of blocking methods that wait for a thread, process-wide |
    /// | `polyrpc_queued_pushes` | messages that wait to be pushed to clients |
    /// | `polyrpc_rejections_total` | rejected calls and connections, by `cause` |
    /// | `polyrpc_connections_closed_total` | connections that a server closed, by `cause` |
    /// | `polyrpc_omitted_metadata_total` | relayed metadata that the caller's protocol cannot carry, process-wide |
    /// | `polyrpc_unknown_fields_total` | values in JSON or MessagePack requests for which there is no field |
    ///
    /// and `polyrpc_build_info`, whose label `version` is that of this crate, and `process_…`: CPU time, memory, file
    /// descriptors, threads and the start time of the process, named as in Prometheus' client libraries (Linux).
    pub fn text(&self) -> String {
        Self::text_of(std::slice::from_ref(self))
    }

    /// Formats several `Metrics` as one page, like [`text`](Self::text). The values of equal methods are added, and so
    /// are those that their servers export. All histograms have as many buckets per doubling as the coarsest of them.
    /// Of equal series of the program's own metrics, the page contains the first one.
    pub fn text_of(all: &[Self]) -> String {
        let buckets = all.iter().map(|metrics| metrics.0.buckets.load(Ordering::Relaxed)).min();
        exposition::text(&Self::families(all), buckets.unwrap_or(1))
    }

    /// Encodes the same in Prometheus' protobuf format, for scrapers that [request](crate::Server::metrics) it:
    /// histograms are then native ones (schema 3), with eight buckets for every doubling.
    pub fn protobuf(&self) -> Vec<u8> {
        protobuf::page(&Self::families(std::slice::from_ref(self)))
    }

    /// Sets the number of buckets for every doubling of a latency in the text's histograms: 1, 2, 4 or 8. Default: 1,
    /// which gives 21 buckets from 15 µs to 16 s, enough to see changes. With 8 any quantile that is computed from them
    /// is accurate to a tenth, and the scraper keeps 161 series for each method, protocol and side; native histograms
    /// have the same accuracy at a lower cost.
    ///
    /// # Panics
    ///
    /// If it is any other number.
    #[must_use]
    pub fn buckets_per_doubling(self, buckets: u32) -> Self {
        assert!(matches!(buckets, 1 | 2 | 4 | 8), "there may be 1, 2, 4 or 8 buckets, not {buckets}");
        self.0.buckets.store(buckets as i32, Ordering::Relaxed);
        self
    }

    /// Returns a recorder for the program's own metrics of the crate `metrics` (feature `metrics`), so that they appear
    /// on the same page, together with the counts of all clones.
    ///
    /// ```
    /// let metrics = polyrpc::layers::Metrics::new();
    /// metrics::set_global_recorder(metrics.recorder()).expect("there is one recorder in a process");
    /// metrics::counter!("orders_total", "kind" => "book").increment(1);
    /// assert!(metrics.text().contains("orders_total{kind=\"book\"} 1"));
    /// ```
    ///
    /// Names and labels are converted to Prometheus' rules: characters that it does not allow become `_`. There may be
    /// 10,000 series; further ones are not counted, nor are those whose names begin with `polyrpc_` or `process_`, or
    /// equal a name of another kind. A `tracing` event reports the first of them. Histograms have a bucket for each
    /// power of four from 2⁻²⁰ to 2⁴⁰; native ones have eight for every doubling.
    #[cfg(feature = "metrics")]
    pub fn recorder(&self) -> impl ::metrics::Recorder + Clone + Send + Sync + 'static + use<> {
        self.0.own.clone()
    }

    fn families(all: &[Self]) -> Vec<Family> {
        let tables: Vec<_> = all.iter().map(|metrics| &metrics.0.table).collect();
        #[allow(unused_mut, reason = "the program's own metrics are a feature")]
        let mut families = text::families(&tables, Self::servers(all), Instant::now());
        #[cfg(feature = "metrics")]
        all.iter().for_each(|metrics| family::join(&mut families, metrics.0.own.families()));
        families
    }

    /// Adds the counters of a server to those of its calls, for as long as the server exists.
    pub(crate) fn attach(&self, server: Weak<dyn Countable>) {
        let mut servers = self.0.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|server| server.strong_count() > 0);
        servers.push(server);
    }

    /// Returns the sums over all servers; `None` if there is none.
    fn servers(all: &[Self]) -> Option<call::Totals> {
        let servers = all.iter().flat_map(|metrics| {
            let servers = metrics.0.servers.lock().unwrap_or_else(PoisonError::into_inner);
            servers.iter().filter_map(Weak::upgrade).collect::<Vec<_>>()
        });
        servers.map(|server| server.totals()).reduce(|mut sum, server| {
            sum.add(server);
            sum
        })
    }

    /// Formats the calls of servers in Prometheus' text format with brpc's names: for each method, over all protocols,
    /// a summary `rpc_server_8000_example_echo_service_echo` with the gauges `…_qps`, `…_concurrency`, `…_error`,
    /// `…_eps` and `…_avg` (brpc: the quantile `avg`), in microseconds; for the server as a whole
    /// `rpc_server_8000_concurrency`, `…_error`, `…_eps` and `…_uptime`. `name` replaces the port in these names,
    /// brpc's `server_info_name`.
    pub fn brpc_text(&self, name: &str) -> String {
        text::brpc(&self.0.table, name, self.0.since, Instant::now())
    }

    /// From now on, `tracer` records the calls that are counted here. Only the first tracer is used; later
    /// ones are ignored.
    pub fn trace_with(&self, tracer: Arc<dyn CallTracer>) {
        let _ = self.0.tracer.set(tracer);
    }

    /// Returns the calls in flight that are counted here, the oldest first, if a [watch](super::watch_calls) exists.
    /// Calls that have not had to wait yet come last.
    pub fn calls_in_flight(&self) -> Vec<RunningCall> {
        let mut polls = running::current_polls();
        polls.retain(|poll| poll.key().metrics == self.0.number);
        let waiting = running::entries(self.0.number).into_iter().map(|(index, entry)| {
            let own = polls.iter().position(|poll| poll.registry_index() == index);
            self.running_call(&entry.key, own.map(|own| polls.swap_remove(own)), Some(&entry))
        });
        let mut calls: Vec<_> = waiting.collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.age));
        // These are in their first poll.
        calls.extend(polls.iter().map(|poll| self.running_call(&poll.key(), Some(*poll), None)));
        calls
    }

    /// Returns the call of a [poll](super::current_polls), if it is counted here.
    pub fn call_of_poll(&self, poll: &RunningPoll) -> Option<RunningCall> {
        let key = poll.key();
        (key.metrics == self.0.number).then(|| self.running_call(&key, Some(*poll), None))
    }

    /// Returns the call whose [label](super::label_stacks) is in a stack, if it is counted here. `functions` are the
    /// demangled names of the stack's functions, the outermost first; the label of the innermost call counts.
    pub fn call_of_stack<'n>(&self, functions: impl IntoIterator<Item = &'n str>) -> Option<RunningCall> {
        let key = running::find_label(functions)?;
        (key.metrics == self.0.number).then(|| self.running_call(&key, None, None))
    }

    fn running_call(&self, key: &CallKey, poll: Option<RunningPoll>, entry: Option<&Entry>) -> RunningCall {
        let Key { side, service, method, protocol } =
            &self.0.table.at(SeriesIndex::from_number(key.series)).key;
        RunningCall {
            side: *side,
            protocol,
            service: service.to_string(),
            method: method.to_string(),
            peer: entry.and_then(|entry| entry.peer.clone()),
            age: entry.map(|entry| entry.began.elapsed()),
            poll,
        }
    }

    /// Whether both are clones of one another, and so have the same counts.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the counts of every method so far, sorted by name, clients' first.
    pub fn methods(&self) -> Vec<MethodStats> {
        self.0.table.all().into_iter().map(MethodStats::new).collect()
    }
}

impl Layer for Metrics {
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static {
        observe(self, call, next)
    }
}

impl Observer for Metrics {
    type Call = CountedCall;

    fn on_start(&self, call: &CallStart<'_>) -> CountedCall {
        let series = self.0.table.find(call);
        self.0.table.at(series).record_start();
        let tracing = match self.0.tracer.get() {
            None => Tracing::None,
            Some(tracer) => match tracer.start(call) {
                Some(record) => Tracing::Recorded(record),
                None => {
                    let request = u32::try_from(call.request_bytes).unwrap_or(u32::MAX);
                    Tracing::Unrecorded { request }
                }
            },
        };
        let is_known = running::is_watched() || matches!(tracing, Tracing::Unrecorded { .. });
        CountedCall { series, peer: call.peer.filter(|_| is_known).cloned(), tracing }
    }

    fn on_end(&self, CountedCall { series, peer, tracing }: CountedCall, end: &CallEnd<'_>) {
        let series = self.0.table.at(series);
        series.record_end(end.duration, end.failure);
        match tracing {
            Tracing::None => {}
            Tracing::Recorded(record) => record.end(end.duration, end.failure, end.reply_bytes),
            Tracing::Unrecorded { request } => {
                if let (Some(tracer), Some(protocol)) = (self.0.tracer.get(), series.protocol) {
                    let Key { side, service, method, .. } = &series.key;
                    let (side, peer, request) = (*side, peer.as_ref(), request as usize);
                    let call = CallStart {
                        side,
                        protocol,
                        service,
                        method,
                        peer,
                        metadata: None,
                        request_bytes: request,
                        arrived: None,
                        declared: true,
                    };
                    tracer.end_unrecorded(&call, end);
                }
            }
        }
    }

    fn scope(&self, call: &CountedCall) -> Option<CallScope> {
        match &call.tracing {
            Tracing::Recorded(record) => Some(propagation::current().with_record(record.clone())),
            Tracing::None | Tracing::Unrecorded { .. } => None,
        }
    }

    #[inline]
    fn track(&self, call: &CountedCall, began: Instant) -> Option<TrackedCall> {
        if !running::is_watched() {
            return None;
        }
        let key = CallKey { metrics: self.0.number, series: call.series.number() };
        let is_served = self.0.table.at(call.series).key.side == Side::Server;
        Some(TrackedCall::new(key, is_served, began, call.peer.clone()))
    }
}

/// A call that [`Metrics`] counts.
pub(crate) struct CountedCall {
    series: SeriesIndex,
    /// The caller, if a tracer or a watch may want it.
    peer: Option<Peer>,
    tracing: Tracing,
}

enum Tracing {
    /// No tracer is set.
    None,
    Recorded(Arc<dyn CallTrace>),
    /// Data for the tracer about a call that turns out to be slow or to fail. A call's state is moved with its future,
    /// so its size has a cost.
    Unrecorded {
        request: u32,
    },
}

/// Counts of a method, by one protocol and on one side.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MethodStats {
    /// The side on which the calls were observed.
    pub side: Side,
    /// The protocol that carried them, as [`Protocol::as_str`](polyrpc_wire::Protocol::as_str) names it; `any` for
    /// those that were counted together.
    pub protocol: &'static str,
    /// The service; empty for plain functions.
    pub service: String,
    /// The method, or the function's name.
    pub method: String,
    /// Calls started.
    pub started: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Average duration of the successful calls.
    pub average: Duration,
    totals: Totals,
}

impl MethodStats {
    fn new(series: &series::Series) -> Self {
        let (key, totals) = (&series.key, series.totals());
        Self {
            side: key.side,
            protocol: key.protocol,
            service: key.service.to_string(),
            method: key.method.to_string(),
            started: totals.started,
            succeeded: totals.successes(),
            failed: totals.failures(),
            average: totals.average(),
            totals,
        }
    }

    /// Returns the counts between an earlier state of the same method and this one.
    ///
    /// ```
    /// # let metrics = polyrpc::layers::Metrics::new();
    /// let then = metrics.methods();
    /// // Some calls later:
    /// for method in metrics.methods() {
    ///     let known = |then: &&polyrpc::layers::MethodStats| then.is_same_method(&method);
    ///     let lately = match then.iter().find(known) {
    ///         Some(then) => method.since(then),
    ///         None => method,
    ///     };
    ///     println!("{}: {:?}", lately.method, lately.quantile(0.99));
    /// }
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(self.totals.since(&earlier.totals))
    }

    /// Returns the sum of both counts, under the names of this one: for example, of a method over all protocols.
    /// Percentiles are computed from all calls.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        let mut totals = self.totals.clone();
        totals.merge(&other.totals);
        self.with(totals)
    }

    /// Whether both are counts of the same method, side and protocol.
    pub fn is_same_method(&self, other: &Self) -> bool {
        self.method == other.method
            && self.service == other.service
            && self.protocol == other.protocol
            && self.side == other.side
    }

    /// Returns the number of failed calls for each code that occurred.
    pub fn failures(&self) -> impl Iterator<Item = (Code, u64)> {
        Code::ALL.into_iter().zip(self.totals.failed).filter(|(_, failed)| *failed > 0)
    }

    /// Returns the longest duration of a successful call, accurate to a tenth.
    pub fn max(&self) -> Duration {
        self.totals.took.max()
    }

    fn with(&self, totals: Totals) -> Self {
        Self {
            side: self.side,
            protocol: self.protocol,
            service: self.service.clone(),
            method: self.method.clone(),
            started: totals.started,
            succeeded: totals.successes(),
            failed: totals.failures(),
            average: totals.average(),
            totals,
        }
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.succeeded).saturating_sub(self.failed)
    }

    /// Returns the histogram of the durations of successful calls, to be merged with others: the buckets that are not
    /// empty, each with its number of calls. Bucket *n* ends at 2^(n/8) s, and begins where the one before it ends:
    /// schema 3 of Prometheus' native histograms.
    pub fn buckets(&self) -> Vec<(i32, u64)> {
        self.totals.took.native_buckets().collect()
    }

    /// Returns a quantile of the latencies of successful calls, accurate to a tenth. `0.99`: the latency that
    /// 99 % of the calls do not exceed.
    pub fn quantile(&self, quantile: f64) -> Duration {
        self.totals.took.quantile(quantile)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods()).finish()
    }
}

#[cfg(test)]
mod tests;
