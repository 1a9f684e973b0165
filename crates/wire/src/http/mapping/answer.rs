//! What is answered to a request of plain HTTP: the reply to its call in the form it wants, or why there is none.

use bytes::Bytes;
use polyrpc_core::session::NotFound;
use polyrpc_core::{Call, Carrier, Json, Metadata, Reply, Status};

use super::brpc::Path;
use super::config::ServerConfig;
use super::request::Request;
use super::response::{html, json, plain};
use super::{brpc, content_type, failure, gateway, routed, status};
use crate::http::connect_kind::{ACCEPTED_POST, STREAM};
use crate::http::cors::Preflight;
use crate::http::head::WriteHead;
use crate::http::websocket::handshake::HandshakeError;
use crate::json_rpc;

/// The form that the response to a call takes.
#[derive(Debug)]
pub(crate) enum ResponseForm {
    Mapped(brpc::Ticket),
    Routed(routed::Ticket),
    Gateway(Box<gateway::Fields>),
    JsonRpc(json_rpc::PendingResponse),
}

impl ResponseForm {
    /// Whether a request without a body calls with the default message: by its verb it may have none (brpc
    /// `policy/http_rpc_protocol.cpp`).
    pub(crate) fn may_be_empty(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }

    /// How the response carries metadata.
    pub(crate) fn carrier(&self) -> Carrier {
        match self {
            Self::Mapped(_) | Self::Routed(_) => Carrier::Http,
            Self::Gateway(_) | Self::JsonRpc(_) => Carrier::Any,
        }
    }

    /// Writes the head of the response and returns its body.
    pub(crate) fn answer(self, reply: Reply, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match self {
            Self::Mapped(ticket) => ticket.answer(reply, config, head),
            Self::Routed(ticket) => ticket.answer(reply, head),
            Self::Gateway(fields) => fields.answer(reply, head),
            Self::JsonRpc(owed) => {
                let body = json(owed.answer(&reply).into(), head);
                if !reply.head.metadata.is_empty() {
                    gateway::meta_field(&reply.head.metadata, head);
                }
                body
            }
        }
    }

    /// The failure of a call to something that does not exist.
    pub(crate) fn unknown(&self, call: &Call<'_>, missing: NotFound) -> Status {
        match self {
            Self::Mapped(_) => unknown(call, missing),
            Self::Routed(_) | Self::Gateway(_) | Self::JsonRpc(_) => unknown_to_rpcx(call, missing),
        }
    }

    /// The same for a call whose credential was refused.
    pub(crate) fn refuse(self, status: Status, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match self {
            // A listener for brpc's clients answers as brpc does.
            Self::Mapped(_) if config.trust_connection => brpc::refuse(&status, head),
            Self::Mapped(ticket) => ticket.answer(Reply::failure(brpc::named(status)), config, head),
            Self::Gateway(fields) => fields.failure(401, status.message_or_code(), head),
            Self::Routed(_) | Self::JsonRpc(_) => self.answer(Reply::failure(status), config, head),
        }
    }
}

/// The failure of a call to something that does not exist, in brpc's words.
pub(crate) fn unknown(call: &Call<'_>, missing: NotFound) -> Status {
    brpc::unknown(call, missing)
}

/// The failure of a call to something that does not exist, in rpcx's words.
#[cold]
pub(crate) fn unknown_to_rpcx(call: &Call<'_>, missing: NotFound) -> Status {
    Status::unimplemented(match missing {
        NotFound::Service => format!("rpcx: can't find service {}", call.service_or_function()),
        NotFound::Method => format!("rpcx: can't find method {}", call.method),
    })
}

/// A request that was refused by its head.
#[derive(Debug)]
pub(crate) struct RejectedRequest {
    pub(super) form: ResponseForm,
    pub(super) status: Status,
    pub(super) unauthenticated: bool,
}

impl RejectedRequest {
    fn write(self, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match self.unauthenticated {
            true => self.form.refuse(self.status, config, head),
            false => self.form.answer(Reply::failure(self.status), config, head),
        }
    }
}

