use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polyrpc::layer::Side;

use super::span::Span;

/// A span with those that were called within it, in the order of their beginnings.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Arc<Span>,
    pub(crate) children: Vec<Self>,
    /// Whether it is on the critical path: the trace would have been shorter if this span had been.
    pub(crate) is_critical: bool,
}

/// Depth of a tree of spans: a trace may have any number of spans, each within another.
const MAX_DEPTH: usize = 100;

/// Arranges the spans of a trace. There are several roots if spans of the trace are missing here, or nested more than
/// [`MAX_DEPTH`] deep.
///
/// The two sides of a call may share an id, as in brpc: then the server's is within the client's.
pub(crate) fn tree(mut spans: Vec<Arc<Span>>) -> Vec<Node> {
    // A client's before the server's within it, even if the clocks of two machines differ.
    spans.sort_by_key(|span| (span.began, span.side));
    let ids: HashSet<(u64, Side)> = spans.iter().map(|span| (span.id, span.side)).collect();
    let mut children = BTreeMap::<Option<(u64, Side)>, Vec<Arc<Span>>>::new();
    for span in spans {
        let parent = parent_of(&span, &ids);
        children.entry(parent).or_default().push(span);
    }
    let mut roots = nodes(None, &mut children, MAX_DEPTH);
    // Spans that claim to be within each other have no root, and those that are nested too deeply have not been reached.
    while let Some(mut rest) = children.pop_first().map(|(_, rest)| rest) {
        let span = rest.remove(0);
        let own = (span.id, span.side);
        let within = nodes(Some(own), &mut children, MAX_DEPTH);
        roots.push(Node { span, children: within, is_critical: false });
        roots.extend(rest.into_iter().map(|span| Node { span, children: Vec::new(), is_critical: false }));
    }
    for root in &mut roots {
        let end = root.span.end();
        mark(root, end);
    }
    roots
}

/// Returns the span within which another is, if it is here.
fn parent_of(span: &Span, ids: &HashSet<(u64, Side)>) -> Option<(u64, Side)> {
    let caller = (span.id, Side::Client);
    if span.side == Side::Server && ids.contains(&caller) {
        return Some(caller);
    }
    let id = span.parent?;
    let sides = match span.side {
        // A server's caller is a client, and a client's caller is a handler, as far as they are here.
        Side::Server => [Side::Client, Side::Server],
        Side::Client => [Side::Server, Side::Client],
    };
    sides.into_iter().map(|side| (id, side)).find(|key| ids.contains(key) && *key != (span.id, span.side))
}

fn nodes(
    of: Option<(u64, Side)>,
    children: &mut BTreeMap<Option<(u64, Side)>, Vec<Arc<Span>>>,
    depth: usize,
) -> Vec<Node> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let own = children.remove(&of).unwrap_or_default();
    let node = |span: Arc<Span>| {
        let key = (span.id, span.side);
        Node { span, children: nodes(Some(key), children, depth), is_critical: false }
    };
    own.into_iter().map(node).collect()
}

/// Tolerated contradiction between the times of two spans: the start of a span is read from the wall clock, its
/// duration from another clock.
const MAX_CLOCK_SKEW: Duration = Duration::from_micros(100);

/// Marks the spans that the end of a node waited for: the child that ended last before it, then the one that ended last
/// before that one began, and so on.
fn mark(node: &mut Node, until: SystemTime) {
    node.is_critical = true;
    let mut until = until.min(node.span.end());
    loop {
        let last = node
            .children
            .iter_mut()
            .filter(|child| !child.is_critical && child.span.began < until)
            .filter(|child| child.span.end() <= until + MAX_CLOCK_SKEW)
            .max_by_key(|child| child.span.end());
        let Some(last) = last else { return };
        mark(last, until);
        until = last.span.began;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u64, parent: Option<u64>, side: Side, began: u64, took: u64) -> Arc<Span> {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        Arc::new(Span {
            trace: 1,
            id,
            parent,
            side,
            protocol: "grpc",
            name: "a/b".into(),
            peer: "".into(),
            log_id: 0,
            began: at(began),
            queued: None,
            took: Duration::from_millis(took),
            request: 0,
            reply: 0,
            failure: None,
            events: Vec::new(),
        })
    }

    fn format_nodes(nodes: &[Node]) -> String {
        let one = |node: &Node| {
            let critical = if node.is_critical { "!" } else { "" };
            format!("{}{critical}({})", node.span.id, format_nodes(&node.children))
        };
        nodes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn calls_are_within_their_callers_and_the_slowest_way_is_marked() {
        let spans = vec![
            span(5, Some(4), Side::Server, 62, 20),
            span(1, None, Side::Client, 0, 100),
            span(2, Some(1), Side::Server, 5, 90),
            // Two at a time, then one.
            span(3, Some(2), Side::Client, 10, 30),
            span(6, Some(2), Side::Client, 10, 45),
            span(4, Some(2), Side::Client, 60, 30),
        ];
        assert_eq!(format_nodes(&tree(spans)), "1!(2!(3() 6!() 4!(5!())))");
    }

    #[test]
    fn clocks_may_contradict_each_other_a_little() {
        let mut late = Arc::unwrap_or_clone(span(2, Some(1), Side::Client, 5, 5));
        late.took += Duration::from_micros(50);
        let spans = vec![span(1, None, Side::Server, 0, 10), Arc::new(late)];
        assert_eq!(format_nodes(&tree(spans)), "1!(2!())");
    }

    #[test]
    fn sides_of_brpc_share_an_id() {
        let spans = vec![span(7, None, Side::Server, 1, 5), span(7, None, Side::Client, 0, 9)];
        assert_eq!(format_nodes(&tree(spans)), "7!(7!())");
    }

    #[test]
    fn missing_and_contradictory_parents_lose_no_span() {
        let spans = vec![
            span(1, Some(99), Side::Server, 0, 5),
            span(2, Some(3), Side::Client, 1, 5),
            span(3, Some(2), Side::Client, 2, 5),
            span(4, Some(4), Side::Client, 3, 5),
        ];
        assert_eq!(count(&tree(spans)), 4);
    }

    #[test]
    fn chain_of_many_spans_is_arranged_in_several_trees() {
        let chain = (1..=20_000).map(|id| span(id, Some(id - 1), Side::Server, id, 5)).collect();
        let trees = tree(chain);
        assert_eq!(count(&trees), 20_000);
        assert!(trees.len() >= 20_000 / (MAX_DEPTH + 1), "{}", trees.len());
    }

    fn count(nodes: &[Node]) -> usize {
        nodes.iter().map(|node| 1 + count(&node.children)).sum()
    }
}
