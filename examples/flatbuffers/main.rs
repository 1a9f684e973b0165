//! A service from a `.fbs`, whose messages are read where they were received: the benchmark with which FlatBuffers were
//! proposed to brpc.

// build.rs wrote it from benchmark.fbs.
#[allow(warnings)]
mod test {
    polyrpc::include_proto!("test");
}

use polyrpc::client::Request;
use polyrpc::flatbuffers::Message;
use polyrpc::{Client, Context, Result, Server};

use crate::test::{
    BenchmarkRequest, BenchmarkRequestArgs, BenchmarkResponse, BenchmarkResponseArgs, BenchmarkService,
    BenchmarkServiceClient, BenchmarkServiceServer,
};

struct Echo;

impl BenchmarkService for Echo {
    async fn test(
        &self,
        cx: &mut Context,
        request: Message<BenchmarkRequest>,
    ) -> Result<Message<BenchmarkResponse>> {
        // A view into the receive buffer: nothing is copied until the reply is written.
        let request = request.root();
        if request.echo_attachment() != 0 {
            cx.reply().attachment = cx.attachment().clone();
        }
        let response = BenchmarkResponseArgs {
            request_id: request.request_id(),
            message: request.message(),
            ..Default::default()
        };
        Ok(response.into())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new().service(BenchmarkServiceServer::new(Echo)).bind("127.0.0.1:0").await?.start();
    let request = BenchmarkRequestArgs { request_id: 4, message: Some("hello".into()), ..Default::default() };

    for (scheme, parameters) in [("fb-rpc", ""), ("fb-rpc", "?version=brpc-two-dots"), ("grpc", "")] {
        let client = Client::new(&format!("{scheme}://{}{parameters}", server.address()))?;
        let reply = BenchmarkServiceClient::new(client).test(request.into()).await?;
        let (id, message) = (reply.root().request_id(), reply.root().message().unwrap_or_default());
        println!("{scheme}{parameters}: {id}: {message}");
    }

    let benchmark = BenchmarkServiceClient::new(Client::new(&format!("fb-rpc://{}", server.address()))?);
    let request = BenchmarkRequestArgs { echo_attachment: 1, ..request };
    let response =
        benchmark.test_with(Request::new(request.into()).with_attachment("bytes beside it")).await?;
    println!("attachment: {}", String::from_utf8_lossy(&response.attachment));
    Ok(())
}
