//! rpcx's HTTP gateway: the frame's header as `X-RPCX-*` fields (rpcx `server/gateway.go`, `server/converter.go`).

use std::time::Duration;

use bytes::Bytes;

use polyrpc_core::digits::parse_decimal;
use polyrpc_core::{Compression, Format, Json, Metadata, Reply, Status};
use polyrpc_payload::compress;

use super::text::{Text, milliseconds};
use super::{content_type, query, status};
use crate::failure_text::shorten;
use crate::http::head::WriteHead;

/// The `X-RPCX-*` fields of a request. Most are returned unchanged with the response.
#[derive(Debug, Default, Clone)]
pub(crate) struct Fields {
    version: Bytes,
    message_id: Bytes,
    service_path: Bytes,
    service_method: Bytes,
    serialize_type: Bytes,
    compress_type: Bytes,
    meta: Bytes,
    names_a_call: bool,
}

/// Parsed call of a gateway request.
#[derive(Debug)]
pub(super) struct GatewayCall<'a> {
    pub(super) service: &'a str,
    pub(super) method: &'a str,
    pub(super) format: Format,
    pub(super) compression: Compression,
}

impl Fields {
    /// Stores a field by its name without `x-rpcx-`. `Oneway` and `Heartbeat` only set flags of the frame that rpcx
    /// creates from a request: the method runs and the response is sent as usual.
    pub(crate) fn take(&mut self, name: &str, value: Bytes) {
        match name {
            "version" => self.version = value,
            "messageid" => self.message_id = value,
            "servicepath" => (self.service_path, self.names_a_call) = (value, true),
            "servicemethod" => (self.service_method, self.names_a_call) = (value, true),
            "serializetype" => (self.serialize_type, self.names_a_call) = (value, true),
            "compresstype" => self.compress_type = value,
            "meta" => self.meta = value,
            _ => {}
        }
    }

    /// Whether the request is for the gateway: it has one of the three fields that describe a call.
    pub(super) fn describes_call(&self) -> bool {
        self.names_a_call
    }

    /// Uses the URL's path if there is no service path.
    pub(super) fn default_service_path(&mut self, path: &Text) {
        if self.service_path.is_empty() {
            self.service_path = path.strip_prefix("/");
        }
    }

    /// Parses the fields in rpcx's order of checks, or returns rpcx's text of the error.
    pub(super) fn describe(&self) -> Result<GatewayCall<'_>, &'static str> {
        let text = |value, missing| match std::str::from_utf8(value) {
            Ok("") => Err(missing),
            Ok(text) => Ok(text),
            Err(_) => Err("a name is not UTF-8"),
        };
        let number = |value: &str, wrong| value.parse::<u8>().map_err(|_| wrong);
        match text(&self.message_id, "") {
            Err("") => {}
            Ok(seq) if is_decimal(seq) => {}
            _ => return Err("wrong message id"),
        }
        Ok(GatewayCall {
            service: text(&self.service_path, "empty servicepath")?,
            method: text(&self.service_method, "empty servicemethod")?,
            format: match number(
                text(&self.serialize_type, "empty serialized type")?,
                "wrong serialized type",
            )? {
                0 => Format::Raw,
                1 => Format::Json(Json::Go),
                2 => Format::Protobuf,
                3 => Format::MessagePack,
                other => Format::Other(other),
            },
            compression: match text(&self.compress_type, "") {
                Err("") | Ok("0") => Compression::None,
                Ok("1") => Compression::Gzip,
                Ok(other) => Compression::Other(number(other, "wrong compress type")?),
                Err(wrong) => return Err(wrong),
            },
        })
    }

    /// Adds the metadata of `X-RPCX-Meta`, except the credential and the remaining timeout, which are returned.
    pub(super) fn read_meta(&self, metadata: &mut Metadata) -> Result<ReservedMetadata, &'static str> {
        query::decode(&self.meta, Some(AUTH), metadata).ok_or("wrong metadata")?;
        let timeout = metadata.remove(SERVER_TIMEOUT);
        Ok(ReservedMetadata {
            credential: metadata.remove(AUTH),
            timeout: timeout.and_then(|value| milliseconds(&value)),
        })
    }

    /// Writes the head of the response and returns its body.
    pub(super) fn answer(&self, reply: Reply, head: &mut impl WriteHead) -> Bytes {
        let body = match reply.result {
            // rpcx reports a handler's failure and an unknown method alike.
            Err(status) => return self.failure(500, status.message_or_code(), head),
            Ok(_) if !reply.attachment.is_empty() => reply.attachment,
            Ok(body) => body,
        };
        // Like between rpcx's own peers, the response is compressed if the request was and if the response is large
        // enough.
        let gzip = self.compress_type == b"1"[..] && body.len() > GZIP_ABOVE;
        let zipped = if gzip { compress::compress(Compression::Gzip, &body).ok() } else { None };
        let coding = zipped.is_some();
        let body = zipped.map_or(body, Bytes::from);

        head.begin(200, Some(body.len()));
        let content_type = content_type::content_type(reply.head.format).unwrap_or(content_type::OCTETS);
        head.field("Content-Type", content_type.as_bytes());
        self.echo(head);
        meta_field(&reply.head.metadata, head);
        if coding {
            head.field("X-RPCX-CompressType", b"1");
        }
        body
    }

    /// Writes the head of a failed call's response, whose body is empty.
    #[cold]
    pub(super) fn failure(&self, http: u16, text: &str, head: &mut impl WriteHead) -> Bytes {
        head.begin(http, Some(0));
        self.echo(head);
        head.field("X-RPCX-MessageStatusType", b"Error");
        head.lenient_field("X-RPCX-ErrorMessage", shorten(text).as_bytes());
        if http == 401 {
            status::fields(http, &Status::unauthenticated(""), head);
        }
        Bytes::new()
    }

    fn echo(&self, head: &mut impl WriteHead) {
        head.field("X-RPCX-Version", &self.version);
        head.field("X-RPCX-MessageID", &self.message_id);
        head.field("X-RPCX-ServicePath", &self.service_path);
        head.field("X-RPCX-ServiceMethod", &self.service_method);
        head.field("X-RPCX-SerializeType", &self.serialize_type);
    }
}

/// Whether a text is a number of 64 bits as parsed by Go's `strconv.ParseUint`, which accepts no sign.
fn is_decimal(text: &str) -> bool {
    parse_decimal::<u64>(text).is_some()
}

/// Reserved entries of `X-RPCX-Meta`, which are not metadata.
#[derive(Debug, Default)]
pub(super) struct ReservedMetadata {
    pub(super) credential: Option<Bytes>,
    pub(super) timeout: Option<Duration>,
}

/// Writes `X-RPCX-Meta`.
pub(crate) fn meta_field(metadata: &Metadata, head: &mut impl WriteHead) {
    let mut text = Vec::new();
    query::encode(metadata, &mut text);
    head.field("X-RPCX-Meta", &text);
}

/// Metadata key of the credential.
const AUTH: &str = "__AUTH";
/// Metadata key of the remaining timeout, in milliseconds.
pub(crate) const SERVER_TIMEOUT: &str = "__ServerTimeout";

/// rpcx compresses longer bodies only (`server/server.go`).
const GZIP_ABOVE: usize = 1024;
