//! What a whole request asks for: a call, several, or what the session answers itself.

use bytes::Bytes;

use crate::http_rule::Lookup;
use crate::http1::frame;
use crate::http1::mapping::{self, Path};
use crate::http1::order::Exchange;
use crate::http1::request::{Method, Request};
use crate::http1::{routed, status};
use crate::json_rpc::{self, Incoming};
use crate::payload::{Compression, Format, Json};
use crate::{Call, Credential, Head, Metadata, Outbox, Status};

use super::{Common, Entries, Form, RPCX_PATH, Reading, Server, ServerConfig, Step, Ticket, json, plain};

impl Server {
    /// A request is whole: answers it here, or makes a call of it.
    pub(super) fn take_whole(&mut self, request: Request, body: Bytes, out: &mut Outbox) -> Step {
        let origin = self.config.cors.origin(&request.metadata);
        let preflight = origin.as_ref().and_then(|_| request.preflight());
        let exchange = self.order.open(request.http10, request.method == Method::Head, origin);
        if !request.keep || self.draining {
            self.order.close();
        }
        if self.draining {
            return self.respond(exchange, out, |config, head| {
                mapping::failure(&going_away(), &Metadata::new(), &config.address, head)
            });
        }
        match (request.method, request.path.as_str()) {
            _ if request.is_web() => self.begin_web(exchange, request, body, out),
            (Method::Options, _) if let Some(preflight) = preflight => {
                self.respond(exchange, out, |_, head| {
                    head.extend_from_slice(b"HTTP/1.1 204 No Content\r\n");
                    preflight.allow(|name, value| frame::field(head, name, value));
                    Bytes::new()
                })
            }
            (Method::Options, _) => self.respond(exchange, out, |_, head| {
                head.extend_from_slice(b"HTTP/1.1 204 No Content\r\n");
                frame::field(head, "Allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
                Bytes::new()
            }),
            (_, RPCX_PATH) => self.respond(exchange, out, |_, head| {
                let body = plain(405, "405 must CONNECT\n", head);
                frame::field(head, "Allow", b"CONNECT");
                body
            }),
            _ if speaks_json_rpc(&request, &body) => self.begin_json_rpc(exchange, request, &body, out),
            _ if speaks_gateway(&request) => self.begin_gateway(exchange, request, body, out),
            _ if self.config.routes.leads(request.path.as_str()) => {
                self.begin_routed(exchange, request, body, out)
            }
            (Method::Get | Method::Head, "/" | "") => {
                self.respond(exchange, out, |_, head| plain(200, INDEX, head))
            }
            (Method::Get | Method::Head, "/health") => {
                self.respond(exchange, out, |_, head| plain(200, "OK", head))
            }
            (Method::Get | Method::Head, "/version") => {
                self.respond(exchange, out, |config, head| plain(200, &config.version, head))
            }
            _ => self.begin_mapped(exchange, request, body, out),
        }
    }

    /// brpc's mapping: the path names service and method.
    fn begin_mapped(
        &mut self,
        exchange: Exchange,
        mut request: Request,
        body: Bytes,
        out: &mut Outbox,
    ) -> Step {
        let Some(compression) = request.compression() else {
            return self.respond(exchange, out, unsupported_coding);
        };
        let path = Path::parse(request.path.as_str());
        self.names.set(path.service, path.method);
        path.note_rest(&mut request.metadata);
        let ticket = mapping::Ticket::new(&mut request);
        let format = ticket.format();
        let call = Call {
            timeout: request.timeout,
            credential: Credential::Connection(request.authorization),
            head: Head { format, compression, metadata: request.metadata, ..Head::default() },
            ..Call::new("", "", format, body)
        };
        self.call(call, Ticket { exchange, form: Form::Mapped(ticket) })
    }

    /// The verb and the path are those that a `.proto` declares.
    fn begin_routed(&mut self, exchange: Exchange, request: Request, body: Bytes, out: &mut Outbox) -> Step {
        let config = self.config.clone();
        let found = match config.routes.find(request.method.as_str(), request.path.as_str()) {
            Lookup::Found(found) => found,
            Lookup::OtherVerbs(verbs) => {
                return self.respond(exchange, out, |_, head| other_verb(&verbs, head));
            }
            Lookup::Nothing => return self.begin_mapped(exchange, request, body, out),
        };
        let Some(compression) = request.compression() else {
            return self.respond(exchange, out, unsupported_coding);
        };
        let message = routed::plain(compression, body, config.limits.decompressed).and_then(|body| {
            let message = found.message(request.query.as_str(), &body);
            message.map_err(|unfit| Status::invalid_argument(unfit.to_string()))
        });
        let message = match message {
            Ok(message) => message,
            Err(status) => {
                return self.respond(exchange, out, |_, head| routed::failure(&status, head));
            }
        };
        let route = found.route();
        self.names.set(route.service(), route.method());
        let format = Format::Json(Json::Proto3);
        let call = Call {
            timeout: request.timeout,
            credential: Credential::Call(request.authorization),
            head: Head { format, metadata: request.metadata, ..Head::default() },
            ..Call::new("", "", format, message)
        };
        self.call(call, Ticket { exchange, form: Form::Routed(routed::Ticket(route.clone())) })
    }

    /// rpcx's gateway: fields name service and method.
    fn begin_gateway(&mut self, exchange: Exchange, request: Request, body: Bytes, out: &mut Outbox) -> Step {
        let coding = request.compression();
        let mut fields = request.gateway.unwrap_or_default();
        let mut metadata = request.metadata;
        if fields.heartbeat {
            return self.respond(exchange, out, |_, head| fields.heartbeat(body, head));
        }
        fields.default_service_path(&request.path);
        let reserved = fields.read_meta(&mut metadata);
        let (described, reserved) = match (fields.describe(), reserved) {
            (Ok(described), Ok(reserved)) => (described, reserved),
            // rpcx answers 200 to a request it cannot read: the failure is in the fields.
            (Err(wrong), _) | (_, Err(wrong)) => {
                return self.respond(exchange, out, |_, head| fields.failure(200, wrong, head));
            }
        };
        let compression = match (described.compression, coding) {
            // rpcx-gateway takes `Content-Encoding: gzip` for the compress type.
            (Compression::None, Some(coding)) => coding,
            (Compression::None, None) => return self.respond(exchange, out, unsupported_coding),
            (told, _) => told,
        };
        self.names.set(described.service, described.method);
        let call = Call {
            timeout: reserved.timeout.or(request.timeout),
            credential: Credential::Call(request.authorization.or(reserved.credential)),
            head: Head { format: described.format, compression, metadata, ..Head::default() },
            ..Call::new("", "", described.format, body)
        };
        self.call(call, Ticket { exchange, form: Form::Gateway(fields) })
    }

    fn begin_json_rpc(
        &mut self,
        exchange: Exchange,
        request: Request,
        body: &Bytes,
        out: &mut Outbox,
    ) -> Step {
        if request.compression() != Some(Compression::None) {
            return self.respond(exchange, out, unsupported_coding);
        }
        let mut metadata = request.metadata;
        let reserved = request.gateway.map(|fields| fields.read_meta(&mut metadata)).transpose();
        let Ok(reserved) = reserved.map(Option::unwrap_or_default) else {
            return self.respond(exchange, out, |_, head| plain(400, "wrong X-RPCX-Meta", head));
        };
        let common = Common {
            metadata,
            timeout: reserved.timeout.or(request.timeout),
            credential: request.authorization.or(reserved.credential),
        };
        match json_rpc::read(body) {
            Incoming::Refused(response) => self.respond(exchange, out, |_, head| json(response.into(), head)),
            Incoming::One(request) => match json_rpc::Owed::to(&request) {
                Some(owed) => self.json_rpc_call(request, common, exchange, Form::JsonRpc(owed)),
                None => {
                    self.respond(exchange.clone(), out, |_, head| json(Bytes::new(), head));
                    self.json_rpc_call(request, common, exchange, Form::Nothing)
                }
            },
            Incoming::Many(requests, refused) => {
                let missing = requests.iter().filter(|request| request.id.is_some()).count();
                let mut batch = json_rpc::Batch::new(&refused, missing);
                match batch.finish() {
                    Some(response) => {
                        self.respond(exchange.clone(), out, |_, head| json(response.into(), head));
                    }
                    None => self.batches.push((exchange.number(), batch)),
                }
                let requests = requests.into_iter();
                self.reading = Reading::Entries(Box::new(Entries { requests, exchange, common }));
                Step::Next
            }
        }
    }

    /// Hands out the next request of a batch.
    pub(super) fn next_entry(&mut self) -> Step {
        let Reading::Entries(entries) = &mut self.reading else { return Step::Next };
        let Some(request) = entries.requests.next() else {
            self.reading = Reading::Head;
            return Step::Next;
        };
        let (common, exchange) = (entries.common.clone(), entries.exchange.clone());
        let form = json_rpc::Owed::to(&request).map_or(Form::Nothing, Form::JsonRpcEntry);
        self.json_rpc_call(request, common, exchange, form)
    }

    fn json_rpc_call(
        &mut self,
        request: json_rpc::Request,
        common: Common,
        exchange: Exchange,
        form: Form,
    ) -> Step {
        let (service, method) = request.names();
        self.names.set(service, method);
        let format = Format::Json(Json::Go);
        let call = Call {
            timeout: common.timeout,
            oneway: request.id.is_none(),
            credential: Credential::Call(common.credential),
            head: Head {
                format,
                positional: request.positional,
                metadata: common.metadata,
                ..Head::default()
            },
            ..Call::new("", "", format, request.params)
        };
        self.call(call, Ticket { exchange, form })
    }

    fn call(&mut self, call: Call<'static>, ticket: Ticket) -> Step {
        if !call.oneway {
            self.unanswered += 1;
        }
        Step::Call(call, ticket)
    }
}

/// Whether a request is JSON-RPC: it says so, or it is JSON sent where nothing else is called.
fn speaks_json_rpc(request: &Request, body: &[u8]) -> bool {
    if request.method != Method::Post {
        return false;
    }
    let content_type = request.content_type.as_deref().unwrap_or_default();
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is = |name: &str| essence.eq_ignore_ascii_case(name.as_bytes());
    request.json_rpc
        || is("application/json-rpc")
        || is("application/jsonrequest")
        || is(mapping::JSON) && matches!(request.path.as_str(), "/" | "/jsonrpc") && json_rpc::announces(body)
}

/// Whether a request is for rpcx's gateway.
fn speaks_gateway(request: &Request) -> bool {
    matches!(request.method, Method::Post | Method::Get | Method::Put)
        && request.gateway.as_ref().is_some_and(|fields| fields.names_a_call())
}

#[cold]
fn other_verb(verbs: &[&str], head: &mut Vec<u8>) -> Bytes {
    let body = plain(405, "another method is wanted\n", head);
    frame::field(head, "Allow", verbs.join(", ").as_bytes());
    body
}

#[cold]
fn unsupported_coding(config: &ServerConfig, head: &mut Vec<u8>) -> Bytes {
    let text = format!("[{}][E{}]the content-encoding is not understood", config.address, status::EREQUEST);
    let body = plain(415, &text, head);
    frame::field(head, "Accept-Encoding", b"gzip, deflate");
    frame::field(head, mapping::ERROR_CODE, status::EREQUEST.to_string().as_bytes());
    body
}

/// brpc's words for a call that comes too late.
#[cold]
fn going_away() -> Status {
    Status::unavailable("Server is stopping").with_number(status::ELOGOFF)
}

const INDEX: &str = "\
POST /Service/Method   calls a method; the body is JSON, or what Content-Type says
POST /jsonrpc          calls by JSON-RPC 2.0
GET  /health           whether the server runs
GET  /version          which version runs
";
