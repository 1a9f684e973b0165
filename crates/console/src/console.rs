use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use polyrpc::Client;
use polyrpc::contention;
use polyrpc::discovery::Discover;
use polyrpc::layers::{MethodStats, Metrics, watch_calls};
use polyrpc::server::ServerHandle;

use crate::fleet::Fleet;
use crate::history::{History, Period};
use crate::observed::ObservedServer;
use crate::own_page::{Menu, OwnPage, PageContent};
use crate::process::Process;
use crate::role::Role;
use crate::settings::Listed;
use crate::spans::{CollectorGuard, collector};
use crate::stalls::Stalls;
use crate::stats::{PERCENTILES, ServerStats, micros};
use crate::vars::{self, Kind, Reading, Value};
use crate::{log_filter, settings, time};

/// Observes the servers of a process, and answers requests for pages that describe them: on an [admin
/// listener](crate::Admin), or on the port of a server, by [`serve_pages`](Self::serve_pages).
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use polyrpc::Server;
/// use polyrpc::layers::Metrics;
/// use polyrpc_console::{Admin, Console};
///
/// let server = Server::new().function("echo", |text: String| async move { text }).count_calls(&Metrics::new());
/// let running = server.bind("0.0.0.0:8000").await?.start();
///
/// let console = Console::new();
/// console.observe(&running);
/// let admin = Admin::on("127.0.0.1:8001").start(&console)?;
/// println!("http://{}/", admin.address());
/// # Ok(())
/// # }
/// ```
///
/// About a thousand calls a second that the observed metrics count are recorded, with their phases, and in addition all
/// slow and failed ones.
///
/// From its first observation on, one thread samples counters each second, until all clones of the console are dropped.
/// Clones denote the same console.
#[derive(Clone)]
pub struct Console(Arc<State>);

/// A client that a console shows until this is dropped. See [`Console::observe_client`].
struct ObservedClient(Arc<NamedClient>);

/// A client with the name that pages show.
pub(crate) struct NamedClient {
    pub(crate) name: String,
    pub(crate) client: Client,
}

impl fmt::Debug for ObservedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObservedClient").field(&self.0.name).finish()
    }
}

/// Data that the pages show.
pub(crate) struct State {
    servers: Mutex<Vec<ObservedServer>>,
    /// The id of the next server. None is used twice: pages that were shown before name connections by it.
    next_server: AtomicU64,
    /// Counters of clients, and of servers that are not observed.
    metrics: Mutex<Vec<Metrics>>,
    clients: Mutex<Vec<Weak<NamedClient>>>,
    history: Mutex<History>,
    has_served: AtomicBool,
    /// The setting by which the log is filtered, if there is one.
    log_filter: OnceLock<Listed>,
    sampler: OnceLock<()>,
    pub(crate) stalls: Stalls,
    /// The servers of a registry, if they are shown.
    fleet: OnceLock<Arc<Fleet>>,
    /// Pages that the program added.
    own_pages: Mutex<Vec<Arc<OwnPage>>>,
    /// Handles that enable the recording of calls, the list of calls in flight, and the counting of waits for locks.
    _attached: (CollectorGuard, Box<dyn Send + Sync>),
    /// Tokens which prove that a form comes from a page of this process that was shown to a caller with the required
    /// role.
    change_token: String,
    call_token: String,
    pub(crate) started: SystemTime,
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

impl Console {
    /// Creates a console that observes nothing yet.
    pub fn new() -> Self {
        Self(Arc::new(State {
            servers: Mutex::default(),
            next_server: AtomicU64::new(0),
            metrics: Mutex::default(),
            clients: Mutex::default(),
            history: Mutex::default(),
            has_served: AtomicBool::new(false),
            log_filter: OnceLock::new(),
            sampler: OnceLock::new(),
            stalls: Stalls::default(),
            fleet: OnceLock::new(),
            own_pages: Mutex::default(),
            _attached: (CollectorGuard::new(), Box::new((watch_calls(), contention::watch()))),
            change_token: random_token(),
            call_token: random_token(),
            started: SystemTime::now(),
        }))
    }

    /// Observes a running server, for as long as it runs. Its methods have counts and latencies if it
    /// [counts](polyrpc::Server::count_calls) its calls, or [exports](polyrpc::Server::metrics) metrics.
    pub fn observe(&self, server: &ServerHandle) {
        let monitor = server.monitor();
        if let Some(metrics) = monitor.metrics() {
            metrics.trace_with(collector().clone());
        }
        let id = self.0.next_server.fetch_add(1, Ordering::Relaxed);
        let observed = ObservedServer::new(id, monitor);
        self.0.servers.lock().unwrap_or_else(PoisonError::into_inner).push(observed);
        self.0.has_served.store(true, Ordering::Relaxed);
        self.start_sampling();
    }

