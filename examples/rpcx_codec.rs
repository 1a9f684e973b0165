//! An rpcx codec and an rpcx compressor, registered by number.
//!
//! A client in Go does the same with `share.RegisterCodec(protocol.SerializeType(7), &GobCodec{})` and
//! `protocol.Compressors[2] = &protocol.SnappyCompressor{}`.

use polyrpc::codec::{Body, Codec, NumberedFormat, Serde, WithFormat};
use polyrpc::rpcx::Compressors;
use polyrpc::{Bytes, Client, Compression, Context, Format, Result, Server, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Go's own format, registered by the callers.
struct Gob;

impl<T: Serialize + DeserializeOwned + 'static> NumberedFormat<T> for Gob {
    const NUMBER: u8 = 7;

    fn decode(bytes: Bytes) -> std::result::Result<T, Status> {
        <Serde as Codec<T>>::decode(Body::new(Format::Gob, bytes), None)
    }

    fn encode(value: &T) -> std::result::Result<Bytes, Status> {
        <Serde as Codec<T>>::encode(value, Format::Gob, None)
    }
}

/// Every format of plain types, and gob over rpcx. Named once, for server and client.
type Wire = WithFormat<Gob>;

#[polyrpc::service(codec = Wire)]
trait Texts {
    /// The text, repeated.
    async fn repeat(&self, cx: &mut Context, request: (String, u32)) -> Result<String>;
}

struct Repeating;

impl Texts for Repeating {
    async fn repeat(&self, cx: &mut Context, (text, times): (String, u32)) -> Result<String> {
        println!("{:?}, {:?}", cx.format(), cx.compression());
        Ok(text.repeat(times as usize))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let compressors = Compressors::default().with(2, Compression::SnappyFrames)?;
    let server = Server::new()
        .rpcx_compressors(compressors)
        .service(TextsServer::new(Repeating))
        .bind("127.0.0.1:0")
        .await?
        .start();

    let builder = Client::builder(&format!("rpcx://{}", server.address()));
    let client = builder.rpcx_compressors(compressors).compression(Compression::SnappyFrames).build()?;
    // Only messages longer than 1,024 bytes are compressed, as in rpcx.
    let long = "snappy ".repeat(200);
    println!("{} bytes", TextsClient::new(client).repeat((long, 2)).await?.len());

    let client = Client::new(&format!("http://{}", server.address()))?;
    println!("{}", TextsClient::new(client).repeat(("json ".to_owned(), 2)).await?);
    Ok(())
}
