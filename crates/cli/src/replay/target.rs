//! The server that gets the calls, and their messages in its formats.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use polyrpc::client::{CallOptions, FailMode, Response};
use polyrpc::codec::Body;
use polyrpc::{Client, Format, Json, Metadata, Protocol, Status};
use polyrpc_core::protocol::MetadataSupport;
use polyrpc_record::Call;
use polyrpc_record::call::Field;
use polyrpc_transform::{Direction, Options as TranslatorOptions, SchemaSource, Schemas, Translator};

use super::options::Options;
use super::plan::Plan;
use crate::failure::Failure;

/// A client, and translators to its formats.
pub(super) struct Target {
    client: Client,
    schemas: Schemas,
    translators: Mutex<HashMap<(String, Format), Arc<Translator>>>,
}

impl Target {
    /// Creates the client.
    ///
    /// # Errors
    ///
    /// If the URL or a description of messages is invalid.
    pub(super) fn new(options: &Options, url: &str, plan: &Plan) -> Result<Self, Failure> {
        // A retry would be a call that was not recorded.
        let client = options.common.client(url)?.fail_mode(FailMode::Failfast).build()?;
        let schemas = schemas(options, plan)?;
        Ok(Self { client, schemas, translators: Mutex::default() })
    }

    /// Checks that a call can be sent.
    ///
    /// # Errors
    ///
    /// If its message cannot be translated, or the protocol carries no attachments.
    pub(super) fn check(&self, call: &Call) -> Result<(), Failure> {
        if let Some(format) = call.request.as_ref().and_then(|request| request.format) {
            self.translator(&call.full_name(), format)?;
        }
        let protocol = self.client.protocol();
        if !call.attachment.is_empty() && !protocol.descriptor().capabilities.attachments {
            let (name, protocol) = (call.full_name(), protocol.as_str());
            return Err(Failure::new(format!("{name} has an attachment, which {protocol} cannot carry")));
        }
        Ok(())
    }

    fn translator(&self, name: &str, from: Format) -> Result<Arc<Translator>, Failure> {
        let mut translators = self.translators.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), from);
        if let Some(known) = translators.get(&key) {
            return Ok(known.clone());
        }
        let numbered = self.client.protocol() == Protocol::FbRpc;
        let schema = self.schemas.method(name, numbered);
        let to = format_of(&self.client, from);
        let planned = Translator::new(Direction::Request, from, to, &schema, TranslatorOptions::default());
        let translator = planned.map_err(|why| {
            Failure::new(format!("{name}: {why}"))
                .with_hint("describe its messages with --proto or --descriptor-set")
        })?;
        let translator = Arc::new(translator);
        translators.insert(key, translator.clone());
        Ok(translator)
    }

    /// Metadata that the server's protocol can carry and that belong to the call, not to its connection.
    fn metadata(&self, fields: &[Field]) -> Metadata {
        let capabilities = &self.client.protocol().descriptor().capabilities;
        if !matches!(capabilities.metadata, MetadataSupport::Carried(_)) {
            return Metadata::new();
        }
        let mut metadata = to_call_metadata(fields);
        if !capabilities.has_fields() {
            // One value a key.
            metadata.dedup_keep_last();
        }
        metadata
    }

    /// Sends a call.
    pub(super) async fn send(&self, call: &Call) -> Result<Response<Body>, Status> {
        let request = call.request.as_ref().ok_or_else(|| Status::internal("the call has no request"))?;
        let name = call.full_name();
        let from = request.format.unwrap_or_default();
        let translator =
            self.translator(&name, from).map_err(|failure| Status::internal(failure.to_string()))?;
        let body = Body { positional: request.positional, ..Body::new(from, request.body.clone()) };
        let translated = translator.translate(body);
        let body = translated.map_err(|error| Status::invalid_argument(error.to_string()))?.body;
        let metadata = self.metadata(&call.metadata);
        let options = CallOptions {
            metadata,
            attachment: call.attachment.clone(),
            timeout: call.timeout,
            format: Some(body.format),
            oneway: call.oneway,
            ..CallOptions::default()
        };
        self.client.call_raw(&name, body, options).await.map_err(|error| error.status().clone())
    }
}

/// Describes methods by the recording, and by the files of the command line.
pub(super) fn schemas(options: &Options, plan: &Plan) -> Result<Schemas, Failure> {
    let mut schemas = Schemas::new();
    options.described.add_to(&mut schemas)?;
    for set in plan.declared.sets() {
        schemas.add_proto(SchemaSource::new(set, "the recording")?);
    }
    Ok(schemas)
}

fn to_call_metadata(fields: &[Field]) -> Metadata {
    let mut metadata = Field::metadata(fields);
    metadata.retain(|name, _| {
        !name.starts_with(':') && !name.starts_with("grpc-") && !OF_CONNECTIONS.contains(&name)
    });
    metadata
}

const OF_CONNECTIONS: [&str; 12] = [
    "host",
    "connection",
    "content-type",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "accept",
    "te",
    "transfer-encoding",
    "keep-alive",
    "upgrade",
    "user-agent",
];

/// The format in which the server gets messages that were recorded in `from`.
fn format_of(client: &Client, from: Format) -> Format {
    match client.protocol() {
        Protocol::Http => match from {
            Format::Json(_) => from,
            _ => Format::Json(Json::Brpc),
        },
        Protocol::Rpcx => match from {
            Format::Json(_) => Format::Json(Json::Go),
            Format::Protobuf | Format::MessagePack | Format::Raw | Format::Other(_) => from,
            _ => Format::MessagePack,
        },
        Protocol::NetRpc => client.only_format().unwrap_or(Format::Gob),
        Protocol::RestRpc => client.rest_rpc_version().map_or(Format::MessagePackArray, |it| it.format()),
        Protocol::FbRpc => Format::FlatBuffers,
        // baidu_std says its format in each message.
        Protocol::BaiduStd
            if matches!(from, Format::Json(Json::Brpc | Json::BrpcLenient) | Format::ProtoText) =>
        {
            from
        }
        _ => Format::Protobuf,
    }
}