    /// Shows metrics that do not belong to an observed server: those of clients, in a process without servers.
    ///
    /// ```
    /// # fn main() -> polyrpc::Result<()> {
    /// use polyrpc::Client;
    /// use polyrpc::layers::Metrics;
    ///
    /// let metrics = Metrics::new();
    /// let client = Client::builder("rpcx://127.0.0.1:8972").layer(metrics.clone()).build()?;
    /// polyrpc_console::Console::new().observe_metrics(&metrics);
    /// # Ok(())
    /// # }
    /// ```
    pub fn observe_metrics(&self, metrics: &Metrics) {
        metrics.trace_with(collector().clone());
        let mut known = self.0.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|known| known.ptr_eq(metrics)) {
            known.push(metrics.clone());
        }
        drop(known);
        self.start_sampling();
    }

    /// Shows the servers of a client on `/channels`, for as long as the returned value exists: which of them get calls,
    /// how many, and how many fail. Their methods are counted if the client's metrics are
    /// [observed](Self::observe_metrics).
    ///
    /// ```
    /// # fn main() -> polyrpc::Result<()> {
    /// let client = polyrpc::Client::new("rpcx+list://10.0.0.1:8972,10.0.0.2:8972")?;
    /// let console = polyrpc_console::Console::new();
    /// let _observed = console.observe_client("orders", &client);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the client is shown for as long as the result exists"]
    pub fn observe_client(
        &self,
        name: &str,
        client: &Client,
    ) -> impl fmt::Debug + Send + Sync + 'static + use<> {
        let observed = Arc::new(NamedClient { name: name.to_owned(), client: client.clone() });
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&observed));
        ObservedClient(observed)
    }

    /// Lets callers with the role [`Write`](Role::Write) change the program's log filter, on `/vlog` and as the setting
    /// `log_filter`: a level, or levels of parts of the program (`polyrpc=debug,warn`). `current` is the filter until
    /// then; `apply` changes it, and returns whether it accepts it. The first of several calls in a process has effect.
    ///
    /// With `tracing-subscriber` the handle of a reloadable filter changes it:
    ///
    /// ```
    /// use polyrpc_console::Console;
    /// use tracing_subscriber::filter::Targets;
    /// use tracing_subscriber::layer::{Layer, SubscriberExt};
    /// use tracing_subscriber::util::SubscriberInitExt;
    /// use tracing_subscriber::{fmt, registry, reload};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (filter, handle) = reload::Layer::new("info".parse::<Targets>()?);
    /// registry().with(fmt::layer().with_filter(filter)).init();
    /// let console = Console::new();
    /// console.log_filter("info", move |text| {
    ///     text.parse::<Targets>().is_ok_and(|filter| handle.reload(filter).is_ok())
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn log_filter(
        &self,
        current: impl Into<String>,
        apply: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) {
        self.0.log_filter.get_or_init(|| log_filter::list(current.into(), apply));
        // Changes expire.
        self.start_sampling();
    }

    /// Shows the servers of a registry on `/fleet`: whether they are reachable, their versions, settings and merged
    /// latencies. `name` is the name of the registry on the page.
    ///
    /// Each is queried every two seconds, at the address in its attribute `admin`, or at its own: PolyRPC's consoles by
    /// `/fleet/self`, brpc's servers by `/status`. `token` is sent to every server that the registry lists; callers of
    /// the role [`Write`](Role::Write) drain servers with it. The first of several registries is shown.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use polyrpc::discovery::List;
    /// use polyrpc_console::{Admin, Console};
    ///
    /// let console = Console::new();
    /// let servers: List = "10.0.0.1:8000 admin=8001,10.0.0.2:8000 admin=8001".parse()?;
    /// console.observe_fleet("list", Box::new(servers), None)?;
    /// let admin = Admin::on("127.0.0.1:8002").start(&console)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub fn observe_fleet(
        &self,
        name: &str,
        discover: Box<dyn Discover>,
        token: Option<String>,
    ) -> std::io::Result<()> {
        if self.0.fleet.get().is_none() {
            let fleet = Fleet::start(name.to_owned(), discover, token)?;
            let _ = self.0.fleet.set(fleet);
        }
        self.start_sampling();
        Ok(())
    }

    /// Adds a page of the program, at `/` and its name on the [admin listener](crate::Admin), for callers of the role
    /// [`Read`](Role::Read). `content` runs on the listener's thread for each request of the page, and should not
    /// block. A name that the console uses itself, or that was added before, keeps its page.
    ///
    /// ```
    /// use polyrpc_console::{Console, PageContent};
    ///
    /// let console = Console::new();
    /// console.add_page("queues", "Queues", || {
    ///     PageContent::new(r#"{"mail":3}"#).table("Queues", ["queue", "length"], [["mail".into(), "3".into()]])
    /// });
    /// ```
    pub fn add_page(
        &self,
        name: &'static str,
        title: &'static str,
        content: impl Fn() -> PageContent + Send + Sync + 'static,
    ) {
        let mut pages = self.0.own_pages.lock().unwrap_or_else(PoisonError::into_inner);
        if !pages.iter().any(|page| page.name == name) {
            pages.push(Arc::new(OwnPage { name, title, content: Box::new(content) }));
        }
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.0
    }

    /// Starts the thread that samples, unless it runs.
    fn start_sampling(&self) {
        self.0.sampler.get_or_init(|| {
            for (name, run) in THREADS {
                let state = Arc::downgrade(&self.0);
                let thread = std::thread::Builder::new().name(name.into());
                if let Err(error) = thread.spawn(move || run(&state)) {
                    tracing::error!(%error, name, "cannot start a thread of the console: pages lack recent values");
                }
            }
        });
    }
}

