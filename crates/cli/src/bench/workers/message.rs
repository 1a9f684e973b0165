//! What a coordinator and its workers tell each other. The other side may be of another version, or not what it claims to
//! be: everything is checked before it is used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc::client::{CallOptions, ConnectionMode};
use polyrpc::codec::Body;
use polyrpc::{Client, Format, Json, Metadata};
use polyrpc_bench_report::hdr;
use polyrpc_load::{
    Arrivals, CallKind, Counts, Histogram, Lost, Method, MethodOutcome, Order, Outcome, Pacing, Plan,
    PlanPart, Profile, Rate, RunLength, SecondPart, Stages, Usage, Verdict,
};
use serde::{Deserialize, Serialize};

/// From the coordinator to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Command {
    /// What to do. The first command.
    Prepare(Box<PlanMessage>),
    /// To be answered at once.
    Ping,
    /// When to start the warm-up: this many nanoseconds after its arrival.
    Start(u64),
    /// The coordinator is still there.
    Alive,
    /// End the load early.
    Stop,
}

/// From a worker to the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Report {
    /// The connections are open; this number of threads will report each second.
    Ready(u64),
    /// Answer to a ping.
    Pong,
    /// A second of a thread has passed.
    Second(SecondMessage),
    /// The worker is still there.
    Alive,
    /// The results. The last report.
    Done(Box<OutcomeMessage>),
}

/// A plan, and the part of it that the worker makes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PlanMessage {
    pub(super) url: String,
    /// Credential for the measured server.
    credential: Option<String>,
    /// Timeout of a call.
    timeout_ns: u64,
    methods: Vec<MethodMessage>,
    /// Calls and nanoseconds of a constant rate.
    rate: Option<(u64, u64)>,
    /// Nanoseconds and calls per second of the points of stages.
    stages: Option<Vec<(u64, f64)>>,
    poisson: bool,
    warmup_ns: u64,
    /// Length of the measurement, or else its number of calls.
    duration_ns: Option<u64>,
    calls: Option<u64>,
    connection_mode: String,
    connections: u64,
    threads: u64,
    max_in_flight: u64,
    drain_timeout_ns: u64,
    seed: u64,
    number: u64,
    of: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct MethodMessage {
    name: String,
    target: String,
    weight: u32,
    shape: String,
    /// Messages of a call of a client stream.
    messages_of_call: u64,
    format: String,
    positional: bool,
    required: bool,
    /// In base64.
    messages: Vec<String>,
    /// The reply that every call must get, in base64.
    expected: Option<String>,
    random_order: bool,
    /// Keys, and values in base64.
    metadata: Vec<(String, String)>,
    oneway: bool,
    timeout_ns: Option<u64>,
}

/// A second of one thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SecondMessage {
    pub(super) number: u64,
    sent: u64,
    succeeded: u64,
    failed: u64,
    in_flight: u64,
    lag_max: u64,
    response_max: u64,
    responses: Vec<(u64, u64)>,
}

/// Results of a worker. Histograms are in the V2 encoding of HdrHistogram.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OutcomeMessage {
    window_ns: u64,
    planned: u64,
    sent: u64,
    succeeded: u64,
    failed: u64,
    unanswered: u64,
    blocked: u64,
    ended_in_window: u64,
    lost: u64,
    methods: Vec<MethodOutcomeMessage>,
    service: String,
    lag: String,
    own_lag: String,
    interrupted: bool,
    /// Calls, nanoseconds from the start, reason, and whether the server did not return.
    lost_connections: Option<(u64, u64, String, bool)>,
    cpu_ns: u64,
    memory: u64,
    memory_peak: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct MethodOutcomeMessage {
    response: String,
    failed: String,
    errors: BTreeMap<String, u64>,
    /// The text of one call of each error. Workers of earlier versions report none.
    #[serde(default)]
    reasons: BTreeMap<String, String>,
}

/// What a worker needs to call the server, besides the plan.
#[derive(Debug, Clone)]
pub(in crate::bench) struct TargetOptions {
    pub(in crate::bench) url: String,
    pub(in crate::bench) credential: Option<String>,
    pub(in crate::bench) timeout: Duration,
}

