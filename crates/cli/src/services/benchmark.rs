use polyrpc::flatbuffers::Message;
use polyrpc::{Context, Result};

use crate::fbs::test::{BenchmarkRequest, BenchmarkResponse, BenchmarkResponseArgs, BenchmarkService};

/// The service of the benchmark with which FlatBuffers were proposed to brpc: what comes goes back.
pub(super) struct Benchmark;

impl BenchmarkService for Benchmark {
    async fn test(
        &self,
        cx: &mut Context,
        request: Message<BenchmarkRequest>,
    ) -> Result<Message<BenchmarkResponse>> {
        let request = request.root();
        if request.echo_attachment() != 0 {
            cx.reply_options().attachment = cx.attachment().clone();
        }
        let response = BenchmarkResponseArgs {
            opcode: request.opcode(),
            echo_attachment: request.echo_attachment(),
            attachment_size: request.attachment_size(),
            request_id: request.request_id(),
            reserved: request.reserved(),
            message: request.message(),
        };
        Ok(response.into())
    }
}
