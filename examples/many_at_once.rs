//! One call to three servers concurrently. In rpcx's examples these are `broadcast` and `fork`, in brpc's
//! `partition_echo_c++` and `selective_echo_c++`.

use polyrpc::client::combo::{Partition, Selective, fold};
use polyrpc::codec::Serde;
use polyrpc::server::ServerHandle;
use polyrpc::{Client, Result, Server, Status};

#[tokio::main]
async fn main() -> Result<()> {
    let servers = [serve(&["ant"]).await?, serve(&["bee", "cat"]).await?, serve(&["dog"]).await?];
    let addresses = servers.each_ref().map(|server| server.address().to_string());
    let client = Client::new(&format!("rpcx+list://{}", addresses.join(",")))?;

    // Succeeds if all servers succeed.
    let () = client.broadcast().call("Words/Reload", &()).await?;
    println!("all have reloaded");

    // The first success.
    let found: String = client.fork().call("Words/Find", &"c").await?;
    println!("a word with c: {found}");

    // The result of each server.
    let receipts =
        client.inform(|server| async move { server.call::<usize>("Words/Count", &()).await }).await?;
    let mut counts: Vec<usize> = receipts.into_iter().filter_map(|(_, reply)| reply.ok()).collect();
    counts.sort_unstable();
    println!("words of each: {counts:?}");

    // One server for each of three partitions, and one merged reply.
    let [first, second, third] = &addresses;
    let url = format!("rpcx+list://{first} 0/3,{second} 1/3,{third} 2/3");
    let words = Partition::new(3, move || Ok(Client::builder(&url)))
        .fail_limit(1)
        .merge(fold::<Serde, usize>(|all, part| all + part))
        .build()?;
    let count: usize = words.call("Words/Count", &()).await?;
    println!("words of all: {count}");

    // One of several clients, each with its own servers.
    let (near, far) = (format!("rpcx://{first}"), format!("rpcx+list://{second},{third}"));
    let selective = Selective::builder()
        .sub_channel("near", Client::new(&near)?)
        .sub_channel("far", Client::new(&far)?)
        .build()?;
    let () = selective.client().call("Words/Reload", &()).await?;
    println!("one of {:?} has reloaded", selective.names());
    Ok(())
}

async fn serve(words: &'static [&'static str]) -> Result<ServerHandle> {
    let find = move |start: String| async move {
        let found = words.iter().find(|word| word.starts_with(&*start));
        found.map(ToString::to_string).ok_or_else(|| Status::not_found("no such word"))
    };
    let server = Server::new()
        .function("Words/Reload", || async {})
        .function("Words/Count", move || async move { words.len() })
        .function("Words/Find", find);
    let bound = server.bind("127.0.0.1:0").await;
    Ok(bound.map_err(|error| Status::unavailable(error.to_string()))?.start())
}