impl PlanMessage {
    /// The message for one worker.
    pub(super) fn new(plan: &Plan, part: PlanPart, target: &TargetOptions) -> Result<Self, String> {
        let Pacing::Open { profile, arrivals } = &plan.pacing else {
            return Err("workers make calls at planned times only: their bounds are a rate".to_owned());
        };
        let (rate, stages) = match profile {
            Profile::Constant(rate) => (Some(rate.fraction()), None),
            Profile::Stages(stages) => {
                let points = stages.points().into_iter().map(|(at, rate)| (to_nanos(at), rate));
                (None, Some(points.collect()))
            }
        };
        let (duration_ns, calls) = match plan.length {
            RunLength::Time(duration) => (Some(to_nanos(duration)), None),
            RunLength::Calls(calls) => (None, Some(calls)),
        };
        Ok(Self {
            url: target.url.clone(),
            credential: target.credential.clone(),
            timeout_ns: to_nanos(target.timeout),
            methods: plan.methods.iter().map(MethodMessage::new).collect::<Result<_, _>>()?,
            rate,
            stages,
            poisson: *arrivals == Arrivals::Poisson,
            warmup_ns: to_nanos(plan.warmup),
            duration_ns,
            calls,
            connection_mode: name_of(&CONNECTION_MODES, plan.connection_mode).unwrap_or_default().to_owned(),
            connections: plan.connections as u64,
            threads: plan.threads as u64,
            max_in_flight: plan.max_in_flight as u64,
            drain_timeout_ns: to_nanos(plan.drain_timeout),
            seed: plan.seed,
            number: part.number as u64,
            of: part.of as u64,
        })
    }

    /// The plan and the part of it.
    pub(super) fn into_plan(self) -> Result<(Plan, PlanPart), String> {
        let profile = match (self.rate, self.stages) {
            (Some((calls, period)), None) => Profile::Constant(Rate::new(calls, period)?),
            (None, Some(points)) => {
                let points: Vec<_> =
                    points.into_iter().map(|(at, rate)| (Duration::from_nanos(at), rate)).collect();
                Profile::Stages(Stages::new(&points)?)
            }
            _ => return Err("expected either a rate or stages".to_owned()),
        };
        let length = match (self.duration_ns, self.calls) {
            (Some(duration), None) => RunLength::Time(Duration::from_nanos(duration)),
            (None, Some(calls)) => RunLength::Calls(calls),
            _ => return Err("expected either a duration or a number of calls".to_owned()),
        };
        let (url, credential, timeout) = (self.url, self.credential, Duration::from_nanos(self.timeout_ns));
        let client = move || {
            let builder = Client::builder(&url).timeout(timeout);
            Ok(match &credential {
                Some(credential) => builder.credential(credential.clone()),
                None => builder,
            })
        };
        let plan = Plan {
            client: Arc::new(client),
            methods: self.methods.into_iter().map(MethodMessage::into_method).collect::<Result<_, _>>()?,
            pacing: Pacing::Open {
                profile,
                arrivals: if self.poisson { Arrivals::Poisson } else { Arrivals::Constant },
            },
            warmup: Duration::from_nanos(self.warmup_ns),
            length,
            connection_mode: value_of(&CONNECTION_MODES, &self.connection_mode)?,
            connections: to_usize(self.connections)?,
            threads: to_usize(self.threads)?,
            max_in_flight: to_usize(self.max_in_flight)?,
            drain_timeout: Duration::from_nanos(self.drain_timeout_ns),
            seed: self.seed,
            server: None,
        };
        Ok((plan, PlanPart { number: to_usize(self.number)?, of: to_usize(self.of)? }))
    }
}

impl MethodMessage {
    fn new(method: &Method) -> Result<Self, String> {
        let first = method.messages.first().ok_or("a method has no message")?;
        let format = name_of(&FORMATS, first.format)
            .ok_or_else(|| format!("messages in {} are not sent to workers", first.format.as_str()))?;
        let (shape, messages_of_call) = match method.kind {
            CallKind::ClientStream { messages } => (CLIENT_STREAM, messages as u64),
            shape => (name_of(&CALL_KINDS, shape).unwrap_or_default(), 0),
        };
        let metadata = method.options.metadata.iter();
        Ok(Self {
            name: method.name.clone(),
            target: method.target.clone(),
            weight: method.weight,
            shape: shape.to_owned(),
            messages_of_call,
            format: format.to_owned(),
            positional: first.positional,
            required: first.required,
            messages: method.messages.iter().map(|body| STANDARD.encode(&body.bytes)).collect(),
            expected: method.expected.as_ref().map(|bytes| STANDARD.encode(bytes)),
            random_order: method.order == Order::Random,
            metadata: metadata.map(|(key, value)| (key.to_owned(), STANDARD.encode(value))).collect(),
            oneway: method.options.oneway,
            timeout_ns: method.options.timeout.map(to_nanos),
        })
    }

