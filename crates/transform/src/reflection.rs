//! Services of a server by gRPC's reflection.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use buffa::Message;
use bytes::{Bytes, BytesMut};
use polyrpc::client::{self, Result};
use polyrpc::{Client, Code, Error, Format, Status};
use polyrpc_grpc_messages::reflection::v1::server_reflection_request::MessageRequest;
use polyrpc_grpc_messages::reflection::v1::server_reflection_response::MessageResponse;
use polyrpc_grpc_messages::reflection::v1::{
    ErrorResponse, ServerReflectionRequest, ServerReflectionResponse,
};
use protox::file::{FileResolver, GoogleFileResolver};
use protox::prost::{self, Message as _};
use protox::prost_reflect::prost_types::FileDescriptorProto;

/// A reflection session with a server, and the files it has sent.
pub struct Reflection<'a> {
    client: &'a Client,
    options: client::CallOptions,
    /// Versions of the service that the server may have, the newest first.
    versions: &'static [&'static str],
    files: BTreeMap<String, File>,
    trace: Option<Trace<'a>>,
}

/// Method, query and failure of a query.
type Trace<'a> = Box<dyn Fn(&str, &str, Option<&Status>) + Send + Sync + 'a>;

struct File {
    encoded: Bytes,
    declared: FileDescriptorProto,
}

impl fmt::Debug for Reflection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflection").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl<'a> Reflection<'a> {
    /// Starts a session in which each query is a separate call: over HTTP/1.1 (gRPC-Web) a server responds after the
    /// requests end. Queries fail with [`Code::Unimplemented`] if the server has no reflection.
    pub fn new(client: &'a Client, options: client::CallOptions) -> Self {
        Self { client, options, versions: &VERSIONS, files: BTreeMap::new(), trace: None }
    }

    /// Reports each query to `trace`: the method, the query, and the failure if it failed.
    #[must_use]
    pub fn with_trace(mut self, trace: impl Fn(&str, &str, Option<&Status>) + Send + Sync + 'a) -> Self {
        self.trace = Some(Box::new(trace));
        self
    }

    /// The names of all services, sorted.
    ///
    /// # Errors
    ///
    /// If a query failed.
    pub async fn services(&mut self) -> Result<Vec<String>> {
        match self.query(MessageRequest::ListServices("*".into())).await? {
            MessageResponse::ListServicesResponse(list) => {
                let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
                names.sort_unstable();
                Ok(names)
            }
            other => Err(unexpected_answer(other)),
        }
    }

    /// Fetches the file that declares a name. Returns whether there is one.
    ///
    /// # Errors
    ///
    /// If a query failed.
    pub async fn find(&mut self, symbol: &str) -> Result<bool> {
        self.fetch(MessageRequest::FileContainingSymbol(symbol.to_owned())).await
    }

    /// The server's description of a service, which may lack its package, as a serialized `FileDescriptorSet` with all
    /// imports. `None` if the server has no such service.
    ///
    /// # Errors
    ///
    /// If a query failed.
    pub async fn query_service(mut self, service: &str) -> Result<Option<Vec<u8>>> {
        let found = self.find(service).await?
            || match self.full_name(service).await? {
                Some(name) => self.find(&name).await?,
                None => false,
            };
        self.all(found).await
    }

    /// The same for two messages.
    ///
    /// # Errors
    ///
    /// If a query failed.
    pub async fn query_messages(mut self, one: &str, other: &str) -> Result<Option<Vec<u8>>> {
        let found = self.find(one).await? && self.find(other).await?;
        self.all(found).await
    }

    async fn all(mut self, found: bool) -> Result<Option<Vec<u8>>> {
        if !found {
            return Ok(None);
        }
        self.complete().await?;
        self.set().map(Some)
    }

    /// The full name of a service whose package may be missing; `None` if the server has none or several of that name.
    async fn full_name(&mut self, service: &str) -> Result<Option<String>> {
        let mut names = self.services().await?;
        names.retain(|name| name == service || name.rsplit('.').next() == Some(service));
        Ok(if names.len() == 1 { names.pop() } else { None })
    }

    /// Fetches all imports of the files.
    ///
    /// # Errors
    ///
    /// If a query failed.
    pub async fn complete(&mut self) -> Result<()> {
        let mut requested = BTreeSet::new();
        while let Some(name) = self.missing(&requested) {
            if !self.fetch(MessageRequest::FileByFilename(name.clone())).await? {
                self.add_well_known(&name)?;
            }
            requested.insert(name);
        }
        Ok(())
    }

    /// The files fetched so far.
    pub fn files(&self) -> impl Iterator<Item = &FileDescriptorProto> {
        self.files.values().map(|file| &file.declared)
    }

    /// The same as a serialized `FileDescriptorSet`, each file unchanged.
    ///
    /// # Errors
    ///
    /// If a file is too long to be written.
    pub fn set(&self) -> Result<Vec<u8>> {
        let mut set = BytesMut::new();
        for file in self.files.values() {
            // FileDescriptorSet.file = 1
            prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, &mut set);
            prost::encode_length_delimiter(file.encoded.len(), &mut set).map_err(Status::from_error)?;
            set.extend_from_slice(&file.encoded);
        }
        Ok(set.into())
    }

    /// The name of an imported file that was not fetched yet.
    fn missing(&self, requested: &BTreeSet<String>) -> Option<String> {
        let mut imports = self.files().flat_map(|file| &file.dependency);
        imports.find(|name| !self.files.contains_key(*name) && !requested.contains(*name)).cloned()
    }

    async fn fetch(&mut self, query: MessageRequest) -> Result<bool> {
        match self.query(query).await? {
            MessageResponse::FileDescriptorResponse(files) => {
                files.file_descriptor_proto.into_iter().try_for_each(|file| self.add(file))?;
                Ok(true)
            }
            MessageResponse::ErrorResponse(error) if error.error_code == NOT_FOUND => Ok(false),
            other => Err(unexpected_answer(other)),
        }
    }

    fn add(&mut self, encoded: Bytes) -> Result<()> {
        let declared = FileDescriptorProto::decode(&encoded[..]).map_err(Status::from_error)?;
        if self.files.len() >= FILES {
            return Err(Status::resource_exhausted("the server's files import each other in a cycle").into());
        }
        self.files.entry(declared.name().to_owned()).or_insert(File { encoded, declared });
        Ok(())
    }

    /// Some servers do not send the files that every protobuf implementation has.
    fn add_well_known(&mut self, name: &str) -> Result<()> {
        match GoogleFileResolver::new().open_file(name) {
            Ok(file) => self.add(file.file_descriptor_proto().encode_to_vec().into()),
            // If a missing file matters, the lookup of its types fails later.
            Err(_) => Ok(()),
        }
    }

    async fn query(&mut self, query: MessageRequest) -> Result<MessageResponse> {
        let text = text(&query);
        let request =
            ServerReflectionRequest { message_request: Some(query), ..ServerReflectionRequest::default() };
        let request = Bytes::from(request.encode_to_vec());
        loop {
            let Some((newest, older)) = self.versions.split_first() else {
                return Err(Status::unimplemented("the server has no reflection").into());
            };
            let answer = self.exchange(newest, request.clone()).await;
            if let Some(trace) = &self.trace {
                trace(newest, &text, failure(&answer).as_ref());
            }
            match answer {
                // Not supported, unless an older version is known.
                Err(error) if error.code() == Code::Unimplemented && !older.is_empty() => {
                    self.versions = older;
                }
                answer => {
                    // The server has shown that it supports this version.
                    if answer.is_ok() {
                        self.versions = &self.versions[..1];
                    }
                    return answer;
                }
            }
        }
    }

    async fn exchange(&mut self, version: &str, request: Bytes) -> Result<MessageResponse> {
        let mut call = self.client.open_raw(version, self.options.clone(), Format::Protobuf).await?;
        // If the call has ended, its response contains the reason.
        let _ = call.send(request).await;
        let _ = call.finish_sending().await;
        let answer = call.next().await?;
        let answer = answer.ok_or_else(|| Status::internal("the server ended the reflection stream"))?;
        let answer = ServerReflectionResponse::decode(&mut &answer.bytes[..]).map_err(Status::from_error)?;
        answer.message_response.ok_or_else(|| Status::internal("the server sent no response").into())
    }
}

