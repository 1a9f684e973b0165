//! One call as the suite asks for it.

use std::error::Error;
use std::time::Duration;

use buffa::Message;
use polyrpc::client::{CancelHandle, Limits, Request};
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::{Client, Compression, Format, Json};

use crate::cancel::{cancel_after, cancel_soon};
use crate::outcome::{from_streams, from_unary};
use crate::payload::append;
use crate::proto::{
    ClientCompatRequest, ClientResponseResult, Codec, Compression as Asked, ConformanceServiceClient,
    HTTPVersion, Protocol, ServerStreamRequest, UnaryRequest,
};
use crate::streams::{Requests, Turns};

/// Why a call could not be made as it was asked for.
type Trouble = Box<dyn Error + Send + Sync>;

/// Makes the call.
pub(crate) async fn run(asked: &ClientCompatRequest) -> Result<ClientResponseResult, Trouble> {
    let client = ConformanceServiceClient::new(connect(asked)?);
    let cancel = CancelHandle::new();
    Ok(match asked.method.as_deref().unwrap_or_default() {
        "Unary" => {
            let request = request(asked, &cancel, sole::<UnaryRequest>(asked)?);
            cancel_soon(asked, &cancel);
            from_unary(client.unary_with(request).await, |response| response.payload.into_option())
        }
        "IdempotentUnary" => {
            let request = request(asked, &cancel, sole(asked)?);
            cancel_soon(asked, &cancel);
            from_unary(client.idempotent_unary_with(request).await, |response| response.payload.into_option())
        }
        "Unimplemented" => {
            let request = request(asked, &cancel, sole(asked)?);
            from_unary(client.unimplemented_with(request).await, |_| None)
        }
        "ServerStream" => {
            let request = request(asked, &cancel, sole::<ServerStreamRequest>(asked)?);
            cancel_soon(asked, &cancel);
            let counted = |received| cancel_after(asked, &cancel, received);
            from_streams(
                client.server_stream_with(request).await,
                |response| response.payload.into_option(),
                counted,
            )
            .await
        }
        "ClientStream" => {
            let requests = Requests::new(asked, &cancel, None)?;
            let unsent = requests.unsent();
            let request = request(asked, &cancel, requests.stream());
            let ended = client.client_stream_with(request).await;
            let outcome = from_unary(ended, |response| response.payload.into_option());
            ClientResponseResult { num_unsent_requests: unsent.left(), ..outcome }
        }
        "BidiStream" => {
            let turns = Turns::from_request(asked);
            let requests = Requests::new(asked, &cancel, turns.clone())?;
            let unsent = requests.unsent();
            let request = request(asked, &cancel, requests.stream());
            let counted = |received| {
                cancel_after(asked, &cancel, received);
                turns.iter().for_each(Turns::pass);
            };
            let ended = client.bidi_stream_with(request).await;
            let outcome = from_streams(ended, |response| response.payload.into_option(), counted).await;
            ClientResponseResult { num_unsent_requests: unsent.left(), ..outcome }
        }
        other => return Err(format!("there is no method {other}").into()),
    })
}

/// A client of the server that is to be called.
fn connect(asked: &ClientCompatRequest) -> Result<Client, Trouble> {
    let secure = !asked.server_tls_cert.is_empty();
    let (protocol, version) = match (asked.protocol.as_known(), asked.http_version.as_known()) {
        (Some(Protocol::PROTOCOL_GRPC), Some(HTTPVersion::HTTP_VERSION_2)) => ("grpc", ""),
        (Some(Protocol::PROTOCOL_GRPC_WEB), Some(HTTPVersion::HTTP_VERSION_1)) => ("grpc-web", ""),
        (Some(Protocol::PROTOCOL_GRPC_WEB), Some(HTTPVersion::HTTP_VERSION_2)) => {
            ("grpc-web", "http_version=2")
        }
        (Some(Protocol::PROTOCOL_CONNECT), Some(HTTPVersion::HTTP_VERSION_1)) => ("connect", ""),
        (Some(Protocol::PROTOCOL_CONNECT), Some(HTTPVersion::HTTP_VERSION_2)) => {
            ("connect", "http_version=2")
        }
        other => return Err(format!("{other:?} is not spoken").into()),
    };
    let method = if asked.use_get_http_method { "http_method=get" } else { "" };
    let security = if secure { "+tls" } else { "" };
    let url = format!("{protocol}{security}://{}:{}?{version}&{method}", asked.host, asked.port);
    let mut builder = Client::builder(&url)
        .timeout(None)
        .format(match asked.codec.as_known() {
            Some(Codec::CODEC_JSON) => Format::Json(Json::Proto3),
            _ => Format::Protobuf,
        })
        .compression(match asked.compression.as_known() {
            Some(Asked::COMPRESSION_GZIP) => Compression::Gzip,
            Some(Asked::COMPRESSION_ZSTD) => Compression::Zstd,
            Some(Asked::COMPRESSION_DEFLATE) => Compression::Zlib,
            Some(Asked::COMPRESSION_SNAPPY) => Compression::Snappy,
            _ => Compression::None,
        });
    if asked.message_receive_limit > 0 {
        let limit = asked.message_receive_limit as usize;
        builder = builder.limits(Limits { message: limit, decompressed: limit, ..Limits::default() });
    }
    if secure {
        let mut tls = tls::Client::new().ca(Pem::bytes(asked.server_tls_cert.clone()));
        if let Some(shown) = asked.client_tls_creds.as_option() {
            tls = tls.identity(Identity::new(Pem::bytes(shown.cert.clone()), Pem::bytes(shown.key.clone())));
        }
        builder = builder.tls(tls);
    }
    Ok(builder.build()?)
}

fn request<T>(asked: &ClientCompatRequest, cancel: &CancelHandle, message: T) -> Request<T> {
    let mut request = Request::new(message).with_cancel(cancel);
    append(&asked.request_headers, &mut request.options.metadata);
    if let Some(millis) = asked.timeout_ms {
        request = request.with_timeout(Duration::from_millis(millis.into()));
    }
    request
}

/// The one message of a call that has one.
fn sole<T: Message>(asked: &ClientCompatRequest) -> Result<T, Trouble> {
    match &asked.request_messages[..] {
        [sole] => Ok(T::decode_from_slice(&sole.value)?),
        _ => Err("a call of this kind has one message".into()),
    }
}