    fn into_method(self) -> Result<Method, String> {
        let format = value_of(&FORMATS, &self.format)?;
        let shape = match self.shape.as_str() {
            CLIENT_STREAM if (1..=MAX_MESSAGES).contains(&self.messages_of_call) => {
                CallKind::ClientStream { messages: to_usize(self.messages_of_call)? }
            }
            CLIENT_STREAM => return Err(format!("a call has 1 to {MAX_MESSAGES} messages")),
            shape => value_of(&CALL_KINDS, shape)?,
        };
        let body = |text: &String| {
            let (positional, required) = (self.positional, self.required);
            decode_bytes(text).map(|bytes| Body { positional, required, ..Body::new(format, bytes) })
        };
        let mut metadata = Metadata::new();
        for (key, value) in &self.metadata {
            metadata.append(key.clone(), decode_bytes(value)?);
        }
        Ok(Method {
            messages: self.messages.iter().map(body).collect::<Result<Vec<_>, _>>()?.into(),
            expected: self.expected.as_deref().map(decode_bytes).transpose()?.map(Into::into),
            name: self.name,
            target: self.target,
            weight: self.weight,
            kind: shape,
            order: if self.random_order { Order::Random } else { Order::Sequence },
            options: CallOptions {
                metadata,
                oneway: self.oneway,
                timeout: self.timeout_ns.map(Duration::from_nanos),
                ..CallOptions::default()
            },
        })
    }
}

impl From<SecondPart> for SecondMessage {
    fn from(part: SecondPart) -> Self {
        let SecondPart { number, sent, succeeded, failed, in_flight, lag_max, response_max, responses } =
            part;
        Self { number, sent, succeeded, failed, in_flight, lag_max, response_max, responses }
    }
}

impl From<SecondMessage> for SecondPart {
    fn from(message: SecondMessage) -> Self {
        let SecondMessage { number, sent, succeeded, failed, in_flight, lag_max, response_max, responses } =
            message;
        Self { number, sent, succeeded, failed, in_flight, lag_max, response_max, responses }
    }
}

impl From<&Outcome> for OutcomeMessage {
    fn from(outcome: &Outcome) -> Self {
        let counts = &outcome.counts;
        let method = |method: &MethodOutcome| MethodOutcomeMessage {
            response: hdr::encode(&method.response),
            failed: hdr::encode(&method.failed),
            errors: method.errors.clone(),
            reasons: shorten(&method.reasons),
        };
        let lost = outcome.lost.as_ref();
        Self {
            window_ns: to_nanos(outcome.window),
            planned: counts.planned,
            sent: counts.sent,
            succeeded: counts.succeeded,
            failed: counts.failed,
            unanswered: counts.unanswered,
            blocked: counts.blocked,
            ended_in_window: counts.ended_in_window,
            lost: counts.lost,
            methods: outcome.methods.iter().map(method).collect(),
            service: hdr::encode(&outcome.service),
            lag: hdr::encode(&outcome.lag),
            own_lag: hdr::encode(&outcome.own_lag),
            interrupted: outcome.interrupted,
            lost_connections: lost
                .map(|lost| (lost.calls, to_nanos(lost.after), lost.reason.clone(), lost.for_good)),
            cpu_ns: to_nanos(outcome.generator.cpu),
            memory: outcome.generator.memory,
            memory_peak: outcome.generator.memory_peak,
        }
    }
}

