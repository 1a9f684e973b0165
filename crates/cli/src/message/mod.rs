//! Messages of any method in any format, for people: JSON in, JSON out.
//!
//! A [`Translator`] knows how one method's messages are encoded. A schema adds what binary formats omit;
//! without one, JSON and MessagePack carry plain values. JSON with names that the schema does not declare is
//! rejected ([`polyrpc_transform::strict`]).

mod built_in;
mod integers;

use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Codec, Serde};
use polyrpc::layer::StreamType;
use polyrpc::payload::gob;
use polyrpc::{Client, Code, Error, Format, Json, Protocol, Status};
use polyrpc_build::fbs;
use polyrpc_transform::flatbuffers::Method;
use polyrpc_transform::json::{self, unreadable};
use polyrpc_transform::struct_pack::{self, Signature};
use polyrpc_transform::{Schemas, cpp, msgpack};

use crate::failure::Failure;
use crate::reflection::Reflection;
use crate::terminal;

pub(crate) use polyrpc_transform::{SchemaSource, Types, readable, service_hint, split};

#[derive(Debug, Clone, Default, Args)]
#[group(id = "message")]
pub(crate) struct Options {
    #[command(flatten)]
    files: Files,
    /// The full name of the request message, if no service declares the method
    #[arg(long, value_name = "MESSAGE", requires = "response_type")]
    request_type: Option<String>,
    /// The full name of the response message
    #[arg(long, value_name = "MESSAGE", requires = "request_type")]
    response_type: Option<String>,
    /// Encoding of the message [default: protobuf if the method is described, else the protocol's default]
    #[arg(long, value_enum)]
    format: Option<Wire>,
    /// C++ types of a function's arguments and result, for struct_pack: 'int, string -> vector<int>'
    #[arg(long, value_name = "TYPES", allow_hyphen_values = true)]
    types: Option<Signature>,
}

/// The files that describe the server's services.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "files")]
pub(crate) struct Files {
    /// A .proto file that describes the server's services; may be repeated [default: gRPC reflection of the
    /// server]
    #[arg(long, value_name = "FILE")]
    proto: Vec<PathBuf>,
    /// The same as a file written by `protoc --include_imports --descriptor_set_out=FILE`; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "proto")]
    descriptor_set: Vec<PathBuf>,
    /// A .fbs file that describes the method, whose messages are then FlatBuffers; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["proto", "descriptor_set"])]
    schema: Vec<PathBuf>,
    /// Directories of the .proto or .fbs files and their imports
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    include: Vec<PathBuf>,
}

/// A wire format, as users name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// Protobuf's binary format
    Protobuf,
    /// JSON
    Json,
    /// MessagePack
    Msgpack,
    /// struct_pack, with the types of --types
    StructPack,
    /// Gob, as in Go's net/rpc; the peer's types are inferred from the JSON
    Gob,
    /// The bytes of the argument, unchanged
    Raw,
    /// Protobuf's text format
    Text,
    /// A single number or string as text, anything else in struct_pack (rest_rpc since v0.21)
    Cpp,
    /// FlatBuffers, described by a .fbs
    Flatbuffers,
}

impl Options {
    /// Options with only a format.
    pub(crate) fn with_format(format: Wire) -> Self {
        Self { format: Some(format), ..Self::default() }
    }

    /// The message types given by the user.
    pub(crate) fn message_types(&self) -> Option<(&str, &str)> {
        self.request_type.as_deref().zip(self.response_type.as_deref())
    }

    /// The messages of a method, from one source.
    pub(crate) fn types(&self, source: &SchemaSource, target: &str) -> Result<Types, Failure> {
        match self.message_types() {
            Some((request, response)) => Ok(source.types_of_messages(request, response)?),
            None => Ok(source.types(target)?),
        }
    }

    /// The server's description of the method's service, or of the messages given by the user.
    pub(crate) async fn query_reflection(
        &self,
        reflection: Reflection<'_>,
        target: &str,
    ) -> Result<Option<Vec<u8>>, Error> {
        match (self.message_types(), split(target)) {
            (Some((request, response)), _) => reflection.query_messages(request, response).await,
            (None, Some((service, _))) => reflection.query_service(service).await,
            (None, None) => Ok(None),
        }
    }

    /// Rejects options that have no effect on messages that a `.fbs` describes.
    fn check_schema(&self) -> Result<(), Failure> {
        let options = [
            (self.format.is_some_and(|format| format != Wire::Flatbuffers), "--format"),
            (self.types.is_some(), "--types"),
            (self.request_type.is_some(), "--request-type"),
        ];
        match options.into_iter().find(|(is_given, _)| *is_given && self.files.has_schema()) {
            Some((_, option)) => Err(Failure::new(format!(
                "--schema makes the messages FlatBuffers: {option} would have no effect"
            ))),
            None => Ok(()),
        }
    }

