//! Live calls, sent as they end: as lines of text or of JSON, or as a page once the time is over.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use polyrpc::Streaming;
use polyrpc::fallback::HttpResponse;
use tokio::time::{Instant, timeout_at};

use crate::pages::{self, TapQuery};
use crate::request::{PageFormat, PageRequest, Verb};
use crate::tap::{Tap, TapCall};
use crate::{reply, respond};

/// How many calls a page shows.
const MAX_SHOWN_CALLS: usize = 200;

/// Time after which an empty line is sent, so that the end of the connection is noticed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Whether a request is for live calls.
pub(super) fn is_tap(request: &PageRequest) -> bool {
    request.segment(0) == Some("tap") && request.segment(1).is_none() && request.verb == Verb::Get
}

/// A page of live calls that is sent repeatedly.
#[derive(Debug)]
pub(super) struct TapPage {
    query: TapQuery,
    /// `None` once its time is over.
    tap: Option<Tap>,
    end: Instant,
    calls: VecDeque<TapCall>,
    missed: u64,
}

impl TapPage {
    /// Opens a tap for the page of a request.
    ///
    /// # Errors
    ///
    /// The status of the answer, and the reason for the rejection.
    pub(super) fn open(request: &PageRequest) -> Result<Self, (u16, &'static str)> {
        let query = pages::tap_query(request)?;
        let tap = Tap::open(query.filter.clone(), query.rate).ok_or(TOO_MANY)?;
        let end = Instant::now() + query.duration;
        Ok(Self { query, tap: Some(tap), end, calls: VecDeque::new(), missed: 0 })
    }

    /// Returns the current page.
    pub(super) fn reply(&mut self, request: &PageRequest) -> reply::Reply {
        if let Some(tap) = &mut self.tap {
            while let Some(call) = tap.try_next() {
                add(&mut self.calls, call);
            }
            self.missed = tap.missed();
            if Instant::now() >= self.end || self.calls.len() as u64 >= self.query.count {
                self.tap = None;
            }
        }
        pages::answer_tap(request, &self.query, self.calls.iter(), self.missed, self.tap.is_some())
    }
}

/// Answers a request for live calls.
pub(super) async fn answer(request: &PageRequest) -> HttpResponse {
    let refused = |(status, why)| respond::response(pages::failure(request, status, why));
    if request.format == PageFormat::Html {
        return match page(request).await {
            Ok(reply) => respond::response(reply),
            Err(refusal) => refused(refusal),
        };
    }
    let query = match pages::tap_query(request) {
        Ok(query) => query,
        Err(refusal) => return refused(refusal),
    };
    match Tap::open(query.filter.clone(), query.rate) {
        Some(tap) => stream(tap, query, request.format),
        None => refused(TOO_MANY),
    }
}

const TOO_MANY: (u16, &str) = (503, "Too many callers look at live calls.");

/// Returns the page, with the calls of the requested time, or without any.
async fn page(request: &PageRequest) -> Result<reply::Reply, (u16, &'static str)> {
    let query = pages::tap_query(request)?;
    let (mut calls, mut missed) = (VecDeque::new(), 0);
    let is_wanted = request.parameter("seconds").is_some();
    if is_wanted {
        let mut tap = Tap::open(query.filter.clone(), query.rate).ok_or(TOO_MANY)?;
        let end = Instant::now() + query.duration;
        let mut count = 0;
        while count < query.count
            && let Ok(Some(call)) = timeout_at(end, tap.next()).await
        {
            count += 1;
            add(&mut calls, call);
        }
        missed = tap.missed();
    }
    Ok(pages::answer_tap(request, &query, calls.iter(), missed, !is_wanted))
}

/// Adds a call in front, and drops the oldest.
fn add(calls: &mut VecDeque<TapCall>, call: TapCall) {
    calls.push_front(call);
    calls.truncate(MAX_SHOWN_CALLS);
}

/// Returns a response with a line for each call.
fn stream(mut tap: Tap, query: TapQuery, format: PageFormat) -> HttpResponse {
    let body = Streaming::produce(move |sender| async move {
        let end = Instant::now() + query.duration;
        sender.send(Bytes::from(head(format))).await?;
        let mut sent = 0;
        while sent < query.count && Instant::now() < end {
            let until = end.min(Instant::now() + KEEPALIVE_INTERVAL);
            let line = match timeout_at(until, tap.next()).await {
                Ok(Some(call)) => {
                    sent += 1;
                    pages::tap_line(&call, query.values, format)
                }
                Ok(None) => break,
                Err(_) if until == end => break,
                Err(_) => "\n".to_owned(),
            };
            sender.send(line.into()).await?;
        }
        sender.send(tail(format, sent, tap.missed()).into()).await?;
        Ok(())
    });
    let mut response = respond::with_common_fields(HttpResponse::new(200, Bytes::new()));
    let kind = if format == PageFormat::Json { "application/x-ndjson" } else { reply::TEXT };
    response.headers.append("content-type", kind);
    response.body = body;
    response
}

/// Returns the first line.
fn head(format: PageFormat) -> String {
    match format {
        PageFormat::Json => reply::Reply::json("tap", &()).body + "\n",
        _ => {
            "# Calls as they end: time, µs, side, protocol, peer, method(request)=reply [result]\n".to_owned()
        }
    }
}

/// Returns the last line.
fn tail(format: PageFormat, sent: u64, missed: u64) -> String {
    match format {
        PageFormat::Json => serde_json::json!({ "calls": sent, "missed": missed }).to_string() + "\n",
        _ => format!("# {sent} calls, {missed} more were dropped\n"),
    }
}
