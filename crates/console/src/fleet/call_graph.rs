use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::snapshot::EndpointSnapshot;
use super::view::ServerView;

/// Graph of calls: servers with the same services are one node.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CallGraph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// The same server by server.
    pub(crate) links: Vec<Link>,
}

/// Servers with the same services, or one that the registry does not list.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// How many the registry lists.
    pub(crate) servers: usize,
    /// Its column: the maximum number of calls before it, except calls that lead back in a cycle.
    pub(crate) depth: usize,
}

/// Calls from one node to another.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub(crate) struct Edge {
    /// Indices of the nodes.
    pub(crate) caller: usize,
    pub(crate) callee: usize,
    pub(crate) per_second: f64,
    pub(crate) failures_per_second: f64,
    pub(crate) in_flight: u64,
}

/// Calls of a client of one server to another.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub(crate) struct Link {
    pub(crate) caller: String,
    pub(crate) callee: String,
    /// Whether the registry lists the server that is called.
    pub(crate) is_listed: bool,
    pub(crate) client: String,
    pub(crate) protocol: String,
    pub(crate) attempts: u64,
    pub(crate) per_second: f64,
    pub(crate) failures_per_second: f64,
    pub(crate) in_flight: u64,
}

/// How many nodes and links there are at most; those with fewer calls are omitted.
const NODES: usize = 60;
const LINKS: usize = 1_000;

/// Merges the reports of the clients of all servers.
pub(crate) fn call_graph(servers: &[ServerView]) -> CallGraph {
    let snapshots = || servers.iter().filter_map(|server| Some((server, server.snapshot.as_deref()?)));
    // A server that could not be queried is listed all the same.
    let names: BTreeMap<&str, String> =
        servers.iter().map(|server| (server.address.as_str(), node_name(server))).collect();
    let mut calls: Vec<_> = snapshots()
        .flat_map(|(server, snapshot)| snapshot.calls.iter().map(move |call| (server, call)))
        .collect();
    // The busiest first.
    calls.sort_by(|(_, one), (_, other)| {
        other.per_second.total_cmp(&one.per_second).then(other.attempts.cmp(&one.attempts))
    });
    calls.truncate(LINKS);
    let links: Vec<_> = calls.into_iter().map(|(server, call)| link(server, call, &names)).collect();
    let mut graph = CallGraph::default();
    let mut indices = BTreeMap::new();
    for link in &links {
        let ends = [&link.caller, &link.callee].map(|address| names.get(address.as_str()).unwrap_or(address));
        let [Some(caller), Some(callee)] = ends.map(|name| graph.index_of(&mut indices, name)) else {
            continue;
        };
        graph.add(caller, callee, link);
    }
    for name in names.values() {
        if let Some(node) = indices.get(name).and_then(|index: &usize| graph.nodes.get_mut(*index)) {
            node.servers += 1;
        }
    }
    graph.set_depths();
    CallGraph { links, ..graph }
}

/// Returns the services of a server; its address if it reports none.
fn node_name(server: &ServerView) -> String {
    const NAMED: usize = 3;
    let services = server.snapshot.iter().flat_map(|snapshot| &snapshot.services).map(String::as_str);
    let services: BTreeSet<&str> = services.filter(|service| !service.is_empty()).collect();
    let named: Vec<&str> = services.iter().copied().take(NAMED).collect();
    match services.len() {
        0 => server.address.clone(),
        more if more > NAMED => format!("{} and {} more", named.join(", "), more - NAMED),
        _ => named.join(", "),
    }
}

fn link(server: &ServerView, call: &EndpointSnapshot, names: &BTreeMap<&str, String>) -> Link {
    Link {
        caller: server.address.clone(),
        callee: call.address.clone(),
        is_listed: names.contains_key(call.address.as_str()),
        client: call.client.clone(),
        protocol: call.protocol.clone(),
        attempts: call.attempts,
        per_second: call.per_second,
        failures_per_second: call.failures_per_second,
        in_flight: call.in_flight,
    }
}