    /// Whether messages are FlatBuffers.
    fn wants_flatbuffers(&self, client: &Client) -> bool {
        let numbers_methods = client.protocol().descriptor().capabilities.numbers_methods;
        self.format == Some(Wire::Flatbuffers) || self.format.is_none() && numbers_methods
    }

    /// Whether to query the server for the method's messages: always over gRPC, over other protocols if nothing
    /// can be sent without a description.
    pub(crate) fn needs_types(&self, client: &Client, target: &str) -> bool {
        match (client.protocol(), self.format) {
            (_, Some(Wire::Raw | Wire::Flatbuffers)) => false,
            (Protocol::Grpc, _) | (_, Some(Wire::Protobuf | Wire::Text)) => true,
            // A reply may be protobuf for any format of the request.
            (Protocol::BaiduStd, _) => split(target).is_some() || self.request_type.is_some(),
            _ => self.request_type.is_some(),
        }
    }
}

impl Files {
    /// The description in the files, if any are given.
    pub(crate) fn read(&self) -> Result<Option<SchemaSource>, Failure> {
        match (self.proto.is_empty(), self.descriptor_set.is_empty()) {
            (true, true) => Ok(None),
            (false, _) => Ok(Some(SchemaSource::read_proto(&self.proto, &self.include)?)),
            (true, false) => Ok(Some(SchemaSource::read_sets(&self.descriptor_set)?)),
        }
    }

    /// Whether a `.fbs` is given.
    pub(crate) fn has_schema(&self) -> bool {
        !self.schema.is_empty()
    }

    /// Adds the declarations of the files.
    pub(crate) fn add_to(&self, schemas: &mut Schemas) -> Result<(), Failure> {
        if let Some(described) = self.read()? {
            schemas.add_proto(described);
        }
        if self.has_schema() {
            schemas.add_fbs(&self.schema, &self.include)?;
        }
        Ok(())
    }

    /// The method of the `.fbs`, if one is given.
    fn flatbuffers(&self, protocol: Protocol, target: &str) -> Result<Option<Method>, Failure> {
        if !self.has_schema() {
            return Ok(None);
        }
        let schema =
            fbs::read(&self.schema, &self.include).map_err(|error| Failure::new(error.to_string()))?;
        Ok(Some(Method::find(schema, protocol == Protocol::FbRpc, target)?))
    }
}

/// How the messages of one method are encoded.
#[derive(Debug)]
pub(crate) struct Translator {
    wire: Format,
    types: Option<Types>,
    /// The user's types of the arguments and the result.
    signature: Option<Signature>,
    /// The method was described for this call, by a `.proto` or by the server: every format is decoded and encoded by
    /// that.
    described: bool,
    /// The method belongs to no service.
    function: bool,
    /// The method is declared in a `.fbs`.
    fbs: Option<Method>,
    /// The method's name on the wire, if it differs from the user's.
    called: Option<String>,
    /// The method is not known to take JSON.
    lacks_schema: bool,
}

impl Translator {
    /// How this client calls `target` on a server that may be this program's own: its services are known if
    /// neither a file nor gRPC reflection, called with `query_options`, describes others. Blocks on the server; not for
    /// use within a runtime.
    pub(crate) fn new(
        client: &Client,
        target: &str,
        options: &Options,
        query_options: CallOptions,
    ) -> Result<Self, Failure> {
        let translator = Self::from_files(client, target, options)?;
        if translator.has_schema() {
            return Ok(translator);
        }
        if client.protocol() == Protocol::Grpc && options.needs_types(client, target) {
            let described = options.query_reflection(Reflection::new(client, query_options), target);
            match terminal::block_on(described)? {
                Ok(Some(set)) => {
                    let source = SchemaSource::new(&set, "the server's own description")?;
                    let types = options.types(&source, target)?;
                    return Ok(Self::with_description(client, target, options, types));
                }
                // The call itself will report that there is no connection.
                Err(error) if !matches!(error.code(), Code::Unimplemented | Code::Unavailable) => {
                    terminal::print_error(format_args!(
                        "hint: the query of the method's description failed: {error}; name its .proto with --proto FILE"
                    ));
                }
                Ok(None) | Err(_) => {}
            }
        }
        Self::from_built_in(client, target, options)
    }

