//! A stream beside a call: brpc's streaming_rpc.

use polyrpc::client::Request;
use polyrpc::codec::{Raw, Serde};
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Client, Context, Result, Server, Streaming};

#[polyrpc::service]
trait Echo {
    /// Answers, and from then on echoes what comes on the stream beside the call.
    async fn open(&self, cx: &mut Context, greeting: String) -> Result<String>;
}

struct Echoing;

impl Echo for Echoing {
    async fn open(&self, cx: &mut Context, greeting: String) -> Result<String> {
        let (incoming, sender) = cx.accept_stream::<Raw, String>(StreamOptions::default())?;
        // The stream begins with the answer and outlives it.
        tokio::spawn(echo(incoming, sender));
        Ok(format!("{greeting} to you"))
    }
}

/// When it has dropped both ends, the stream is closed.
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
    // Ready when the server knows. Dropping the stream ends it too, and waits for nobody.
    stream.close().await?;
    Ok(())
}
