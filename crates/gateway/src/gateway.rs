use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use polyrpc::fallback::RawRequest;
use polyrpc::layers::Metrics;
use polyrpc::server::{Limits, ServerHandle};
use polyrpc::{Address, Cores, MemoryBudget, Server};
use polyrpc_console::vars::Gauge;
use polyrpc_console::{AdminHandle, Console, PageContent};
use polyrpc_record::layer::{Recorder, RecorderStats};
use tokio::task::JoinSet;

use crate::call;
use crate::config::{Admin, Config, Lined, Listen, Record, Span};
use crate::config_error::{ConfigError, ConfigErrors};
use crate::documents::Documents;
use crate::listener;
use crate::pages;
use crate::plan::{Counters, Plan};
use crate::recording;
use crate::reflection_retry::{PlanResources, ReflectionRetry};
use crate::upstream::Upstream;

/// A running gateway.
///
/// Dropping it ends all calls; [`shutdown`](Self::shutdown) lets them finish.
#[derive(Debug)]
pub struct Gateway {
    plan: Arc<ArcSwap<Plan>>,
    counters: Arc<Counters>,
    /// Whether the last configuration was valid.
    is_valid: Gauge,
    _findings: Gauge,
    metrics: Metrics,
    console: Console,
    name: String,
    admin: Option<(Admin, AdminHandle)>,
    listeners: Vec<Listener>,
    /// Where the calls of all listeners run.
    cores: Cores,
    threads: usize,
    observed: Mutex<Vec<ObservedClient>>,
    drain: Duration,
    lame_duck: Duration,
    /// Budget of the callers' connections to all listeners, and of the connections to upstreams.
    memory: MemoryBudget,
    _held: Gauge,
    limits: Limits,
    limits_spec: String,
    documents_spec: String,
    record: Option<Record>,
    recorder: Option<Recorder>,
    _recorded: Vec<Gauge>,
    /// Repeats the reflection of upstreams that have not answered it.
    _reflection: Option<ReflectionRetry>,
}

/// The server of one listener: each can be added and removed on its own.
#[derive(Debug)]
struct Listener {
    spec: Listen,
    handle: ServerHandle,
    documents: Documents,
}

impl Gateway {
    /// Starts a gateway within a tokio runtime. Queries the reflection of the upstreams in `schema.reflect`.
    ///
    /// # Errors
    ///
    /// If a file, an upstream or an address cannot be used.
    pub async fn start(config: Config) -> Result<Self, ConfigErrors> {
        let counters = Arc::new(Counters::new(&config.name));
        let threads = config.threads_at_start();
        let limits = limits(&config);
        let memory = MemoryBudget::new(limits.memory);
        let mut plan = Plan::new(&config, (threads, &memory), None, &counters)?;
        let missing = plan.reflect(&config.schema.reflect, None).await;
        let recorder = recording::open(&config, &plan.schemas)?;
        plan.recorder = recorder.clone();
        let plan = Arc::new(ArcSwap::from_pointee(plan));
        let cores = Cores::start(threads)
            .map_err(|error| ConfigError::new(0, format!("threads cannot be started: {error}")))?;
        let console = Console::new();
        add_pages(&console, &plan);
        let recorded = recorder.iter().flat_map(|recorder| {
            add_recording(&console, recorder);
            recording_variables(&config.name, recorder)
        });
        let recorded = recorded.collect();
        let admin = match &config.admin {
            Some(spec) => Some(((**spec).clone(), start_admin(spec, &console)?)),
            None => None,
        };
        let mut gateway = Self {
            is_valid: Gauge::new(&format!("{}_config_valid", config.name)),
            _findings: Gauge::from_fn(&format!("{}_mirror_findings", config.name), {
                let plan = plan.clone();
                move || pages::findings(&plan.load()) as f64
            }),
            plan,
            counters,
            metrics: Metrics::new(),
            console,
            name: config.name.clone(),
            admin,
            listeners: Vec::new(),
            cores,
            threads,
            observed: Mutex::default(),
            drain: config.drain,
            lame_duck: config.lame_duck,
            _held: Gauge::from_fn(&format!("{}_memory_held", config.name), {
                let memory = memory.clone();
                move || memory.held() as f64
            }),
            memory,
            limits,
            limits_spec: format!("{:?}", *config.limits),
            documents_spec: documents_spec(&config),
            record: config.record.as_deref().cloned(),
            recorder,
            _recorded: recorded,
            _reflection: None,
        };
        gateway.is_valid.set(1.0);
        gateway.observe_upstreams();
        gateway.declare_methods();
        for spec in &config.listen {
            let listener = gateway.listen(spec, &config, missing.is_empty()).await?;
            gateway.listeners.push(listener);
        }
        gateway.retry_reflection(config, &missing);
        Ok(gateway)
    }

