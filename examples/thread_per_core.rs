//! One thread with its own runtime per core: connections are distributed and stay on their core.

use std::collections::BTreeSet;

use polyrpc::client::ConnectionMode;
use polyrpc::{Client, Cores, Result, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // `Cores::all()` starts one per core of the machine.
    let server = Server::new()
        .function("thread", || async { std::thread::current().name().unwrap_or("?").to_owned() })
        .executor(Cores::start(2)?)
        .bind("127.0.0.1:0")
        .await?
        .start();

    let mut threads = BTreeSet::new();
    for _ in 0..4 {
        // One connection per call, to see their distribution.
        let client = Client::builder(&format!("rpcx://{}", server.address()))
            .connection_mode(ConnectionMode::Short)
            .build()?;
        threads.insert(client.call::<String>("thread", &()).await?);
    }
    println!("connections were served by {threads:?}");
    Ok(())
}
