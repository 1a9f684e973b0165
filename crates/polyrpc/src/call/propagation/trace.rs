use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

use bytes::Bytes;
use polyrpc_core::{Metadata, Status};

use crate::Error;

/// Trace context that is propagated from call to call in addition to deadlines: W3C's Trace Context (`traceparent`,
/// `tracestate`) and Baggage (`baggage`).
///
/// Zipkin's single-header `b3` is accepted in place of `traceparent`; such a trace is propagated in both headers. The
/// ids of brpc's rpcz are accepted too. A trace id of brpc has 64 bits, so calls over baidu_std carry the lower half of
/// the trace id, if the trace is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// Trace id, and parent span of the calls made here; `None` if only baggage was received.
    pub parent: Option<TraceParent>,
    /// State of tracing systems (`tracestate`), as received.
    pub state: Bytes,
    /// Baggage of the programs, as received.
    pub baggage: Bytes,
    /// Whether it was received as `b3`.
    zipkin: bool,
}

impl Trace {
    /// Creates a trace with this parent for further calls.
    pub fn new(parent: TraceParent) -> Self {
        Self { parent: Some(parent), ..Self::default() }
    }

    /// Returns the same trace, state and baggage with another parent for further calls.
    #[must_use]
    pub fn with_parent(&self, parent: TraceParent) -> Self {
        Self { parent: Some(parent), ..self.clone() }
    }

    /// Reads the trace from the metadata of a call; `None` if there is no valid one.
    #[inline]
    pub fn read(metadata: &Metadata) -> Option<Self> {
        // Most calls have none.
        if metadata.is_empty() { None } else { Self::read_entries(metadata) }
    }

    fn read_entries(metadata: &Metadata) -> Option<Self> {
        let mut trace = Self::default();
        let (mut zipkin, mut states, mut baggage_values) =
            (None, HeaderValues::default(), HeaderValues::default());
        let (mut brpc_trace, mut brpc_span) = (None, None);
        for (key, value) in metadata.iter() {
            match key {
                "traceparent" => trace.parent = trace.parent.or_else(|| parse_traceparent(text(value)?)),
                "tracestate" => states.push(value),
                "baggage" => baggage_values.push(value),
                "b3" => zipkin = zipkin.or_else(|| TraceParent::from_b3(text(value)?)),
                BRPC_TRACE => brpc_trace = text(value).and_then(|id| id.parse::<u64>().ok()),
                BRPC_SPAN => brpc_span = text(value).and_then(|id| id.parse::<u64>().ok()),
                _ => {}
            }
        }
        // A state without its trace is meaningless (Trace Context, section 3.3).
        if trace.parent.is_some() {
            trace.state = states.join(MAX_STATE);
        } else {
            trace.zipkin = zipkin.is_some();
            trace.parent = zipkin.or_else(|| TraceParent::new(brpc_trace?.into(), brpc_span?, true));
        }
        trace.baggage = baggage_values.join(MAX_BAGGAGE);
        (trace.parent.is_some() || !trace.baggage.is_empty()).then_some(trace)
    }

    /// Adds the trace to the metadata of a call. Entries that the caller has set are kept.
    pub fn write(&self, metadata: &mut Metadata) {
        let mut add = |key: &'static str, value: Bytes| {
            if !value.is_empty() && metadata.bytes(key).is_none() {
                metadata.append(key, value);
            }
        };
        if let Some(parent) = self.parent {
            add("traceparent", parent.to_string().into());
            if self.zipkin {
                add("b3", parent.to_b3().into());
            }
        }
        add("tracestate", self.state.clone());
        add("baggage", self.baggage.clone());
    }

    /// Whether the trace is recorded: its originator sampled it, or another process that uses PolyRPC records it. Such
    /// a process marks the trace in `tracestate` instead of the flags, so that tracing systems with their own sampling
    /// do not record it too.
    pub fn is_recorded(&self) -> bool {
        let mark = |entry: &[u8]| entry.trim_ascii() == RECORDED;
        let is_marked = !self.state.is_empty() && self.state.split(|byte| *byte == b',').any(mark);
        self.parent.is_some_and(|parent| parent.is_sampled()) || is_marked
    }

    /// Returns the trace, [marked](Self::is_recorded) as recorded.
    #[must_use]
    pub fn recorded(mut self) -> Self {
        if !self.is_recorded() {
            // New entries are at the front (Trace Context, section 3.5).
            let parts: &[&[u8]] = if self.state.is_empty() { &[RECORDED] } else { &[RECORDED, &self.state] };
            let state = parts.join(&b","[..]);
            if state.len() <= MAX_STATE {
                self.state = state.into();
            }
        }
        self
    }

    /// Adds the ids of a recorded trace in the form of brpc (`baidu_rpc_meta.proto`), so that a brpc server records the
    /// call too.
    pub(super) fn write_brpc(&self, metadata: &mut Metadata) {
        let Some(parent) = self.parent.filter(|_| self.is_recorded()) else { return };
        // brpc's ids have 64 bits: the lower half.
        let trace = parent.trace as u64;
        if trace != 0 && metadata.bytes(BRPC_TRACE).is_none() {
            metadata.append(BRPC_TRACE, trace.to_string());
            metadata.append(BRPC_SPAN, parent.span.to_string());
        }
    }
}