    /// How this client calls `target` on a server of this program's own services.
    pub(crate) fn from_built_in(client: &Client, target: &str, options: &Options) -> Result<Self, Failure> {
        let own = if options.wants_flatbuffers(client) {
            built_in::flatbuffers(client.protocol(), target)?
        } else {
            None
        };
        Ok(match own {
            Some(method) => Self::from_flatbuffers(method),
            None => Self::with_types(client, target, options, built_in::types(target), false),
        })
    }

    /// How this client calls `target` on a server that does not describe it.
    pub(crate) fn without_description(client: &Client, target: &str, options: &Options) -> Self {
        Self::with_types(client, target, options, Types::standard(target), false)
    }

    /// How this client calls `target`, as far as the user's files describe it.
    pub(crate) fn from_files(client: &Client, target: &str, options: &Options) -> Result<Self, Failure> {
        options.check_schema()?;
        if let Some(method) = options.files.flatbuffers(client.protocol(), target)? {
            return Ok(Self::from_flatbuffers(method));
        }
        match options.files.read()? {
            Some(described) => {
                Ok(Self::with_description(client, target, options, options.types(&described, target)?))
            }
            None => Ok(Self::with_types(client, target, options, None, false)),
        }
    }

    /// How this client calls `target`, with the description obtained for this call.
    pub(crate) fn with_description(client: &Client, target: &str, options: &Options, types: Types) -> Self {
        Self::with_types(client, target, options, Some(types), true)
    }

    fn from_flatbuffers(method: Method) -> Self {
        Self {
            wire: Format::FlatBuffers,
            types: None,
            signature: None,
            described: true,
            function: false,
            fbs: Some(method),
            called: None,
            lacks_schema: false,
        }
    }

    /// The method's name on the wire for the user's name.
    pub(crate) fn target<'t>(&'t self, target: &'t str) -> &'t str {
        let numbered = self.fbs.as_ref().map(Method::wire_name);
        numbered.or(self.called.as_deref()).unwrap_or(target)
    }

    fn with_types(
        client: &Client,
        target: &str,
        options: &Options,
        types: Option<Types>,
        described: bool,
    ) -> Self {
        let protocol = client.protocol();
        let called = wire_name(client, target, types.as_ref());
        let function = !called.as_deref().unwrap_or(target).contains('/');
        if let (None, Some(wire)) = (options.format, client.only_format()) {
            let lacks_schema = false;
            return Self {
                wire,
                types,
                signature: None,
                described,
                function,
                fbs: None,
                called,
                lacks_schema,
            };
        }
        let wire = match (options.format, protocol) {
            (Some(wire), _) => wire,
            (None, Protocol::Http) => Wire::Json,
            (None, Protocol::BaiduStd | Protocol::Grpc) if types.is_some() => Wire::Protobuf,
            (None, Protocol::Rpcx) if described => Wire::Protobuf,
            (None, Protocol::BaiduStd | Protocol::Grpc) => Wire::Json,
            (None, Protocol::RestRpc)
                if client.rest_rpc_version().is_some_and(|it| it.format() == Format::RestRpc) =>
            {
                Wire::Cpp
            }
            (None, Protocol::Rpcx | Protocol::RestRpc) => Wire::Msgpack,
            (None, Protocol::NetRpc) => Wire::Gob,
            // Without a .fbs the fields of fb_rpc are unknown.
            (None, _) => Wire::Raw,
        };
        let lacks_schema = options.format.is_none()
            && types.is_none()
            && !function
            && matches!(protocol, Protocol::BaiduStd | Protocol::Grpc);
        let (wire, signature) = (to_format(wire, protocol), options.types.clone());
        Self { wire, types, signature, described, function, fbs: None, called, lacks_schema }
    }

    /// Whether the method is described.
    pub(crate) fn has_schema(&self) -> bool {
        self.types.is_some() || self.fbs.is_some()
    }

