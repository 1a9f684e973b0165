use std::sync::Arc;
use std::time::{Duration, Instant};

use polyrpc::{Code, Format, Metadata, Protocol};
use polyrpc_console::vars::{Counter, Latency};
use polyrpc_core::protocol::Streams;
use polyrpc_transform::{OnLoss, Schemas};

use super::counters::Counters;
use super::pick::Shares;
use crate::auto_rollback::{AutoRollback, is_fault};
use crate::call_limit::CallLimit;
use crate::config::{
    Glob, Lined, Loss, Match, Rename, Route as Spec, Sticky, Topic, Upstream as UpstreamSpec,
};
use crate::mirror::Mirror;
use crate::pairs::Pairs;
use crate::upstream::Upstream;

/// The upstreams for the calls that match.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) line: usize,
    /// Name in reports: from the file, or the line.
    pub(crate) name: String,
    spec: Spec,
    pub(crate) matches: Match,
    targets: Vec<Target>,
    shares: Shares,
    pub(crate) sticky: Option<Sticky>,
    pub(crate) rename: Rename,
    pub(crate) timeout: Option<Duration>,
    pub(crate) on_loss: OnLoss,
    /// Whether its calls are recorded, if there is a recording.
    pub(crate) is_recorded: bool,
    pub(crate) pairs: Pairs,
    pub(crate) state: Arc<RouteState>,
}

/// An upstream of a route.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) share: u32,
    /// Calls that succeeded, by their duration.
    pub(crate) latency: Latency,
    /// Calls that failed through no fault of their callers.
    pub(crate) failures: Counter,
}

/// State that a route keeps when the file is reloaded, unless the route or its upstreams changed.
#[derive(Debug)]
pub(crate) struct RouteState {
    /// Limit on calls in flight.
    pub(crate) call_limit: CallLimit,
    pub(crate) mirror: Option<Arc<Mirror>>,
    pub(crate) rollback: Option<AutoRollback>,
}

impl Route {
    /// `recorded_by_default`: whether to record calls of a route without the key `record`. `old`: the previous routes;
    /// unchanged ones keep their state.
    ///
    /// # Errors
    ///
    /// If an upstream cannot get copies of calls.
    pub(super) fn new(
        spec: &Lined<Spec>,
        recorded_by_default: bool,
        known: &[Arc<Upstream>],
        old: &[Arc<Self>],
        counters: &Counters,
    ) -> Result<Self, String> {
        let name = spec.name.clone().unwrap_or_else(|| format!("line {}", spec.line));
        let shares = spec.to.shares();
        let named = |name: &str| known.iter().find(|upstream| upstream.spec.name == name).cloned();
        let targets: Vec<_> = shares
            .iter()
            .filter_map(|(upstream, share)| {
                let (latency, failures) = counters.calls(&name, upstream);
                Some(Target { upstream: named(upstream)?, share: *share, latency, failures })
            })
            .collect();
        let same = |old: &&Arc<Self>| old.spec == **spec && old.has_upstreams(known);
        let state = match old.iter().find(same) {
            Some(old) => old.state.clone(),
            None => Arc::new(RouteState::new(spec, &name, known, counters)?),
        };
        Ok(Self {
            line: spec.line,
            name,
            spec: (**spec).clone(),
            matches: spec.matches.clone(),
            shares: Shares::new(targets.iter().map(|target| target.share)),
            targets,
            sticky: spec.sticky.clone(),
            rename: spec.rename.clone(),
            timeout: spec.timeout.map(|timeout| timeout.0),
            on_loss: match spec.on_loss {
                Loss::Refuse => OnLoss::Reject,
                Loss::Count => OnLoss::Count,
            },
            is_recorded: spec.record.unwrap_or(recorded_by_default),
            pairs: Pairs::default(),
            state,
        })
    }

    /// Whether all upstreams of the route are unchanged.
    fn has_upstreams(&self, known: &[Arc<Upstream>]) -> bool {
        let is_known = |spec: &UpstreamSpec| known.iter().any(|known| known.spec == *spec);
        self.targets.iter().all(|target| is_known(&target.upstream.spec))
            && self.state.mirror.iter().flat_map(|mirror| mirror.upstream_specs()).all(is_known)
    }

    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Whether the names match.
    pub(crate) fn matches_names(&self, service: &str, method: &str) -> bool {
        self.matches.service.as_ref().is_none_or(|glob| glob.matches(service))
            && self.matches.method.as_ref().is_none_or(|glob| glob.matches(method))
    }

    /// Whether a call matches.
    pub(super) fn matches(&self, service: &str, method: &str, metadata: &Metadata) -> bool {
        self.matches_names(service, method)
            && self
                .matches
                .metadata
                .iter()
                .all(|(key, glob)| metadata.get(key).is_some_and(|value| glob.matches(value)))
    }

