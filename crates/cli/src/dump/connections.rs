//! The TCP connections of a capture, and the calls on them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::BytesMut;

use super::captured::{Budget, CapturedCall};
use super::observer::{Continuation, Observe};
use super::segment::{Segment, SkipReason};
use super::sessions;
use super::stream::{Next, Stream};

/// Reads the segments of all connections.
pub(super) struct Connections {
    open: HashMap<[SocketAddr; 2], Connection>,
    /// The open connections by their last segments.
    by_last: BTreeMap<u64, [SocketAddr; 2]>,
    /// Maximum number of open connections.
    max_connections: usize,
    budget: Rc<Budget>,
    count: u64,
    segments: u64,
    /// Why connections were not read, or not to their end, and how many.
    unread: BTreeMap<String, u64>,
    skipped: BTreeMap<SkipReason, u64>,
}

/// A connection, whose client opened it.
struct Connection {
    number: u64,
    /// Number of its last segment.
    last: u64,
    client: SocketAddr,
    server: SocketAddr,
    requests: Direction,
    responses: Direction,
    reading: Reading,
}

#[derive(Default)]
struct Direction {
    stream: Stream,
    inbox: BytesMut,
    has_ended: bool,
}

enum Reading {
    /// The first request decides.
    Undecided {
        follows_connect: bool,
    },
    By(Box<dyn Observe>),
    /// Not any more.
    Ended,
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(MAX_CONNECTIONS, MAX_MEMORY)
    }
}

impl Connections {
    /// Keeps at most so many connections open, and so many bytes of calls whose end was not seen yet.
    pub(super) fn new(max_connections: usize, memory: usize) -> Self {
        Self {
            open: HashMap::new(),
            by_last: BTreeMap::new(),
            max_connections,
            budget: Budget::new(memory),
            count: 0,
            segments: 0,
            unread: BTreeMap::new(),
            skipped: BTreeMap::new(),
        }
    }

    /// Reads a segment; returns the calls that ended with it.
    pub(super) fn push(&mut self, segment: &Segment<'_>, at: u64) -> Vec<CapturedCall> {
        let mut ends = [segment.from, segment.to];
        ends.sort();
        let (syn, ack) = (segment.flags.has_syn(), segment.flags.has_ack());
        if syn && !ack && self.open.get(&ends).is_some_and(|known| !known.is_opened_by(segment)) {
            // The ports are used again.
            let mut calls = self.close(&ends);
            calls.extend(self.push(segment, at));
            return calls;
        }
        let mut calls = Vec::new();
        if !self.open.contains_key(&ends) {
            if segment.flags.has_rst() || (segment.content.is_empty() && !syn) {
                return Vec::new();
            }
            if self.open.len() >= self.max_connections {
                calls = self.close_idle();
            }
            self.count += 1;
            self.open.insert(ends, Connection::new(segment, self.count));
        }
        let Some(connection) = self.open.get_mut(&ends) else { return calls };
        self.segments += 1;
        self.by_last.remove(&connection.last);
        self.by_last.insert(self.segments, ends);
        connection.last = self.segments;
        let (ended, problem) = connection.push(segment, at, &self.budget);
        if let Some(problem) = problem {
            *self.unread.entry(problem).or_default() += 1;
        }
        calls.extend(connection.label(ended));
        if segment.flags.has_rst() || connection.requests.has_ended && connection.responses.has_ended {
            calls.extend(self.close(&ends));
        }
        calls
    }

    /// Closes the connection without a segment for the longest time.
    fn close_idle(&mut self) -> Vec<CapturedCall> {
        let Some((_, ends)) = self.by_last.first_key_value() else { return Vec::new() };
        let ends = *ends;
        if self.open.get(&ends).is_some_and(|idle| !matches!(idle.reading, Reading::Ended)) {
            *self.unread.entry(format!("more than {} were open", self.max_connections)).or_default() += 1;
        }
        self.close(&ends)
    }

    pub(super) fn skip(&mut self, why: SkipReason) {
        *self.skipped.entry(why).or_default() += 1;
    }

    /// Ends all connections; returns the calls whose end was not seen.
    pub(super) fn finish(&mut self) -> Vec<CapturedCall> {
        let mut all: Vec<_> = self.open.iter().map(|(ends, connection)| (connection.number, *ends)).collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.iter().flat_map(|(_, ends)| self.close(ends)).collect()
    }

    /// Describes the missing parts.
    pub(super) fn notes(&self) -> Vec<String> {
        let connections = self.unread.iter().map(|(why, count)| match count {
            1 => format!("1 connection was not read to its end: {why}"),
            count => format!("{count} connections were not read to their ends: {why}"),
        });
        let packets = self.skipped.iter().filter_map(|(why, count)| {
            let (is, s, were) = if *count == 1 { ("is", "", "was") } else { ("are", "s", "were") };
            Some(match why {
                SkipReason::Other => return None,
                SkipReason::Udp => format!(
                    "{count} packet{s} of UDP {were} not read (KCP and QUIC cannot be read from captures)"
                ),
                SkipReason::Fragment => format!("{count} fragment{s} of IP packets {were} not read"),
                SkipReason::Cut => format!(
                    "{count} packet{s} {were} not captured as a whole: capture with a larger length (-s 0)"
                ),
                SkipReason::Link(link) => {
                    format!("{count} packet{s} {is} of a kind of link that is not known ({link})")
                }
            })
        });
        connections.chain(self.budget.notes()).chain(packets).collect()
    }

