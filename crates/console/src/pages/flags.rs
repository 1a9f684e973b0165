//! `/flags`: settings with their values, descriptions and changes.

use std::time::Duration;

use polyrpc::server::Limits;
use serde::Serialize;

use super::layout::{Document, failure, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::{Reply, TEXT};
use crate::request::{PageFormat, PageRequest};
use crate::settings::{self, Change, ChangeError, Flag};
use crate::text::Text;
use crate::time::Date;
use crate::wildcard::Wildcards;

#[derive(Serialize)]
struct Flags {
    flags: Vec<Row>,
    changes: Vec<ChangeRow>,
    #[serde(skip)]
    form_token: Option<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    value: String,
    default: String,
    description: String,
    location: String,
    reloadable: bool,
}

#[derive(Serialize)]
struct ChangeRow {
    id: u64,
    at: String,
    author: String,
    name: String,
    old: String,
    new: String,
    /// Whether the old value is restored automatically.
    expires: bool,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let list = request.rest();
    if let Some(value) = request.parameter("setvalue") {
        return change(request, &list, value);
    }
    if let Some(id) = request.parameter("undo") {
        let id = id.parse().map_err(|_| ChangeError::Unknown);
        return answer_change(request, id.and_then(|id| settings::undo(id, &request.caller.name)));
    }
    let wanted = match Wildcards::parse(&list) {
        Ok(wanted) => wanted,
        Err((status, why)) => return failure(request, status, why),
    };
    let mut flags = all(state);
    flags.retain(|flag| wanted.accepts(&flag.name));
    flags.sort_by(|one, other| one.name.cmp(&other.name));
    if flags.is_empty() && !wanted.is_empty() {
        return failure(request, 404, "No setting has such a name.");
    }
    let changes = settings::changes().into_iter().filter(|change| wanted.accepts(&change.name));
    let flags = Flags {
        flags: flags.into_iter().map(Row::from).collect(),
        changes: changes.map(ChangeRow::from).collect(),
        form_token: super::change_token(state, request),
    };
    render(request, &flags)
}

/// Returns every setting, and the limits of the servers.
pub(super) fn all(state: &State) -> Vec<Flag> {
    let mut flags = settings::flags();
    for (at, server) in state.servers().iter().enumerate() {
        let suffix = if at == 0 { String::new() } else { format!("@{}", server.port()) };
        flags.extend(server.monitor.limits().iter().flat_map(|limits| limit_flags(limits, &suffix)));
    }
    flags
}

/// Changes a setting. The caller's role was checked.
pub(super) fn change(request: &PageRequest, name: &str, value: &str) -> Reply {
    let during = match request.parameter("for").filter(|during| !during.is_empty()) {
        None => None,
        Some(text) => match duration(text) {
            Some(during) => Some(during),
            None => return failure(request, 400, "for is a time: 30s, 10m or 2h"),
        },
    };
    answer_change(request, settings::change(name, value, &request.caller.name, during))
}

fn answer_change(request: &PageRequest, result: Result<Change, ChangeError>) -> Reply {
    match result {
        Ok(_) if request.format == PageFormat::Html => {
            Reply::new(303, TEXT, "done\n").with("location", "/flags")
        }
        Ok(change) => {
            let shown = if change.secret { "***" } else { &change.new };
            let mut text = Text::default();
            text.raw("Set `").value(&change.name).raw("' to ").value(shown).raw("\n");
            Reply::text(text)
        }
        Err(ChangeError::Unknown) => {
            failure(request, 404, "No setting has such a name, or it cannot be changed.")
        }
        Err(ChangeError::Invalid) => failure(request, 400, "The setting does not accept this value."),
        Err(ChangeError::Changed) => failure(request, 409, "The setting was changed again since."),
    }
}

/// Parses a time: `30s`, `10m`, `2h`, or a number of seconds.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 's') => (text.get(..at)?, 1),
        (at, 'm') => (text.get(..at)?, 60),
        (at, 'h') => (text.get(..at)?, 3600),
        _ => (text, 1),
    };
    Some(Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(unit)?))
}