impl OutcomeMessage {
    /// The outcome of a part with this number of methods.
    pub(super) fn into_outcome(self, methods: usize) -> Result<Outcome, String> {
        if self.methods.len() != methods {
            return Err(format!("it has results of {} methods instead of {methods}", self.methods.len()));
        }
        let counts = [self.planned, self.sent, self.succeeded, self.failed, self.unanswered, self.blocked];
        let errors = self.methods.iter().flat_map(|method| method.errors.values().copied());
        if counts.into_iter().chain(errors).any(|count| count > MAX_CALLS) {
            return Err("it counts more calls than anybody could make".to_owned());
        }
        let method = |method: MethodOutcomeMessage| {
            Ok(MethodOutcome {
                response: decode_histogram(&method.response)?,
                failed: decode_histogram(&method.failed)?,
                errors: method.errors,
                reasons: shorten(&method.reasons),
            })
        };
        Ok(Outcome {
            window: Duration::from_nanos(self.window_ns),
            opened: None,
            counts: Counts {
                planned: self.planned,
                sent: self.sent,
                succeeded: self.succeeded,
                failed: self.failed,
                unanswered: self.unanswered,
                blocked: self.blocked,
                ended_in_window: self.ended_in_window,
                lost: self.lost,
            },
            methods: self.methods.into_iter().map(method).collect::<Result<_, String>>()?,
            service: decode_histogram(&self.service)?,
            lag: decode_histogram(&self.lag)?,
            own_lag: decode_histogram(&self.own_lag)?,
            seconds: Vec::new(),
            // Computed again for all parts together.
            verdict: Verdict::NothingMeasured,
            interrupted: self.interrupted,
            lost: self.lost_connections.map(|(calls, after, reason, for_good)| Lost {
                calls,
                after: Duration::from_nanos(after),
                reason,
                for_good,
            }),
            generator: Usage {
                pid: 0,
                cpu: Duration::from_nanos(self.cpu_ns),
                memory: self.memory,
                memory_peak: self.memory_peak,
            },
            server: None,
        })
    }
}

/// Texts of failures, which may be as long as their servers want.
fn shorten(reasons: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let cut = |reason: &String| reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].to_owned();
    reasons.iter().map(|(error, reason)| (error.clone(), cut(reason))).collect()
}

const MAX_REASON_BYTES: usize = 1024;

fn decode_histogram(text: &str) -> Result<Histogram<u64>, String> {
    hdr::decode(text).map_err(|error| error.to_string())
}

fn decode_bytes(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|_| "a message is not valid base64".to_owned())
}

fn to_usize(number: u64) -> Result<usize, String> {
    usize::try_from(number).map_err(|_| format!("{number} is more than this machine can count"))
}

fn to_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> Option<&'static str> {
    names.iter().find(|(_, known)| *known == value).map(|(name, _)| *name)
}

