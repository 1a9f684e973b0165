//! What users of rpcx register by number: codecs and compressors.

use bytes::Bytes;
use polyrpc::codec::{Body, NumberedFormat, WithFormat};
use polyrpc::rpcx::Compressors;
use polyrpc::{Client, Code, Compression, Context, Format, Protocol, Result, Server, Status};

use crate::common::{client, serve, soon};

/// A string and how often it was encoded, as `n:text`.
struct CountedCodec;

impl NumberedFormat<(u32, String)> for CountedCodec {
    const NUMBER: u8 = 9;

    fn decode(bytes: Bytes) -> std::result::Result<(u32, String), Status> {
        let wrong = || Status::invalid_argument("expected n:text");
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong())?;
        let (n, text) = text.split_once(':').ok_or_else(wrong)?;
        Ok((n.parse().map_err(|_| wrong())?, text.to_owned()))
    }

    fn encode((n, text): &(u32, String)) -> std::result::Result<Bytes, Status> {
        Ok(format!("{n}:{text}").into())
    }
}

type Wire = WithFormat<CountedCodec>;

#[polyrpc::service(codec = Wire)]
trait Count {
    async fn more(&self, cx: &mut Context, counted: (u32, String)) -> Result<(u32, String)>;
}

struct Counting;

impl Count for Counting {
    async fn more(&self, cx: &mut Context, (n, text): (u32, String)) -> Result<(u32, String)> {
        Ok((n + 1, format!("{text} {:?} {:?}", cx.format(), cx.compression())))
    }
}

async fn counting() -> polyrpc::server::ServerHandle {
    serve(Server::new().service(CountServer::new(Counting))).await
}

#[tokio::test]
async fn codec_is_registered_once_for_server_and_client() {
    let server = counting().await;
    let call = |protocol| {
        let stub = CountClient::new(client(protocol, &server));
        async move { soon(stub.more((1, "by".into()))).await.unwrap() }
    };
    assert_eq!(call(Protocol::Rpcx).await, (2, "by Other(9) None".into()));
    // Others are unaffected, as is a caller that opts out.
    assert_eq!(call(Protocol::Http).await, (2, "by Json(Brpc) None".into()));
    assert_eq!(call(Protocol::Grpc).await.0, 2);
    let url = format!("rpcx://{}", server.address());
    let packed = Client::builder(&url).format(Format::MessagePack).build().unwrap();
    let reply = soon(CountClient::new(packed).more((1, "by".into()))).await.unwrap();
    assert_eq!(reply.1, "by MessagePack None");

    // A raw caller receives the bytes of the format.
    let raw = client(Protocol::Rpcx, &server);
    let call = |format, bytes: &'static str| {
        soon(raw.call_raw("Count/More", Body::new(format, bytes), Default::default()))
    };
    let reply = call(Format::Other(9), "4:x").await.unwrap();
    assert_eq!(reply.message.bytes, "5:x Other(9) None");
    assert_eq!(call(Format::Other(9), "none").await.unwrap_err().message(), "expected n:text");
    let error = call(Format::Other(8), "4:x").await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unimplemented, "can not find codec for 8"));
}

#[tokio::test]
async fn compressor_is_registered_by_number_on_both_sides() {
    let compressors = Compressors::default().with(2, Compression::SnappyFrames).unwrap();
    let server = Server::new().rpcx_compressors(compressors).service(CountServer::new(Counting));
    let server = serve(server).await;
    let url = format!("rpcx://{}", server.address());
    let builder = || Client::builder(&url).compression(Compression::SnappyFrames);
    let stub = CountClient::new(builder().rpcx_compressors(compressors).build().unwrap());
    let long = "x".repeat(5000);
    let reply = soon(stub.more((1, long.clone()))).await.unwrap();
    assert_eq!(reply.1, format!("{long} Other(9) SnappyFrames"));

    let error = soon(CountClient::new(builder().build().unwrap()).more((1, long))).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("register it as a compressor"), "{error}");
}
