//! `/memory`: the memory of the process, and the bytes that the servers hold for peers.

use serde::Serialize;

use super::layout::{Document, render};
use crate::console::State;
use crate::html::Html;
use crate::process;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::text::Text;

#[derive(Serialize)]
struct Memory {
    /// Lines of `/proc/self/status` about memory.
    process: Vec<(String, String)>,
    servers: Vec<Held>,
}

#[derive(Serialize)]
struct Held {
    address: String,
    held_bytes: usize,
    limit_bytes: usize,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let lines = process::status().into_iter();
    let process = lines.filter(|(name, _)| name.starts_with("Vm") || name.starts_with("Rss")).collect();
    let held = |server: &crate::observed::ObservedServer| {
        let (summary, limits) = (server.monitor.summary()?, server.monitor.limits()?);
        Some(Held { address: server.address(), held_bytes: summary.held_bytes, limit_bytes: limits.memory })
    };
    render(request, &Memory { process, servers: state.servers().iter().filter_map(held).collect() })
}

impl Document for Memory {
    const NAME: &'static str = "memory";
    const TITLE: &'static str = "Memory";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for (name, value) in &self.process {
            text.value(name).raw(": ").value(value).raw("\n");
        }
        for Held { address, held_bytes, limit_bytes } in &self.servers {
            text.raw("held for peers of ").value(address).raw(": ").value(held_bytes);
            text.raw(" of ").value(limit_bytes).raw(" B\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.table("Process", &["Name", "Value"]);
        for (name, value) in &self.process {
            html.row(name, value);
        }
        html.end_table().table("Held for peers", &["Server", "Bytes", "Limit"]);
        for Held { address, held_bytes, limit_bytes } in &self.servers {
            html.raw("<tr><th scope=row>").text(address).raw("</th>").number(held_bytes);
            html.number(limit_bytes).raw("</tr>");
        }
        html.end_table();
        html
    }
}