    /// Returns the addresses of the listeners in the order of the configuration, with the ports that were assigned.
    pub fn addresses(&self) -> Vec<&Address> {
        self.listeners.iter().map(|listener| listener.handle.address()).collect()
    }

    /// Returns the address of the admin listener, if there is one.
    pub fn admin_address(&self) -> Option<&Address> {
        self.admin.as_ref().map(|(_, handle)| handle.address())
    }

    /// Replaces the configuration. New calls use it at once; running calls finish with the old one. Upstreams with the
    /// same settings keep their connections, listeners with the same settings their callers; removed listeners drain.
    ///
    /// # Errors
    ///
    /// If the configuration cannot be used. Then nothing changes.
    pub async fn reload(&mut self, config: Config) -> Result<(), ConfigErrors> {
        let reloaded = self.replace(config).await;
        self.is_valid.set(if reloaded.is_ok() { 1.0 } else { 0.0 });
        reloaded
    }

    /// Sets the variable `gateway_config_valid` to 0, until a configuration is [loaded](Self::reload): for files that
    /// [`Config::parse`] rejects.
    pub fn mark_invalid(&self) {
        self.is_valid.set(0.0);
    }

    async fn replace(&mut self, config: Config) -> Result<(), ConfigErrors> {
        self.check_unchanged(&config)?;
        let own = (self.threads, &self.memory);
        let mut plan = Plan::new(&config, own, Some(&self.plan.load()), &self.counters)?;
        let old = self.plan.load_full();
        let missing = plan.reflect(&config.schema.reflect, Some(&old)).await;
        plan.recorder = self.recorder.clone();
        let mut added = Vec::new();
        // What fails here has no effect: the documents are those of a listener that does not exist.
        offer(&Documents::new(&config)?, &plan, missing.is_empty())?;
        for spec in &config.listen {
            if !self.listeners.iter().any(|known| known.spec == **spec) {
                added.push(self.listen(spec, &config, missing.is_empty()).await?);
            }
        }
        if let Some(recorder) = &self.recorder {
            let sets = recording::sets(&plan.schemas);
            recorder.set_schemas(sets).map_err(|error| ConfigError::new(0, format!("[record]: {error}")))?;
        }
        // Nothing fails from here on.
        self.plan.store(Arc::new(plan));
        self.declare_methods();
        for listener in self.listeners.iter().chain(&added) {
            if let Err(problem) = listener.documents.offer(&self.plan.load()) {
                tracing::warn!(target: "polyrpc_gateway", %problem, "methods are described as before");
            }
        }
        self.observe_upstreams();
        self.drain = config.drain;
        let mut known: Vec<_> = std::mem::take(&mut self.listeners).into_iter().chain(added).collect();
        for spec in &config.listen {
            if let Some(index) = known.iter().position(|known| known.spec == **spec) {
                self.listeners.push(known.remove(index));
            }
        }
        for removed in known {
            tokio::spawn(removed.handle.shutdown(self.drain));
        }
        self.retry_reflection(config, &missing);
        Ok(())
    }

    /// Rejects new calls, and waits for running ones, at most for `drain` of the configuration. Then completes the
    /// recording, if there is one.
    pub async fn shutdown(self) {
        let drain = self.drain;
        let mut ending: JoinSet<_> =
            self.listeners.into_iter().map(|listener| listener.handle.shutdown(drain)).collect();
        while ending.join_next().await.is_some() {}
        if let Some(recorder) = self.recorder {
            // Blocks on the disk.
            let _ = tokio::task::spawn_blocking(move || recorder.close()).await;
        }
    }