impl CallGraph {
    /// Returns the index of a node, which is added if there is room.
    fn index_of(&mut self, indices: &mut BTreeMap<String, usize>, name: &str) -> Option<usize> {
        if let Some(known) = indices.get(name) {
            return Some(*known);
        }
        if self.nodes.len() >= NODES {
            return None;
        }
        self.nodes.push(Node { name: name.to_owned(), servers: 0, depth: 0 });
        indices.insert(name.to_owned(), self.nodes.len() - 1);
        Some(self.nodes.len() - 1)
    }

    fn add(&mut self, caller: usize, callee: usize, link: &Link) {
        let known = self.edges.iter_mut().find(|edge| edge.caller == caller && edge.callee == callee);
        match known {
            Some(edge) => {
                edge.per_second += link.per_second;
                edge.failures_per_second += link.failures_per_second;
                edge.in_flight = edge.in_flight.saturating_add(link.in_flight);
            }
            None => self.edges.push(Edge {
                caller,
                callee,
                per_second: link.per_second,
                failures_per_second: link.failures_per_second,
                in_flight: link.in_flight,
            }),
        }
    }

    /// Puts each node after its callers, except for calls that close a cycle.
    fn set_depths(&mut self) {
        let mut order = CallOrder::new(self);
        // Each caller comes before all that it calls.
        while let Some(caller) = order.left.pop() {
            let behind = self.nodes.get(caller).map_or(0, |caller| caller.depth + 1);
            let leads_on = |(callee, is_back): &(usize, bool)| (!is_back).then_some(*callee);
            for callee in order.callees.get(caller).into_iter().flatten().filter_map(leads_on) {
                if let Some(callee) = self.nodes.get_mut(callee) {
                    callee.depth = callee.depth.max(behind);
                }
            }
        }
    }
}

/// The order in which a depth-first search leaves nodes: a node's callees are left before it.
struct CallOrder {
    /// What each node calls, and whether that call closes a cycle.
    callees: Vec<Vec<(usize, bool)>>,
    progress: Vec<Progress>,
    left: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    New,
    /// The search is at what it calls.
    Within,
    Left,
}

impl CallOrder {
    fn new(graph: &CallGraph) -> Self {
        let mut callees = vec![Vec::new(); graph.nodes.len()];
        for edge in &graph.edges {
            if let Some(callees) = callees.get_mut(edge.caller) {
                callees.push((edge.callee, false));
            }
        }
        let mut order = Self { callees, progress: vec![Progress::New; graph.nodes.len()], left: Vec::new() };
        // Nodes without callers first: a cycle is then entered where calls come from.
        let called: BTreeSet<usize> = graph.edges.iter().map(|edge| edge.callee).collect();
        let all = 0..graph.nodes.len();
        all.clone().filter(|node| !called.contains(node)).chain(all).for_each(|node| order.search(node));
        order
    }

    /// Searches from a node. It recurses at most as deep as there are nodes, [`NODES`].
    fn search(&mut self, node: usize) {
        if self.progress.get(node) != Some(&Progress::New) {
            return;
        }
        self.set(node, Progress::Within);
        let mut callees = self.callees.get_mut(node).map(std::mem::take).unwrap_or_default();
        for (callee, is_back) in &mut callees {
            *is_back = self.progress.get(*callee) == Some(&Progress::Within);
            self.search(*callee);
        }
        if let Some(known) = self.callees.get_mut(node) {
            *known = callees;
        }
        self.set(node, Progress::Left);
        self.left.push(node);
    }

