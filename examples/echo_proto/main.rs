//! A service from a `.proto`, and an attachment beside its messages: brpc's echo example.

// build.rs wrote it from echo.proto.
#[allow(warnings)]
mod example {
    polyrpc::include_proto!("example");
}

use polyrpc::client::Request;
use polyrpc::{Client, Context, Result, Server};

use crate::example::{EchoRequest, EchoResponse, EchoService, EchoServiceClient, EchoServiceServer};

struct Echo;

impl EchoService for Echo {
    async fn echo(&self, cx: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        cx.reply().attachment = cx.attachment().clone();
        Ok(EchoResponse { message: request.message, ..Default::default() })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new().service(EchoServiceServer::new(Echo)).bind("127.0.0.1:0").await?.start();

    let echo = EchoServiceClient::new(Client::new(&format!("baidu-std://{}", server.address()))?);
    let reply = echo.echo(EchoRequest { message: "hello".into(), ..Default::default() }).await?;
    println!("baidu_std: {}", reply.message);

    let request = EchoRequest { message: "hello".into(), ..Default::default() };
    let response = echo.echo_with(Request::new(request).with_attachment("bytes beside it")).await?;
    println!("attachment: {}", String::from_utf8_lossy(&response.attachment));

    // The same service as JSON, as a browser or curl would call it.
    let http = EchoServiceClient::new(Client::new(&format!("http://{}", server.address()))?);
    let reply = http.echo(EchoRequest { message: "你好".into(), ..Default::default() }).await?;
    println!("HTTP and JSON: {}", reply.message);
    Ok(())
}
