//! Static files of the pages (`/console/…`), `favicon.ico` and `robots.txt`.

use super::layout::failure;
use crate::console::State;
use crate::reply::{Reply, TEXT};
use crate::request::PageRequest;

pub(super) fn answer(_: &State, request: &PageRequest) -> Reply {
    match request.segment(1) {
        Some("style.css") => Reply::new(200, "text/css; charset=utf-8", include_str!("style.css")),
        Some("live.js") => Reply::new(200, "text/javascript; charset=utf-8", include_str!("live.js")),
        _ => failure(request, 404, "There is no such page."),
    }
}

pub(super) fn icon(_: &State, _: &PageRequest) -> Reply {
    Reply::new(204, TEXT, "")
}

pub(super) fn robots(_: &State, _: &PageRequest) -> Reply {
    Reply::new(200, TEXT, "User-agent: *\nDisallow: /\n")
}
