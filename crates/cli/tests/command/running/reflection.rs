//! gRPC's reflection before v1.

use polyrpc::{Context, Result, Streaming};
use polyrpc_grpc_messages::reflection::v1::{
    FILE_DESCRIPTOR_SET, ServerReflectionRequest, ServerReflectionResponse,
};

/// Uses the messages of v1: the versions differ only in their package.
#[polyrpc::service(
    name = "grpc.reflection.v1alpha.ServerReflection",
    codec = polyrpc::codec::Protobuf,
    schema = FILE_DESCRIPTOR_SET
)]
pub(crate) trait ServerReflection {
    async fn server_reflection_info(
        &self,
        cx: &mut Context,
        requests: Streaming<ServerReflectionRequest>,
    ) -> Result<Streaming<ServerReflectionResponse>>;
}
