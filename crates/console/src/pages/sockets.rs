//! `/sockets/ID`: one connection, which callers of the role `Write` may close.

use serde::Serialize;

use super::connections::{self, PER_SERVER, Row};
use super::layout::{Document, failure, written};
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
        Verb::Get => written(request, &Socket { row, form_token: super::change_token(state, request) }),
        Verb::Post => order(state, request, &row),
    }
}

/// Closes a connection.
fn order(state: &State, request: &PageRequest, row: &Row) -> Reply {
    let server = state.servers().into_iter().find(|server| server.id == row.id / PER_SERVER);
    let Some(server) = server else {
        return failure(request, 404, "There is no such connection.");
    };
    let (author, id, remote) = (request.caller.name.as_str(), row.id % PER_SERVER, row.remote.as_str());
    let done = match request.parameter("action") {
        Some("close") => server.monitor.close_connection(id),
        Some("drain") => server.monitor.drain_connection(id),
        _ => return failure(request, 400, "action is close or drain"),
    };
    tracing::info!(
        author,
        connection = id,
        remote,
        action = request.parameter("action"),
        "a connection is closed"
    );
    match done {
        true => Reply::new(303, crate::reply::TEXT, "done\n").with("location", "/connections"),
        false => failure(request, 404, "There is no such connection."),
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
