//! Failures of the gateway itself. Their texts begin with `polyrpc-gateway`.

use polyrpc::fallback::RawRequest;
use polyrpc::{Failure, Protocol, Retry, Status};
use polyrpc_core::protocol::Streams;
use polyrpc_transform::{Error, TranslatorError};

#[cold]
pub(super) fn no_route(call: &RawRequest) -> Failure {
    Status::unimplemented(format!("polyrpc-gateway: no-route: no route takes {}", call.target())).into()
}

#[cold]
pub(super) fn no_schema(why: &TranslatorError, target: &str) -> Failure {
    Status::unimplemented(format!("polyrpc-gateway: no-schema: {why} ({target})")).into()
}

/// The caller's message cannot be translated.
#[cold]
pub(super) fn request(error: &Error) -> Failure {
    Status::invalid_argument(format!("polyrpc-gateway: {}", error.text())).into()
}

/// The server's message cannot be translated.
#[cold]
pub(super) fn response(error: &Error) -> Failure {
    Status::internal(format!("polyrpc-gateway: the response cannot be translated: {}", error.text())).into()
}

#[cold]
pub(super) fn attachment(protocol: Protocol) -> Failure {
    Status::unimplemented(format!("polyrpc-gateway: {} cannot carry an attachment", name(protocol))).into()
}

#[cold]
pub(super) fn metadata(protocol: Protocol, key: &str) -> Failure {
    let name = name(protocol);
    Status::invalid_argument(format!("polyrpc-gateway: {name} cannot carry metadata, such as `{key}`")).into()
}

/// The call or its response has more entries of metadata than the receiver's connection survives.
#[cold]
pub(super) fn too_much_metadata(protocol: Protocol, count: usize, max: usize) -> Failure {
    let name = name(protocol);
    let text = format!(
        "polyrpc-gateway: a call of {name} has at most {max} entries of metadata, this one has {count}"
    );
    Status::resource_exhausted(text).with_retry(Retry::Never).into()
}

/// Text of a binary key, for an upstream that gets its bytes.
#[cold]
pub(super) fn not_base64(key: &str) -> Failure {
    let text = format!("polyrpc-gateway: the value of the binary metadata `{key}` is not base64");
    Status::invalid_argument(text).into()
}

/// A protocol with one value for each key, where several binary ones could not be told apart.
#[cold]
pub(super) fn several_binary_values(protocol: Protocol, key: &str) -> Failure {
    let name = name(protocol);
    let text =
        format!("polyrpc-gateway: {name} carries one value of the binary metadata `{key}`, not several");
    Status::invalid_argument(text).with_retry(Retry::Never).into()
}

/// One of the protocols of caller and upstream lacks the streams of the method.
#[cold]
pub(super) fn streams(target: &str, between: [Protocol; 2]) -> Failure {
    let lacks = |protocol: &Protocol| protocol.descriptor().capabilities.streams == Streams::None;
    let protocol = between.into_iter().find(lacks).unwrap_or(between[0]);
    let name = name(protocol);
    Status::unimplemented(format!("polyrpc-gateway: {target} streams, which {name} cannot carry")).into()
}

#[cold]
pub(super) fn attached_streams(to: Protocol) -> Failure {
    let to = name(to);
    Status::unimplemented(format!("polyrpc-gateway: {to} cannot carry the streams of a brpc call")).into()
}

/// A brpc stream ends in both directions at once, so that no response could follow the last request.
#[cold]
pub(super) fn half_duplex(target: &str) -> Failure {
    Status::unimplemented(format!("polyrpc-gateway: {target}: {}", crate::upstream::ENDS_TOGETHER)).into()
}

#[cold]
pub(super) fn too_many_calls(of: &str) -> Failure {
    let text = format!("polyrpc-gateway: overloaded: too many calls of `{of}` are in flight");
    Status::resource_exhausted(text).with_retry(Retry::Elsewhere).into()
}

/// The caller leaves too many responses unread.
#[cold]
pub(super) fn responses_unread() -> Failure {
    let text =
        "polyrpc-gateway: overloaded: earlier responses on this connection were not read for `write_timeout`";
    Status::resource_exhausted(text).with_retry(Retry::Elsewhere).into()
}

#[cold]
pub(super) fn too_many_hops() -> Failure {
    Status::failed_precondition("polyrpc-gateway: the call passed 8 gateways: the routes form a loop").into()
}

/// The name of a protocol in error texts. Go's net/rpc has another name in its descriptor.
fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::NetRpc => "net/rpc",
        _ => protocol.as_str(),
    }
}
