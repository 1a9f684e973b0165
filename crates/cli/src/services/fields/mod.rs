//! The service of the benchmark of FlatBuffers, with protobuf.

use polyrpc::{Context, Result};

use self::generated::{BenchmarkRequest, BenchmarkResponse, BenchmarkService, BenchmarkServiceServer};

#[allow(warnings, reason = "generated")]
mod generated {
    include!("generated/test.rs");
}

/// The description of its messages.
pub(crate) const FIELDS: &[u8] = generated::FILE_DESCRIPTOR_SET;

pub(crate) struct Echo;

impl BenchmarkService for Echo {
    async fn test(&self, _: &mut Context, request: BenchmarkRequest) -> Result<BenchmarkResponse> {
        Ok(BenchmarkResponse {
            opcode: request.opcode,
            echo_attachment: request.echo_attachment,
            attachment_size: request.attachment_size,
            request_id: request.request_id,
            reserved: request.reserved,
            message: request.message,
            ..BenchmarkResponse::default()
        })
    }
}

pub(crate) fn service() -> BenchmarkServiceServer<Echo> {
    BenchmarkServiceServer::new(Echo)
}
