//! A server that registers itself and a client that discovers it. In rpcx's examples these are `registry/etcd`,
//! `registry/zookeeper`, `registry/consul` and the others.
//!
//! Without an argument the registry is in this process. With one it is a real one, shared with rpcx servers and clients
//! find each other too: `etcd://127.0.0.1:2379/rpcx_test` (the other registries are features of `polyrpc-discovery`).
//! A client that is no example needs one line: `Client::new("rpcx+etcd://127.0.0.1:2379/rpcx_test/Arith")`, once
//! `polyrpc_discovery::install()` was called.

use std::time::Duration;

use polyrpc::discovery::{Attributes, Discover, InProcess, Registrar};
use polyrpc::server::{Registration, RegistrationEvent};
use polyrpc::{Client, Result, Server};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<()> {
    let (registry, found) = open(std::env::args().nth(1))?;
    let (entered, mut known) = watch::channel(false);
    let registration = Registration::new()
        .attributes(Attributes::new().with("weight", "5"))
        .publish_rates()
        .on_event(move |event| {
            entered.send_replace(matches!(event, RegistrationEvent::Registered(_)));
        });
    let server = Server::new()
        .function("Arith/Mul", |a: i64, b: i64| async move { a * b })
        .register_in(registry, registration)
        .bind("127.0.0.1:0")
        .await?
        .start();

    // It is registered as soon as it runs. An earlier lookup finds no server.
    known.wait_for(|known| *known).await.expect("the server runs");

    let client = Client::builder("rpcx://Arith").discover(found).build()?;
    let product: i64 = client.call("Arith/Mul", &(7, 8)).await?;
    println!("7 * 8 = {product}");
    for endpoint in client.endpoints() {
        println!("found: weight {}", endpoint.instance.attributes.weight());
    }

    // Its attributes may change while it runs.
    server.registration().set("weight", "9");

    // It is deregistered before it stops.
    server.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

type Open = (Box<dyn Registrar>, Box<dyn Discover>);

fn open(url: Option<String>) -> Result<Open> {
    match url {
        None => {
            let registry = InProcess::new();
            Ok((Box::new(registry.clone()), Box::new(registry.discover("Arith"))))
        }
        Some(url) => {
            Ok((polyrpc_discovery::registrar(&url)?, polyrpc_discovery::discover(&format!("{url}/Arith"))?))
        }
    }
}
