//! A stream attached to a call: brpc's streaming_rpc.

use polyrpc::client::Request;
use polyrpc::codec::{Raw, Serde};
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Client, Context, Result, Server, Streaming};

#[polyrpc::service]
trait Echo {
    /// Replies, and from then on echoes the messages of the attached stream.
    async fn open(&self, cx: &mut Context, greeting: String) -> Result<String>;
}

struct Echoing;

impl Echo for Echoing {
    async fn open(&self, cx: &mut Context, greeting: String) -> Result<String> {
        let (incoming, sender) = cx.accept_stream::<Raw, String>(StreamOptions::default())?;
        // The stream starts with the reply and outlives it.
        tokio::spawn(echo(incoming, sender));
        Ok(format!("{greeting} to you"))
    }
}

/// The stream is closed when both halves are dropped.
async fn echo(mut incoming: Streaming<String>, sender: Sender<String>) -> Result<()> {
    while let Some(message) = incoming.message().await? {
        sender.send(format!("you said {message}")).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::new().service(EchoServer::new(Echoing)).bind("127.0.0.1:0").await?.start();
    let client = Client::new(&format!("baidu-std://{}", server.address()))?;

    let request = Request::new("hello".to_owned());
    let opened = client.open_stream::<Serde, String, String>("Echo/Open", request, StreamOptions::default());
    let (response, mut stream) = opened.await?;
    println!("{}", response.message);
    for word in ["one", "two"] {
        stream.send(word).await?;
        if let Some(message) = stream.next().await? {
            println!("{}", String::from_utf8_lossy(&message.bytes));
        }
    }
    // Completes when the server has been notified. Dropping the stream closes it too, without waiting.
    stream.close().await?;
    Ok(())
}