/// Keys of the ids of brpc's rpcz, which have 64 bits and are written in decimal (`policy/http_rpc_protocol.cpp`). In
/// baidu_std they have fields of their own.
const BRPC_TRACE: &str = "x-bd-trace-id";
const BRPC_SPAN: &str = "x-bd-span-id";

/// Entry of `tracestate` for a trace that is recorded without being sampled.
const RECORDED: &[u8] = b"polyrpc=1";

/// Maximum size of the propagated `tracestate` in bytes; a longer one is dropped as a whole. Trace Context, section
/// 3.3.1.5, requires at least this much.
const MAX_STATE: usize = 512;

/// Maximum size of the propagated `baggage` in bytes; a longer one is dropped as a whole. Baggage, section 3.3.2,
/// requires at least this much.
const MAX_BAGGAGE: usize = 8192;

/// Values of a repeated key, which are equivalent to one value that joins them with commas.
#[derive(Default)]
struct HeaderValues<'a>(Vec<&'a Bytes>);

impl<'a> HeaderValues<'a> {
    fn push(&mut self, value: &'a Bytes) {
        self.0.push(value);
    }

    /// Joins all values. Empty if the result is longer than `max_length`, or if some protocol cannot carry it.
    fn join(self, max_length: usize) -> Bytes {
        let length: usize = self.0.iter().map(|value| value.len() + 1).sum();
        if length > max_length + 1 || self.0.iter().any(|value| text(value).is_none()) {
            return Bytes::new();
        }
        // HTTP strips the whitespace around a field's value.
        let trimmed = |value: &Bytes| value.slice_ref(value.trim_ascii());
        match &self.0[..] {
            [] => Bytes::new(),
            [one] => trimmed(one),
            many => trimmed(&many.iter().map(|value| &value[..]).collect::<Vec<_>>().join(&b","[..]).into()),
        }
    }
}

/// Returns the value if it is valid in an HTTP header.
fn text(value: &[u8]) -> Option<&str> {
    let printable = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    std::str::from_utf8(value).ok().filter(|_| printable)
}

/// A span of a trace, formatted as in `traceparent`: `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceParent {
    /// Creates a span of a trace; `None` if one of the ids is zero, which is invalid.
    pub fn new(trace: u128, span: u64, sampled: bool) -> Option<Self> {
        (trace != 0 && span != 0).then_some(Self { trace, span, flags: u8::from(sampled) })
    }

    /// Creates the first span of a new trace.
    pub fn root(sampled: bool) -> Self {
        let trace = u128::from(random_id()) << 64 | u128::from(random_id());
        Self { trace, span: random_id(), flags: u8::from(sampled) | RANDOM }
    }

    /// Creates another span of the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: random_id(), ..self }
    }

    /// Returns the trace's id; never zero.
    pub fn trace_id(&self) -> u128 {
        self.trace
    }

    /// Returns the span's id; never zero.
    pub fn span_id(&self) -> u64 {
        self.span
    }

    /// Whether the caller may have recorded the trace: the flag `sampled`.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the flags: 1 if the trace is sampled, plus 2 if its id is random.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Parses Zipkin's single header: `trace-span[-sampled[-parent]]`. The trace id has 32 digits or 16.
    fn from_b3(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (trace, span) = (parts.next()?, parts.next()?);
        let trace = match trace.len() {
            16 | 32 => hex(trace)?,
            _ => return None,
        };
        let span = u64::try_from(hex(span).filter(|_| span.len() == 16)?).ok()?;
        Self::new(trace, span, matches!(parts.next(), Some("1" | "d")))
    }

    fn to_b3(self) -> String {
        format!("{:032x}-{:016x}-{}", self.trace, self.span, u8::from(self.is_sampled()))
    }
}

