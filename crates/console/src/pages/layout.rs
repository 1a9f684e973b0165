//! The frame of all pages.

use serde::Serialize;
use serde_json::json;

use crate::html::Html;
use crate::reply::{JSON, Reply, TEXT};
use crate::request::{Form, PageRequest};
use crate::text::Text;

/// Data of a page that can be written in every form.
pub(crate) trait Document: Serialize {
    /// Path of the page, without its slash.
    const NAME: &'static str;
    /// Heading of the page.
    const TITLE: &'static str;

    /// Writes it as brpc does for curl.
    fn text(&self) -> Text;

    /// Writes the part below the heading.
    fn html(&self) -> Html;
}

/// Writes a page in the form of the request.
pub(crate) fn written<D: Document>(request: &PageRequest, document: &D) -> Reply {
    match request.form {
        Form::Text => Reply::text(document.text()),
        Form::Json => Reply::json(D::NAME, document),
        Form::Html => Reply::html(200, framed(D::NAME, D::TITLE, document.html())),
        Form::Part => Reply::html(200, document.html()),
    }
}

/// Answers with an error in the form of the request.
pub(crate) fn failure(request: &PageRequest, status: u16, why: &'static str) -> Reply {
    match request.form {
        Form::Text => Reply::new(status, TEXT, [why, "\n"].concat()),
        Form::Json => Reply::new(status, JSON, json!({ "error": why }).to_string()),
        Form::Html | Form::Part => {
            let mut html = Html::default();
            html.raw("<p role=alert>").text(why).raw("</p>");
            Reply::html(status, framed("", "Error", html))
        }
    }
}

/// The pages that every page links to.
const LINKS: [(&str, &str); 18] = [
    ("status", "Status"),
    ("vars", "Variables"),
    ("connections", "Connections"),
    ("channels", "Channels"),
    ("rpcz", "Recorded calls"),
    ("tap", "Live calls"),
    ("tasks", "In flight"),
    ("hotspots/cpu", "Profile"),
    ("try", "Try"),
    ("flags", "Settings"),
    ("protobufs", "Messages"),
    ("list", "Methods"),
    ("threads", "Threads"),
    ("memory", "Memory"),
    ("ids", "Calls"),
    ("vlog", "Log"),
    ("metrics", "Metrics"),
    ("fleet", "Fleet"),
];

/// Whether a page changes while it is viewed. Such pages have no forms for changes.
pub(crate) fn is_live(name: &str) -> bool {
    ["status", "vars", "connections", "channels", "rpcz", "tap", "tasks", "fleet", "ids", "memory", "threads"]
        .contains(&name)
}

/// Puts a page's part into its frame.
pub(crate) fn framed(name: &'static str, title: &'static str, part: Html) -> Html {
    let mut html = Html::default();
    html.raw("<!doctype html><html lang=en><head><meta charset=utf-8>")
        .raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">")
        .raw("<meta name=color-scheme content=\"light dark\"><title>")
        .text(title)
        .raw(" · PolyRPC</title><link rel=stylesheet href=/console/style.css>")
        .raw("<script type=module src=/console/live.js></script></head><body>")
        .raw("<a class=skip href=\"#main\">Skip to content</a>")
        .raw("<header><a class=home href=\"/\">PolyRPC</a><nav aria-label=Pages><ul>");
    for (link, label) in LINKS {
        html.raw("<li><a href=\"/").raw(link).raw("\"");
        if link.split('/').next() == Some(name) {
            html.raw(" aria-current=page");
        }
        html.raw(">").raw(label).raw("</a></li>");
    }
    html.raw("</ul></nav><button id=pause type=button aria-pressed=false hidden>Pause</button></header>");
    html.raw("<main id=main><h1>").text(title).raw("</h1><div id=live");
    html.raw(if is_live(name) { " data-live" } else { "" }).raw(">").part(part);
    html.raw("</div></main></body></html>\n");
    html
}
