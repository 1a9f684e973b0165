//! `/tap`: calls that end while a watch exists. The admin listener sends them as they come; this module formats
//! them.

mod query;
mod row;

use polyrpc::layer::Side;
use serde::Serialize;

pub(crate) use self::query::{TapQuery, query};
pub(crate) use self::row::line;

use self::row::Row;
use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::tap::TapCall;
use crate::text::Text;

/// The calls that a tap has received.
#[derive(Serialize)]
struct TappedCalls {
    /// Whether more will come.
    running: bool,
    missed: u64,
    calls: Vec<Row>,
    #[serde(skip)]
    fields: [(&'static str, &'static str, String); 5],
    #[serde(skip)]
    seconds: u64,
}

pub(super) fn answer(_: &State, request: &PageRequest) -> Reply {
    failure(request, 404, "Calls are shown live on the admin listener.")
}

/// Answers with the calls that a tap has received, the latest first.
pub(crate) fn answer_tap<'c>(
    request: &PageRequest,
    query: &TapQuery,
    calls: impl Iterator<Item = &'c TapCall>,
    missed: u64,
    running: bool,
) -> Reply {
    let parameter = |name| request.parameter(name).unwrap_or_default().to_owned();
    let fields = [
        ("method", "Method, with * and $"),
        ("peer", "Peer contains"),
        ("protocol", "Protocol"),
        ("status", "Status"),
        ("min_latency", "At least µs"),
    ];
    let fields = fields.map(|(name, label)| (name, label, parameter(name)));
    let calls = calls.map(|call| Row::new(call, query.values)).collect();
    let seconds = query.duration.as_secs();
    render(request, &TappedCalls { running, missed, calls, fields, seconds })
}

impl Document for TappedCalls {
    const NAME: &'static str = "tap";
    const TITLE: &'static str = "Live calls";

    fn text(&self) -> Text {
        let mut text = Text::default();
        self.calls.iter().for_each(|row| row.write(&mut text));
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<form method=get action=/tap role=search>");
        for (name, label, value) in &self.fields {
            html.raw("<label>").raw(label).raw(" <input name=").raw(name).raw(" value=\"").text(value);
            html.raw("\"></label> ");
        }
        html.raw("<label>Seconds <input name=seconds type=number min=1 max=300 value=").text(self.seconds);
        html.raw("></label> <button>Look</button></form>");
        let state = if self.running { "shown as they end" } else { "of that time" };
        html.table(
            format_args!("{} calls, {state}; {} more were dropped", self.calls.len(), self.missed),
            &["Ended", "Method", "Side", "Protocol", "Peer", "µs", "Request", "Reply", "Result"],
        );
        for row in &self.calls {
            row.write_html(&mut html);
        }
        html.end_table();
        html
    }
}

/// Returns the letter that brpc's pages have for a side.
fn letter(side: Side) -> &'static str {
    if side == Side::Server { "S" } else { "C" }
}