    /// Whether the route takes every call that another one matches. May be `false` although it does, as `a*`
    /// for `ab*`: only equal, exact and all-matching patterns are compared.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let (own, others) = (&self.matches, &other.matches);
        let covers = |own: Option<&Glob>, other: Option<&Glob>| {
            let fits = |own: &Glob| other.and_then(Glob::exact).is_some_and(|name| own.matches(name));
            own.is_none_or(|own| own.matches_all() || Some(own) == other || fits(own))
        };
        covers(own.service.as_ref(), others.service.as_ref())
            && covers(own.method.as_ref(), others.method.as_ref())
            // A call without the key does not match.
            && own.metadata.iter().all(|(key, glob)| others.metadata.get(key) == Some(glob))
    }

    /// Returns the index of the upstream of a call, by the key that it is bound to.
    pub(crate) fn pick(&self, key: Option<&[u8]>) -> usize {
        let rolled_back = self.state.rollback.as_ref().filter(|rollback| rollback.reason().is_some());
        rolled_back
            .and_then(|rollback| self.index_of(rollback.target()))
            .unwrap_or_else(|| self.shares.index(key))
    }

    /// Returns the index of the upstream at which a call is retried if this one fails.
    pub(crate) fn retry_upstream(&self, index: usize) -> Option<usize> {
        let rollback = self.state.rollback.as_ref()?;
        self.index_of(rollback.target()).filter(|target| *target != index)
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.targets.iter().position(|target| target.upstream.spec.name == name)
    }

    /// Records the result of a unary call.
    pub(crate) fn record(&self, index: usize, code: Option<Code>, began: Instant) {
        self.record_result(index, code, began, false);
    }

    /// Records the result of a streaming call. Its duration says nothing about the upstream, so it does not enter the
    /// percentiles of `rollback`.
    pub(crate) fn record_stream(&self, index: usize, code: Option<Code>, began: Instant) {
        self.record_result(index, code, began, true);
    }

    fn record_result(&self, index: usize, code: Option<Code>, began: Instant, is_stream: bool) {
        let now = Instant::now();
        let took = now.saturating_duration_since(began);
        let Some(target) = self.targets.get(index) else { return };
        match code {
            None => target.latency.record(took),
            Some(code) if is_fault(code) => target.failures.add(1),
            Some(_) => {}
        }
        if let Some(rollback) = &self.state.rollback {
            rollback.record(&target.upstream.spec.name, code, (!is_stream).then_some(took), now);
        }
    }

    /// Returns the name of the upstream at an index.
    pub(crate) fn upstream_name(&self, index: usize) -> &str {
        self.targets.get(index).map_or("", |target| &target.upstream.spec.name)
    }

    /// Returns the method's name at the upstream, after `rename`.
    pub(crate) fn upstream_method(&self, service: &str, method: &str) -> String {
        // A number is valid only within its protocol, and together with the number of its service.
        if method.starts_with('#') {
            return join_names(service, method);
        }
        let service = self.rename.service.as_deref().unwrap_or(service);
        let method = self.rename.method.as_deref().unwrap_or(method);
        join_names(service, method)
    }

    /// Whether callers of a method send one request: by its declaration, or because no upstream accepts more.
    pub(super) fn takes_one(&self, schemas: &Schemas, (service, method): (&str, &str)) -> bool {
        let (callers, target) = (join_names(service, method), self.upstream_method(service, method));
        let takes_one = |upstream: &Upstream| {
            let to = upstream.format(Format::Protobuf);
            let pair = self.pairs.find(
                schemas,
                (&callers, &target),
                (Format::Protobuf, to),
                self.on_loss,
                upstream.protocol() == Protocol::FbRpc,
            );
            match pair.stream_type {
                Some(shape) => !shape.client_streaming,
                None => upstream.protocol().descriptor().capabilities.streams != Streams::Calls,
            }
        };
        self.topic().is_some() || self.targets.iter().all(|target| takes_one(&target.upstream))
    }

    /// Returns the topic whose messages callers receive.
    pub(crate) fn topic(&self) -> Option<&Topic> {
        self.spec.subscribe.as_ref()
    }

    /// Whether the file declares a method, by its name for callers, to have no side effects.
    pub(crate) fn lists_as_safe(&self, callers: &str) -> bool {
        self.spec.safe.iter().any(|glob| glob.matches(callers))
    }

    /// Whether the route has a pattern for services.
    pub(super) fn has_service_pattern(&self) -> bool {
        self.matches.service.is_some()
    }

    /// Whether calls under other names may be renamed to this one.
    pub(super) fn may_rename_to(&self, (service, method): (&str, &str)) -> bool {
        let fits = |new: &Option<String>, name: &str| new.as_ref().is_none_or(|new| new == name);
        !self.keeps_names() && fits(&self.rename.service, service) && fits(&self.rename.method, method)
    }

    /// Whether the upstream gets the callers' names.
    pub(crate) fn keeps_names(&self) -> bool {
        self.rename == Rename::default()
    }
}

impl RouteState {
    fn new(spec: &Spec, name: &str, known: &[Arc<Upstream>], counters: &Counters) -> Result<Self, String> {
        let primaries: Vec<_> = spec.to.shares().iter().map(|(name, _)| *name).collect();
        let mirror = spec.mirror.as_ref();
        let mirror = mirror.map(|spec| Mirror::new(spec, &primaries, known, counters.copies(name)));
        Ok(Self {
            call_limit: CallLimit::new(spec.calls),
            mirror: mirror.transpose()?.map(Arc::new),
            rollback: spec
                .rollback
                .clone()
                .map(|rollback| AutoRollback::new(rollback, counters.rollbacks(name))),
        })
    }
}

/// The name of a method, or of a function.
pub(crate) fn join_names(service: &str, method: &str) -> String {
    match service {
        "" => method.to_owned(),
        service => format!("{service}/{method}"),
    }
}
