//! The server pushes messages to the client: rpcx's bidirectional mode.

use polyrpc::{Client, Context, Metadata, Push, Result, Server};
use tokio::sync::mpsc;

#[polyrpc::service]
trait News {
    /// Pushes news to the caller from now on; returns their number.
    async fn subscribe(&self, cx: &mut Context, topic: String) -> Result<u32>;
}

struct Agency;

impl News for Agency {
    async fn subscribe(&self, cx: &mut Context, topic: String) -> Result<u32> {
        // It outlives the call and ends with the connection.
        let pusher = cx.pusher();
        tokio::spawn(async move {
            for n in 1..=3 {
                let push = Push {
                    service: "News".into(),
                    method: topic.clone(),
                    metadata: Metadata::from_iter([("n", n.to_string())]),
                    body: format!("news {n}").into(),
                };
                // The client has disconnected.
                if pusher.push(push).is_err() {
                    return;
                }
            }
        });
        Ok(3)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new().service(NewsServer::new(Agency)).bind("127.0.0.1:0").await?.start();

    let (arrived, mut news) = mpsc::unbounded_channel();
    let client = Client::builder(&format!("rpcx://{}", server.address()))
        // It runs on the connection's task and must not block, so it only forwards.
        .on_push(move |push| drop(arrived.send(push)))
        .build()?;

    // Pushes arrive as long as the client exists.
    let stub = NewsClient::new(client);
    let count = stub.subscribe("weather".into()).await?;
    for _ in 0..count {
        if let Some(push) = news.recv().await {
            let text = String::from_utf8_lossy(&push.body);
            println!("{}/{} {}: {text}", push.service, push.method, push.metadata.get("n").unwrap_or("?"));
        }
    }
    Ok(())
}