/// Returns the limits of a server, which are fixed while it runs, by brpc's names where there are some.
fn limit_flags(limits: &Limits, suffix: &str) -> Vec<Flag> {
    let usual = Limits::default();
    let seconds = |duration: Duration| duration.as_secs_f64().to_string();
    let flags = [
        (
            "max_body_size",
            limits.message.to_string(),
            usual.message.to_string(),
            "Maximum size of a single message body in all protocols",
        ),
        (
            "max_decompressed_size",
            limits.decompressed.to_string(),
            usual.decompressed.to_string(),
            "Maximum size of a message after decompression",
        ),
        (
            "max_header_size",
            limits.header.to_string(),
            usual.header.to_string(),
            "Maximum size of a head of HTTP",
        ),
        (
            "max_memory",
            limits.memory.to_string(),
            usual.memory.to_string(),
            "Maximum number of bytes that peers may make the server hold",
        ),
        (
            "max_memory_per_peer",
            limits.memory_per_peer.to_string(),
            usual.memory_per_peer.to_string(),
            "The same for one peer address",
        ),
        (
            "max_connections",
            limits.connections.to_string(),
            usual.connections.to_string(),
            "Maximum number of connections",
        ),
        (
            "max_connections_per_peer",
            limits.connections_per_peer.to_string(),
            usual.connections_per_peer.to_string(),
            "Maximum number of connections of one peer address",
        ),
        (
            "max_concurrency",
            limits.in_flight.to_string(),
            usual.in_flight.to_string(),
            "Maximum number of calls with a pending handler",
        ),
        (
            "max_streams",
            limits.streams.to_string(),
            usual.streams.to_string(),
            "Maximum number of open streams",
        ),
        (
            "header_timeout_second",
            seconds(limits.header_timeout),
            seconds(usual.header_timeout),
            "Time for the head of a message to arrive",
        ),
        (
            "message_timeout_second",
            seconds(limits.message_timeout),
            seconds(usual.message_timeout),
            "Time for a message to arrive, besides what its size takes",
        ),
        (
            "write_timeout_second",
            seconds(limits.write_timeout),
            seconds(usual.write_timeout),
            "Time after which a peer that does not read is disconnected",
        ),
        (
            "idle_timeout_second",
            limits.idle_timeout.map_or_else(|| "-1".to_owned(), seconds),
            usual.idle_timeout.map_or_else(|| "-1".to_owned(), seconds),
            "Time after which an idle connection is closed; -1 for never",
        ),
    ];
    let flag = |(name, value, default, description): (&str, String, String, &str)| Flag {
        name: format!("{name}{suffix}"),
        value,
        default,
        description: description.to_owned(),
        location: "Server::limits".to_owned(),
        reloadable: false,
    };
    flags.into_iter().map(flag).collect()
}

impl From<Flag> for Row {
    fn from(flag: Flag) -> Self {
        let Flag { name, value, default, description, location, reloadable } = flag;
        Self { name, value, default, description, location, reloadable }
    }
}

impl From<Change> for ChangeRow {
    fn from(change: Change) -> Self {
        let Change { id, at, author, name, old, new, until, .. } = change;
        Self { id, at: Date(at).to_string(), author, name, old, new, expires: until.is_some() }
    }
}

impl Row {
    /// As brpc writes it: with the default if it differs.
    fn format_value(&self) -> String {
        match self.value == self.default {
            true => self.value.clone(),
            false => format!("{} (default:{})", self.value, self.default),
        }
    }
}

impl Document for Flags {
    const NAME: &'static str = "flags";
    const TITLE: &'static str = "Settings";

    /// As `builtin/flags_service.cpp` writes it.
    fn text(&self) -> Text {
        let mut text = Text::default();
        text.raw("Name | Value | Description | Defined At\n---------------------------------------\n");
        for row in &self.flags {
            text.value(&row.name).raw(if row.reloadable { " (R) | " } else { " | " });
            text.value(row.format_value()).raw(" | ").value(&row.description);
            text.raw(" | ").value(&row.location).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.table("Settings", &["Name", "Value", "Description", "Defined at", "Change"]);
        for row in &self.flags {
            html.raw("<tr><th scope=row>").text(&row.name).raw("</th>").cell(row.format_value());
            html.cell(&row.description).cell(&row.location).raw("<td>");
            if let (true, Some(token)) = (row.reloadable, &self.form_token) {
                html.raw("<form method=post action=\"/flags/").segment(&row.name);
                html.raw("\"><input type=hidden name=token value=\"").text(token);
                html.raw("\"><input name=setvalue aria-label=\"New value of ").text(&row.name);
                html.raw("\" value=\"").text(&row.value);
                html.raw("\"> <input name=for size=4 placeholder=10m aria-label=\"For how long\"> ")
                    .raw("<button>Set</button></form>");
            }
            html.raw("</td></tr>");
        }
        html.end_table().table("Changes", &["Time", "Author", "Name", "From", "To", "Expires", "Undo"]);
        for change in &self.changes {
            html.raw("<tr>").cell(&change.at).cell(&change.author).cell(&change.name);
            html.cell(&change.old).cell(&change.new).cell(if change.expires { "yes" } else { "no" });
            html.raw("<td>");
            if let Some(token) = &self.form_token {
                html.raw("<form method=post action=/flags><input type=hidden name=token value=\"")
                    .text(token)
                    .raw("\"><button name=undo value=")
                    .text(change.id)
                    .raw(" aria-label=\"Undo the change of ")
                    .text(&change.name)
                    .raw("\">Undo</button></form>");
            }
            html.raw("</td></tr>");
        }
        html.end_table();
        html
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs());
        assert_eq!(
            (seconds("30s"), seconds("10m"), seconds("2h"), seconds("5")),
            (Some(30), Some(600), Some(7200), Some(5))
        );
        for wrong in ["", "m", "1d", "-1s", "1.5m", "99999999999999999999h", "5é"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