    /// Possible cause of a failed call: the method's messages are not described.
    pub(crate) fn missing_schema_hint(&self) -> Option<&'static str> {
        self.lacks_schema.then_some(
            "nothing describes the method, so the message was sent as JSON; name its .proto with --proto FILE or \
             --descriptor-set FILE, or its .fbs with --schema FILE",
        )
    }

    /// The directions in which the method streams; unary if it is not described.
    pub(crate) fn stream_type(&self) -> StreamType {
        match (&self.fbs, &self.types) {
            (Some(method), _) => method.stream_type(),
            (None, Some(types)) => types.stream_type,
            (None, None) => StreamType::UNARY,
        }
    }

    /// Whether files or the server have described the method, with the directions in which it streams.
    pub(crate) fn is_declared(&self) -> bool {
        self.described && self.types.is_some()
    }

    /// Whether the method is described, and not as free of side effects.
    pub(crate) fn has_side_effects(&self) -> bool {
        self.types.as_ref().is_some_and(|types| types.has_side_effects)
    }

    /// The wire format of the messages.
    pub(crate) fn format(&self) -> Format {
        self.wire
    }

    /// The description that converts to or from a format.
    ///
    /// The description of this program's own services is used only as a last resort: a server may have
    /// others of the same name.
    fn types(&self, format: Format) -> Option<&Types> {
        let needed = matches!(format, Format::Protobuf | Format::ProtoText);
        self.types.as_ref().filter(|_| needed || self.described)
    }

    /// Encodes a request.
    pub(crate) fn encode_request(&self, argument: &[u8]) -> Result<Body, Failure> {
        let trimmed = argument.trim_ascii();
        // Some editors begin a file with a mark of its encoding.
        let argument = match trimmed.strip_prefix(BYTE_ORDER_MARK).unwrap_or(trimmed) {
            _ if self.wire == Format::Raw => argument,
            // Empty: a message without fields, or no argument at all.
            b"" if self.function => b"null",
            b"" => b"{}",
            argument => argument,
        };
        if self.signature.is_some() && !matches!(self.wire, Format::RestRpc | Format::StructPack) {
            return Err(Failure::new(format!(
                "--types is for struct_pack; the message is sent in {}",
                self.wire.as_str()
            )));
        }
        if self.wire != Format::Raw {
            json::check_names(argument).map_err(no_json)?;
        }
        if let Some(method) = &self.fbs {
            return Ok(Body::new(self.wire, method.request(argument)?));
        }
        if matches!(self.wire, Format::MessagePack | Format::MessagePackArray | Format::Gob)
            && self.types(self.wire).is_none()
        {
            integers::check(argument, self.wire)?;
        }
        let bytes = match (self.types(self.wire), self.wire) {
            (_, Format::Raw) => argument.to_vec(),
            (Some(types), wire) => types.encode_request(wire, argument)?,
            (None, Format::Json(_)) => json::check(argument).map_err(json::no_json)?.to_owned().into_bytes(),
            (None, Format::RestRpc) => return self.encode_cpp(argument),
            (None, Format::MessagePackArray) => return encode_arguments(argument),
            (None, Format::MessagePack) => encode_msgpack(argument)?.into(),
            (None, Format::StructPack) => self.encode_struct_pack(argument)?,
            (None, Format::Gob) => gob::from_json(argument).map_err(|error| unsendable(&error))?,
            (None, _) if argument == b"{}" => Vec::new(),
            (None, wire) => return Err(undescribed(wire)),
        };
        Ok(Body::new(self.wire, bytes))
    }

    /// Whether a reply is shown as values instead of bytes. Raw bytes count as values, since the user requested them.
    pub(crate) fn can_decode(&self, body: &Body) -> bool {
        let needs_schema = matches!(body.format, Format::Protobuf | Format::ProtoText | Format::FlatBuffers);
        !needs_schema || self.has_schema() || body.bytes.is_empty() || self.wire == Format::Raw
    }

    /// Fields of a reply that the description lacks, and that the decoded reply lacks therefore.
    pub(crate) fn undeclared_fields(&self, body: &Body) -> Vec<String> {
        let types = self.types(body.format).filter(|_| self.wire != Format::Raw);
        types.map(|types| types.find_undeclared(body.format, &body.bytes)).unwrap_or_default()
    }

    /// Decodes a reply into readable text, usually JSON.
    pub(crate) fn decode_reply(&self, body: &Body) -> Result<String, Failure> {
        let bytes = &body.bytes;
        if let Some(method) = &self.fbs {
            return Ok(json::pretty(&method.reply(bytes)?));
        }
        match (self.types(body.format), body.format) {
            (_, Format::Raw | Format::Other(_)) => Ok(readable(bytes)),
            (Some(types), format) => format_json(&types.decode_response(format, bytes)?),
            (None, Format::Json(_)) => format_json(bytes),
            (None, Format::RestRpc) => Ok(cpp::reply(self.signature.as_ref(), bytes)?),
            (None, Format::MessagePack | Format::MessagePackArray) if bytes.is_empty() => {
                Ok("null".to_owned())
            }
            (None, Format::MessagePack | Format::MessagePackArray) => {
                let text = msgpack::to_json(bytes).map_err(|error| unreadable(&error))?;
                Ok(json::pretty(&text))
            }
            (None, Format::StructPack) => {
                let value = struct_pack::read(self.signature.as_ref(), bytes);
                let value = value.map_err(|error| unreadable(&error))?;
                value.map_or_else(|| Ok(readable(bytes)), |value| format_json(value.to_string().as_bytes()))
            }
            (None, Format::Gob) => {
                let text = gob::to_json(bytes).map_err(|error| unreadable(&error))?;
                Ok(json::pretty(&text))
            }
            (None, Format::Protobuf | Format::ProtoText | Format::FlatBuffers) => Ok(readable(bytes)),
        }
    }
}

