//! `/tasks`: the calls in flight, and the handlers that have blocked the threads of their connections.

use std::cmp::Reverse;
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
    /// Number of calls in flight that match the filter.
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
    /// `None` in the first poll, until the stall watchdog has sampled it.
    age: Option<u64>,
    phase: &'static str,
    /// The thread that runs its handler now.
    thread: Option<String>,
    /// Duration of the current poll. `None` until the stall watchdog has sampled it.
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
    if !wanted.is_empty() {
        calls.retain(|call| {
            let name = stalls::name(call);
            wanted.accepts(&name) || wanted.accepts(&name.replace('/', "."))
        });
    }
    let total = calls.len();
    let mut calls: Vec<_> = calls.into_iter().map(|call| (poll_duration(&call, state, now), call)).collect();
    calls.sort_by_key(|(poll, call)| Reverse(age(call, *poll)));
    let calls = calls.iter().take(MAX_SHOWN_CALLS).map(|(poll, call)| Task::new(call, *poll)).collect();
    let stalls = state.stalls.methods().into_iter().map(StallRow::new).collect();
    render(request, &Tasks { total, calls, stalls, method: method.to_owned() })
}

/// Returns the duration of a call's current poll, if the stall watchdog has sampled it.
fn poll_duration(call: &RunningCall, state: &State, now: Instant) -> Option<Duration> {
    let since = state.stalls.first_seen(&call.poll?)?;
    Some(now.saturating_duration_since(since))
}

/// Returns the age of a call. In the first poll, which may block for long, it is the duration of that poll.
fn age(call: &RunningCall, poll: Option<Duration>) -> Option<Duration> {
    call.age.or(poll)
}

impl Task {
    fn new(call: &RunningCall, poll: Option<Duration>) -> Self {
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
            age: age(call, poll).map(micros),
            phase,
            thread: call.poll.map(|poll| poll.thread_name()),
            blocks: poll.map(micros),
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
        text.raw("Age(us)    |Side  |Protocol    |Peer                 |Method (phase)\n");
        for task in &self.calls {
            text.column(task.age(), 11).raw("|").column(task.side, 6).raw("|").column(task.protocol, 12);
            text.raw("|").column(&task.peer, 21).raw("|").value(&task.name);
            text.raw(" (").value(task.phase()).raw(")\n");
        }
        text.raw("\n").line("stalled_method_count", self.stalls.len());
        text.raw("Stalls  |Longest(us)|Last               |Method (thread)\n");
        for stall in &self.stalls {
            text.column(stall.count, 8).raw("|").column(stall.longest, 11).raw("|").value(&stall.last);
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
