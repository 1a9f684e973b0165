//! A proxy that forwards every call to a server with unknown services: unary calls and streams, over each protocol.

use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::{Client, Protocol, Result, Server, Streaming};

#[polyrpc::service]
trait Numbers {
    async fn add(&self, a: i64, b: i64) -> Result<i64>;
    async fn double(&self, numbers: Streaming<i64>) -> Result<Streaming<i64>>;
}

struct Here;

impl Numbers for Here {
    async fn add(&self, a: i64, b: i64) -> Result<i64> {
        Ok(a + b)
    }

    async fn double(&self, mut numbers: Streaming<i64>) -> Result<Streaming<i64>> {
        Ok(Streaming::produce(|sender| async move {
            while let Some(n) = numbers.message().await? {
                sender.send(2 * n).await?;
            }
            Ok(())
        }))
    }
}

/// Forwards a call with the client of its protocol. `call.forward(&backend)` does the same, for attached streams too.
async fn forward(mut call: RawRequest, backend: Client) -> Result<RawResponse> {
    let (target, options) = (call.target(), call.options());
    if call.is_streamed() {
        // gRPC: without a schema a unary call looks like a stream.
        let upstream = backend.open_raw(&target, options, call.format()).await?;
        return Ok(RawResponse::relay(call.messages(), upstream));
    }
    let response = backend.call_raw(&target, call.body().await?, options).await?;
    Ok(response.into())
}

/// A server without services, in front of another.
fn proxy(address: &str) -> Result<Server> {
    let client = |protocol: Protocol| Client::new(&format!("{}://{address}", protocol.as_str()));
    let backends = Protocol::ALL.map(|protocol| Ok((protocol, client(protocol)?)));
    let backends = backends.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Server::new().fallback(move |call: RawRequest| {
        let same = backends.iter().find(|(protocol, _)| *protocol == call.protocol());
        let backend = same.expect("there is one for each protocol").1.clone();
        forward(call, backend)
    }))
}

#[tokio::main]
async fn main() -> Result<()> {
    let backend = Server::new().service(NumbersServer::new(Here)).bind("127.0.0.1:0").await?.start();
    let proxy = proxy(&backend.address().to_string())?.bind("127.0.0.1:0").await?.start();

    for protocol in ["baidu-std", "rpcx", "grpc", "http", "rest-rpc", "net-rpc"] {
        let client = Client::new(&format!("{protocol}://{}", proxy.address()))?;
        let sum = NumbersClient::new(client).add(1, 2).await;
        println!("{protocol}: {}", sum?);
    }
    let numbers = NumbersClient::new(Client::new(&format!("grpc://{}", proxy.address()))?);
    let mut doubled = numbers.double(Streaming::from_iter([1, 2, 3])).await?;
    while let Some(n) = doubled.message().await? {
        println!("grpc, a stream: {n}");
    }
    Ok(())
}
