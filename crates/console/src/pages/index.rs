//! `/`: the list of pages.

use serde::Serialize;

use super::layout::{Document, render};
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::text::Text;

#[derive(Serialize)]
struct Index {
    pages: Vec<Entry>,
    /// Pages that the program added.
    own: Vec<OwnEntry>,
    servers: Vec<ServerEntry>,
}

#[derive(Serialize)]
struct Entry {
    path: &'static str,
    what: &'static str,
}

#[derive(Serialize)]
struct OwnEntry {
    path: String,
    what: &'static str,
}

#[derive(Serialize)]
struct ServerEntry {
    addresses: Vec<String>,
    serving: bool,
    connections: usize,
}

/// Paths and what is there, in brpc's order (`builtin/index_service.cpp`).
const ENTRIES: [(&str, &str); 30] = [
    ("/status", "Status of services"),
    ("/connections", "List all connections"),
    ("/sockets/ID", "Check status of a connection"),
    ("/channels", "Calls of this process to other servers"),
    ("/rpcz", "Recent calls with their phases (see also /flags/*rpcz*)"),
    ("/rpcz?trace=ID", "The calls of a trace; &format=otlp, &format=chrome"),
    ("/tap", "Calls as they end; /tap?method=a*&peer=P&protocol=P&status=failed&min_latency=US&seconds=10"),
    ("/tasks", "Calls in flight with their ages, and handlers that blocked their threads"),
    (
        "/hotspots/cpu?seconds=10",
        "Profile the CPU, with the role profile; &display_type=pprof, &view=N&base=M",
    ),
    ("/hotspots/contention?seconds=10", "Profile the waits for locks, with the role profile"),
    ("/try", "List the methods to try, on the admin listener, with the role call"),
    ("/try/METHOD", "Call a method by any protocol"),
    ("/flags", "List all settings"),
    ("/flags/NAME", "List the setting"),
    (
        "/flags/a;b*",
        "List multiple settings with glob patterns (Use $ instead of ? to match single character)",
    ),
    ("/flags/NAME?setvalue=VALUE", "Change a setting, on the admin listener, with a credential"),
    ("/vars", "List all variables"),
    ("/vars/rpc_server*_count", "List multiple variables with glob patterns"),
    ("/vars/NAME?series", "Values of the last 60 seconds, 60 minutes, 24 hours and 30 days"),
    ("/metrics", "Metrics for Prometheus"),
    ("/brpc_metrics", "Metrics for Prometheus, by brpc's names"),
    ("/fleet", "The servers of a registry, if this process shows one"),
    ("/version", "Version of this server"),
    ("/health", "Test healthy"),
    ("/list", "json signature of methods"),
    ("/protobufs", "List all protobuf services and messages"),
    ("/threads", "Threads of the process"),
    ("/memory", "Memory of the process"),
    ("/ids", "Calls under way"),
    ("/vlog", "What is logged"),
];

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    render(request, &Index::new(state))
}

impl Index {
    fn new(state: &State) -> Self {
        let servers = state.servers();
        let entry = |server: &crate::observed::ObservedServer| ServerEntry {
            addresses: server.monitor.addresses().iter().map(ToString::to_string).collect(),
            serving: server.monitor.is_serving("") == Some(true),
            connections: server.monitor.connection_count(),
        };
        let own = state.own_pages();
        Self {
            own: own
                .iter()
                .map(|page| OwnEntry { path: format!("/{}", page.name), what: page.title })
                .collect(),
            pages: ENTRIES.into_iter().map(|(path, what)| Entry { path, what }).collect(),
            servers: servers.iter().map(entry).collect(),
        }
    }
}

impl Document for Index {
    const NAME: &'static str = "index";
    const TITLE: &'static str = "This process";

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.raw("PolyRPC : https://github.com/polyrpc/polyrpc\n\n");
        for Entry { path, what } in &self.pages {
            text.raw(path).raw(" : ").raw(what).raw("\n");
        }
        for OwnEntry { path, what } in &self.own {
            text.value(path).raw(" : ").raw(what).raw("\n");
        }
        let address = self.servers.first().and_then(|server| server.addresses.first());
        if let Some(address) = address {
            text.raw("curl -H 'Content-Type: application/json' -d 'JSON' ")
                .value(address)
                .raw("/ServiceName/MethodName : Call method by http+json\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.table("Servers", &["Addresses", "State", "Connections"]);
        for server in &self.servers {
            html.raw("<tr>").cell(server.addresses.join(", "));
            html.cell(if server.serving { "serving" } else { "not serving" });
            html.number(server.connections).raw("</tr>");
        }
        html.end_table().table("Pages", &["Path", "What is there"]);
        for Entry { path, what } in &self.pages {
            html.raw("<tr><td>");
            // Others are examples, and lead nowhere.
            match path.contains(|letter: char| letter.is_ascii_uppercase() || "*;?".contains(letter)) {
                true => html.raw("<code>").raw(path).raw("</code>"),
                false => html.raw("<a href=\"").raw(path).raw("\">").raw(path).raw("</a>"),
            };
            html.raw("</td>").cell(what).raw("</tr>");
        }
        for OwnEntry { path, what } in &self.own {
            html.raw("<tr><td><a href=\"").text(path).raw("\">").text(path).raw("</a></td>");
            html.cell(what).raw("</tr>");
        }
        html.end_table();
        html
    }
}
