//! Three servers of one service: load balancing, and failover when one dies. In rpcx's examples these are
//! `102basic/multipleservers` with `RandomSelect` and `RoundRobin`, and `failmode/failover`.

use std::collections::BTreeMap;
use std::time::Duration;

use polyrpc::client::FailMode;
use polyrpc::client::balance::Policy;
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Result, Server};

#[tokio::main]
async fn main() -> Result<()> {
    let mut servers = Vec::new();
    for name in ["first", "second", "third"] {
        servers.push(serve(name).await?);
    }
    let addresses: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let url = format!("rpcx+list://{}", addresses.join(","));

    let random = Client::builder(&url).balance(Policy::random()).build()?;
    println!("random: {} of 3 servers have answered", ask(&random).await?.len());

    let in_turn = Client::builder(&url).balance(Policy::round_robin()).build()?;
    println!("in turn: {:?}", ask(&in_turn).await?);

    // A dead server fails no call: each is retried elsewhere, within the retry budget.
    let failover = Client::builder(&url).fail_mode(FailMode::Failover).retries(2).idempotent().build()?;
    ask(&failover).await?;
    drop(servers.remove(0));
    println!("after the first has died: {} calls were answered", ask(&failover).await?.values().sum::<u32>());
    Ok(())
}

async fn serve(name: &'static str) -> Result<ServerHandle> {
    let server = Server::new().function("Names/Tell", move || async move { name.to_owned() });
    let bound = server.bind("127.0.0.1:0").await;
    Ok(bound.map_err(|error| polyrpc::Status::unavailable(error.to_string()))?.start())
}

/// Makes thirty calls, and prints how many each server answered.
async fn ask(client: &Client) -> Result<BTreeMap<String, u32>> {
    let mut answered = BTreeMap::new();
    for _ in 0..30 {
        let name: String = client.call("Names/Tell", &()).await?;
        *answered.entry(name).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(answered)
}
