//! The messages of the suite `fb` and their service, generated from a `.proto` and from a `.fbs`.

/// As protobuf.
pub(crate) mod pb {
    use polyrpc::{Context, Result};

    pub(crate) use self::generated::{
        BenchmarkRequest, BenchmarkResponse, BenchmarkService, BenchmarkServiceClient, BenchmarkServiceServer,
    };

    #[allow(warnings, reason = "generated")]
    mod generated {
        include!("generated/test.rs");
    }

    /// Echoes the request.
    pub(crate) struct Echo;

    impl BenchmarkService for Echo {
        async fn test(&self, _: &mut Context, request: BenchmarkRequest) -> Result<BenchmarkResponse> {
            Ok(answer(request))
        }
    }

    pub(crate) fn answer(request: BenchmarkRequest) -> BenchmarkResponse {
        BenchmarkResponse {
            opcode: request.opcode,
            echo_attachment: request.echo_attachment,
            attachment_size: request.attachment_size,
            request_id: request.request_id,
            reserved: request.reserved,
            message: request.message,
            ..Default::default()
        }
    }

    pub(crate) fn request(text: &str) -> BenchmarkRequest {
        BenchmarkRequest {
            opcode: 1,
            echo_attachment: 2,
            attachment_size: 3,
            request_id: 4,
            reserved: Some(5),
            message: Some(text.to_owned()),
            ..Default::default()
        }
    }

    pub(crate) fn is_right(reply: &BenchmarkResponse, text: &str) -> bool {
        reply.request_id == 4 && reply.message.as_ref().is_some_and(|message| *message == text)
    }
}

/// As FlatBuffers.
pub(crate) mod fbs {
    use polyrpc::flatbuffers::Message;
    use polyrpc::{Context, Result};

    pub(crate) use self::generated::{
        BenchmarkRequest, BenchmarkRequestArgs, BenchmarkResponse, BenchmarkResponseArgs, BenchmarkService,
        BenchmarkServiceClient, BenchmarkServiceServer,
    };

    #[allow(warnings, reason = "generated")]
    mod generated {
        include!("../../crates/cli/src/fbs/test.rs");
    }

    /// Echoes the request.
    pub(crate) struct Echo;

    impl BenchmarkService for Echo {
        async fn test(
            &self,
            _: &mut Context,
            request: Message<BenchmarkRequest>,
        ) -> Result<Message<BenchmarkResponse>> {
            Ok(answer(&request))
        }
    }

    pub(crate) fn answer(request: &Message<BenchmarkRequest>) -> Message<BenchmarkResponse> {
        let request = request.root();
        let response = BenchmarkResponseArgs {
            opcode: request.opcode(),
            echo_attachment: request.echo_attachment(),
            attachment_size: request.attachment_size(),
            request_id: request.request_id(),
            reserved: request.reserved(),
            message: request.message(),
        };
        response.into()
    }

    pub(crate) fn request(text: &str) -> Message<BenchmarkRequest> {
        let request = BenchmarkRequestArgs {
            opcode: 1,
            echo_attachment: 2,
            attachment_size: 3,
            request_id: 4,
            reserved: 5,
            message: Some(text.into()),
        };
        request.into()
    }

    pub(crate) fn is_right(reply: &Message<BenchmarkResponse>, text: &str) -> bool {
        let reply = reply.root();
        reply.request_id() == 4 && reply.message().is_some_and(|message| message == text)
    }
}
