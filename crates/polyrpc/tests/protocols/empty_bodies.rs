//! Calls with an empty body: a default message in some formats, invalid in others.

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::introspection::Health;
use polyrpc::server::ServerHandle;
use polyrpc::{Code, Format, Json, Protocol, Server};
use polyrpc_core::{Call, Reply};

use crate::common::{Socket, Wire, client, serve};

/// A service with messages of a `.proto` that returns the default one.
const SERVICE: &str = "grpc.health.v1.Health";

async fn server() -> ServerHandle {
    serve(Server::new().health(&Health::new())).await
}

async fn reply(server: &ServerHandle, protocol: Protocol, format: Format) -> Reply {
    let mut wire = Wire::connect(protocol, server).await;
    wire.send(1, &Call::new(SERVICE, "Check", format, Bytes::new())).await;
    wire.reply().await.expect("an answer").1
}

#[tokio::test]
async fn empty_body_is_a_message_in_formats_with_empty_encodings() {
    let server = server().await;
    for (protocol, format) in [
        (Protocol::Rpcx, Format::Protobuf),
        (Protocol::BaiduStd, Format::Protobuf),
        (Protocol::BaiduStd, Format::ProtoText),
        (Protocol::Grpc, Format::Protobuf),
    ] {
        let reply = reply(&server, protocol, format).await;
        assert!(reply.result.is_ok(), "{protocol:?} {format:?}: {reply:?}");
    }
    // Go sends a value without fields as no bytes.
    let client = client(Protocol::NetRpc, &server);
    let nothing = Body::new(Format::Gob, Bytes::new());
    client.call_raw(&format!("{SERVICE}/Check"), nothing, CallOptions::default()).await.expect("an answer");
}

#[tokio::test]
async fn empty_body_is_invalid_json_and_messagepack() {
    let server = server().await;
    for (protocol, format) in [
        (Protocol::Rpcx, Format::Json(Json::Go)),
        (Protocol::Rpcx, Format::MessagePack),
        (Protocol::BaiduStd, Format::Json(Json::Brpc)),
        (Protocol::BaiduStd, Format::Json(Json::Proto3)),
    ] {
        let status = reply(&server, protocol, format).await.result.expect_err("no message");
        if protocol == Protocol::BaiduStd {
            assert_eq!((status.code(), status.number()), (Code::InvalidArgument, Some(1003)), "{format:?}");
        }
        assert!(status.message().contains("cannot read"), "{protocol:?} {format:?}: {status}");
    }
}

#[tokio::test]
async fn http_request_may_omit_its_body_except_on_the_rpcx_gateway() {
    let server = server().await;
    let mut socket = Socket::connect(&server).await;
    let mapped = format!("POST /{SERVICE}/Check HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(socket.http(&mapped).await.0, 200);
    for (number, want) in [(1, 500), (2, 200), (3, 500)] {
        let gateway = format!(
            "POST /{SERVICE} HTTP/1.1\r\nHost: a\r\nX-RPCX-ServiceMethod: Check\r\nX-RPCX-SerializeType: {number}\r\n\
             Content-Length: 0\r\n\r\n"
        );
        assert_eq!(socket.http(&gateway).await.0, want, "serialize type {number}");
    }
    let reply = reply(&server, Protocol::Http, Format::Json(Json::Brpc)).await;
    assert!(reply.result.is_ok(), "{reply:?}");
}

#[tokio::test]
async fn json_rpc_without_parameters_is_invalid_params() {
    let server = server().await;
    let mut socket = Socket::connect(&server).await;
    for (params, want) in [
        ("", "-32602"),
        (r#","params":null"#, "-32602"),
        (r#","params":7"#, "-32603"),
        (r#","params":{}"#, "result"),
        (r#","params":[{}]"#, "result"),
        // The first of several is used, as in Go's jsonrpc.
        (r#","params":[{},7]"#, "result"),
        (r#","params":[7,{}]"#, "-32603"),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{SERVICE}.Check","id":1{params}}}"#);
        let request = format!(
            "POST /jsonrpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json-rpc\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, answer) = socket.http(&request).await;
        assert!(status == 200 && answer.contains(want), "{params}: {answer}");
    }
}