impl Translator {
    fn encode_cpp(&self, argument: &[u8]) -> Result<Body, Failure> {
        cpp::request(self.signature.as_ref(), argument).map_err(|error| match argument {
            [b'{', ..] if self.signature.is_none() => Failure::new(error.text()).with_hint(
                "write the members as a list in their order and name their types, as in --types \
                 'struct<int,string>'; or call with ?version=0.20 in the URL, whose messages have names",
            ),
            _ => error.into(),
        })
    }

    fn encode_struct_pack(&self, argument: &[u8]) -> Result<Vec<u8>, Failure> {
        let value = serde_json::from_slice(argument).map_err(no_json)?;
        let signature = self.signature.as_ref().ok_or_else(|| {
            Failure::new("the types of the arguments are unknown")
                .with_hint("name them with --types, as in --types 'int, string'")
        })?;
        signature
            .write(&value)
            .map_err(|error| Failure::new(format!("the argument does not match --types: {error}")))
    }
}

/// The method's name on the wire, if it differs from the user's.
///
/// gRPC and baidu_std use the full name of a service, of which the user may have omitted the package. If a name has no
/// slash, its last part is the method; rest_rpc functions may have dots in their names.
fn wire_name(client: &Client, target: &str, types: Option<&Types>) -> Option<String> {
    let protocol = client.protocol();
    let full = types.and_then(|types| types.full_name.as_deref());
    let called = match (protocol, full) {
        (Protocol::Grpc | Protocol::BaiduStd, Some(full)) => full.to_owned(),
        (Protocol::RestRpc, _) => return None,
        _ => {
            let (service, method) = split(target)?;
            format!("{service}/{method}")
        }
    };
    (called != target).then_some(called)
}

/// The arguments of a function of rest_rpc: a list of them, a single one, or none.
fn encode_arguments(argument: &[u8]) -> Result<Body, Failure> {
    let (positional, argument) = match argument {
        b"null" => (true, &b"[]"[..]),
        list => (list.starts_with(b"["), list),
    };
    Ok(Body { positional, ..Body::new(Format::MessagePackArray, encode_msgpack(argument)?) })
}

/// Converts a user's format to the protocol's variant of it.
fn to_format(wire: Wire, protocol: Protocol) -> Format {
    match wire {
        Wire::Protobuf => Format::Protobuf,
        Wire::Json if matches!(protocol, Protocol::Rpcx | Protocol::NetRpc) => Format::Json(Json::Go),
        Wire::Json if protocol == Protocol::Grpc => Format::Json(Json::Proto3),
        Wire::Json => Format::Json(Json::Brpc),
        Wire::Msgpack if protocol == Protocol::RestRpc => Format::MessagePackArray,
        Wire::Msgpack => Format::MessagePack,
        Wire::StructPack => Format::StructPack,
        Wire::Gob => Format::Gob,
        Wire::Raw => Format::Raw,
        Wire::Text => Format::ProtoText,
        Wire::Flatbuffers => Format::FlatBuffers,
        Wire::Cpp => Format::RestRpc,
    }
}

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn encode_msgpack(argument: &[u8]) -> Result<Bytes, Failure> {
    let value: serde_json::Value = serde_json::from_slice(argument).map_err(no_json)?;
    let body = Serde::encode(&value, Format::MessagePack, None);
    body.map_err(|status: Status| unsendable(&status.message()))
}

fn unsendable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("the argument cannot be sent: {error}"))
}

fn format_json(bytes: &[u8]) -> Result<String, Failure> {
    Ok(json::check(bytes).map(json::pretty).map_err(|error| unreadable(&error))?)
}

/// The failure of an argument that is not JSON, with the position.
pub(crate) fn no_json(error: serde_json::Error) -> Failure {
    json::no_json(error).into()
}

fn undescribed(wire: Format) -> Failure {
    Failure::new(format!("nothing describes the method's messages in {}", wire.as_str()))
        .with_hint("name its .proto with --proto FILE or --descriptor-set FILE, or send another --format")
}
