use std::collections::HashSet;
use std::future::ready;
use std::sync::Arc;

use futures_util::StreamExt;
use polyrpc_core::Status;
use polyrpc_grpc_messages::reflection::v1::server_reflection_request::MessageRequest;
use polyrpc_grpc_messages::reflection::v1::server_reflection_response::MessageResponse;
use polyrpc_grpc_messages::reflection::v1::{
    ErrorResponse, ExtensionNumberResponse, ExtensionRequest, FILE_DESCRIPTOR_SET, FileDescriptorResponse,
    ListServiceResponse, ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
};
use polyrpc_grpc_messages::v1alpha_descriptors;

use super::Files;
use super::files::FileId;
use crate::call::Context;
use crate::codec::Protobuf;
use crate::service::{MethodRole, Router, ServiceBuilder};
use crate::{Result, Streaming};

/// Adds the service in both versions, for every service with descriptors.
pub(super) fn add(router: &mut Router) {
    let catalog = Arc::new(Catalog::new(router));
    for version in VERSIONS {
        router.add_standard(MethodRole::Introspection, service(version, &catalog));
    }
}

/// Both versions use the messages of v1: they differ only in their package.
fn service(version: &str, catalog: &Arc<Catalog>) -> ServiceBuilder {
    let catalog = catalog.clone();
    ServiceBuilder::new(version)
        .schema(FILE_DESCRIPTOR_SET)
        .bidi_streaming::<Protobuf, ServerReflectionRequest, ServerReflectionResponse, _, _>(
            "ServerReflectionInfo",
            move |cx: Context, requests| {
                let catalog = catalog.clone();
                let mut sent = HashSet::new();
                let answers = requests.map(move |request| catalog.answer(request?, &mut sent));
                ready((cx, Ok(Streaming::from_stream(answers))))
            },
        )
}

/// The described services of a server.
#[derive(Debug)]
struct Catalog {
    /// The names of the services that a file describes, sorted.
    services: Vec<String>,
    files: Files,
}

impl Catalog {
    fn new(router: &Router) -> Self {
        let mut files = Files::default();
        let mut services = Vec::new();
        for (service, schemas) in router.described_services() {
            schemas.iter().for_each(|schema| files.add(schema.encoded()));
            services.push(service);
        }
        files.add(FILE_DESCRIPTOR_SET);
        files.add(&v1alpha_descriptors());
        services.extend(VERSIONS);
        // An alias has the descriptors of another service, and none of its own.
        services.retain(|service| files.has_service(service));
        services.sort_unstable();
        services.dedup();
        let services = services.into_iter().map(str::to_owned).collect();
        Self { services, files }
    }

    /// Answers a request; `sent` are the files already sent to the caller in the same stream.
    fn answer(
        &self,
        request: ServerReflectionRequest,
        sent: &mut HashSet<FileId>,
    ) -> Result<ServerReflectionResponse> {
        let answer = match &request.message_request {
            Some(MessageRequest::FileByFilename(name)) => {
                self.file(self.files.file_by_filename(name), sent, || format!("there is no file `{name}`"))
            }
            Some(MessageRequest::FileContainingSymbol(name)) => {
                let file = self.files.file_containing_symbol(name);
                self.file(file, sent, || format!("there is no symbol `{name}`"))
            }
            Some(MessageRequest::FileContainingExtension(extension)) => self.extension(extension, sent),
            Some(MessageRequest::AllExtensionNumbersOfType(name)) => self.extensions(name),
            Some(MessageRequest::ListServices(_)) => self.list(),
            // As in grpc-go (`reflection/internal/reflection.go`): an empty request ends the stream.
            None => return Err(Status::invalid_argument("the request is of an unknown kind").into()),
        };
        Ok(ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: request.into(),
            message_response: Some(answer),
            ..ServerReflectionResponse::default()
        })
    }

    fn file(
        &self,
        file: Option<FileId>,
        sent: &mut HashSet<FileId>,
        missing: impl FnOnce() -> String,
    ) -> MessageResponse {
        let Some(file) = file else { return not_found(missing()) };
        let files = self.files.with_imports(file, sent);
        FileDescriptorResponse { file_descriptor_proto: files, ..FileDescriptorResponse::default() }.into()
    }

    fn extension(&self, extension: &ExtensionRequest, sent: &mut HashSet<FileId>) -> MessageResponse {
        let ExtensionRequest { containing_type: message, extension_number: number, .. } = extension;
        let file = self.files.file_containing_extension(message, *number);
        self.file(file, sent, || format!("`{message}` has no extension with the number {number}"))
    }

    fn extensions(&self, message: &str) -> MessageResponse {
        if self.files.file_containing_symbol(message).is_none() {
            return not_found(format!("there is no message `{message}`"));
        }
        ExtensionNumberResponse {
            base_type_name: message.to_owned(),
            extension_number: self.files.extensions(message).collect(),
            ..ExtensionNumberResponse::default()
        }
        .into()
    }

    fn list(&self) -> MessageResponse {
        let service = |name: &String| ServiceResponse { name: name.clone(), ..ServiceResponse::default() };
        let service = self.services.iter().map(service).collect();
        ListServiceResponse { service, ..ListServiceResponse::default() }.into()
    }
}

/// An error response; the stream stays open.
fn not_found(error_message: String) -> MessageResponse {
    ErrorResponse { error_code: NOT_FOUND, error_message, ..ErrorResponse::default() }.into()
}

/// gRPC's number (`google/rpc/code.proto`).
const NOT_FOUND: i32 = 5;

/// Names of the service, which also describes itself.
const VERSIONS: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];
