//! `/protobufs`: the declarations of all messages, enums and services that descriptors describe.

use std::collections::BTreeMap;

use serde::Serialize;

use super::layout::{Document, failure, written};
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
    let mut declarations = declarations(state);
    if name.is_empty() {
        return written(request, &Names { names: declarations.into_keys().collect() });
    }
    match declarations.remove(&name) {
        Some(declaration) => written(request, &Declaration { name, declaration }),
        None => failure(request, 404, "Nothing of this name is declared."),
    }
}

fn declarations(state: &State) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for pool in state.servers().iter().flat_map(|server| server.monitor.descriptors()) {
        for message in pool.messages().filter(|message| !message.is_map_entry()) {
            all.entry(message.full_name().to_owned()).or_insert_with(|| proto_text::message(&message));
        }
        for declared in pool.enums() {
            all.entry(declared.full_name().to_owned()).or_insert_with(|| proto_text::enumeration(declared));
        }
        for service in pool.services() {
            all.entry(service.full_name().to_owned()).or_insert_with(|| proto_text::service(&service));
        }
    }
    all
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