/// Description of a request for the trace.
fn text(request: &MessageRequest) -> String {
    match request {
        MessageRequest::ListServices(_) => "all services".to_owned(),
        MessageRequest::FileContainingSymbol(name) => format!("the file that declares {name}"),
        MessageRequest::FileByFilename(name) => format!("the file {name}"),
        _ => "an extension".to_owned(),
    }
}

/// The failure in a response, if any.
fn failure(answer: &Result<MessageResponse>) -> Option<Status> {
    match answer {
        Ok(MessageResponse::ErrorResponse(error)) => {
            let code = Code::ALL.into_iter().find(|code| *code as i32 == error.error_code);
            Some(Status::new(code.unwrap_or(Code::Unknown), error.error_message.clone()))
        }
        Ok(_) => None,
        Err(error) => Some(error.status().clone()),
    }
}

/// A response to another request, or a failure.
fn unexpected_answer(answer: MessageResponse) -> Error {
    match answer {
        MessageResponse::ErrorResponse(error) => {
            let ErrorResponse { error_code: code, error_message: text, .. } = *error;
            Status::unknown(format!("the server's reflection failed ({code}): {text}")).into()
        }
        _ => Status::internal("the server responded to another request").into(),
    }
}

/// Their messages are the same.
const VERSIONS: [&str; 2] = [
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// gRPC's number (`google/rpc/code.proto`).
const NOT_FOUND: i32 = 5;

/// Maximum number of files from a server.
const FILES: usize = 10_000;
