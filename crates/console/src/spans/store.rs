use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polyrpc::layer::Side;

use super::span::Span;

/// Recent spans: all of the latest, and for longer the slow, the failed and a few others.
#[derive(Debug)]
pub(super) struct Store {
    recent: Ring,
    /// Slow or failed.
    notable: Ring,
    /// A few of each second.
    thinned: Ring,
    /// How many more spans of this second are kept among the few.
    few_left: u32,
}

/// How many spans of each second are kept longer: an hour of them.
const FEW: u32 = 4;

impl Default for Store {
    fn default() -> Self {
        Self {
            recent: Ring::new(32 << 10, 8 << 20),
            notable: Ring::new(16 << 10, 4 << 20),
            thinned: Ring::new(16 << 10, 4 << 20),
            few_left: FEW,
        }
    }
}

impl Store {
    pub(super) fn add(&mut self, span: Span, is_notable: bool) {
        let span = Arc::new(span);
        if is_notable {
            self.notable.push(span.clone());
        }
        if self.few_left > 0 {
            self.few_left -= 1;
            self.thinned.push(span.clone());
        }
        self.recent.push(span);
    }

    /// Starts a second.
    pub(super) fn tick(&mut self) {
        self.few_left = FEW;
    }

    /// Returns the spans of all rings; some are in several.
    pub(super) fn all(&self) -> Vec<Arc<Span>> {
        let rings = [&self.recent, &self.notable, &self.thinned];
        let mut all = Vec::with_capacity(rings.iter().map(|ring| ring.spans.len()).sum());
        rings.into_iter().for_each(|ring| all.extend(ring.spans.iter().cloned()));
        all
    }
}

/// Returns every span once, the latest first.
pub(super) fn sort_latest_first(mut all: Vec<Arc<Span>>) -> Vec<Arc<Span>> {
    let mut known = HashSet::with_capacity(all.len());
    all.retain(|span| known.insert(Arc::as_ptr(span)));
    all.sort_by_key(|span| std::cmp::Reverse(span.began));
    all
}

/// The last spans, up to a number and to a number of bytes.
#[derive(Debug)]
struct Ring {
    spans: VecDeque<Arc<Span>>,
    bytes: usize,
    max_spans: usize,
    max_bytes: usize,
}

impl Ring {
    fn new(max_spans: usize, max_bytes: usize) -> Self {
        Self { spans: VecDeque::new(), bytes: 0, max_spans, max_bytes }
    }

    fn push(&mut self, span: Arc<Span>) {
        self.bytes += span.footprint();
        self.spans.push_back(span);
        while self.spans.len() > self.max_spans || self.bytes > self.max_bytes {
            let Some(first) = self.spans.pop_front() else { return };
            self.bytes -= first.footprint();
        }
    }
}

/// Filter of spans.
#[derive(Debug, Clone, Default)]
pub(crate) struct Search {
    /// Spans that began at this time or earlier.
    pub(crate) until: Option<SystemTime>,
    pub(crate) min_latency: Duration,
    pub(crate) min_request: usize,
    pub(crate) min_reply: usize,
    pub(crate) log_id: Option<u64>,
    /// A number, or the words of a code.
    pub(crate) error: Option<String>,
    pub(crate) failed: bool,
    pub(crate) side: Option<Side>,
    /// A part of the name.
    pub(crate) method: Option<String>,
    pub(crate) protocol: Option<String>,
    /// A part of the address.
    pub(crate) peer: Option<String>,
}

impl Search {
    pub(crate) fn accepts(&self, span: &Span) -> bool {
        let contains = |part: &Option<String>, text: &str| {
            part.as_ref().is_none_or(|part| text.to_ascii_lowercase().contains(&part.to_ascii_lowercase()))
        };
        self.until.is_none_or(|until| span.began <= until)
            && span.took >= self.min_latency
            && span.request >= self.min_request
            && span.reply >= self.min_reply
            && self.log_id.is_none_or(|id| span.log_id == id)
            && self.error.as_ref().is_none_or(|error| has_error(span, error))
            && (!self.failed || span.failure.is_some())
            && self.side.is_none_or(|side| span.side == side)
            && contains(&self.method, &span.name)
            && self.protocol.as_ref().is_none_or(|protocol| protocol.replace('-', "_") == span.protocol)
            && contains(&self.peer, &span.peer)
    }
}

