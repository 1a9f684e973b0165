//! Responses to plain HTTP requests: the reply to a call in the requested form, or a response without a call.

use bytes::Bytes;
use polyrpc_core::session::NotFound;
use polyrpc_core::session::server::BodyConversion;
use polyrpc_core::{Call, Carrier, Json, Metadata, Reply, Status};

use super::brpc::Path;
use super::config::ServerConfig;
use super::request::Request;
use super::response::{html, json_rpc, plain};
use super::{brpc, content_type, failure, gateway, routed, status};
use crate::http::cors::Preflight;
use crate::http::head::WriteHead;
use crate::http::websocket::handshake::HandshakeError;
use crate::json_rpc;

/// Form of the response to a call.
#[derive(Debug)]
pub(crate) enum ResponseForm {
    Mapped(brpc::Ticket),
    Routed(routed::Ticket),
    Gateway(Box<gateway::Fields>),
    JsonRpc(json_rpc::PendingResponse),
}

impl ResponseForm {
    /// Whether a request without a body calls with the default message: its HTTP method may have no body (brpc
    /// `policy/http_rpc_protocol.cpp`).
    pub(crate) fn may_be_empty(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }

    /// Returns the conversion of a long body to the message.
    pub(crate) fn body_conversion(&self) -> Option<BodyConversion> {
        match self {
            Self::Routed(ticket) => ticket.body_conversion(),
            Self::Mapped(_) | Self::Gateway(_) | Self::JsonRpc(_) => None,
        }
    }

    /// Returns how the response carries metadata.
    pub(crate) fn carrier(&self) -> Carrier {
        match self {
            Self::Mapped(_) | Self::Routed(_) => Carrier::Http,
            Self::Gateway(_) | Self::JsonRpc(_) => Carrier::Map,
        }
    }

    /// Writes the head of the response and returns its body.
    pub(crate) fn answer(self, reply: Reply, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match self {
            Self::Mapped(ticket) => ticket.answer(reply, config, head),
            Self::Routed(ticket) => ticket.answer(reply, head),
            Self::Gateway(fields) => fields.answer(reply, head),
            Self::JsonRpc(pending) => {
                let body = json_rpc(pending.answer(&reply).into(), head);
                if !reply.head.metadata.is_empty() {
                    gateway::meta_field(&reply.head.metadata, head);
                }
                body
            }
        }
    }

    /// Returns the failure of a call to an unknown service or method.
    pub(crate) fn not_found(&self, call: &Call<'_>, missing: NotFound) -> Status {
        match self {
            Self::Mapped(_) => not_found(call, missing),
            Self::Routed(_) | Self::Gateway(_) | Self::JsonRpc(_) => not_found_in_rpcx(call, missing),
        }
    }

    /// Does the same for a call whose credential was rejected.
    pub(crate) fn refuse(self, status: Status, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
        match self {
            // A listener for brpc's clients answers like brpc.
            Self::Mapped(_) if config.trust_connection => brpc::refuse(&status, head),
            Self::Mapped(ticket) => {
                ticket.answer(Reply::failure(brpc::with_default_text(status)), config, head)
            }
            Self::Gateway(fields) => fields.failure(401, status.message_or_code(), head),
            Self::Routed(_) | Self::JsonRpc(_) => self.answer(Reply::failure(status), config, head),
        }
    }
}

/// Returns the failure of a call to an unknown service or method, with brpc's text.
pub(crate) fn not_found(call: &Call<'_>, missing: NotFound) -> Status {
    brpc::not_found(call, missing)
}

/// Returns the failure of a call to an unknown service or method, with rpcx's text.
#[cold]
pub(crate) fn not_found_in_rpcx(call: &Call<'_>, missing: NotFound) -> Status {
    Status::unimplemented(match missing {
        NotFound::Service => format!("rpcx: can't find service {}", call.service_or_function()),
        NotFound::Method => format!("rpcx: can't find method {}", call.method),
    })
}

/// A request that was rejected by its head.
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

