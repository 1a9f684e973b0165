//! `/tasks`: the calls in flight, and the handlers that have blocked the threads of their connections.

use std::time::{Duration, Instant};

use polyrpc::layer::Side;
use polyrpc::layers::RunningCall;
use serde::Serialize;

use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::stalls::{self, StallCounts};
use crate::stats::micros;
use crate::text::Text;
use crate::time::Date;
use crate::wildcard::Wildcards;

#[derive(Serialize)]
struct Tasks {
    /// How many calls are in flight that a filter accepts.
    total: usize,
    /// The oldest of them.
    calls: Vec<Task>,
    stalls: Vec<StallRow>,
    #[serde(skip)]
    method: String,
}

/// A call. Times are in microseconds.
#[derive(Serialize)]
struct Task {
    name: String,
    side: &'static str,
    protocol: &'static str,
    peer: String,
    /// `None` if it is in its first poll, and no look has seen it before.
    age: Option<u64>,
    phase: &'static str,
    /// The thread that runs its handler now.
    thread: Option<String>,
    /// For how long the thread has been in it.
    blocks: Option<u64>,
}

/// The stalls of a method. Times are in microseconds.
#[derive(Serialize)]
struct StallRow {
    name: String,
    count: u64,
    longest: u64,
    last: String,
    thread: String,
}

/// How many calls are shown.
const MAX_SHOWN_CALLS: usize = 1_000;

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let method = request.parameter("method").unwrap_or_default();
    let wanted = match Wildcards::parse(method) {
        Ok(wanted) => wanted,
        Err((status, why)) => return failure(request, status, why),
    };
    let now = Instant::now();
    let mut calls: Vec<_> = state.metrics().iter().flat_map(|metrics| metrics.calls_in_flight()).collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.age));
    if !wanted.is_empty() {
        calls.retain(|call| {
            let name = stalls::name(call);
            wanted.accept(&name) || wanted.accept(&name.replace('/', "."))
        });
    }
    let total = calls.len();
    let calls = calls.iter().take(MAX_SHOWN_CALLS).map(|call| Task::new(call, state, now)).collect();
    let stalls = state.stalls.methods().into_iter().map(StallRow::new).collect();
    render(request, &Tasks { total, calls, stalls, method: method.to_owned() })
}

impl Task {
    fn new(call: &RunningCall, state: &State, now: Instant) -> Self {
        let since = call.poll.and_then(|poll| state.stalls.since(&poll));
        let blocks = since.map(|since| now.saturating_duration_since(since));
        let phase = match (call.side, call.poll) {
            (_, Some(_)) => "runs",
            (Side::Server, None) => "handler waits",
            (Side::Client, None) => "waits for the server",
        };
        Self {
            name: stalls::name(call),
            side: call.side.as_str(),
            protocol: call.protocol,
            peer: call.peer.as_ref().map(ToString::to_string).unwrap_or_default(),
            age: call.age.or(blocks).map(micros),
            phase,
            thread: call.poll.map(|poll| poll.thread_name()),
            blocks: blocks.map(micros),
        }
    }

    fn phase(&self) -> String {
        match (&self.thread, self.blocks) {
            (Some(thread), Some(blocks)) => {
                let blocks = Duration::from_micros(blocks).as_secs_f64();
                format!("{} on {thread} for {blocks:.3} s", self.phase)
            }
            (Some(thread), None) => format!("{} on {thread}", self.phase),
            (None, _) => self.phase.to_owned(),
        }
    }

    fn age(&self) -> String {
        self.age.map_or_else(|| "-".to_owned(), |age| age.to_string())
    }
}

impl StallRow {
    fn new((name, stalled): (String, StallCounts)) -> Self {
        let StallCounts { count, longest, last, thread } = stalled;
        Self { name, count, longest: micros(longest), last: Date(last).to_string(), thread }
    }
}

impl Document for Tasks {
    const NAME: &'static str = "tasks";
    const TITLE: &'static str = "Calls in flight";

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line("task_count", self.total);
        text.raw("Age(us)    |Side  |Protocol    |Peer                 |Method(phase)\n");
        for task in &self.calls {
            text.padded(task.age(), 11).raw("|").padded(task.side, 6).raw("|").padded(task.protocol, 12);
            text.raw("|").padded(&task.peer, 21).raw("|").value(&task.name);
            text.raw(" (").value(task.phase()).raw(")\n");
        }
        text.raw("\n").line("stalled_method_count", self.stalls.len());
        text.raw("Stalls  |Longest(us)|Last               |Method (thread)\n");
        for stall in &self.stalls {
            text.padded(stall.count, 8).raw("|").padded(stall.longest, 11).raw("|").value(&stall.last);
            text.raw("|").value(&stall.name).raw(" (").value(&stall.thread).raw(")\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<form method=get action=/tasks role=search><label>Method, with * and $ <input name=method value=\"")
            .text(&self.method)
            .raw("\"></label> <button>Search</button></form>");
        html.table(
            format_args!("The oldest {} of {} calls in flight", self.calls.len(), self.total),
            &["Age µs", "Method", "Side", "Protocol", "Peer", "Phase"],
        );
        for task in &self.calls {
            html.raw("<tr>").number(task.age()).raw("<th scope=row>").text(&task.name).raw("</th>");
            html.cell(task.side).cell(task.protocol).cell(&task.peer).cell(task.phase()).raw("</tr>");
        }
        html.end_table().table(
            "Handlers that blocked the thread of their connection",
            &["Method", "Stalls", "Longest µs", "Last", "Thread"],
        );
        for stall in &self.stalls {
            html.raw("<tr><th scope=row>").text(&stall.name).raw("</th>").number(stall.count);
            html.number(stall.longest).cell(&stall.last).cell(&stall.thread).raw("</tr>");
        }
        html.end_table();
        html
    }
}