/// Whether a span failed by this number or code; 0 is success.
fn has_error(span: &Span, error: &str) -> bool {
    let Some(failure) = &span.failure else { return error == "0" };
    match error.parse::<i32>() {
        Ok(number) => failure.number == Some(number),
        Err(_) => failure.code.as_str() == error.replace('_', " ").to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::span::{Event, Failure, What};
    use super::*;
    use polyrpc::Status;

    fn span(id: u64, took: Duration) -> Span {
        Span {
            trace: 7,
            id,
            parent: None,
            side: Side::Server,
            protocol: "rpcx",
            name: "Arith/Mul".into(),
            peer: "127.0.0.1:9".into(),
            log_id: 0,
            began: SystemTime::UNIX_EPOCH + Duration::from_secs(id),
            queued: None,
            took,
            request: 10,
            reply: 20,
            failure: None,
            events: Vec::new(),
        }
    }

    #[test]
    fn slow_and_failed_spans_stay_longer_than_others() {
        let mut store = Store { few_left: 0, ..Store::default() };
        store.add(span(1, Duration::from_secs(1)), true);
        for id in 2..40_000 {
            store.add(span(id, Duration::ZERO), false);
        }
        let all = sort_latest_first(store.all());
        assert_eq!(all.last().map(|span| span.id), Some(1));
        assert!(all.len() > 10_000 && all.len() <= (32 << 10) + 1, "{}", all.len());
        assert_eq!(all.first().map(|span| span.id), Some(39_999));
    }

    #[test]
    fn few_of_each_second_stay() {
        let mut store = Store::default();
        for id in 0..10 {
            store.add(span(id, Duration::ZERO), false);
        }
        store.tick();
        store.add(span(10, Duration::ZERO), false);
        assert_eq!(store.thinned.spans.len(), 5);
        assert_eq!(sort_latest_first(store.all()).len(), 11);
    }

    #[test]
    fn notes_count_against_the_budget() {
        let mut ring = Ring::new(1000, 64 << 10);
        for id in 0..1000 {
            let what = What::Note("x".repeat(1 << 10).into());
            let events = vec![Event { at: Duration::ZERO, what }];
            ring.push(Arc::new(Span { events, ..span(id, Duration::ZERO) }));
        }
        assert!(ring.bytes <= 64 << 10 && ring.spans.len() < 64, "{} {}", ring.bytes, ring.spans.len());
        assert_eq!(ring.bytes, ring.spans.iter().map(|span| span.footprint()).sum::<usize>());
    }

    #[test]
    fn searches_accept_what_they_say() {
        let failure = Failure::from_status(&Status::not_found("nothing").with_number(54321));
        let failed = Span { failure: Some(failure), ..span(1, Duration::from_millis(5)) };
        let fine = span(2, Duration::from_millis(1));
        let accepted = |search: &Search| (search.accepts(&failed), search.accepts(&fine));
        assert_eq!(accepted(&Search::default()), (true, true));
        for error in ["54321", "not_found", "not found"] {
            assert_eq!(
                accepted(&Search { error: Some(error.into()), ..Search::default() }),
                (true, false),
                "{error}"
            );
        }
        assert_eq!(accepted(&Search { error: Some("0".into()), ..Search::default() }), (false, true));
        assert_eq!(
            accepted(&Search { min_latency: Duration::from_millis(2), ..Search::default() }),
            (true, false)
        );
        assert_eq!(accepted(&Search { method: Some("mul".into()), ..Search::default() }), (true, true));
        assert_eq!(accepted(&Search { protocol: Some("grpc".into()), ..Search::default() }), (false, false));
        let until = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!(accepted(&Search { until, ..Search::default() }), (true, false));
        assert_eq!(accepted(&Search { min_reply: 21, ..Search::default() }), (false, false));
    }
}