fn value_of<T: Copy>(names: &[(&'static str, T)], text: &str) -> Result<T, String> {
    let known = names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    known.ok_or_else(|| format!("`{text}` is not known to this version"))
}

/// Calls of a worker, so few that those of all workers can be added.
const MAX_CALLS: u64 = 1 << 48;

const CONNECTION_MODES: [(&str, ConnectionMode); 3] = [
    ("shared", ConnectionMode::Shared),
    ("pooled", ConnectionMode::Pooled),
    ("short", ConnectionMode::Short),
];
const CALL_KINDS: [(&str, CallKind); 4] = [
    ("unary", CallKind::Unary),
    ("oneway", CallKind::Oneway),
    ("server-stream", CallKind::ServerStream),
    ("bidi", CallKind::Bidi),
];
const CLIENT_STREAM: &str = "client-stream";
const FORMATS: [(&str, Format); 13] = [
    ("protobuf", Format::Protobuf),
    ("json", Format::Json(Json::Proto3)),
    ("json-brpc", Format::Json(Json::Brpc)),
    ("json-brpc-lenient", Format::Json(Json::BrpcLenient)),
    ("json-go", Format::Json(Json::Go)),
    ("proto-text", Format::ProtoText),
    ("msgpack", Format::MessagePack),
    ("msgpack-array", Format::MessagePackArray),
    ("rest_rpc", Format::RestRpc),
    ("struct_pack", Format::StructPack),
    ("flatbuffers", Format::FlatBuffers),
    ("gob", Format::Gob),
    ("raw", Format::Raw),
];

/// Maximum number of messages of a call.
const MAX_MESSAGES: u64 = 1_000_000;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A plan for workers that call this server.
    pub(in super::super) fn plan_of(url: &str) -> PlanMessage {
        let method = Method {
            name: "echo".to_owned(),
            target: "echo".to_owned(),
            weight: 3,
            kind: CallKind::ClientStream { messages: 7 },
            messages: [Body::new(Format::Json(Json::Go), &b"\"hello\""[..])].into(),
            expected: Some(b"\"hello\"".to_vec().into()),
            order: Order::Random,
            options: CallOptions {
                metadata: [("key", "value")].into_iter().collect(),
                timeout: Some(Duration::from_secs(2)),
                ..CallOptions::default()
            },
        };
        let plan = Plan {
            client: Arc::new(|| Err("no client".to_owned())),
            methods: vec![method],
            pacing: Pacing::Open {
                profile: Profile::Constant(Rate::new(1, 3_000_000).unwrap()),
                arrivals: Arrivals::Poisson,
            },
            warmup: Duration::from_secs(1),
            length: RunLength::Time(Duration::from_secs(10)),
            connection_mode: ConnectionMode::Pooled,
            connections: 5,
            threads: 1,
            max_in_flight: 100,
            drain_timeout: Duration::from_secs(11),
            seed: 9,
            server: None,
        };
        let target = TargetOptions { url: url.to_owned(), credential: None, timeout: Duration::from_secs(3) };
        PlanMessage::new(&plan, PlanPart { number: 1, of: 3 }, &target).unwrap()
    }

    #[test]
    fn plan_survives_its_message() {
        let text = serde_json::to_string(&plan_of("rpcx://127.0.0.1:1")).unwrap();
        let message: PlanMessage = serde_json::from_str(&text).unwrap();
        let (plan, part) = message.into_plan().unwrap();
        assert_eq!(part, PlanPart { number: 1, of: 3 });
        let target = TargetOptions {
            url: "rpcx://127.0.0.1:1".to_owned(),
            credential: None,
            timeout: Duration::from_secs(3),
        };
        let again = PlanMessage::new(&plan, part, &target).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }

    #[test]
    fn contradictory_plan_is_an_error_with_a_message() {
        let plan = plan_of("rpcx://127.0.0.1:1");
        let refused = |change: fn(&mut PlanMessage)| {
            let mut plan = plan.clone();
            change(&mut plan);
            plan.into_plan().unwrap_err()
        };
        assert_eq!(refused(|plan| plan.rate = None), "expected either a rate or stages");
        assert_eq!(refused(|plan| plan.rate = Some((1, 0))), "the period of the rate is zero");
        assert_eq!(refused(|plan| plan.calls = Some(1)), "expected either a duration or a number of calls");
        assert_eq!(refused(|plan| plan.connection_mode = "x".to_owned()), "`x` is not known to this version");
        for messages in [0, MAX_MESSAGES + 1, u64::MAX] {
            let mut plan = plan.clone();
            plan.methods[0].messages_of_call = messages;
            assert_eq!(plan.into_plan().unwrap_err(), "a call has 1 to 1000000 messages");
        }
        assert_eq!(
            refused(|plan| plan.methods[0].messages[0] = "!".to_owned()),
            "a message is not valid base64"
        );
    }

    #[test]
    fn outcome_survives_its_message() {
        let mut outcome = Outcome::merge(1, &[]);
        outcome.counts.planned = 1;
        outcome.methods[0].response.record(1_234_567).unwrap();
        outcome.methods[0].reasons.insert("unknown".to_owned(), "é".repeat(MAX_REASON_BYTES));
        outcome.lost =
            Some(Lost { calls: 2, after: Duration::from_secs(1), reason: "r".into(), for_good: true });
        let message = OutcomeMessage::from(&outcome);
        let again = message.clone().into_outcome(1).unwrap();
        assert_eq!(again.methods[0].response, outcome.methods[0].response);
        assert_eq!(again.methods[0].reasons["unknown"], "é".repeat(MAX_REASON_BYTES / 2));
        assert_eq!(
            Outcome::merge(1, std::slice::from_ref(&again)).methods[0].reasons,
            again.methods[0].reasons
        );
        assert_eq!((again.counts, again.lost), (outcome.counts, outcome.lost));
        let absurd = OutcomeMessage { failed: u64::MAX, ..message.clone() };
        assert!(absurd.into_outcome(1).unwrap_err().contains("more calls than anybody"));
        assert!(message.into_outcome(2).unwrap_err().contains("1 methods instead of 2"));
    }
}
