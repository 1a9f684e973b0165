use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use domain::base::iana::{Class, Rtype};
use domain::base::message::Message;
use domain::base::message_builder::{MessageBuilder, PushError};
use domain::base::name::{Name, ToName};
use domain::base::record::Ttl;
use domain::base::wire::ParseError;
use domain::rdata::{A, Aaaa, Ptr, Srv, Txt};
use polyrpc_core::Status;
use serde::{Deserialize, Serialize};

use crate::discovery::attributes::{escape, unescape};
use crate::discovery::{Advertisement, Instance};

/// DNS names of the announced services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// Name of the service type.
    kind: Name<Vec<u8>>,
    domain: String,
}

impl Names {
    pub(super) fn new(domain: &str) -> Result<Self, Status> {
        let domain = domain.trim_matches('.');
        let kind = name(&format!("{KIND}.{domain}."))?;
        Ok(Self { kind, domain: domain.to_owned() })
    }

    /// Unique name of one service of one server.
    fn instance(&self, entry: &Advertisement) -> Result<Name<Vec<u8>>, Status> {
        name(&format!("{}.{KIND}.{}.", label(entry), self.domain))
    }

    /// Name of its host, for the address record.
    fn host(&self, entry: &Advertisement) -> Result<Name<Vec<u8>>, Status> {
        name(&format!("{}.{}.", label(entry), self.domain))
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new("local").expect("the usual domain is a name")
    }
}

/// rpcx's service type, without the usual `_tcp` (rpcx `serverplugin/mdns.go`).
const KIND: &str = "_rpcxservices";

fn name(text: &str) -> Result<Name<Vec<u8>>, Status> {
    Name::vec_from_str(text)
        .map_err(|error| Status::invalid_argument(format!("`{text}` is not a DNS name: {error}")))
}

fn label(entry: &Advertisement) -> String {
    let mut hasher = DefaultHasher::new();
    (&entry.service, entry.instance.to_string()).hash(&mut hasher);
    format!("polyrpc-{:016x}", hasher.finish())
}

/// Multicast query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) id: u16,
    /// Whether the querier wants a unicast answer.
    pub(super) wants_unicast: bool,
}

impl Query {
    /// Builds a query for all servers, to be answered by unicast.
    pub(super) fn query(names: &Names) -> Result<Vec<u8>, Status> {
        let mut query = MessageBuilder::new_vec().question();
        query.push((&names.kind, Rtype::PTR, Class::from_int(IN | UNICAST_RESPONSE))).map_err(too_long)?;
        Ok(query.finish())
    }

    /// Parses a query for all servers; `None` for everything else.
    pub(super) fn read(packet: &[u8], names: &Names) -> Option<Self> {
        let message = Message::from_slice(packet).ok()?;
        if message.header().qr() {
            return None;
        }
        let mut questions = message.question().filter_map(Result::ok).take(MAX_QUESTIONS);
        let question = questions.find(|question| {
            matches!(question.qtype(), Rtype::PTR | Rtype::ANY) && question.qname().name_eq(&names.kind)
        })?;
        let wants_unicast = question.qclass().to_int() & UNICAST_RESPONSE != 0;
        Some(Self { id: message.header().id(), wants_unicast })
    }
}

const IN: u16 = 1;
/// Flag of a question: the answer may be sent by unicast (RFC 6762, section 5.4).
const UNICAST_RESPONSE: u16 = 1 << 15;
/// Number of questions of a packet that are parsed.
const MAX_QUESTIONS: usize = 32;

/// Builds the announcement of a server; with a zero time to live, its goodbye.
pub(super) fn announcement(
    names: &Names,
    entry: &Advertisement,
    id: u16,
    is_there: bool,
) -> Result<Vec<u8>, Status> {
    let (instance, host) = (names.instance(entry)?, names.host(entry)?);
    let address: Option<SocketAddr> = entry.instance.address.parse().ok();
    let port = entry.instance.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let seconds = u32::try_from(entry.ttl.as_secs()).unwrap_or(u32::MAX).max(1);
    let ttl = Ttl::from_secs(if is_there { seconds } else { 0 });
    let text = text(entry)?;

    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(id);
    message.header_mut().set_qr(true);
    message.header_mut().set_aa(true);
    let mut answer = message.answer();
    answer.push((&names.kind, ttl, Ptr::new(instance.clone()))).map_err(too_long)?;
    let mut more = answer.additional();
    more.push((&instance, ttl, Srv::new(0, 0, port.unwrap_or_default(), host.clone()))).map_err(too_long)?;
    more.push((&instance, ttl, text)).map_err(too_long)?;
    // rpcx's clients skip a server without an address record, although they use the address in the text (zeroconf
    // `client.go`).
    match address.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip()) {
        IpAddr::V4(ip) => more.push((&host, ttl, A::new(ip))),
        IpAddr::V6(ip) => more.push((&host, ttl, Aaaa::new(ip))),
    }
    .map_err(too_long)?;
    Ok(more.finish())
}

fn too_long(_: PushError) -> Status {
    Status::invalid_argument("it is too long for multicast DNS")
}

/// Service as described by rpcx in a text.
#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    #[serde(default)]
    service: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    meta: String,
    #[serde(default)]
    service_address: String,
}

fn text(entry: &Advertisement) -> Result<Txt<Vec<u8>>, Status> {
    let meta = Meta {
        service: entry.service.clone(),
        meta: entry.instance.attributes.to_string(),
        service_address: entry.instance.to_string(),
    };
    let json = serde_json::to_string(&[meta]).map_err(|error| Status::internal(error.to_string()))?;
    let mut escaped = String::with_capacity(json.len() * 2);
    escape(&json, &mut escaped).map_err(|error| Status::internal(error.to_string()))?;
    Txt::build_from_slice(escaped.as_bytes())
        .map_err(|error| Status::invalid_argument(format!("the attributes are too long: {error}")))
}

/// Service announced in a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) service: String,
    pub(super) instance: Instance,
}

/// Returns the services that a packet announces. Malformed parts are skipped.
pub(super) fn announcements(packet: &[u8], names: &Names) -> Vec<Announcement> {
    let Ok(message) = Message::from_slice(packet) else { return Vec::new() };
    if !message.header().qr() {
        return Vec::new();
    }
    let mut metas = Vec::new();
    // The records before a malformed one are still useful.
    let _ = read_texts(message, names, &mut metas);
    metas.into_iter().filter_map(Meta::into_announcement).collect()
}

fn read_texts(message: &Message<[u8]>, names: &Names, metas: &mut Vec<Meta>) -> Result<(), ParseError> {
    let mut section = Some(message.answer()?);
    while let Some(records) = section {
        for record in records.limit_to::<Txt<_>>() {
            let record = record?;
            // A zero time to live is a goodbye.
            let is_ours = record.owner().ends_with(&names.kind) && record.ttl() > Ttl::ZERO;
            if is_ours && let Some(more) = read_text(record.data()) {
                metas.extend(more);
            }
        }
        section = records.next_section()?;
    }
    Ok(())
}

fn read_text(text: &Txt<&[u8]>) -> Option<Vec<Meta>> {
    let escaped: Vec<u8> = text.iter().flatten().copied().collect();
    let json = unescape(std::str::from_utf8(&escaped).ok()?)?;
    serde_json::from_str(&json).ok()
}

impl Meta {
    fn into_announcement(self) -> Option<Announcement> {
        let Ok(attributes) = self.meta.parse();
        let instance = self.service_address.parse::<Instance>().ok()?.with(attributes);
        Some(Announcement { service: self.service, instance })
    }
}
