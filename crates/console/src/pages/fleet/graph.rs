//! The graph of calls as SVG: callers to the left of their callees.

use std::collections::BTreeMap;

use crate::fleet::{CallGraph, Edge, Node};
use crate::html::Html;
use crate::text::format_count;

const COLUMN: usize = 290;
const ROW: usize = 56;
const BOX: (usize, usize) = (210, 38);
const MARGIN: usize = 8;

/// Maximum number of columns. What lies deeper is in the last one.
const COLUMNS: usize = 8;

/// How far below the top of a box the rates of the edges that lead to it are written, on its left, one after the other;
/// and of one that leads back from it, on its right. Further ones are only in the title of the edge.
const LABELS: &[usize] = &[15, 31, 3, 43];
const BACK_LABELS: &[usize] = &[47];

/// How far an edge that leads back bends aside, and below: its lowest point is between two rows.
const BEND: usize = 40;
const BELOW: usize = 2 * ROW / 3;

/// How many letters fit into a box.
const MAX_CHARS: usize = 30;

/// Adds the graph, and a table of the same.
pub(super) fn draw(html: &mut Html, graph: &CallGraph) {
    let cells = cells(&graph.nodes);
    let columns = cells.iter().map(|(column, _)| column + 1).max().unwrap_or(0);
    let rows = cells.iter().map(|(_, row)| row + 1).max().unwrap_or(0);
    let (width, height) = (columns * COLUMN, rows * ROW + MARGIN);
    html.raw("<div class=scroll tabindex=0><svg class=calls role=img aria-label=\"Who calls whom, as in the table\" viewBox=\"0 0 ");
    html.text(width).raw(" ").text(height).raw("\" width=").text(width).raw(" height=").text(height).raw(">");
    let mut labels = BTreeMap::<(usize, bool), usize>::new();
    for edge in &graph.edges {
        if let (Some(from), Some(to)) = (cells.get(edge.caller), cells.get(edge.callee)) {
            let is_back = to.0 <= from.0;
            draw_edge(html, edge, *from, *to);
            let (end, heights) = if is_back { (edge.caller, BACK_LABELS) } else { (edge.callee, LABELS) };
            let written = labels.entry((end, is_back)).or_default();
            if let Some(height) = heights.get(*written) {
                draw_rate(html, edge, if is_back { *from } else { *to }, *height, is_back);
            }
            *written += 1;
        }
    }
    for (node, cell) in graph.nodes.iter().zip(&cells) {
        draw_node(html, node, *cell);
    }
    html.raw("</svg></div>");
}

/// Returns the column and the row of each node.
fn cells(nodes: &[Node]) -> Vec<(usize, usize)> {
    let mut used = BTreeMap::<usize, usize>::new();
    let cell = |node: &Node| {
        let column = node.depth.min(COLUMNS - 1);
        let row = used.entry(column).or_default();
        *row += 1;
        (column, *row - 1)
    };
    nodes.iter().map(cell).collect()
}

fn corner((column, row): (usize, usize)) -> (usize, usize) {
    (column * COLUMN + MARGIN, row * ROW + MARGIN)
}

fn draw_node(html: &mut Html, node: &Node, cell: (usize, usize)) {
    let (x, y) = corner(cell);
    html.raw("<g><title>").text(&node.name).raw("</title><rect class=");
    html.raw(if node.servers > 0 { "node" } else { "outside" }).raw(" x=").text(x).raw(" y=").text(y);
    html.raw(" width=").text(BOX.0).raw(" height=").text(BOX.1).raw(" rx=4></rect><text x=").text(x + 8);
    html.raw(" y=").text(y + 16).raw(">").text(shorten(&node.name)).raw("</text><text class=small x=");
    html.text(x + 8).raw(" y=").text(y + 31).raw(">");
    match node.servers {
        0 => html.raw("not in the registry"),
        some => html.text(format_count(some, "server")),
    };
    html.raw("</text></g>");
}