    fn set(&mut self, node: usize, now: Progress) {
        if let Some(progress) = self.progress.get_mut(node) {
            *progress = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::snapshot::{Kind, ServerSnapshot};
    use super::*;

    fn server(address: &str, service: &str, calls: &[(&str, f64)]) -> ServerView {
        let call = |(address, per_second): &(&str, f64)| EndpointSnapshot {
            client: "c".into(),
            protocol: "rpcx".into(),
            address: (*address).into(),
            per_second: *per_second,
            in_flight: 1,
            ..EndpointSnapshot::default()
        };
        let snapshot = ServerSnapshot {
            kind: Kind::PolyRpc,
            version: "1".into(),
            ready: true,
            uptime: 1.0,
            connections: 0,
            settings: BTreeMap::new(),
            methods: Vec::new(),
            services: vec![service.into()],
            calls: calls.iter().map(call).collect(),
        };
        ServerView {
            snapshot: Some(Arc::new(snapshot)),
            ..ServerView::new(address.into(), Ok(address.into()))
        }
    }

    #[test]
    fn servers_of_a_service_are_one_node() {
        let servers = [
            server("a:1", "Web", &[("b:1", 10.0), ("b:2", 20.0)]),
            server("b:1", "Shop", &[("c:1", 5.0), ("db:1", 1.0)]),
            server("b:2", "Shop", &[("c:1", 7.0)]),
            server("c:1", "Stock", &[]),
        ];
        let graph = call_graph(&servers);
        let name = |index: usize| graph.nodes[index].name.as_str();
        let mut edges: Vec<_> = graph
            .edges
            .iter()
            .map(|edge| {
                format!(
                    "{} -> {} {} {}",
                    name(edge.caller),
                    name(edge.callee),
                    edge.per_second,
                    edge.in_flight
                )
            })
            .collect();
        edges.sort();
        assert_eq!(edges, ["Shop -> Stock 12 2", "Shop -> db:1 1 1", "Web -> Shop 30 2"]);
        let node = |wanted: &str| graph.nodes.iter().find(|node| node.name == wanted).unwrap();
        assert_eq!((node("Web").depth, node("Shop").depth, node("Stock").depth), (0, 1, 2));
        assert_eq!((node("Shop").servers, node("db:1").servers, graph.links.len()), (2, 0, 5));
        assert_eq!((&*graph.links[0].callee, graph.links[0].is_listed), ("b:2", true));
    }

    #[test]
    fn listed_server_that_could_not_be_queried_is_known() {
        let servers =
            [server("a:1", "Web", &[("b:1", 1.0)]), ServerView::new("b:1".into(), Ok("b:1".into()))];
        let graph = call_graph(&servers);
        let node = graph.nodes.iter().find(|node| node.name == "b:1").unwrap();
        assert_eq!((node.servers, graph.links[0].is_listed), (1, true));
    }

    #[test]
    fn cycle_does_not_move_other_nodes() {
        // Ten nodes in a row; the fifth calls the third, and the last calls itself.
        let name = |n: usize| format!("s{n}:1");
        let names: Vec<_> = (0..10).map(name).collect();
        let servers: Vec<_> = (0..10)
            .map(|n| {
                let back = if n == 4 { Some(2) } else { (n == 9).then_some(9) };
                let called = names.get(n + 1).into_iter().chain(back.and_then(|back| names.get(back)));
                let calls: Vec<_> = called.map(|name| (name.as_str(), 1.0)).collect();
                server(&names[n], &format!("Service{n}"), &calls)
            })
            .collect();
        let graph = call_graph(&servers);
        assert_eq!((graph.nodes.len(), graph.edges.len()), (10, 11));
        for n in 0..10 {
            let node = graph.nodes.iter().find(|node| node.name == format!("Service{n}")).unwrap();
            assert_eq!(node.depth, n, "{}", node.name);
        }
    }

    #[test]
    fn cycles_and_many_servers_are_bounded() {
        let cycle = [server("a:1", "A", &[("b:1", 1.0), ("a:1", 1.0)]), server("b:1", "B", &[("a:1", 1.0)])];
        let graph = call_graph(&cycle);
        assert!(graph.nodes.iter().all(|node| node.depth < 2) && graph.edges.len() == 3, "{graph:?}");
        let addresses: Vec<String> = (0..2_000).map(|n| format!("x:{n}")).collect();
        let calls: Vec<_> = addresses.iter().map(|address| (address.as_str(), 1.0)).collect();
        let many = call_graph(&[server("a:1", "A", &calls)]);
        assert_eq!((many.nodes.len(), many.links.len()), (NODES, LINKS));
    }
}
