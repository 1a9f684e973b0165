//! Decides how to forward a call, before its message is read.

use std::sync::Arc;

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::fallback::RawRequest;
use polyrpc::layer::StreamType;
use polyrpc::{Format, Protocol, Result};
use polyrpc_record::layer::{OpenCall, Recorder};
use polyrpc_transform::Schemas;

use super::{metadata, refusal};
use crate::call_limit::CallPermit;
use crate::config::Sticky;
use crate::origin::Proxies;
use crate::pairs::Pair;
use crate::plan::{Plan, Route, join_names};
use crate::upstream::Upstream;

/// Where and how a call is forwarded. Boxed during the call: otherwise each future that it passes through would
/// reserve space for it.
pub(super) struct Decision {
    pub(super) route: Arc<Route>,
    /// Index of the upstream in the route.
    pub(super) upstream_index: usize,
    schemas: Arc<Schemas>,
    proxies: Arc<Proxies>,
    pub(super) pair: Arc<Pair>,
    /// Service and method as callers name them.
    names: (String, String),
    /// The method's name for the upstream.
    pub(super) target: String,
    pub(super) options: CallOptions,
    /// Formats of the caller's messages and of the upstream's.
    pub(super) from: Format,
    pub(super) to: Format,
    /// The caller's protocol.
    pub(super) caller: Protocol,
    /// Number of the caller's connection.
    connection: u64,
    /// Permits of the route's and the upstream's call limits, once the call is [admitted](Self::admit).
    in_route: CallPermit,
    in_upstream: CallPermit,
    /// `Some` if the call is recorded.
    recorder: Option<Recorder>,
}

/// How to call an upstream.
pub(super) struct Forwarding {
    pub(super) pair: Arc<Pair>,
    pub(super) target: String,
    pub(super) options: CallOptions,
    pub(super) to: Format,
}

impl Decision {
    pub(super) fn new(plan: &Plan, proxies: Arc<Proxies>, call: &RawRequest) -> Result<Self> {
        let sent = (call.service(), call.method());
        // Callers of some protocols send numbers; schemas map these to names.
        let (service, method) = plan.schemas.resolve(call.protocol(), sent.0, sent.1).unwrap_or(sent);
        let route = plan.route(service, method, call.metadata()).ok_or_else(|| refusal::no_route(call))?;
        let names = (service.to_owned(), method.to_owned());
        let upstream_index = pick_upstream(route, &proxies, call);
        let decision =
            Self::for_target(route.clone(), upstream_index, (plan.schemas.clone(), proxies), names, call);
        let recorder = plan.recorder.as_ref().filter(|_| route.is_recorded);
        Ok(Self { recorder: recorder.cloned(), ..decision? })
    }

    /// Admits the call to the route and the upstream. A call of one message is admitted when the message is complete:
    /// otherwise callers that send nothing could use up the limit.
    pub(super) fn admit(mut self: Box<Self>) -> Result<Box<Self>> {
        let admitted = self.route.state.call_limit.admit(self.connection);
        self.in_route = admitted.ok_or_else(|| refusal::too_many_calls(&self.route.name))?;
        self.admit_to_upstream()
    }

    fn admit_to_upstream(mut self: Box<Self>) -> Result<Box<Self>> {
        let upstream = self.upstream();
        let admitted = upstream.admit(self.connection);
        self.in_upstream = admitted.ok_or_else(|| refusal::too_many_calls(&upstream.spec.name))?;
        Ok(self)
    }

    /// Decides again, for the upstream at which a failed call is retried. The call keeps the route's permit, and
    /// returns that of the first upstream.
    pub(super) fn retry_at(self: Box<Self>, upstream_index: usize, call: &RawRequest) -> Result<Box<Self>> {
        let Self { route, schemas, proxies, names, in_route, in_upstream, recorder, .. } = *self;
        drop(in_upstream);
        let decision = Self::for_target(route, upstream_index, (schemas, proxies), names, call)?;
        Box::new(Self { recorder, in_route, ..decision }).admit_to_upstream()
    }

    fn for_target(
        route: Arc<Route>,
        upstream_index: usize,
        (schemas, proxies): (Arc<Schemas>, Arc<Proxies>),
        names: (String, String),
        call: &RawRequest,
    ) -> Result<Self> {
        let upstream = &route.targets().get(upstream_index).ok_or_else(|| refusal::no_route(call))?.upstream;
        let Forwarding { pair, target, options, to } =
            forwarding(&route, (&schemas, &proxies), &names, upstream, call)?;
        let (from, caller) = (call.format(), call.protocol());
        Ok(Self {
            route,
            upstream_index,
            schemas,
            proxies,
            pair,
            names,
            target,
            options,
            from,
            to,
            caller,
            connection: call.context().connection_id(),
            in_route: CallPermit::default(),
            in_upstream: CallPermit::default(),
            recorder: None,
        })
    }

