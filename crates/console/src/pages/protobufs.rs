//! `/protobufs`: the declarations of all messages, enums and services that descriptors describe.

use std::collections::BTreeSet;

use polyrpc::payload::schema::Pool;
use serde::Serialize;

use super::layout::{Document, failure, render};
use super::proto_text;
use crate::console::State;
use crate::html::Html;
use crate::reply::Reply;
use crate::request::PageRequest;
use crate::text::Text;

#[derive(Serialize)]
struct Names {
    names: Vec<String>,
}

#[derive(Serialize)]
struct Declaration {
    name: String,
    declaration: String,
}

pub(super) fn answer(state: &State, request: &PageRequest) -> Reply {
    let name = request.rest();
    let servers = state.servers();
    let mut pools = servers.iter().flat_map(|server| server.monitor.descriptors());
    if name.is_empty() {
        let names: BTreeSet<_> = pools.flat_map(|pool| names(&pool)).collect();
        return render(request, &Names { names: names.into_iter().collect() });
    }
    match pools.find_map(|pool| declaration(&pool, &name)) {
        Some(declaration) => render(request, &Declaration { name, declaration }),
        None => failure(request, 404, "Nothing of this name is declared."),
    }
}

/// Returns the names of all that a pool declares.
fn names(pool: &Pool) -> Vec<String> {
    let messages = pool.messages().filter(|message| !message.is_map_entry());
    let messages = messages.map(|message| message.full_name().to_owned());
    let enums = pool.enums().map(|declared| declared.full_name().to_owned());
    let services = pool.services().map(|service| service.full_name().to_owned());
    messages.chain(enums).chain(services).collect()
}

/// Writes what a pool declares by a name.
fn declaration(pool: &Pool, name: &str) -> Option<String> {
    let mut messages = pool.messages().filter(|message| !message.is_map_entry());
    if let Some(message) = messages.find(|message| message.full_name() == name) {
        return Some(proto_text::message(&message));
    }
    if let Some(declared) = pool.enums().find(|declared| declared.full_name() == name) {
        return Some(proto_text::enumeration(declared));
    }
    let service = pool.services().find(|service| service.full_name() == name)?;
    Some(proto_text::service(&service))
}

impl Document for Names {
    const NAME: &'static str = "protobufs";
    const TITLE: &'static str = "Messages";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for name in &self.names {
            text.value(name).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<ul>");
        for name in &self.names {
            html.raw("<li><a href=\"/protobufs/").segment(name).raw("\">").text(name).raw("</a></li>");
        }
        html.raw("</ul>");
        html
    }
}

impl Document for Declaration {
    const NAME: &'static str = "protobufs";
    const TITLE: &'static str = "Declaration";

    fn text(&self) -> Text {
        let mut text = Text::default();
        for line in self.declaration.lines() {
            text.value(line).raw("\n");
        }
        text
    }

    fn html(&self) -> Html {
        let mut html = Html::default();
        html.raw("<h2>").text(&self.name).raw("</h2><pre tabindex=0>");
        for line in self.declaration.lines() {
            html.text(line).raw("\n");
        }
        html.raw("</pre>");
        html
    }
}
