//! Calls without a runtime: the calling thread writes the request and reads the reply itself.

use polyrpc::server::BoundServer;
use polyrpc::{Result, Server, blocking};

fn main() -> Result<()> {
    // Only the server needs a runtime. Usually it is in another process.
    let runtime = tokio::runtime::Runtime::new()?;
    let server = Server::new().function("add", |a: i64, b: i64| async move { a + b });
    let server = runtime.block_on(async { server.bind("127.0.0.1:0").await.map(BoundServer::start) })?;

    let client = blocking::Client::new(&format!("baidu-std://{}", server.address()))?;
    let sum: i64 = client.call("add", &(1, 2))?;
    println!("1 + 2 = {sum}");

    // Threads share a client; each call takes its own connection from the client's pool.
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|n| {
                let client = &client;
                scope.spawn(move || client.call::<i64>("add", &(n, n)))
            })
            .collect();
        for (n, caller) in callers.into_iter().enumerate() {
            println!("{n} + {n} = {}", caller.join().expect("the thread does not panic")?);
        }
        Ok(())
    })
}
