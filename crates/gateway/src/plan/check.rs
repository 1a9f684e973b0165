//! Finds, without making calls, which calls a configuration cannot forward.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use polyrpc::Protocol;
use polyrpc_core::protocol::Streams;
use polyrpc_transform::TranslatorError;

use super::Plan;
use super::route::Route;
use crate::config::{Config, Lined, Listen, Upstream as UpstreamSpec};
use crate::config_error::{ConfigError, ConfigErrors};
use crate::pairs::Pair;
use crate::upstream::{ENDS_TOGETHER, Upstream, usual_formats};

/// Callers that a route rejects, found by `--check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckWarning {
    /// Line of the route.
    pub line: usize,
    /// Which callers and methods are rejected, and why.
    pub text: String,
}

impl fmt::Display for CheckWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Tries every route with the methods that its schemas declare. Returns the rejections that affect only some callers.
pub(crate) fn check(config: &Config) -> Result<Vec<CheckWarning>, ConfigErrors> {
    let plan = Plan::to_check(config)?;
    check_routes(&plan, config, !config.schema.reflect.is_empty())
}

/// `reflects`: reflection may declare further methods, so that unknown ones are no error.
pub(crate) fn check_routes(
    plan: &Plan,
    config: &Config,
    reflects: bool,
) -> Result<Vec<CheckWarning>, ConfigErrors> {
    let protocols: BTreeSet<_> =
        config.listen.iter().flat_map(|listen| listen.protocols()).map(|it| it.as_str()).collect();
    let protocols: Vec<_> =
        Protocol::ALL.into_iter().filter(|protocol| protocols.contains(protocol.as_str())).collect();
    // Everybody accepts these by default, and hardly anybody has what their callers need.
    let is_rare = |protocol: Protocol| [Protocol::FbRpc, Protocol::RestRpc].contains(&protocol);
    let names =
        |listen: &Listen, protocol| !listen.protocols.is_empty() && listen.protocols().contains(&protocol);
    let is_named = |protocol: Protocol| config.listen.iter().any(|listen| names(listen, protocol));
    let (mut notes, mut problems) = (unreachable_routes(plan), Vec::new());
    for route in plan.routes.iter().filter(|route| route.topic().is_none()) {
        for upstream in route.targets().iter().map(|target| &target.upstream) {
            let declared = plan.matching_methods(route);
            let mut refusals = Refusals::default();
            let mut dead = 0;
            for target in &declared {
                let names = target.as_ref().map(|(callers, target)| (callers.as_str(), target.as_str()));
                let refused = find_refused(plan, route, upstream, names, &protocols);
                // Reflection may declare the rest.
                let certain = target.is_some() || !reflects;
                dead += usize::from(certain && refused.len() == protocols.len());
                let name = names.map_or(UNDECLARED, |(_, target)| target);
                refused.into_iter().for_each(|(protocol, why)| refusals.add(protocol, name, why));
            }
            if dead == declared.len() {
                let whys = refusals.texts(&upstream.spec.name, |_| true);
                problems.push(ConfigError::new(route.line, whys.join("; ")));
            } else if declared.iter().all(Option::is_some) {
                let texts =
                    refusals.texts(&upstream.spec.name, |protocol| !is_rare(protocol) || is_named(protocol));
                notes.extend(texts.into_iter().map(|text| CheckWarning { line: route.line, text }));
            }
        }
    }
    if problems.is_empty() {
        notes.extend(unrecorded_messages(plan, config));
        notes.extend(dropped_pushes(plan, config));
        notes.extend(loops(plan, config));
        Ok(notes)
    } else {
        Err(ConfigErrors(problems))
    }
}

/// How texts call methods without a declaration.
const UNDECLARED: &str = "methods that nothing declares";

/// The callers that one upstream of a route refuses: methods by protocol and reason.
#[derive(Default)]
struct Refusals(Vec<(Protocol, String, Vec<String>)>);

impl Refusals {
    fn add(&mut self, protocol: Protocol, method: &str, why: String) {
        match self.0.iter_mut().find(|(of, reason, _)| *of == protocol && *reason == why) {
            Some((.., methods)) => methods.push(method.to_owned()),
            None => self.0.push((protocol, why, vec![method.to_owned()])),
        }
    }