    /// Settings that running listeners cannot change.
    fn check_unchanged(&self, config: &Config) -> Result<(), ConfigErrors> {
        if self.admin.as_ref().map(|(spec, _)| spec) != config.admin.as_deref() {
            return Err(ConfigError::new(0, "[admin] cannot change while the gateway runs").into());
        }
        if self.name != config.name {
            return Err(ConfigError::new(0, "`name` cannot change while the gateway runs").into());
        }
        if config.threads.is_some_and(|threads| threads != self.threads) {
            return Err(ConfigError::new(0, "`threads` cannot change while the gateway runs").into());
        }
        if self.limits_spec != format!("{:?}", *config.limits) {
            return Err(ConfigError::new(0, "[limits] cannot change while the gateway runs").into());
        }
        if self.documents_spec != documents_spec(config) {
            let text = "[mcp] and [openapi] cannot change while the gateway runs";
            return Err(ConfigError::new(0, text).into());
        }
        if self.record.as_ref() != config.record.as_deref() {
            return Err(ConfigError::new(0, "[record] cannot change while the gateway runs").into());
        }
        for spec in &config.listen {
            let other = |known: &&Listener| known.spec.address == spec.address && known.spec != **spec;
            if self.listeners.iter().any(|known| other(&known)) {
                let text = format!("the settings of {} cannot change while it is listened on", spec.address);
                return Err(ConfigError::new(spec.line, text).into());
            }
        }
        Ok(())
    }

    /// Repeats the reflection of upstreams that did not describe themselves, until they do or another configuration is
    /// loaded.
    fn retry_reflection(&mut self, config: Config, missing: &[(String, String)]) {
        for (upstream, reason) in missing {
            tracing::warn!(
                target: "polyrpc_gateway", upstream, reason,
                "an upstream does not describe itself, and is asked again: calls that need its schema are refused"
            );
        }
        let documents = self.listeners.iter().map(|listener| listener.documents.clone()).collect();
        self._reflection = (!missing.is_empty()).then(|| {
            let names = missing.iter().map(|(name, _)| name.clone()).collect();
            let (memory, counters) = (self.memory.clone(), self.counters.clone());
            let resources = PlanResources { threads: self.threads, memory, counters };
            ReflectionRetry::start(self.plan.clone(), config, names, resources, documents)
        });
    }

    /// `is_complete`: every upstream of `schema.reflect` has described itself.
    async fn listen(
        &self,
        spec: &Lined<Listen>,
        config: &Config,
        is_complete: bool,
    ) -> Result<Listener, ConfigErrors> {
        let documents = Documents::new(config)?;
        offer(&documents, &self.plan.load(), is_complete)?;
        let (plan, known, routed) = (self.plan.clone(), self.plan.clone(), self.plan.clone());
        let (listen, proxies) = listener::prepare(spec)?;
        let proxies = Arc::new(proxies);
        let server = Server::new()
            .executor(self.cores.clone())
            .limits(self.limits.clone())
            .memory_budget(&self.memory)
            .lame_duck(self.lame_duck)
            .count_calls(&self.metrics)
            .fallback(move |call: RawRequest| call::answer(plan.load_full(), proxies.clone(), call))
            .fallback_has_method(move |service, method| routed.load().offers(service, method))
            .fallback_has_single_request(move |service, method, metadata| {
                known.load().takes_one(service, method, metadata)
            });
        let bound = documents.add_to(server).bind(listen).await;
        let wrong = |error| format!("cannot listen on {}: {error}", spec.address);
        let bound = bound.map_err(|error| ConfigError::new(spec.line_of("address"), wrong(error)))?;
        let handle = bound.start();
        self.console.observe(&handle);
        documents.start(&handle);
        Ok(Listener { spec: (**spec).clone(), handle, documents })
    }

    /// Counts calls of the schema's methods by their names, whatever other names callers use.
    fn declare_methods(&self) {
        let targets: Vec<_> = self.plan.load().schemas.targets().collect();
        self.metrics.declare(targets.iter().map(|target| target.split_once('/').unwrap_or(("", target))));
    }

