//! A configuration prepared for calls: clients, schemas, routes.

mod check;
mod counters;
mod methods;
mod pick;
mod route;

pub use self::check::CheckWarning;
pub(crate) use self::check::{check, check_routes};
pub(crate) use self::counters::Counters;
pub(crate) use self::route::{Route, RouteState, Target, join_names};

use std::sync::Arc;
use std::time::Duration;

use polyrpc::client::{CallOptions, Limits};
use polyrpc::{MemoryBudget, Metadata};
use polyrpc_record::layer::Recorder;
use polyrpc_transform::{Error, Reflection, SchemaSource, Schemas};

use crate::config::{Config, Lined, Upstream as UpstreamSpec};
use crate::config_error::{ConfigError, ConfigErrors};
use crate::upstream::Upstream;

/// Routes and upstreams of one version of the configuration.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) routes: Vec<Arc<Route>>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    pub(crate) schemas: Arc<Schemas>,
    /// Records the calls of routes that request it.
    pub(crate) recorder: Option<Recorder>,
    /// What upstreams said by reflection.
    pub(crate) descriptions: Descriptions,
}

/// What upstreams say by reflection, by their names.
pub(crate) type Descriptions = Vec<(String, Vec<SchemaSource>)>;

impl Plan {
    /// Prepares a configuration for calls from a number of threads that share a memory budget. Upstreams that are also
    /// in `old` keep their connections, and unchanged routes their state.
    pub(crate) fn new(
        config: &Config,
        (threads, memory): (usize, &MemoryBudget),
        old: Option<&Self>,
        counters: &Counters,
    ) -> Result<Self, ConfigErrors> {
        let mut problems = Vec::new();
        let mut upstreams: Vec<Arc<Upstream>> = Vec::new();
        let usual = Limits::default();
        let message = config.limits.message.map(|size| size.0);
        let limits = Limits {
            message: message.unwrap_or(usual.message),
            decompressed: message.unwrap_or(usual.decompressed),
            ..usual
        };
        let started = |spec: &Lined<UpstreamSpec>| {
            let pushes = counters.pushes(&spec.name);
            Upstream::new((**spec).clone(), limits.clone(), (threads, memory), pushes)
        };
        for spec in &config.upstream {
            let same = |known: &&Arc<Upstream>| known.spec == **spec;
            match old.and_then(|old| old.upstreams.iter().find(same)) {
                Some(known) => upstreams.push(known.clone()),
                None => match started(spec) {
                    Ok(upstream) => upstreams.push(Arc::new(upstream)),
                    Err(text) => problems.push(ConfigError::new(spec.line, text)),
                },
            }
        }
        let schemas = match schemas(config) {
            Ok(schemas) => Arc::new(schemas),
            Err((key, error)) => {
                problems.push(schema_error(config, key, &error));
                Arc::default()
            }
        };
        if !problems.is_empty() {
            return Err(ConfigErrors(problems));
        }
        let known = old.map_or(&[][..], |old| &old.routes);
        let mut routes = Vec::new();
        for spec in &config.route {
            let by_default = config.record.as_ref().is_some_and(|record| record.by_default);
            match Route::new(spec, by_default, &upstreams, known, counters) {
                Ok(route) => routes.push(Arc::new(route)),
                Err(text) => problems.push(ConfigError::new(spec.line, text)),
            }
        }
        let plan = Self { routes, upstreams, schemas, recorder: None, descriptions: Vec::new() };
        problems.extend(plan.contradictions(config));
        if problems.is_empty() { Ok(plan) } else { Err(ConfigErrors(problems)) }
    }

    /// Prepares a configuration that is only checked.
    ///
    /// # Errors
    ///
    /// See [`new`](Self::new).
    pub(crate) fn to_check(config: &Config) -> Result<Self, ConfigErrors> {
        Self::new(config, (1, &MemoryBudget::new(usize::MAX)), None, &Counters::new(&config.name))
    }

    /// Asks upstreams for their descriptions, and adds them. One that cannot be asked keeps that of `old`, the plan before.
    /// Returns those that have none, with the reason.
    pub(crate) async fn reflect(&mut self, names: &[String], old: Option<&Self>) -> Vec<(String, String)> {
        let (mut answered, mut missing) = (Vec::new(), Vec::new());
        for upstream in self.upstreams.iter().filter(|upstream| names.contains(&upstream.spec.name)) {
            let name = upstream.spec.name.clone();
            match (fetch_descriptions(upstream).await, old.and_then(|old| old.description(upstream))) {
                (Ok(sources), _) => answered.push((name, sources)),
                (Err(_), Some(known)) => answered.push((name, known)),
                (Err(why), None) => missing.push((name, why)),
            }
        }
        self.add_descriptions(answered);
        missing
    }

