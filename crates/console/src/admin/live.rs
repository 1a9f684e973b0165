//! Live pages: server-sent events with a part of a page, whenever it has changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc::Streaming;
use polyrpc::fallback::HttpResponse;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use super::taps::{self, TapPage};
use crate::console::Console;
use crate::reply::{Reply, TEXT};
use crate::request::PageRequest;
use crate::role::Role;
use crate::{pages, respond};

/// Maximum number of live pages.
const MAX_PAGES: usize = 8;

/// Maximum length of a part. Longer ones are shown once.
const MAX_PART_LEN: usize = 1 << 20;

/// Seconds after which something is sent although nothing has changed, so that the end of the connection is noticed.
const KEEPALIVE_SECONDS: u32 = 10;

/// The live pages.
#[derive(Debug, Clone)]
pub(super) struct Live(Arc<Semaphore>);

impl Live {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_PAGES)))
    }

    /// Returns the target of the live page that is requested; `None` if the request is for another page.
    pub(super) fn target(request: &PageRequest) -> Option<&str> {
        let is_live = request.segment(0) == Some("console") && request.segment(1) == Some("live");
        is_live.then(|| request.parameter("path").unwrap_or_default())
    }

    /// Sends the page of a target as server-sent events: one for each change, and a comment after
    /// [`KEEPALIVE_SECONDS`] without a change. Answers 404 for pages that the caller may not read.
    pub(super) fn stream_page(&self, console: &Console, request: &PageRequest, target: &str) -> HttpResponse {
        let page = request.part(target);
        let known = pages::find(&page).filter(|known| pages::is_live(known.name));
        let is_read = known.is_some_and(|known| pages::role(known, &page) == Role::Read);
        if !is_read {
            return respond::response(pages::failure(
                request,
                404,
                "No page of that path changes by itself.",
            ));
        }
        let Ok(permit) = self.0.clone().try_acquire_owned() else {
            return respond::response(pages::failure(request, 503, "Too many pages are followed."));
        };
        let mut tap = match taps::is_tap(&page).then(|| TapPage::open(&page)).transpose() {
            Ok(tap) => tap,
            Err((status, why)) => return respond::response(pages::failure(request, status, why)),
        };
        if tap.is_none() && respond::answer(console.state(), &page).body.len() > MAX_PART_LEN {
            // After this status a browser does not reconnect, as it would after the end of events.
            return respond::response(Reply::new(204, TEXT, ""));
        }
        let console = console.clone();
        let body = Streaming::produce(move |sender| async move {
            let _permit = permit;
            let (mut last, mut unchanged_seconds) = (String::new(), 0);
            let mut seconds = interval(Duration::from_secs(1));
            seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                seconds.tick().await;
                let reply = match &mut tap {
                    Some(tap) => tap.reply(&page),
                    None => respond::answer(console.state(), &page),
                };
                if reply.status != 200 || reply.body.len() > MAX_PART_LEN {
                    return Ok(());
                }
                unchanged_seconds = if reply.body == last { unchanged_seconds + 1 } else { 0 };
                if unchanged_seconds % KEEPALIVE_SECONDS == 0 {
                    sender.send(event(&reply.body, unchanged_seconds > 0)).await?;
                    last = reply.body;
                }
            }
        });
        let mut response = respond::with_common_fields(HttpResponse::new(200, Bytes::new()));
        response.headers.append("content-type", "text/event-stream");
        response.body = body;
        response
    }
}

/// Returns an event with a page, as a JSON text, which has no line breaks; or a comment, if it has not changed.
fn event(page: &str, is_unchanged: bool) -> Bytes {
    match is_unchanged {
        true => Bytes::from_static(b":\n\n"),
        false => format!("data: {}\n\n", serde_json::Value::from(page)).into(),
    }
}