/// The threads of a console.
const THREADS: [(&str, fn(&Weak<State>)); 2] =
    [("polyrpc-console", sample_each_second), ("polyrpc-stalls", detect_stalls)];

fn detect_stalls(state: &Weak<State>) {
    while let Some(state) = state.upgrade() {
        let pause = state.stalls.check(Instant::now(), || state.metrics());
        drop(state);
        std::thread::sleep(pause);
    }
}

fn sample_each_second(state: &Weak<State>) {
    let mut next = Instant::now();
    while let Some(state) = state.upgrade() {
        state.sample(Instant::now());
        drop(state);
        next += Duration::from_secs(1);
        match next.checked_duration_since(Instant::now()) {
            Some(left) => std::thread::sleep(left),
            // The process was suspended, or is overloaded: missed seconds are not made up for.
            None => next = Instant::now(),
        }
    }
}

impl State {
    /// Returns the servers that run.
    pub(crate) fn servers(&self) -> Vec<ObservedServer> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|server| server.monitor.started().is_some());
        servers.clone()
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of every server.
    pub(crate) fn stats(&self) -> Vec<ServerStats> {
        let (servers, now) = (self.servers(), Instant::now());
        let history = self.history();
        servers.iter().filter_map(|server| ServerStats::collect(server, &history, now)).collect()
    }

    /// Returns all metrics, each once.
    pub(crate) fn metrics(&self) -> Vec<Metrics> {
        let mut all = self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for metrics in self.servers().iter().filter_map(|server| server.monitor.metrics()) {
            if !all.iter().any(|known| known.ptr_eq(&metrics)) {
                all.push(metrics);
            }
        }
        all
    }

    /// Returns the servers of the registry, if they are shown.
    pub(crate) fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.get()
    }

    /// Returns the pages of the program.
    pub(crate) fn own_pages(&self) -> Vec<Arc<OwnPage>> {
        self.own_pages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what pages link to beside what every process has.
    pub(crate) fn menu(&self) -> Menu {
        let own = self.own_pages.lock().unwrap_or_else(PoisonError::into_inner);
        Menu { own: own.iter().map(|page| page.name).collect(), has_fleet: self.fleet.get().is_some() }
    }

    /// Returns the clients that are shown, in the order of their names.
    pub(crate) fn clients(&self) -> Vec<Arc<NamedClient>> {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clients: Vec<_> = clients.iter().filter_map(Weak::upgrade).collect();
        clients.sort_by(|one, other| one.name.cmp(&other.name));
        clients
    }

    /// Whether a service accepts calls; the empty name means all servers. `None` if it is unknown.
    pub(crate) fn is_serving(&self, service: &str) -> Option<bool> {
        let servers = self.servers();
        if servers.is_empty() && service.is_empty() {
            // A process that is only a client is ready; one whose servers have stopped is not.
            return Some(!self.has_served.load(Ordering::Relaxed));
        }
        let answers = || servers.iter().filter_map(|server| server.monitor.is_serving(service));
        match service {
            "" => Some(answers().all(|serving| serving)),
            _ => answers().reduce(|one, other| one || other),
        }
    }

    /// Returns the token of the forms that need a role.
    pub(crate) fn form_token(&self, role: Role) -> &str {
        if role >= Role::Write { &self.change_token } else { &self.call_token }
    }

    /// Returns the requested variables, sorted by name, at most `max`, and the number of omitted ones.
    pub(crate) fn readings(&self, is_wanted: impl Fn(&Reading) -> bool, max: usize) -> (Vec<Reading>, usize) {
        let order =
            |one: &Reading, other: &Reading| (&one.name, &one.labels).cmp(&(&other.name, &other.labels));
        let mut readings = self.readings_with(&self.stats(), true);
        readings.retain(is_wanted);
        let left_out = readings.len().saturating_sub(max);
        if left_out > 0 {
            // There may be a hundred times as many: the others are not sorted.
            readings.select_nth_unstable_by(max, order);
            readings.truncate(max);
        }
        readings.sort_unstable_by(order);
        (readings, left_out)
    }

    /// Returns every variable, in any order; those of methods that were never called only if `of_all`.
    fn readings_with(&self, stats: &[ServerStats], of_all: bool) -> Vec<Reading> {
        let mut readings = vars::read_all();
        self.process_readings(&mut readings);
        readings.push(Reading::new("rpc_server_count", Kind::Gauge, stats.len()));
        stats.iter().for_each(|stats| stats.readings(&mut readings, of_all));
        readings
    }

    fn process_readings(&self, readings: &mut Vec<Reading>) {
        let process = Process::read();
        let mut add = |name: &str, kind, value: Option<Value>| {
            readings.extend(value.map(|value| Reading::new(name, kind, value)));
        };
        let uptime = SystemTime::now().duration_since(self.started).unwrap_or_default();
        let number = |duration: Duration| Some(Value::Number(duration.as_secs_f64()));
        add("pid", Kind::Gauge, Some(Value::from(u64::from(std::process::id()))));
        add("process_cpu_seconds_system", Kind::Counter, number(process.system));
        add("process_cpu_seconds_user", Kind::Counter, number(process.user));
        add("process_context_switches_involuntary", Kind::Counter, Some(process.switches.1.into()));
        add("process_context_switches_voluntary", Kind::Counter, Some(process.switches.0.into()));
        add("process_faults_major", Kind::Counter, Some(process.major_faults.into()));
        add("process_fd_count", Kind::Gauge, process.open_files.map(Value::from));
        add("process_memory_resident", Kind::Gauge, process.resident_bytes.map(Value::from));
        add("process_memory_virtual", Kind::Gauge, process.virtual_bytes.map(Value::from));
        add("process_thread_count", Kind::Gauge, process.threads.map(Value::from));
        add("process_uptime", Kind::Gauge, number(uptime));
        let names: Vec<_> = polyrpc::Protocol::ALL.iter().map(|protocol| protocol.as_str()).collect();
        add("rpc_protocols", Kind::Gauge, Some(Value::Text(names.join(" "))));
        let revision = concat!("polyrpc ", env!("CARGO_PKG_VERSION"));
        add("rpc_revision", Kind::Gauge, Some(Value::Text(revision.into())));
        add("process_start_time", Kind::Gauge, Some(Value::Text(time::Date(self.started).to_string())));
    }

    /// Takes the samples of a second.
    pub(crate) fn sample(&self, now: Instant) {
        settings::expire(now);
        collector().tick(now);
        vars::sample();
        let servers = self.servers();
        servers.iter().for_each(|server| server.controls.tick(now));
        let stats = self.stats();
        // A method that was never called has no history yet.
        let readings = self.readings_with(&stats, false);
        let mut history = self.history();
        let completed = history.tick();
        for reading in &readings {
            if let Some(value) = reading.value.number() {
                history.record(&reading.full_name(), value);
            }
        }
        for server in &stats {
            record_methods(&mut history, server, now, &completed);
        }
        if completed.contains(&Period::Minute) {
            let names = readings.iter().map(|reading| reading.full_name().into_owned()).collect();
            let ids: Vec<_> = servers.iter().map(|server| server.id).collect();
            history.retain(&names, &ids);
        }
        if history.connections.is_watched(now) {
            drop(history);
            let all: Vec<_> = servers
                .iter()
                .filter_map(|server| Some((server.id, server.monitor.info()?.connections)))
                .collect();
            let all = all
                .iter()
                .flat_map(|(id, connections)| connections.iter().map(|connection| (*id, connection)));
            self.history().connections.record(all, now);
        }
    }
}

/// Records the counts of a server's methods. The percentiles of minutes, hours and days are those of all their calls,
/// not averages of percentiles.
fn record_methods(history: &mut History, server: &ServerStats, now: Instant, completed: &[Period]) {
    let prefix = server.server.prefix();
    for method in server.methods() {
        let key = method.key(server.server.id);
        let counted = history.record_method(key, method.totals.as_ref(), now, completed);
        for (period, counted) in counted {
            let name = format!("{prefix}_{}", method.name());
            replace(history, &name, period, &counted);
        }
    }
}

fn replace(history: &mut History, name: &str, period: Period, counted: &MethodStats) {
    let mut replace = |end: &str, value: u64| history.replace(&format!("{name}_{end}"), period, value as f64);
    replace("latency", micros(counted.average));
    replace("max_latency", micros(counted.max()));
    for (end, share) in PERCENTILES {
        replace(end, micros(counted.quantile(share)));
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("servers", &self.0.servers().len()).finish_non_exhaustive()
    }
}

/// Returns a token that cannot be guessed.
///
/// # Panics
///
/// If the system has no random numbers.
fn random_token() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