/// A response without calling a method.
#[derive(Debug)]
pub(crate) enum Answer {
    Text(u16, &'static str),
    /// A failure before there is a call: its HTTP status and the reason.
    Failed(u16, &'static str),
    /// Health of a named service.
    Service(u16, &'static str),
    Version,
    /// The services of the server, in the form of Go's `net/rpc`.
    DebugPage,
    /// The supported HTTP methods, or the response to a preflight.
    Options(Option<Preflight>),
    MustConnect,
    /// The path belongs to a method that is called with other HTTP methods.
    OtherVerb {
        verbs: String,
        /// The client does not read JSON.
        in_text: bool,
    },
    /// The path belongs to no method, and the request is not a call.
    NoMethod {
        status: Status,
        /// The client does not read JSON.
        in_text: bool,
    },
    /// The content type is not one of a message.
    UnsupportedType {
        /// The client does not read JSON.
        in_text: bool,
    },
    /// The request cannot be mapped to a message by its rule.
    Unfit(Status),
    UnsupportedCoding,
    /// A WebSocket handshake that cannot be accepted.
    NoWebSocket(HandshakeError),
    /// The server is shutting down.
    GoingAway,
    /// A malformed request to rpcx's gateway.
    Unreadable(Box<gateway::Fields>, &'static str),
    /// The JSON-RPC response to a message without calls, or without pending calls.
    Json(Vec<u8>),
    /// The request was rejected by its head.
    Refused(Box<RejectedRequest>),
}

impl Answer {
    /// Returns the response to a request whose content type is not one of a message.
    #[cold]
    pub(super) fn unsupported_type(request: &Request) -> Self {
        Self::UnsupportedType { in_text: is_not_json(request) }
    }

    /// Returns the response to a request with an HTTP method that does not call this path.
    #[cold]
    pub(super) fn other_verb(verbs: String, request: &Request) -> Self {
        Self::OtherVerb { verbs, in_text: is_not_json(request) }
    }

    /// Returns the response to a request for an unknown path, with an HTTP method that does not call.
    #[cold]
    pub(super) fn no_method(path: &Path<'_>, request: &Request) -> Self {
        let status = path.not_found();
        Self::NoMethod { status, in_text: is_not_json(request) }
    }

    /// Whether the response reveals which methods exist.
    pub(super) fn reveals_names(&self) -> bool {
        matches!(self, Self::Service(..) | Self::OtherVerb { .. } | Self::NoMethod { .. })
    }

    /// Whether the response may be sent without a credential: it reveals nothing about the methods.
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
                const TEXT: &str = "this path needs another HTTP method\n";
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
                const TEXT: &str = "the Content-Type is not supported\n";
                let body = match in_text {
                    true => plain(415, TEXT, head),
                    false => failure::refusal(415, TEXT, config, head),
                };
                head.field("Accept", content_type::ACCEPTED_TYPES.as_bytes());
                body
            }
            Self::Unfit(status) => routed::failure(&status, head),
            Self::UnsupportedCoding => unsupported_coding(config, head),
            Self::NoWebSocket(unfit) => no_websocket(unfit, head),
            Self::GoingAway => brpc::failure(&going_away(), &Metadata::new(), config, head),
            // rpcx answers 200 to a malformed request: the failure is in the fields.
            Self::Unreadable(fields, wrong) => fields.failure(200, wrong, head),
            Self::Json(text) => json_rpc(text.into(), head),
            Self::Refused(refused) => refused.write(config, head),
        }
    }
}

/// Whether a client with this request expects no JSON response: a client of gRPC or one of its dialects, which may take
/// it for a failure in its own form, or one that sends images, audio or the like.
#[cold]
fn is_not_json(request: &Request) -> bool {
    let is_other = |content_type: &[u8]| {
        content_type::is_grpc(content_type) || content_type::is_no_message(content_type)
    };
    request.uses_framed_dialect || request.content_type.as_deref().is_some_and(is_other)
}

/// Writes the response to a request whose body did not arrive in time.
#[cold]
pub(crate) fn write_timeout(status: &Status, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
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
    const TEXT: &str = "the content-encoding is not supported";
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
        // The protocol that the client may request instead (RFC 6455 §4.4).
        head.field("Upgrade", b"websocket");
        head.field("Sec-WebSocket-Version", b"13");
    }
    body
}

/// brpc's failure of a call received during shutdown.
#[cold]
fn going_away() -> Status {
    Status::unavailable("Server is stopping").with_number(status::ELOGOFF)
}