/// Flag: the caller may have recorded the trace.
const SAMPLED: u8 = 1;

/// Flag: the trace id is random (Trace Context, level 2).
const RANDOM: u8 = 2;

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = Error;

    /// Parses version 00, and future versions as far as they are known (Trace Context, section 3.2.2).
    fn from_str(text: &str) -> Result<Self, Error> {
        parse_traceparent(text).ok_or_else(malformed)
    }
}

fn parse_traceparent(text: &str) -> Option<TraceParent> {
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split('-');
    let mut part = |digits| parts.next().filter(|part: &&str| part.len() == digits).and_then(hex);
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let has_later_fields = version != 0 && rest.starts_with('-');
    if version == 0xff || !(rest.is_empty() || has_later_fields) {
        return None;
    }
    // Only known flags are propagated.
    let flags = u8::try_from(flags).ok()? & (SAMPLED | RANDOM);
    let parent = TraceParent::new(trace, u64::try_from(span).ok()?, false)?;
    Some(TraceParent { flags, ..parent })
}

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// Parses hexadecimal digits; the standards allow only lower-case letters.
fn hex(text: &str) -> Option<u128> {
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| digits)
}

#[cold]
fn malformed() -> Error {
    let want = "expected 00-<trace id>-<span id>-<flags>, in lower-case hexadecimal digits, with ids other than zero";
    Status::invalid_argument(want).into()
}

