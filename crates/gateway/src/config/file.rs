//! The keys of the configuration file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use polyrpc::{Format, Json, Protocol};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use toml::Spanned;

use super::glob::Glob;
use super::mirror::{Mirror, Rollback};
use super::record::Record;
use super::secret::Secret;
use super::units::{Share, Size, Span};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<String>,
    pub(super) threads: Option<usize>,
    #[serde(default)]
    pub(super) listen: Vec<Spanned<Listen>>,
    #[serde(default)]
    pub(super) upstream: Vec<Spanned<Upstream>>,
    #[serde(default)]
    pub(super) route: Vec<Spanned<Route>>,
    pub(super) schema: Option<Spanned<Schema>>,
    pub(super) admin: Option<Spanned<Admin>>,
    pub(super) mcp: Option<Spanned<Tools>>,
    pub(super) openapi: Option<Spanned<OpenApi>>,
    pub(super) record: Option<Spanned<Record>>,
    pub(super) drain: Option<Span>,
    /// How long health checks report "not ready" while new calls are still accepted.
    pub(super) lame_duck: Option<Span>,
    pub(super) limits: Option<Spanned<Limits>>,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listen {
    pub(crate) address: String,
    /// Empty means all.
    #[serde(default)]
    pub(crate) protocols: Vec<ProtocolName>,
    pub(crate) tls: Option<ServerTls>,
    /// Callers must send one of these.
    #[serde(default)]
    pub(crate) tokens: Vec<Secret>,
    /// Addresses and networks of proxies.
    #[serde(default)]
    pub(crate) trusted: Vec<String>,
    /// Whether the connections of these proxies begin with a header.
    #[serde(default)]
    pub(crate) proxy_protocol: bool,
}

impl Listen {
    pub(crate) fn protocols(&self) -> Vec<Protocol> {
        match self.protocols.as_slice() {
            [] => Protocol::ALL.to_vec(),
            some => some.iter().map(|spoken| spoken.0).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerTls {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    /// Whether plaintext is rejected.
    #[serde(default)]
    pub(crate) required: bool,
}

/// Servers that calls are forwarded to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) format: Option<Wire>,
    pub(crate) timeout: Option<Span>,
    pub(crate) connect_timeout: Option<Span>,
    pub(crate) retries: Option<u32>,
    /// Whether every call may be retried.
    #[serde(default)]
    pub(crate) idempotent: bool,
    #[serde(default)]
    pub(crate) credential: Credential,
    #[serde(default)]
    pub(crate) metadata: MetadataPolicy,
    /// Whether servers get the caller's address (`x-forwarded-for`).
    #[serde(default)]
    pub(crate) forwarded: bool,
    pub(crate) tls: Option<UpstreamTls>,
    /// Maximum of concurrent calls. Default: 4,000 of each thread.
    pub(crate) calls: Option<usize>,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) health: Option<Health>,
}

/// When a failing server is ejected for a while.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Breaker {
    /// Consecutive failures.
    pub(crate) consecutive: Option<u32>,
    /// Share of calls that fail, of at least `min_calls`.
    pub(crate) failures: Option<Share>,
    #[serde(default = "min_calls")]
    pub(crate) min_calls: u32,
    #[serde(default = "window")]
    pub(crate) window: Span,
}

fn min_calls() -> u32 {
    20
}

fn window() -> Span {
    Span(Duration::from_secs(10))
}

/// How servers are checked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Health {
    pub(crate) check: Check,
    pub(crate) interval: Option<Span>,
    pub(crate) timeout: Option<Span>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Check {
    Connect,
    Heartbeat,
    /// gRPC's health check of this service.
    Grpc(String),
    /// `GET` of this path.
    Http(String),
}

impl<'de> Deserialize<'de> for Check {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(':') {
            None if text == "connect" => Ok(Self::Connect),
            None if text == "heartbeat" => Ok(Self::Heartbeat),
            None if text == "grpc" => Ok(Self::Grpc(String::new())),
            Some(("grpc", service)) => Ok(Self::Grpc(service.to_owned())),
            Some(("http", path)) if path.starts_with('/') => Ok(Self::Http(path.to_owned())),
            _ => Err(D::Error::custom(format!(
                "`{text}` is no check: expected connect, heartbeat, grpc, grpc:SERVICE or http:/PATH"
            ))),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamTls {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
}

/// Whether the caller's credential is dropped, forwarded or replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Credential {
    #[default]
    Drop,
    /// `authorization` of gRPC and HTTP is forwarded.
    Pass,
    Replace(Secret),
}

/// Whether metadata is rejected or dropped if the upstream's protocol has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MetadataPolicy {
    #[default]
    Refuse,
    Drop,
}

/// Which calls go where; the first match applies.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// Name in reports and metrics.
    pub(crate) name: Option<String>,
    #[serde(default, rename = "match")]
    pub(crate) matches: Match,
    pub(crate) to: Target,
    #[serde(default)]
    pub(crate) sticky: Option<Sticky>,
    #[serde(default)]
    pub(crate) rename: Rename,
    pub(crate) timeout: Option<Span>,
    #[serde(default)]
    pub(crate) on_loss: Loss,
    /// Maximum of concurrent calls.
    pub(crate) calls: Option<usize>,
    /// Methods without side effects, `Service/Method`, in addition to those whose `.proto` declares it.
    #[serde(default)]
    pub(crate) safe: Vec<Glob>,
    /// Callers receive the messages of a topic as a stream of responses.
    pub(crate) subscribe: Option<Topic>,
    pub(crate) mirror: Option<Mirror>,
    pub(crate) rollback: Option<Rollback>,
    /// Whether its calls are recorded; overrides `record.by_default`.
    pub(crate) record: Option<bool>,
}

