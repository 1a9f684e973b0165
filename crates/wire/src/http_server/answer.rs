use bytes::Bytes;

use crate::grpc::FRAMED;
use crate::http::ServerConfig;
use crate::http::head::WriteHead;
use crate::http::mapping::answer::Answer;

/// Writes the head of a response without a call, and returns its body. If the content type of the request is not
/// supported, the response names those of gRPC's dialects, too.
pub(super) fn write(answer: Answer, config: &ServerConfig, head: &mut impl WriteHead) -> Bytes {
    let rejects_type = matches!(answer, Answer::UnsupportedType { .. });
    let body = answer.write(config, head);
    if rejects_type {
        for framed in FRAMED {
            head.field("Accept-Post", framed.reader.accepted_types().as_bytes());
        }
    }
    body
}
