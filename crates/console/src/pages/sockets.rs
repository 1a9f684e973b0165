//! `/sockets/ID`: one connection, which callers of the role `Write` may close.

use serde::Serialize;

use super::connections::{self, End, Row};
use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::{PageRequest, Verb};
use crate::text::Text;

#[derive(Serialize)]
struct Socket {
    #[serde(flatten)]
    row: Row,
    #[serde(skip)]
    form_token: Option<String>,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let Some(id) = request.segment(1) else {
        return failure(request, 404, "Use /sockets/<SocketId>");
    };
    let row = id.parse().ok().and_then(|id| connections::find(state, id));
    let Some(row) = row else {
        return failure(request, 404, "There is no such connection.");
    };
    match request.verb {
        Verb::Get => render(request, &Socket { row, form_token: super::change_token(state, request) }),
        Verb::Post => order(state, request, &row),
    }
}

/// Closes or drains a connection, as the request says.
fn order(state: &State, request: &PageRequest, row: &Row) -> Reply {
    match request.parameter("action") {
        Some("close") => connections::end_connection(state, request, row, End::Close),
        Some("drain") => connections::end_connection(state, request, row, End::Drain),
        _ => failure(request, 400, "action is close or drain"),
    }
}

impl Document for Socket {
    const NAME: &'static str = "sockets";
    const TITLE: &'static str = "Connection";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for (name, value) in self.row.facts() {
            text.line(name, value);
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.table(&self.row.remote, &["Name", "Value"]);
        for (name, value) in self.row.facts() {
            html.row(name, value);
        }
        html.end_table();
        if let Some(token) = &self.form_token {
            html.raw("<form method=post action=\"/sockets/").text(self.row.id);
            html.raw("\"><input type=hidden name=token value=\"").text(token);
            html.raw("\"><button name=action value=drain>Finish its calls and close it</button> ")
                .raw("<button name=action value=close>Close it now</button></form>");
        }
        html
    }
}