    /// One text for each reason and methods, with the protocols that have it.
    fn texts(&self, upstream: &str, counts: impl Fn(Protocol) -> bool) -> Vec<String> {
        let mut groups: Vec<(&str, &[String], Vec<&str>)> = Vec::new();
        for (protocol, why, methods) in self.0.iter().filter(|(protocol, ..)| counts(*protocol)) {
            match groups.iter_mut().find(|(reason, of, _)| (*reason, *of) == (why.as_str(), &methods[..])) {
                Some((.., protocols)) => protocols.push(protocol.as_str()),
                None => groups.push((why.as_str(), &methods[..], vec![protocol.as_str()])),
            }
        }
        let text = |(why, methods, protocols): (&str, &[String], Vec<&str>)| {
            let names = match methods {
                [sole] => sole.clone(),
                [one, other] => format!("{one} and {other}"),
                [first, ..] => format!("{} methods ({first}, …)", methods.len()),
                [] => String::new(),
            };
            format!("`{upstream}` refuses {} callers of {names}: {why}", protocols.join(", "))
        };
        groups.into_iter().map(text).collect()
    }
}

/// Routes that get no calls, since one before them takes all that they match.
fn unreachable_routes(plan: &Plan) -> Vec<CheckWarning> {
    let before = |n: usize| plan.routes[..n].iter().find(|before| before.covers(&plan.routes[n]));
    let note = |n: usize| {
        let before = before(n)?;
        let text = format!(
            "the route gets no calls: the one before it at line {} takes all that it matches; swap them",
            before.line
        );
        Some(CheckWarning { line: plan.routes[n].line, text })
    };
    (0..plan.routes.len()).filter_map(note).collect()
}

/// Protobuf messages that a recording drops, since its rules need their types.
fn unrecorded_messages(plan: &Plan, config: &Config) -> Vec<CheckWarning> {
    let Some(record) = config.record.as_ref().filter(|record| record.has_rules()) else { return Vec::new() };
    let has_protobuf = [Protocol::BaiduStd, Protocol::Grpc].into_iter().any(|it| config.accepts(it));
    let routes = plan.routes.iter().filter(|route| has_protobuf && route.is_recorded);
    let undeclared = |callers: &str| !plan.schemas.protos().any(|source| source.types(callers).is_ok());
    let text = |callers: &str| {
        format!(
            "[record]: protobuf messages of {callers} are not kept: no .proto declares it under this name"
        )
    };
    let of_route = |route: &Arc<Route>| {
        let methods = plan.matching_methods(route).into_iter().flatten();
        let lost = methods.filter(|(callers, _)| undeclared(callers));
        lost.map(|(callers, _)| CheckWarning { line: record.line, text: text(&callers) }).collect::<Vec<_>>()
    };
    let mut notes: Vec<_> = routes.flat_map(of_route).collect();
    notes.dedup();
    notes
}

/// Upstreams whose servers may push messages, which are dropped although callers of the same protocol may expect them.
fn dropped_pushes(plan: &Plan, config: &Config) -> Vec<CheckWarning> {
    let pushes = |protocol: Protocol| protocol.descriptor().capabilities.push && config.accepts(protocol);
    let upstreams = config.upstream.iter().zip(&plan.upstreams);
    let pushing = upstreams.filter(|(_, upstream)| pushes(upstream.protocol()));
    let note = |(spec, upstream): (&Lined<UpstreamSpec>, &Arc<Upstream>)| {
        let (name, protocol) = (&spec.name, upstream.protocol().as_str());
        let text =
            format!("messages that {protocol} servers of `{name}` push are dropped: they belong to no call");
        CheckWarning { line: spec.line, text }
    };
    pushing.map(note).collect()
}