/// Adds a line from the right of a node to the left of another; one that leads back, or stays in its column, bends
/// below.
fn draw_edge(html: &mut Html, edge: &Edge, from: (usize, usize), to: (usize, usize)) {
    let ((x, y), (end_x, top)) = (corner(from), corner(to));
    let (x, y, end_y) = (x + BOX.0, y + BOX.1 / 2, top + BOX.1 / 2);
    let (bend, bend_y, bend_end_y) = match end_x > x {
        true => ((end_x - x) / 2, y, end_y),
        false => {
            let below = y.max(end_y) + BELOW;
            (BEND, below, below)
        }
    };
    html.raw("<path class=").raw(if edge.failures_per_second > 0.0 { "failing" } else { "edge" });
    html.raw(" d=\"M").text(x).raw(" ").text(y).raw("C").text(x + bend).raw(" ").text(bend_y).raw(" ");
    html.text(end_x.saturating_sub(bend)).raw(" ").text(bend_end_y).raw(" ");
    html.text(end_x).raw(" ").text(end_y).raw("\"><title>");
    html.text(format_args!("{:.1}/s", edge.per_second)).raw("</title></path>");
}

/// Writes the rate of an edge beside a node: on its right if the edge leads back, and else on its left.
fn draw_rate(html: &mut Html, edge: &Edge, cell: (usize, usize), height: usize, is_back: bool) {
    let (x, top) = corner(cell);
    let x = if is_back { x + BOX.0 + 6 } else { x.saturating_sub(6) };
    html.raw("<text class=small x=").text(x).raw(" y=").text(top + height);
    html.raw(if is_back { ">" } else { " text-anchor=end>" });
    html.text(format_args!("{:.1}/s", edge.per_second)).raw("</text>");
}

fn shorten(name: &str) -> String {
    match name.chars().count() <= MAX_CHARS {
        true => name.to_owned(),
        false => name.chars().take(MAX_CHARS - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_cycles_stay_within_the_picture() {
        let node = |name: &str, depth| Node { name: name.into(), servers: depth, depth };
        let edge = |caller, callee, failing| Edge {
            caller,
            callee,
            per_second: 1.5,
            failures_per_second: failing,
            in_flight: 0,
        };
        let nodes = vec![node("<script>alert(1)</script>", 0), node(&"x".repeat(99), 1), node("c", 20)];
        let edges = vec![edge(0, 1, 0.0), edge(1, 0, 2.0), edge(2, 2, 0.0), edge(0, 7, 0.0)];
        let mut html = Html::default();
        draw(&mut html, &CallGraph { nodes, edges, links: Vec::new() });
        let text = html.into_string();
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;alert(1)"), "{text}");
        assert!(text.contains(&format!(">{}…</text>", "x".repeat(MAX_CHARS - 1))), "{text}");
        assert_eq!((text.matches("class=edge").count(), text.matches("class=failing").count()), (2, 1));
        assert!(text.contains("viewBox=\"0 0 2320 64\""), "{text}");
        // What leads back, or to itself, bends below its row.
        let below = BOX.1 / 2 + MARGIN + BELOW;
        assert_eq!(text.matches(&format!(" {below} ")).count(), 4, "{text}");
        // Their rates are on the right of their callers, where there is room in each column.
        let right = |column: usize| corner((column, 0)).0 + BOX.0 + 6;
        for column in [1, COLUMNS - 1] {
            assert!(text.contains(&format!("x={} y=55>1.5/s<", right(column))), "{text}");
        }
    }

    #[test]
    fn rates_of_several_callers_are_written_below_each_other() {
        let node = |name: String, depth| Node { name, servers: 1, depth };
        let callers = 0..6;
        let nodes = callers.clone().map(|n| node(format!("caller{n}"), 0)).chain([node("callee".into(), 1)]);
        let edge = |caller| Edge {
            caller,
            callee: 6,
            per_second: 10.0 + caller as f64,
            failures_per_second: 0.0,
            in_flight: 0,
        };
        let graph =
            CallGraph { nodes: nodes.collect(), edges: callers.map(edge).collect(), links: Vec::new() };
        let mut html = Html::default();
        draw(&mut html, &graph);
        let text = html.into_string();
        let height = |label: &str| {
            let before =
                text.split(&format!(" text-anchor=end>{label}/s<")).next().filter(|before| *before != text);
            before.map(|before| before.rsplit("y=").next().unwrap().parse::<usize>().unwrap())
        };
        let mut heights: Vec<_> = (10..16).filter_map(|rate| height(&format!("{rate}.0"))).collect();
        heights.sort_unstable();
        assert_eq!(heights.len(), LABELS.len(), "{text}");
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= 12), "{heights:?}");
        assert!((10..16).all(|rate| text.contains(&format!("<title>{rate}.0/s</title>"))), "{text}");
    }
}