    /// Queries those of the upstreams again that have no description yet. Returns what they answer.
    pub(crate) async fn retry_reflection(&self, names: &[String]) -> Descriptions {
        let mut answered = Vec::new();
        for upstream in self.upstreams.iter().filter(|upstream| names.contains(&upstream.spec.name)) {
            if let Ok(sources) = fetch_descriptions(upstream).await {
                answered.push((upstream.spec.name.clone(), sources));
            }
        }
        answered
    }

    /// Adds descriptions by reflection to a plan that is not in use yet.
    pub(crate) fn add_descriptions(&mut self, descriptions: Descriptions) {
        // Nothing else has the schemas before the plan is in use.
        if let Some(schemas) = Arc::get_mut(&mut self.schemas) {
            let sources = descriptions.iter().flat_map(|(_, sources)| sources);
            sources.for_each(|source| schemas.add_proto(source.clone()));
        }
        self.descriptions.extend(descriptions);
    }

    /// What the plan knows of an upstream with the same settings.
    fn description(&self, upstream: &Upstream) -> Option<Vec<SchemaSource>> {
        let is_same = self.upstreams.iter().any(|known| known.spec == upstream.spec);
        let of_it = self.descriptions.iter().find(|(name, _)| *name == upstream.spec.name && is_same);
        of_it.map(|(_, sources)| sources.clone())
    }

    /// Returns the route of a call.
    pub(crate) fn route(&self, service: &str, method: &str, metadata: &Metadata) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| route.matches(service, method, metadata))
    }

    /// Whether a route takes calls of a method, at least with some metadata.
    pub(crate) fn offers(&self, service: &str, method: &str) -> bool {
        self.routes.iter().any(|route| route.matches_names(service, method))
    }

    /// Whether a gRPC call is known to have one request before that arrives. A call without a route is rejected at
    /// once.
    pub(crate) fn takes_one(&self, service: &str, method: &str, metadata: &Metadata) -> bool {
        let route = self.route(service, method, metadata);
        route.is_some_and(|route| route.takes_one(&self.schemas, (service, method)))
    }

    /// Errors: credentials that cannot be sent, and subscriptions over protocols without topics.
    fn contradictions(&self, config: &Config) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        for (spec, upstream) in config.upstream.iter().zip(&self.upstreams) {
            if let Some(text) = upstream.cannot_send_credentials(config) {
                problems.push(ConfigError::new(spec.line, text));
            }
        }
        for route in self.routes.iter().filter(|route| route.topic().is_some()) {
            let protocols = route.targets().iter().map(|target| target.upstream.protocol());
            for protocol in protocols.filter(|protocol| !protocol.descriptor().capabilities.topics) {
                let text = format!("`subscribe` needs topics, which {} does not have", protocol.as_str());
                problems.push(ConfigError::new(route.line, text));
            }
        }
        problems
    }
}

/// Reads the files. A failure has the key that names the file.
fn schemas(config: &Config) -> Result<Schemas, (&'static str, Error)> {
    let (files, mut schemas) = (&config.schema, Schemas::new());
    let with_key = |key: &'static str| move |error: Error| (key, error);
    if !files.proto.is_empty() {
        schemas.add_proto(SchemaSource::read_proto(&files.proto, &files.include).map_err(with_key("proto"))?);
    }
    if !files.sets.is_empty() {
        schemas.add_proto(SchemaSource::read_sets(&files.sets).map_err(with_key("sets"))?);
    }
    if !files.fbs.is_empty() {
        schemas.add_fbs(&files.fbs, &files.include).map_err(with_key("fbs"))?;
    }
    for function in &files.functions {
        schemas.add_function(function).map_err(with_key("functions"))?;
    }
    Ok(schemas)
}

/// Fetches the descriptions of all services of a server.
async fn fetch_descriptions(upstream: &Upstream) -> Result<Vec<SchemaSource>, String> {
    let options = || CallOptions { timeout: Some(QUERY_TIMEOUT), ..CallOptions::default() };
    let client = upstream.any_client();
    let services = Reflection::new(client, options()).services().await.map_err(|error| error.to_string())?;
    let mut sources = Vec::new();
    let is_own = |service: &str| OWN_SERVICES.iter().any(|own| service.starts_with(own));
    for service in services.iter().filter(|service| !is_own(service)) {
        let set = Reflection::new(client, options()).query_service(service).await;
        if let Some(set) = set.map_err(|error| error.to_string())? {
            let source = SchemaSource::new(&set, format!("the reflection of `{}`", upstream.spec.name));
            sources.push(source.map_err(|error| error.to_string())?);
        }
    }
    Ok(sources)
}

fn schema_error(config: &Config, key: &str, error: &Error) -> ConfigError {
    let text = format!("[schema]: `{key}`: {}", error.text());
    ConfigError::new(config.schema.line_of(key), text).with_hint(error.hint().map(str::to_owned))
}

/// Services of the gRPC library itself, which describe nothing that callers call.
const OWN_SERVICES: [&str; 2] = ["grpc.reflection.", "grpc.health."];

/// Timeout of each query of a server's reflection.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