    /// Starts to record the call, if it is recorded. `shape`: `None` to derive it from the messages. `request`: the
    /// only request, if it is already known.
    pub(super) fn begin_record(
        &self,
        call: &RawRequest,
        shape: Option<StreamType>,
        request: Option<&Body>,
    ) -> Option<OpenCall> {
        let (service, method) = &self.names;
        self.recorder.as_ref()?.begin(call, (service, method), shape, request)
    }

    /// Takes the call's permits of the route and the upstream, for a stream that may outlive the decision.
    pub(super) fn take_permits(&mut self) -> [CallPermit; 2] {
        [std::mem::take(&mut self.in_route), std::mem::take(&mut self.in_upstream)]
    }

    /// Decides how to call another upstream of the route.
    pub(super) fn forwarding_to(&self, upstream: &Upstream, call: &RawRequest) -> Result<Forwarding> {
        forwarding(&self.route, (&self.schemas, &self.proxies), &self.names, upstream, call)
    }

    pub(super) fn upstream(&self) -> &Arc<Upstream> {
        &self.route.targets()[self.upstream_index].upstream
    }

    /// The protocols of the caller and of the upstream.
    pub(super) fn protocols(&self) -> [Protocol; 2] {
        [self.caller, self.upstream().protocol()]
    }

    /// The method as callers name it.
    pub(super) fn callers_name(&self) -> String {
        join_names(&self.names.0, &self.names.1)
    }

    /// Whether the method has no side effects.
    pub(super) fn is_safe(&self) -> bool {
        self.pair.is_safe || self.route.lists_as_safe(&self.callers_name())
    }

    /// Whether a schema declares one message each way.
    pub(super) fn is_declared_unary(&self) -> bool {
        self.pair.stream_type.is_some_and(|shape| !shape.client_streaming && !shape.server_streaming)
    }
}

fn forwarding(
    route: &Route,
    (schemas, proxies): (&Schemas, &Proxies),
    (service, method): &(String, String),
    upstream: &Upstream,
    call: &RawRequest,
) -> Result<Forwarding> {
    let protocol = upstream.protocol();
    let from = call.format();
    let to = upstream.format(from);
    // A server may know its method only by the number that was sent.
    let keeps_number = call.method().starts_with('#') && route.keeps_names() && call.protocol() == protocol;
    let target = if keeps_number { call.target() } else { route.upstream_method(service, method) };
    let renamed = (keeps_number || !route.keeps_names()).then(|| join_names(service, method));
    let callers = renamed.as_deref().unwrap_or(&target);
    let numbered = protocol == Protocol::FbRpc;
    let pair = route.pairs.find(schemas, (callers, &target), (from, to), route.on_loss, numbered);
    // A topic has no requests, and its values have no declared types.
    if route.topic().is_none() {
        for translator in [&pair.request, &pair.response] {
            translator.as_ref().map_err(|why| refusal::no_schema(why, &target))?;
        }
    }
    if !call.attachment().is_empty() && !protocol.descriptor().capabilities.attachments {
        return Err(refusal::attachment(protocol));
    }
    let timeouts = [call.remaining(), route.timeout, upstream.spec.timeout.map(|timeout| timeout.0)];
    let options = CallOptions {
        metadata: metadata::convert_request(call, proxies, upstream)?,
        attachment: call.attachment().clone(),
        timeout: timeouts.into_iter().flatten().min(),
        format: Some(to),
        oneway: call.is_oneway(),
        ..CallOptions::default()
    };
    let target = match &pair.numbered {
        Some(numbered) if !keeps_number => numbered.clone(),
        _ => target,
    };
    Ok(Forwarding { pair, target, options, to })
}

fn pick_upstream(route: &Route, proxies: &Proxies, call: &RawRequest) -> usize {
    match &route.sticky {
        None => route.pick(None),
        Some(Sticky::Metadata(name)) => route.pick(call.metadata().bytes(name).map(|value| &value[..])),
        Some(Sticky::Peer) => {
            let origin = proxies.origin(call);
            // Callers on Unix sockets have no address to distinguish them.
            let host = origin.map_or_else(|| call.context().peer().to_string(), |origin| origin.to_string());
            route.pick(Some(host.as_bytes()))
        }
    }
}