    fn close(&mut self, ends: &[SocketAddr; 2]) -> Vec<CapturedCall> {
        let Some(mut connection) = self.open.remove(ends) else { return Vec::new() };
        self.by_last.remove(&connection.last);
        if !matches!(connection.reading, Reading::Ended) && connection.has_gap() {
            *self.unread.entry(MISSING.to_owned()).or_default() += 1;
        }
        let calls = match &mut connection.reading {
            Reading::By(observer) => {
                let mut calls = observer.take_ended();
                calls.extend(observer.take_unfinished());
                calls
            }
            _ => Vec::new(),
        };
        connection.label(calls)
    }
}

impl Connection {
    fn new(segment: &Segment<'_>, number: u64) -> Self {
        let (from, to) = (segment.from, segment.to);
        let is_from_client = match (segment.flags.has_syn(), segment.flags.has_ack()) {
            (true, is_answer) => !is_answer,
            // It began before the capture: servers have the lower ports.
            (false, _) => from.port() > to.port(),
        };
        let (client, server) = if is_from_client { (from, to) } else { (to, from) };
        let reading = Reading::Undecided { follows_connect: false };
        Self {
            number,
            last: 0,
            client,
            server,
            requests: Direction::default(),
            responses: Direction::default(),
            reading,
        }
    }

    /// Whether a first segment is the one that opened this connection, sent again.
    fn is_opened_by(&self, segment: &Segment<'_>) -> bool {
        segment.from == self.client
            && self.requests.inbox.is_empty()
            && self.requests.stream.is_at(segment.sequence)
    }

    /// Reads a segment; returns the calls that ended, and why the connection is not read any more.
    fn push(
        &mut self,
        segment: &Segment<'_>,
        at: u64,
        budget: &Rc<Budget>,
    ) -> (Vec<CapturedCall>, Option<String>) {
        let is_request = segment.from == self.client;
        let direction = if is_request { &mut self.requests } else { &mut self.responses };
        if segment.flags.has_syn() {
            direction.stream.open(segment.sequence);
            return (Vec::new(), None);
        }
        if matches!(self.reading, Reading::Ended) {
            direction.has_ended |= segment.flags.has_fin();
            return (Vec::new(), None);
        }
        let next = direction.stream.push(segment.sequence, segment.content);
        direction.has_ended |= segment.flags.has_fin();
        let mut calls = Vec::new();
        for next in next {
            let read = match next {
                Next::Gap => Err(MISSING.to_owned()),
                Next::Bytes(bytes) if is_request => self.read_requests(&bytes, at, budget, &mut calls),
                Next::Bytes(bytes) => self.read_responses(&bytes, at, &mut calls),
            };
            if let Err(problem) = read {
                return self.give_up(calls, problem);
            }
        }
        if !is_request
            && segment.flags.has_fin()
            && let Reading::By(observer) = &mut self.reading
        {
            calls.extend(observer.on_server_end(&mut self.responses.inbox, at));
        }
        // Nothing more comes that could fill a gap.
        if self.requests.has_ended && self.responses.has_ended && self.has_gap() {
            return self.give_up(calls, MISSING.to_owned());
        }
        (calls, None)
    }

    fn give_up(
        &mut self,
        mut calls: Vec<CapturedCall>,
        problem: String,
    ) -> (Vec<CapturedCall>, Option<String>) {
        if let Reading::By(observer) = &mut self.reading {
            calls.extend(observer.take_ended());
            calls.extend(observer.take_unfinished());
        }
        self.reading = Reading::Ended;
        (self.requests.inbox, self.responses.inbox) = Default::default();
        (calls, Some(problem))
    }

    fn has_gap(&self) -> bool {
        self.requests.stream.has_gap() || self.responses.stream.has_gap()
    }

    fn read_requests(
        &mut self,
        bytes: &[u8],
        at: u64,
        budget: &Rc<Budget>,
        calls: &mut Vec<CapturedCall>,
    ) -> Result<(), String> {
        self.requests.inbox.extend_from_slice(bytes);
        loop {
            if let Reading::Undecided { follows_connect } = self.reading {
                match sessions::detect(&self.requests.inbox, follows_connect, budget)? {
                    None => return Ok(()),
                    Some(observer) => self.reading = Reading::By(observer),
                }
            }
            let Reading::By(observer) = &mut self.reading else { return Ok(()) };
            let continuation = observer.read_requests(&mut self.requests.inbox, at)?;
            calls.extend(observer.take_ended());
            match continuation {
                Continuation::Same => return Ok(()),
                Continuation::Unread(why) => return Err(why.to_owned()),
                Continuation::Other => {
                    calls.extend(observer.take_unfinished());
                    self.reading = Reading::Undecided { follows_connect: true };
                    if self.requests.inbox.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn read_responses(&mut self, bytes: &[u8], at: u64, calls: &mut Vec<CapturedCall>) -> Result<(), String> {
        match &mut self.reading {
            Reading::By(observer) => {
                self.responses.inbox.extend_from_slice(bytes);
                calls.extend(observer.read_responses(&mut self.responses.inbox, at)?);
            }
            // An answer to CONNECT comes before the first request within.
            Reading::Undecided { follows_connect: true } => self.responses.inbox.extend_from_slice(bytes),
            // What answers requests before the capture.
            _ => {}
        }
        Ok(())
    }

    /// Adds what the sessions do not know.
    fn label(&self, mut calls: Vec<CapturedCall>) -> Vec<CapturedCall> {
        for CapturedCall { call, .. } in &mut calls {
            call.connection = self.number;
            call.peer = format!("{} → {}", self.client, self.server);
        }
        calls
    }
}

const MISSING: &str = "packets are missing in the capture";

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 100_000;

/// Maximum number of bytes of the calls whose end was not seen yet.
const MAX_MEMORY: usize = 512 << 20;