/// What is answered without calling a method.
#[derive(Debug)]
pub(crate) enum Answer {
    Text(u16, &'static str),
    /// A failure before there is a call: its HTTP status and why.
    Failed(u16, &'static str),
    /// Whether a service that was named takes calls.
    Service(u16, &'static str),
    Version,
    /// What the server offers, as Go's `net/rpc` shows it.
    DebugPage,
    /// The methods of HTTP that are understood, or the leave that a browser asks for.
    Options(Option<Preflight>),
    MustConnect,
    /// The path belongs to a method, which other methods of HTTP call.
    OtherVerb {
        verbs: String,
        /// Whoever asks reads no JSON.
        in_text: bool,
    },
    /// The path belongs to no method, and was not asked for as methods are called.
    NoMethod {
        status: Status,
        /// Whoever asks reads no JSON.
        in_text: bool,
    },
    /// The content type is none of those in which a message may come.
    UnsupportedType {
        /// Whoever asks reads no JSON.
        in_text: bool,
    },
    /// The message that a rule makes of the request cannot be made.
    Unfit(Status),
    UnsupportedCoding,
    /// A WebSocket was asked for in a way that cannot be granted.
    NoWebSocket(HandshakeError),
    /// The server is going away.
    GoingAway,
    /// A request to the gateway that cannot be read.
    Unreadable(Box<gateway::Fields>, &'static str),
    /// What is owed for JSON-RPC that calls nothing, or nothing any more.
    Json(Vec<u8>),
    /// The request was refused by its head.
    Refused(Box<RejectedRequest>),
}

impl Answer {
    /// The answer to a request whose content type is none of those in which a message may come.
    #[cold]
    pub(super) fn unsupported_type(request: &Request) -> Self {
        Self::UnsupportedType { in_text: is_not_json(request) }
    }

    /// The answer to a request by a method of HTTP that calls nothing there.
    #[cold]
    pub(super) fn other_verb(verbs: String, request: &Request) -> Self {
        Self::OtherVerb { verbs, in_text: is_not_json(request) }
    }

    /// The answer to a request by a method of HTTP that calls nothing, of a path that no method has.
    #[cold]
    pub(super) fn no_method(path: &Path<'_>, request: &Request) -> Self {
        let status = path.unknown();
        Self::NoMethod { status, in_text: is_not_json(request) }
    }

    /// Whether it differs for what can be called and what cannot.
    pub(super) fn tells_names(&self) -> bool {
        matches!(self, Self::Service(..) | Self::OtherVerb { .. } | Self::NoMethod { .. })
    }

    /// Whether anybody may be given it: it tells nothing of what could be called.
    pub(super) fn is_harmless(&self) -> bool {
        !matches!(self, Self::DebugPage)
    }

    /// Writes the head of the response and returns its body.
    pub(crate) fn write(self, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match self {
            Self::Text(http, text) | Self::Service(http, text) => plain(http, text, head),
            Self::Failed(http, text) => failure::refusal(http, text, config, head),
            Self::Version => plain(200, &config.version, head),
            Self::DebugPage => html(&config.debug_page, head),
            Self::Options(preflight) => options(preflight, head),
            Self::MustConnect => {
                let body = plain(405, "405 must CONNECT\n", head);
                head.field("Allow", b"CONNECT");
                body
            }
            Self::OtherVerb { verbs, in_text } => {
                const TEXT: &str = "this path is called by another method of HTTP\n";
                let body = match in_text {
                    true => plain(405, TEXT, head),
                    false => failure::refusal(405, TEXT, config, head),
                };
                head.field("Allow", verbs.as_bytes());
                body
            }
            Self::NoMethod { status, in_text } => match in_text {
                true => plain(404, status.message(), head),
                false => brpc::failure(&status, &Metadata::new(), config, head),
            },
            Self::UnsupportedType { in_text } => {
                const TEXT: &str = "the Content-Type is not one of a message\n";
                let body = match in_text {
                    true => plain(415, TEXT, head),
                    false => failure::refusal(415, TEXT, config, head),
                };
                head.field("Accept", content_type::ACCEPTED_TYPES.as_bytes());
                head.field("Accept-Post", ACCEPTED_POST.as_bytes());
                body
            }
            Self::Unfit(status) => routed::failure(&status, head),
            Self::UnsupportedCoding => unsupported_coding(config, head),
            Self::NoWebSocket(unfit) => no_websocket(unfit, head),
            Self::GoingAway => brpc::failure(&going_away(), &Metadata::new(), config, head),
            // rpcx answers 200 to a request it cannot read: the failure is in the fields.
            Self::Unreadable(fields, wrong) => fields.failure(200, wrong, head),
            Self::Json(text) => json(text.into(), head),
            Self::Refused(refused) => refused.write(config, head),
        }
    }
}

/// Whether who sends a request looks for no JSON in an answer: a client of gRPC or Connect, which may take it for a failure
/// of Connect's, or whoever sends a picture, sound or the like.
#[cold]
fn is_not_json(request: &Request) -> bool {
    let is_other = |content_type: &[u8]| {
        content_type::is_grpc(content_type)
            || content_type::is_no_message(content_type)
            || content_type.starts_with(STREAM)
    };
    request.content_type.as_deref().is_some_and(is_other)
        || request.metadata.bytes("connect-protocol-version").is_some()
}

/// The answer to a request whose body did not come in time.
#[cold]
pub(crate) fn late(status: &Status, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
    match config.json() {
        Json::BrpcLenient => plain(408, status.message(), head),
        _ => failure::write(408, status, head),
    }
}

fn options(preflight: Option<Preflight>, head: &mut impl WriteHead) -> Bytes {
    head.begin(204, None);
    match preflight {
        Some(preflight) => preflight.allow(|name, value| head.field(name, value)),
        None => head.field("Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    }
    Bytes::new()
}

#[cold]
fn unsupported_coding(config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
    const TEXT: &str = "the content-encoding is not understood";
    let body = match config.json() {
        Json::BrpcLenient => plain(415, &format!("[{}][E{}]{TEXT}", config.address, status::EREQUEST), head),
        _ => failure::refusal(415, TEXT, config, head),
    };
    head.field("Accept-Encoding", b"gzip, deflate");
    head.field(brpc::ERROR_CODE, status::EREQUEST.to_string().as_bytes());
    body
}

#[cold]
fn no_websocket(unfit: HandshakeError, head: &mut impl WriteHead) -> Bytes {
    let body = plain(unfit.http(), unfit.reason(), head);
    if unfit == HandshakeError::Version {
        // What the client may ask for instead (RFC 6455 §4.4).
        head.field("Upgrade", b"websocket");
        head.field("Sec-WebSocket-Version", b"13");
    }
    body
}

/// brpc's words for a call that comes too late.
#[cold]
fn going_away() -> Status {
    Status::unavailable("Server is stopping").with_number(status::ELOGOFF)
}