/// Returns a random id that is not zero. It need not be unpredictable: splitmix64, seeded per thread with a key of the
/// standard hasher.
pub(crate) fn random_id() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish());
    }
    let state = STATE.with(|state| {
        state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        state.get()
    });
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_round_trips() {
        let parent: TraceParent = PARENT.parse().unwrap();
        assert_eq!(parent.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((parent.span_id(), parent.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(parent.to_string(), PARENT);
        let child = parent.child();
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_ne!(child.span_id(), parent.span_id());
        assert!(child.is_sampled() && !TraceParent::root(false).is_sampled());
    }

    #[test]
    fn later_traceparent_version_with_more_fields_is_parsed() {
        let later = PARENT.replacen("00", "cc", 1);
        for text in [later.clone(), later.clone() + "-what-is-new"] {
            assert_eq!(text.parse::<TraceParent>().unwrap(), PARENT.parse().unwrap(), "{text}");
        }
        assert!((later + ".x").parse::<TraceParent>().is_err());
    }

    #[test]
    fn invalid_traceparent_is_rejected() {
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let no_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let (upper, longer) = (PARENT.to_uppercase(), PARENT.to_owned() + "-x");
        let (forbidden, short) = (PARENT.replacen("00", "ff", 1), &PARENT[..54]);
        let (sign, split) = (PARENT.replacen("4b", "+b", 1), PARENT.replacen("6-0", "-60", 1));
        let wide = PARENT.replacen("4bf9", "4bé", 1);
        for text in ["", zero, no_span, &upper, &longer, &forbidden, short, &sign, &split, &wide] {
            assert!(text.parse::<TraceParent>().is_err(), "{text}");
        }
    }

    #[test]
    fn trace_is_propagated_unchanged() {
        let metadata: Metadata =
            [("traceparent", PARENT), ("tracestate", "a=1,b=2"), ("baggage", "user=7"), ("x", "y")]
                .into_iter()
                .collect();
        let mut out = Metadata::new();
        Trace::read(&metadata).unwrap().write(&mut out);
        let expected: Vec<_> = metadata.iter().take(3).collect();
        assert_eq!(out.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn brpc_ids_are_the_lower_half_of_trace_ids() {
        let metadata: Metadata =
            [("x-bd-trace-id", "1469370164498137089"), ("x-bd-span-id", "7")].into_iter().collect();
        let trace = Trace::read(&metadata).unwrap();
        let parent = trace.parent.unwrap();
        assert_eq!((parent.trace_id(), parent.span_id()), (1_469_370_164_498_137_089, 7));
        assert!(trace.is_recorded());
        let mut out = Metadata::new();
        trace.write_brpc(&mut out);
        assert_eq!(out.iter().collect::<Vec<_>>(), metadata.iter().collect::<Vec<_>>());
        // A W3C trace is sent to brpc, by the lower half of its id, only if it is recorded.
        let unsampled = Trace::new(PARENT.replace("-01", "-00").parse().unwrap());
        let mut out = Metadata::new();
        unsampled.write_brpc(&mut out);
        assert!(out.iter().next().is_none());
        unsampled.recorded().write_brpc(&mut out);
        assert_eq!(out.get("x-bd-trace-id"), Some(0xa3ce_929d_0e0e_4736_u64.to_string().as_str()));
        for (trace, span) in [("0", "7"), ("7", "0"), ("x", "7"), ("18446744073709551616", "7"), ("-1", "7")]
        {
            let invalid: Metadata = [("x-bd-trace-id", trace), ("x-bd-span-id", span)].into_iter().collect();
            assert_eq!(Trace::read(&invalid), None, "{trace} {span}");
        }
    }

    #[test]
    fn recorded_trace_is_marked_once_and_stays_unsampled() {
        let trace =
            Trace { state: "a=1".into(), ..Trace::new(PARENT.replace("-01", "-00").parse().unwrap()) };
        assert!(!trace.is_recorded());
        let marked = trace.recorded();
        assert_eq!((&marked.state[..], marked.is_recorded()), (&b"polyrpc=1,a=1"[..], true));
        assert!(!marked.parent.unwrap().is_sampled());
        assert_eq!(marked.clone().recorded(), marked);
        let sampled = Trace::new(PARENT.parse().unwrap());
        assert_eq!(sampled.clone().recorded(), sampled);
    }

    #[test]
    fn explicit_trace_headers_of_the_caller_win() {
        let mut metadata = Metadata::new();
        metadata.insert("baggage", "mine=1");
        let trace = Trace { baggage: "theirs=1".into(), ..Trace::new(PARENT.parse().unwrap()) };
        trace.write(&mut metadata);
        assert_eq!(metadata.get("baggage"), Some("mine=1"));
        assert_eq!(metadata.get("traceparent"), Some(PARENT));
    }

    #[test]
    fn repeated_tracestate_headers_are_joined() {
        let mut metadata = Metadata::new();
        metadata.append("traceparent", PARENT);
        metadata.append("tracestate", "a=1");
        metadata.append("tracestate", "b=2");
        metadata.append("baggage", "c=3");
        metadata.append("baggage", "d=4");
        let trace = Trace::read(&metadata).unwrap();
        assert_eq!((&trace.state[..], &trace.baggage[..]), (&b"a=1,b=2"[..], &b"c=3,d=4"[..]));
    }

    #[test]
    fn blanks_around_a_list_are_trimmed() {
        let metadata: Metadata =
            [("traceparent", PARENT), ("tracestate", " a=1"), ("baggage", "c=3 ")].into_iter().collect();
        let trace = Trace::read(&metadata).unwrap();
        assert_eq!((&trace.state[..], &trace.baggage[..]), (&b"a=1"[..], &b"c=3"[..]));
    }

    #[test]
    fn oversized_or_binary_entries_are_dropped_and_the_rest_is_kept() {
        for (key, value) in
            [("tracestate", "x".repeat(513)), ("baggage", "x".repeat(8193)), ("baggage", "a=\u{e9}\n".into())]
        {
            let metadata: Metadata = [("traceparent", PARENT.to_owned()), (key, value)].into_iter().collect();
            assert_eq!(Trace::read(&metadata), Some(Trace::new(PARENT.parse().unwrap())), "{key}");
        }
        let malformed: Metadata = [("traceparent", "00-x"), ("tracestate", "a=1")].into_iter().collect();
        assert_eq!(Trace::read(&malformed), None);
    }

    #[test]
    fn b3_header_is_parsed_and_propagated_with_traceparent() {
        for (text, sampled) in [
            ("80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90", true),
            ("80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-d", true),
            ("80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1", false),
            ("64fe8b2a57d3eff7-e457b5a2e4d86bd1-0", false),
        ] {
            let mut out = Metadata::new();
            Trace::read(&[("b3", text)].into_iter().collect()).unwrap().write(&mut out);
            let parent: TraceParent = out.get("traceparent").unwrap().parse().unwrap();
            assert_eq!((parent.span_id(), parent.is_sampled()), (0xe457_b5a2_e4d8_6bd1, sampled), "{text}");
            assert!(out.get("b3").unwrap().contains("-e457b5a2e4d86bd1-"), "{text}");
        }
        for invalid in ["0", "", "80f1-e457b5a2e4d86bd1", "64fe8b2a57d3eff7-0000000000000000", "x-y-z"] {
            assert_eq!(Trace::read(&[("b3", invalid)].into_iter().collect()), None, "{invalid}");
        }
    }
}
