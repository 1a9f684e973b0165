//! What a configuration cannot do, found without a call.

use std::collections::BTreeSet;
use std::fmt;

use polyrpc::Protocol;
use polyrpc_core::protocol::Streams;
use polyrpc_transform::Impossible;

use super::pairs::Pair;
use super::route::Route;
use super::upstream::Upstream;
use super::{Plan, formats};
use crate::config::Config;
use crate::problem::{Problem, Problems};

/// A pair of formats that a route refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Line of the route.
    pub line: usize,
    /// Which callers and methods are refused, and why.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Tries every route with the methods that its schemas declare. Returns what single callers are refused.
pub(crate) fn check(config: &Config) -> Result<Vec<Note>, Problems> {
    let plan = Plan::new(config, None)?;
    let reflects = !config.schema.reflect.is_empty();
    let protocols: BTreeSet<_> =
        config.listen.iter().flat_map(|listen| listen.protocols()).map(|it| it.as_str()).collect();
    let protocols: Vec<_> =
        Protocol::ALL.into_iter().filter(|protocol| protocols.contains(protocol.as_str())).collect();
    let (mut notes, mut problems) = (Vec::new(), Vec::new());
    for route in &plan.routes {
        for upstream in route.upstreams() {
            for target in plan.declared(route) {
                let refused = refused(&plan, route, upstream, target.as_deref(), &protocols);
                let name = target.as_deref().unwrap_or("methods that nothing declares");
                let text = |protocol: Protocol, why: &str| {
                    format!("`{}` refuses {} callers of {name}: {why}", upstream.spec.name, protocol.as_str())
                };
                // Reflection may declare the rest.
                let certain = target.is_some() || !reflects;
                if certain && refused.len() == protocols.len() {
                    let whys: Vec<_> = refused.iter().map(|(protocol, why)| text(*protocol, why)).collect();
                    problems.push(Problem::new(route.line, whys.join("; ")));
                } else if target.is_some() {
                    let note = |(protocol, why): &(Protocol, String)| Note {
                        line: route.line,
                        text: text(*protocol, why),
                    };
                    notes.extend(refused.iter().map(note));
                }
            }
        }
    }
    if problems.is_empty() { Ok(notes) } else { Err(Problems(problems)) }
}

/// The protocols whose callers are refused, with the reason: no usual format can be translated.
fn refused(
    plan: &Plan,
    route: &Route,
    upstream: &Upstream,
    target: Option<&str>,
    protocols: &[Protocol],
) -> Vec<(Protocol, String)> {
    let numbered = upstream.client.protocol() == Protocol::FbRpc;
    let mut all = Vec::new();
    for protocol in protocols {
        let mut reason = None;
        for from in formats::usual(*protocol) {
            let to = upstream.format(*from);
            let pair =
                Pair::new(&plan.schemas, target.unwrap_or_default(), (*from, to), route.on_loss, numbered);
            match impossible(&pair).or_else(|| streams(&pair, *protocol, upstream)) {
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

fn impossible(pair: &Pair) -> Option<String> {
    let request = pair.request.as_ref().err();
    request.or_else(|| pair.response.as_ref().err()).map(Impossible::to_string)
}

/// Why a streaming method cannot be called over these protocols.
fn streams(pair: &Pair, from: Protocol, upstream: &Upstream) -> Option<String> {
    let shape = pair.shape?;
    if !shape.client_streams && !shape.server_streams {
        return None;
    }
    let lacks = |protocol: Protocol| protocol.descriptor().capabilities.streams == Streams::None;
    let lacking = [from, upstream.client.protocol()].into_iter().find(|protocol| lacks(*protocol));
    lacking.map(|protocol| format!("the method streams, which {} cannot", protocol.as_str()))
}

impl Plan {
    /// The declared methods that a route may get, in the upstream's words; `None` stands for all others.
    fn declared(&self, route: &Route) -> Vec<Option<String>> {
        let mut targets = Vec::new();
        for target in self.schemas.targets() {
            let (service, method) = target.rsplit_once('/').unwrap_or(("", &target));
            let renamed = |new: &Option<String>, name: &str| new.as_ref().map(|new| new == name);
            let own_service = renamed(&route.rename.service, service);
            let own_method = renamed(&route.rename.method, method);
            let is_own = match (own_service, own_method) {
                (None, None) => route.matches_names(service, method),
                (own_service, own_method) => own_service != Some(false) && own_method != Some(false),
            };
            if is_own && !targets.contains(&Some(target.clone())) {
                targets.push(Some(target));
            }
        }
        if targets.is_empty() { vec![None] } else { targets }
    }
}
