//! Features of rest_rpc: functions by name, structs, asynchronous calls, topics.

use polyrpc::rest_rpc::Version;
use polyrpc::server::Listen;
use polyrpc::{Client, Result, Server, Status};
use serde::{Deserialize, Serialize};

/// `MSGPACK_DEFINE(id, name, age)` in C++.
#[derive(Debug, Serialize, Deserialize)]
struct Person {
    id: i32,
    name: String,
    age: i32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new()
        .function("add", |a: i32, b: i32| async move { a + b })
        .function("get_person", |person: Person| async move { Person { age: person.age + 1, ..person } })
        .function("divide", divide)
        // Clients can publish too, with the functions `publish` and `publish_by_token`.
        .allow_publish();
    let publisher = server.publisher();

    // v0.20 and v0.21 are detected by the first bytes of a connection; an older version needs its own port.
    let server = server.bind("127.0.0.1:0").await?;
    let server = server.and(Listen::on("127.0.0.1:0").rest_rpc(Version::V0_11)).await?.start();
    let addresses = server.addresses();

    for url in [
        format!("rest-rpc://{}?version=0.11", addresses[1]),
        format!("rest-rpc://{}?version=0.20", addresses[0]),
        format!("rest-rpc://{}?version=0.21", addresses[0]),
    ] {
        let client = Client::new(&url)?;

        // A call is a future: both are sent before either is awaited.
        let sum = client.call::<i32>("add", &(1, 2));
        let tom = Person { id: 1, name: "tom".to_owned(), age: 20 };
        let person = client.call::<Person>("get_person", &tom);
        let (sum, person) = tokio::join!(sum, person);
        println!("1 + 2 = {}, {:?}", sum?, person?);

        let failure = client.call::<i32>("divide", &(1, 0)).await.unwrap_err();
        println!("1 / 0: {}", failure.message());

        // A separate topic: the server may still count the last client, which has just disconnected.
        let topic = format!("news of {url}");
        let mut news = client.subscribe::<String>(&topic, "").await?;
        // A subscription is not acknowledged, so the first messages may be lost.
        while publisher.publish(&topic, "", "rest_rpc in Rust")? == 0 {
            tokio::task::yield_now().await;
        }
        println!("news: {}", news.message().await?.unwrap_or_default());
    }
    Ok(())
}

async fn divide(a: i32, b: i32) -> Result<i32> {
    a.checked_div(b).ok_or_else(|| Status::invalid_argument("division by zero").into())
}
