//! Stubs of gRPC's standard services, as declared by a calling program.

use polyrpc::codec::Protobuf;
use polyrpc::{Context, Result, Streaming};
use polyrpc_grpc_messages::health::v1::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};
use polyrpc_grpc_messages::reflection::v1::{ServerReflectionRequest, ServerReflectionResponse};
use polyrpc_grpc_messages::{health, reflection};

#[polyrpc::service(
    name = "grpc.health.v1.Health",
    codec = Protobuf,
    schema = health::v1::FILE_DESCRIPTOR_SET
)]
pub(crate) trait Health {
    async fn check(&self, cx: &mut Context, request: HealthCheckRequest) -> Result<HealthCheckResponse>;
    async fn list(&self, cx: &mut Context, request: HealthListRequest) -> Result<HealthListResponse>;
    async fn watch(
        &self,
        cx: &mut Context,
        request: HealthCheckRequest,
    ) -> Result<Streaming<HealthCheckResponse>>;
}

#[polyrpc::service(
    name = "grpc.reflection.v1.ServerReflection",
    codec = Protobuf,
    schema = reflection::v1::FILE_DESCRIPTOR_SET
)]
pub(crate) trait ServerReflection {
    async fn server_reflection_info(
        &self,
        cx: &mut Context,
        requests: Streaming<ServerReflectionRequest>,
    ) -> Result<Streaming<ServerReflectionResponse>>;
}

/// The service under its name before v1. Its messages differ only in their package.
#[polyrpc::service(
    name = "grpc.reflection.v1alpha.ServerReflection",
    codec = Protobuf,
    schema = reflection::v1::FILE_DESCRIPTOR_SET
)]
pub(crate) trait OlderServerReflection {
    async fn server_reflection_info(
        &self,
        cx: &mut Context,
        requests: Streaming<ServerReflectionRequest>,
    ) -> Result<Streaming<ServerReflectionResponse>>;
}