/// Upstreams that are this gateway. Where the protocol has no metadata, nothing counts how often a call has passed it.
fn loops(plan: &Plan, config: &Config) -> Vec<CheckWarning> {
    let is_own = |url: &str| {
        let authority = url.split_once("://").map_or("", |(_, authority)| authority);
        let authority = authority.split(['/', '?']).next().unwrap_or_default();
        config.listen.iter().any(|listen| !authority.ends_with(":0") && listen.address == authority)
    };
    let own = config.upstream.iter().zip(&plan.upstreams).filter(|(spec, _)| is_own(&spec.url));
    let note = |(spec, upstream): (&Lined<UpstreamSpec>, &Arc<Upstream>)| {
        let counted = match upstream.protocol().descriptor().capabilities.carries_metadata() {
            true => "calls end after 8 rounds",
            false => "its protocol has no metadata, so that nothing counts the rounds of a call",
        };
        CheckWarning { line: spec.line, text: format!("`{}` is this gateway itself: {counted}", spec.name) }
    };
    own.map(note).collect()
}

/// The protocols whose callers are rejected because none of their usual formats can be translated, with the reasons.
fn find_refused(
    plan: &Plan,
    route: &Route,
    upstream: &Upstream,
    names: Option<(&str, &str)>,
    protocols: &[Protocol],
) -> Vec<(Protocol, String)> {
    let numbered = upstream.protocol() == Protocol::FbRpc;
    let mut all = Vec::new();
    for protocol in protocols {
        let mut reason = None;
        for from in usual_formats(*protocol) {
            let to = upstream.format(*from);
            let pair =
                Pair::new(&plan.schemas, names.unwrap_or_default(), (*from, to), route.on_loss, numbered);
            match why_untranslatable(&pair).or_else(|| why_unstreamable(&pair, *protocol, upstream)) {
                None => {
                    reason = None;
                    break;
                }
                Some(why) => reason = reason.or(Some(why)),
            }
        }
        all.extend(reason.map(|why| (*protocol, why)));
    }
    all
}

fn why_untranslatable(pair: &Pair) -> Option<String> {
    let request = pair.request.as_ref().err();
    request.or_else(|| pair.response.as_ref().err()).map(TranslatorError::to_string)
}

/// Why a streaming method cannot be called over these protocols.
fn why_unstreamable(pair: &Pair, from: Protocol, upstream: &Upstream) -> Option<String> {
    let shape = pair.stream_type?;
    if !shape.client_streaming && !shape.server_streaming {
        return None;
    }
    let lacks = |protocol: Protocol| protocol.descriptor().capabilities.streams == Streams::None;
    let lacking = [from, upstream.protocol()].into_iter().find(|protocol| lacks(*protocol));
    if let Some(protocol) = lacking {
        return Some(format!("the method streams, which {} cannot", protocol.as_str()));
    }
    let is_attached = |protocol: Protocol| protocol.descriptor().capabilities.streams == Streams::Attached;
    if !is_attached(from) || is_attached(upstream.protocol()) || !shape.client_streaming {
        return None;
    }
    match shape.server_streaming {
        true => upstream.is_half_duplex().then(|| ENDS_TOGETHER.to_owned()),
        false => Some("a brpc stream ends in both directions at once, before the response".to_owned()),
    }
}

impl Plan {
    /// The declared methods that a route may match, by their names for callers and for the upstream; `None` stands for
    /// all others.
    fn matching_methods(&self, route: &Route) -> Vec<Option<(String, String)>> {
        let declared: Vec<_> = self.schemas.targets().collect();
        let mut found: Vec<(String, String)> = Vec::new();
        let mut add = |callers: &str, target: String| {
            if !found.iter().any(|(_, known)| *known == target) {
                found.push((callers.to_owned(), target));
            }
        };
        for callers in &declared {
            let (service, method) = split(callers);
            let target = route.upstream_method(service, method);
            // A route for every service also matches methods that its new name does not fit.
            let fits = target == *callers || route.has_service_pattern() || declared.contains(&target);
            if route.matches_names(service, method) && fits {
                add(callers, target);
            }
        }
        for target in declared.iter().filter(|target| route.may_rename_to(split(target))) {
            add(target, target.clone());
        }
        match found.is_empty() {
            true => vec![None],
            false => found.into_iter().map(Some).collect(),
        }
    }
}

fn split(target: &str) -> (&str, &str) {
    target.rsplit_once('/').unwrap_or(("", target))
}
