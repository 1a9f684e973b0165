//! The pages, at brpc's paths. Each is one structure of data, written as brpc's text, as JSON or as HTML.

mod chart;
mod layout;
mod signature;

mod assets;
mod channels;
mod connections;
mod flags;
mod fleet;
mod health;
mod hotspots;
mod ids;
mod index;
mod list;
mod memory;
mod metrics;
mod own;
mod proto_text;
mod protobufs;
mod rpcz;
mod sockets;
mod status;
mod tap;
mod tasks;
mod threads;
mod try_it;
mod vars;
mod version;
mod vlog;

use crate::console::State;
use crate::reply::Reply;
use crate::request::{PageRequest, Verb};
use crate::role::Role;

#[cfg(feature = "profile")]
pub(crate) use self::hotspots::{
    Display as ProfileDisplay, Source as ProfileSource, answer_profile, profile_kind, profile_query,
};
pub(crate) use self::layout::is_live;
pub(crate) use self::list::encode_list;
pub(crate) use self::own::answer as own_answer;
pub(crate) use self::status::text as status_text;
pub(crate) use self::tap::{TapQuery, answer_tap, line as tap_line, query as tap_query};
pub(crate) use self::try_it::{around_messages, message_line, trial, trial_result};

/// A page.
pub(crate) struct Page {
    /// The first segment of its path.
    pub(crate) name: &'static str,
    /// Its answer.
    pub(crate) answer: fn(&State, &PageRequest) -> Reply,
    /// Whether a POST to it makes a change.
    pub(crate) changes: bool,
    /// Whether probes read it, which have no credential.
    pub(crate) is_probe: bool,
}

const fn page(name: &'static str, answer: fn(&State, &PageRequest) -> Reply) -> Page {
    Page { name, answer, changes: false, is_probe: false }
}

const fn probe(name: &'static str, answer: fn(&State, &PageRequest) -> Reply) -> Page {
    Page { name, answer, changes: false, is_probe: true }
}

const fn page_with_changes(name: &'static str, answer: fn(&State, &PageRequest) -> Reply) -> Page {
    Page { name, answer, changes: true, is_probe: false }
}

/// Every page.
pub(crate) const PAGES: [Page; 32] = [
    page("", index::answer),
    page("index", index::answer),
    page("status", status::answer),
    page("vars", vars::answer),
    page("metrics", metrics::answer),
    page("brpc_metrics", metrics::answer_brpc),
    page_with_changes("connections", connections::answer),
    page_with_changes("sockets", sockets::answer),
    page("channels", channels::answer),
    page_with_changes("rpcz", rpcz::answer),
    page_with_changes("try", try_it::answer),
    page_with_changes("flags", flags::answer),
    page("tap", tap::answer),
    page("tasks", tasks::answer),
    // brpc's tasks are its threads in user space.
    page("bthreads", tasks::answer),
    page("hotspots", hotspots::answer),
    page("pprof", hotspots::answer),
    page("debug", hotspots::answer),
    page_with_changes("fleet", fleet::answer),
    page("list", list::answer),
    page("protobufs", protobufs::answer),
    page("threads", threads::answer),
    page("memory", memory::answer),
    page_with_changes("vlog", vlog::answer),
    page("ids", ids::answer),
    page("version", version::answer),
    page("console", assets::answer),
    probe("health", health::answer),
    probe("readyz", health::answer_ready),
    probe("livez", health::answer_live),
    probe("favicon.ico", assets::icon),
    probe("robots.txt", assets::robots),
];

/// Returns the page of a request, if there is one.
pub(crate) fn find(request: &PageRequest) -> Option<&'static Page> {
    let name = request.segment(0).unwrap_or_default();
    PAGES.iter().find(|page| page.name == name)
}

/// Returns the role that a request for a page needs.
pub(crate) fn role(page: &Page, request: &PageRequest) -> Role {
    match (page.name, is_change(page, request)) {
        ("try", _) => Role::Call,
        ("hotspots" | "pprof" | "debug", _) => Role::Profile,
        (_, true) => Role::Write,
        (_, false) => Role::Read,
    }
}

/// Returns the token of forms for changes, if the caller may make any; other callers never see it.
fn change_token(state: &State, request: &PageRequest) -> Option<String> {
    (request.caller.role >= Role::Write).then(|| state.form_token(Role::Write).to_owned())
}

/// The parameters by which a request for a page that changes something has an effect, however it is sent.
const ORDERS: [&str; 2] = ["setvalue", "undo"];

/// Whether a request makes a change.
pub(crate) fn is_change(page: &Page, request: &PageRequest) -> bool {
    let switches = page.name == "rpcz" && request.segment(1).is_some();
    let orders = || ORDERS.iter().any(|order| request.parameter(order).is_some());
    page.changes && (switches || request.verb == Verb::Post || orders())
}

/// Answers that the page does not exist.
pub(crate) fn missing(request: &PageRequest) -> Reply {
    layout::failure(request, 404, "There is no such page.")
}

/// Answers with an error.
pub(crate) fn failure(request: &PageRequest, status: u16, text: &'static str) -> Reply {
    layout::failure(request, status, text)
}
