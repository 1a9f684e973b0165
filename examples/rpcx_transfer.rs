//! Byte transfers as in rpcx: a bidirectional stream, an upload, a download.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use polyrpc::transfer::{ByteStream, Files, Request, Streams, Upload};
use polyrpc::{Client, Result, Server, Status};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// Answers every line with its length.
async fn measure(mut stream: ByteStream, request: Request) -> Result<()> {
    println!("{} wants its lines measured", request.metadata.get("name").map_or("somebody", String::as_str));
    let (from, mut to) = tokio::io::split(&mut stream);
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        to.write_all(format!("{}\n", line.len()).as_bytes()).await?;
    }
    Ok(())
}

/// Stores the last uploaded file, and serves it.
fn shelf() -> Files {
    let last = Arc::new(Mutex::new(None));
    let kept = last.clone();
    Files::new()
        .max_size(1 << 20)
        .on_upload(move |request: Request, mut upload: Upload| {
            let kept = kept.clone();
            async move {
                let mut content = Vec::new();
                upload.read_to_end(&mut content).await?;
                println!("kept {}, {} bytes", request.name, content.len());
                *kept.lock().expect("the lock is not poisoned") = Some((request.name, content));
                Ok(())
            }
        })
        .on_download(move |request: Request| {
            let last = last.lock().expect("the lock is not poisoned").clone();
            async move {
                match last {
                    Some((name, content)) if name == request.name => Ok(std::io::Cursor::new(content)),
                    _ => Err(Status::not_found("no such file").into()),
                }
            }
        })
}

#[tokio::main]
async fn main() -> Result<()> {
    let server =
        Server::new().streams(Streams::new(measure)).files(shelf()).bind("127.0.0.1:0").await?.start();
    let client = Client::new(&format!("rpcx://{}", server.address()))?;

    let name = HashMap::from([("name".to_owned(), "Ann".to_owned())]);
    let mut stream = client.byte_stream(&name).await?;
    stream.write_all(b"one\nthree\n").await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    println!("they have {}", answer.trim_end().replace('\n', " and "));

    let content = &b"the content"[..];
    client.send_file("a.txt", content.len() as u64, &HashMap::new(), content).await?;
    let mut fetched = Vec::new();
    client.download_file("a.txt", &HashMap::new(), &mut fetched).await?;
    println!("fetched: {}", String::from_utf8_lossy(&fetched));
    if let Err(error) = client.download_file("b.txt", &HashMap::new(), &mut fetched).await {
        println!("b.txt: {error}");
    }
    Ok(())
}