    fn observe_upstreams(&self) {
        let plan = self.plan.load();
        let observed = plan.upstreams.iter();
        let observe = |upstream: &Arc<Upstream>| {
            let name = &upstream.spec.name;
            let clients = upstream.clients().iter().zip(1..);
            let shown = clients.map(|(client, n)| match upstream.clients().len() {
                1 => self.console.observe_client(name, client),
                _ => self.console.observe_client(&format!("{name}, thread {n}"), client),
            });
            shown.map(|shown| Box::new(shown) as ObservedClient).collect::<Vec<_>>()
        };
        let observed = observed.flat_map(observe).collect();
        *self.observed.lock().unwrap_or_else(PoisonError::into_inner) = observed;
    }
}

/// Keeps a client on the console for as long as it exists.
type ObservedClient = Box<dyn fmt::Debug + Send + Sync>;

/// Describes the methods of a plan. As long as upstreams do not describe themselves, documents may lack methods.
fn offer(documents: &Documents, plan: &Plan, is_complete: bool) -> Result<(), ConfigError> {
    match documents.offer(plan) {
        Err(problem) if !is_complete => {
            tracing::warn!(target: "polyrpc_gateway", %problem, "methods are not described yet");
            Ok(())
        }
        offered => offered,
    }
}

fn add_pages(console: &Console, plan: &Arc<ArcSwap<Plan>>) {
    type Page = (&'static str, &'static str, fn(&Plan) -> PageContent);
    let all: [Page; 3] = [
        ("routes", "Routes of the gateway", pages::routes),
        ("upstreams", "Upstreams of the gateway", pages::upstreams),
        ("report", "Comparison of mirrored calls", pages::report),
    ];
    for (name, title, content) in all {
        let plan = plan.clone();
        console.add_page(name, title, move || content(&plan.load()));
    }
}

fn add_recording(console: &Console, recorder: &Recorder) {
    let recorder = recorder.clone();
    console.add_page("recording", "Recording of calls", move || pages::recording(recorder.stats()));
}

/// Variables that count the recorded calls, and the calls that could not be recorded.
fn recording_variables(name: &str, recorder: &Recorder) -> [Gauge; 2] {
    let read = |variable: &str, value: fn(RecorderStats) -> u64| {
        let recorder = recorder.clone();
        Gauge::from_fn(&format!("{name}_{variable}"), move || value(recorder.stats()) as f64)
    };
    let lost = |stats: RecorderStats| stats.queue_full + stats.method_limit + stats.not_written;
    [read("recorded_calls", |stats| stats.recorded), read("unrecorded_calls", lost)]
}

fn start_admin(spec: &Lined<Admin>, console: &Console) -> Result<AdminHandle, ConfigErrors> {
    let admin = listener::admin(spec)?;
    let wrong = |error| format!("[admin]: cannot listen on {}: {error}", spec.listen);
    Ok(admin.start(console).map_err(|error| ConfigError::new(spec.line_of("listen"), wrong(error)))?)
}

fn documents_spec(config: &Config) -> String {
    format!("{:?}", (config.mcp.as_deref(), config.openapi.as_deref()))
}

fn limits(config: &Config) -> Limits {
    let (spec, usual) = (&*config.limits, Limits::default());
    let memory = spec.memory.map_or(usual.memory, |size| size.0);
    // One peer must leave some memory for the others.
    let memory_per_peer = usual.memory_per_peer.min(memory - memory / 4);
    let time = |span: Option<Span>, usual| span.map_or(usual, |span| span.0);
    Limits {
        message: spec.message.map_or(usual.message, |size| size.0),
        decompressed: spec.message.map_or(usual.decompressed, |size| size.0),
        memory,
        memory_per_peer,
        memory_per_connection: usual.memory_per_connection.min(memory_per_peer),
        first_byte_timeout: time(spec.first_byte_timeout, usual.first_byte_timeout),
        header_timeout: time(spec.header_timeout, usual.header_timeout),
        message_timeout: time(spec.message_timeout, usual.message_timeout),
        write_timeout: time(spec.write_timeout, usual.write_timeout),
        idle_timeout: spec.idle_timeout.map_or(usual.idle_timeout, |span| Some(span.0)),
        in_flight: spec.calls.unwrap_or(usual.in_flight),
        connections: spec.connections.unwrap_or(usual.connections),
        ..usual
    }
}