/// A topic of rest_rpc.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topic {
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) token: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Match {
    pub(crate) service: Option<Glob>,
    pub(crate) method: Option<Glob>,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, Glob>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    One(String),
    /// Shares of the calls by upstream.
    Shares(BTreeMap<String, u32>),
}

/// By hand: an untagged enum would say neither what is wrong nor what is wanted.
impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TargetVisitor)
    }
}

struct TargetVisitor;

impl<'de> Visitor<'de> for TargetVisitor {
    type Value = Target;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an upstream, or a table of whole numbers such as { old = 95, new = 5 }")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Target, E> {
        Ok(Target::One(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Target, A::Error> {
        let mut shares = BTreeMap::new();
        while let Some((name, Part(share))) = map.next_entry::<String, Part>()? {
            shares.insert(name, share);
        }
        Ok(Target::Shares(shares))
    }
}

/// An upstream's part of the calls.
struct Part(u32);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

struct PartVisitor;

impl Visitor<'_> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 on, such as in { old = 95, new = 5 }")
    }

    fn visit_i64<E: Error>(self, share: i64) -> Result<Part, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(share), &self);
        u32::try_from(share).map(Part).map_err(wrong)
    }

    fn visit_u64<E: Error>(self, share: u64) -> Result<Part, E> {
        let wrong = |_| E::invalid_value(Unexpected::Unsigned(share), &self);
        u32::try_from(share).map(Part).map_err(wrong)
    }
}

impl Target {
    pub(crate) fn shares(&self) -> Vec<(&str, u32)> {
        match self {
            Self::One(name) => vec![(name, 1)],
            Self::Shares(shares) => shares.iter().map(|(name, share)| (name.as_str(), *share)).collect(),
        }
    }
}

/// The key of sticky routing: calls with the same value go to the same upstream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sticky {
    Metadata(String),
    Peer,
}

impl<'de> Deserialize<'de> for Sticky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(':') {
            Some(("metadata", key)) if !key.is_empty() => Ok(Self::Metadata(key.to_owned())),
            None if text == "peer" => Ok(Self::Peer),
            _ => Err(D::Error::custom(format!("invalid key `{text}`: expected metadata:NAME or peer"))),
        }
    }
}

/// Names that the upstream uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rename {
    pub(crate) service: Option<String>,
    pub(crate) method: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Loss {
    #[default]
    Refuse,
    Count,
}

/// Files and servers that describe methods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Schema {
    pub(crate) proto: Vec<PathBuf>,
    pub(crate) include: Vec<PathBuf>,
    pub(crate) sets: Vec<PathBuf>,
    pub(crate) fbs: Vec<PathBuf>,
    pub(crate) functions: Vec<String>,
    /// Names of upstreams with gRPC's reflection.
    pub(crate) reflect: Vec<String>,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    pub(crate) listen: String,
    pub(crate) read_token: Option<Secret>,
}

/// The methods that are tools of the Model Context Protocol.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tools {
    pub(crate) tools: Vec<String>,
    pub(crate) path: Option<String>,
    #[serde(default)]
    pub(crate) origins: Vec<String>,
    pub(crate) timeout: Option<Span>,
    pub(crate) instructions: Option<String>,
}

/// The methods that the OpenAPI document has.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenApi {
    pub(crate) methods: Vec<String>,
    pub(crate) title: Option<String>,
}

/// Limits: `message` for both sides, `memory` for the whole gateway, the others for each listener.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    pub(crate) message: Option<Size>,
    pub(crate) memory: Option<Size>,
    pub(crate) calls: Option<usize>,
    pub(crate) connections: Option<usize>,
    pub(crate) first_byte_timeout: Option<Span>,
    pub(crate) header_timeout: Option<Span>,
    pub(crate) message_timeout: Option<Span>,
    pub(crate) write_timeout: Option<Span>,
    pub(crate) idle_timeout: Option<Span>,
}

/// A protocol by its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProtocolName(Protocol);

impl<'de> Deserialize<'de> for ProtocolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let wanted = name.replace('-', "_");
        let known = Protocol::ALL.into_iter().find(|protocol| protocol.as_str() == wanted);
        known.map(Self).ok_or_else(|| {
            let known = Protocol::ALL.map(Protocol::as_str).join(", ");
            D::Error::custom(format!("there is no protocol `{name}`; there are {known}"))
        })
    }
}

/// A format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wire {
    Protobuf,
    Json,
    Text,
    Msgpack,
    Gob,
    Flatbuffers,
}

impl Wire {
    /// The protocol's variant of the format.
    pub(crate) fn format(self, protocol: Protocol) -> Format {
        match (self, protocol) {
            (Self::Protobuf, _) => Format::Protobuf,
            (Self::Json, Protocol::Grpc) => Format::Json(Json::Proto3),
            (Self::Json, Protocol::Rpcx | Protocol::NetRpc) => Format::Json(Json::Go),
            (Self::Json, _) => Format::Json(Json::Brpc),
            (Self::Text, _) => Format::ProtoText,
            (Self::Msgpack, Protocol::RestRpc) => Format::MessagePackArray,
            (Self::Msgpack, _) => Format::MessagePack,
            (Self::Gob, _) => Format::Gob,
            (Self::Flatbuffers, _) => Format::FlatBuffers,
        }
    }
}
