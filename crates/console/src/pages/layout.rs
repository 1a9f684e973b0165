//! The frame of all pages.

use serde::Serialize;
use serde_json::json;

use crate::html::Html;
use crate::reply::{JSON, Reply, TEXT};
use crate::request::{PageFormat, PageRequest};
use crate::role::Role;
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
pub(crate) fn render<D: Document>(request: &PageRequest, document: &D) -> Reply {
    match request.format {
        PageFormat::Text => Reply::text(document.text()),
        PageFormat::Json => Reply::json(D::NAME, document),
        PageFormat::Html => Reply::html(200, frame_page(request, D::NAME, D::TITLE, document.html())),
        PageFormat::Part => Reply::html(200, document.html()),
    }
}

/// Answers with an error in the form of the request.
pub(crate) fn failure(request: &PageRequest, status: u16, why: &'static str) -> Reply {
    match request.format {
        PageFormat::Text => Reply::new(status, TEXT, [why, "\n"].concat()),
        PageFormat::Json => Reply::new(status, JSON, json!({ "error": why }).to_string()),
        PageFormat::Html | PageFormat::Part => {
            let mut html = Html::default();
            html.raw("<p role=alert>").text(why).raw("</p>");
            Reply::html(status, frame_page(request, "", "Error", html))
        }
    }
}

/// The pages that every page links to, as far as the process has them and the caller may read them.
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

/// Whether a link leads to a page, and not to a refusal.
fn is_accessible(link: &str, request: &PageRequest) -> bool {
    match link {
        "try" => request.caller.role >= Role::Call,
        "hotspots/cpu" => request.caller.role >= Role::Profile,
        "fleet" => request.menu.has_fleet,
        _ => true,
    }
}

/// Puts a page's part into its frame.
pub(crate) fn frame_page(request: &PageRequest, name: &'static str, title: &'static str, part: Html) -> Html {
    let mut html = Html::default();
    html.raw("<!doctype html><html lang=en><head><meta charset=utf-8>")
        .raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">")
        .raw("<meta name=color-scheme content=\"light dark\"><title>")
        .text(title)
        .raw(" · PolyRPC</title><link rel=stylesheet href=/console/style.css>")
        .raw("<script type=module src=/console/live.js></script></head><body>")
        .raw("<a class=skip href=\"#main\">Skip to content</a>")
        .raw("<header><a class=home href=\"/\">PolyRPC</a><nav aria-label=Pages><ul>");
    for link in &request.menu.own {
        html.raw("<li><a href=\"/").segment(link).raw("\"");
        html.raw(if *link == name { " aria-current=page>" } else { ">" });
        html.text(capitalize(link)).raw("</a></li>");
    }
    for (link, label) in LINKS.into_iter().filter(|(link, _)| is_accessible(link, request)) {
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

fn capitalize(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_page::Menu;
    use crate::request::{Accepts, Caller, Verb};

    fn html(role: Role, menu: Menu) -> String {
        let caller = Caller { role, name: "test".into(), no_browser: true };
        let mut request = PageRequest::parse(Verb::Get, "/routes", "", Accepts::default(), caller);
        request.menu = menu;
        frame_page(&request, "routes", "Routes", Html::default()).into_string()
    }

    #[test]
    fn menu_has_the_pages_of_the_program_and_no_dead_link() {
        let shown = html(Role::Read, Menu::default());
        for dead in ["/try", "/hotspots/cpu", "/fleet", "/routes"] {
            assert!(!shown.contains(&format!("href=\"{dead}\"")), "{dead}");
        }
        assert!(shown.contains("href=\"/status\""));
        let shown = html(Role::Write, Menu { own: vec!["routes", "report"], has_fleet: true });
        for there in ["/try", "/hotspots/cpu", "/fleet", "/report"] {
            assert!(shown.contains(&format!("href=\"{there}\"")), "{there}");
        }
        assert!(shown.contains("href=\"/routes\" aria-current=page>Routes</a>"), "{shown}");
    }
}
