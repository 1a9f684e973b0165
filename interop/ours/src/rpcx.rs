use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use polyrpc::client::{ConnectionMode, Request};
use polyrpc::{Client, Code, Push, Result};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::{Outcome, ensure, reported};

/// As the Go server declares them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Args {
    a: i32,
    b: i32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Reply {
    c: i32,
}

#[polyrpc::service(name = "Arith")]
pub(crate) trait Arith {
    async fn mul(&self, args: Args) -> Result<Reply>;
    async fn push(&self, args: Args) -> Result<Reply>;
    async fn sleep(&self, args: Args) -> Result<Reply>;
}

pub(crate) async fn cases(url: &str) -> Vec<(&'static str, Outcome)> {
    vec![
        ("heartbeat", heartbeat(url).await),
        ("push", push(url).await),
        ("100_calls_on_one_connection", many_calls(url, ConnectionMode::Shared).await),
        ("100_calls_on_pooled_connections", many_calls(url, ConnectionMode::Pooled).await),
        ("a_late_reply_reaches_nobody", late_reply(url).await),
        ("blocking", blocking(url)),
        ("stream", stream(url).await),
        ("stream_1mib", long_stream(url).await),
        ("stream_refused", refused_stream(url).await),
        ("send_file", send_file(url).await),
        ("download_file", download_file(url).await),
        ("reflection", reflection(url).await),
    ]
}

/// While a call takes many heartbeat intervals, the server answers each of them: else the client would close the
/// connection and the call would fail with it.
async fn heartbeat(url: &str) -> Outcome {
    match heartbeat_each(Duration::from_millis(50), 600, url).await {
        Ok(()) => Ok(()),
        // On a busy machine an answer may take longer than a short interval.
        Err(_) => heartbeat_each(Duration::from_secs(3), 7000, url).await,
    }
}

async fn heartbeat_each(interval: Duration, millis: i32, url: &str) -> Outcome {
    let client = Client::builder(url).keepalive(interval).build().map_err(reported)?;
    let arith = ArithClient::new(client);
    let reply = arith.sleep(Args { a: millis, b: 0 }).await.map_err(reported)?;
    ensure(reply.c == millis, || format!("got {reply:?}"))
}

async fn push(url: &str) -> Outcome {
    let (queue, mut pushed) = mpsc::unbounded_channel::<Push>();
    let queue = Mutex::new(queue);
    let on_push = move |push| {
        let queue = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Nobody listens any more once the case has failed.
        let _ = queue.send(push);
    };
    let client = Client::builder(url).on_push(on_push).build().map_err(reported)?;
    let reply = ArithClient::new(client).push(Args { a: 7, b: 8 }).await.map_err(reported)?;
    ensure(reply.c == 1, || format!("got {reply:?}"))?;
    let waited = tokio::time::timeout(Duration::from_secs(60), pushed.recv()).await;
    let push = waited.ok().flatten().ok_or("nothing was pushed")?;
    let right = push.service == "push_path"
        && push.method == "push_method"
        && push.metadata.get("pk") == Some("pv")
        && push.body == "abcde";
    ensure(right, || format!("got {push:?}"))
}

async fn many_calls(url: &str, kind: ConnectionMode) -> Outcome {
    let client = Client::builder(url).connection_mode(kind).build().map_err(reported)?;
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let arith = ArithClient::new(client.clone());
            tokio::spawn(async move { arith.mul(Args { a: n, b: n }).await.map(|reply| reply.c == n * n) })
        })
        .collect();
    for call in calls {
        let right = call.await.map_err(|error| error.to_string())?.map_err(reported)?;
        ensure(right, || "a caller got another's reply".to_owned())?;
    }
    Ok(())
}

/// A call that was given up is answered all the same; its reply must not reach a later call.
async fn late_reply(url: &str) -> Outcome {
    let arith = ArithClient::new(Client::new(url).map_err(reported)?);
    // On a busy machine the reply may come before the time-out is noticed: then the next one comes later.
    for millis in [100, 3000] {
        let given_up = Request::new(Args { a: millis, b: 0 }).with_timeout(Duration::from_millis(20));
        let Err(error) = arith.sleep_with(given_up).await else { continue };
        ensure(error.code() == Code::DeadlineExceeded, || reported(error))?;
        for n in 0..millis / 5 {
            let reply = arith.sleep(Args { a: 10, b: n }).await.map_err(reported)?;
            ensure(reply.c == 10, || format!("got {reply:?}"))?;
        }
        return Ok(());
    }
    Err("the call did not time out".to_owned())
}

async fn stream(url: &str) -> Outcome {
    let client = Client::new(url).map_err(reported)?;
    let mut stream = client.byte_stream(&HashMap::new()).await.map_err(reported)?;
    let mut answer = String::new();
    let talk = async {
        stream.write_all(b"hello").await?;
        stream.read_to_string(&mut answer).await
    };
    talk.await.map_err(|error| error.to_string())?;
    ensure(answer == "echo hello", || format!("got {answer}"))
}

async fn long_stream(url: &str) -> Outcome {
    let client = Client::new(url).map_err(reported)?;
    let echo = HashMap::from([("echo".to_owned(), "yes".to_owned())]);
    let (mut from, mut to) = tokio::io::split(client.byte_stream(&echo).await.map_err(reported)?);
    let content = b"0123456789abcdef".repeat(1 << 16);
    let mut echoed = vec![0; content.len()];
    let both = tokio::join!(to.write_all(&content), from.read_exact(&mut echoed));
    both.0.and(both.1).map_err(|error| error.to_string())?;
    ensure(echoed == content, || "the bytes came back changed".to_owned())
}

async fn refused_stream(url: &str) -> Outcome {
    let client = Client::new(url).map_err(reported)?;
    let refuse = HashMap::from([("refuse".to_owned(), "yes".to_owned())]);
    let error = client.byte_stream(&refuse).await.err().ok_or("it was not refused")?;
    ensure(error.message() == "server refused the connection", || reported(error))
}

/// Fetches what was sent, too.
async fn send_file(url: &str) -> Outcome {
    let client = Client::new(url).map_err(reported)?;
    let content = [1, 2, 3, 0, 255].repeat(50_000);
    let size = content.len() as u64;
    client.send_file("content.bin", size, &HashMap::new(), &content[..]).await.map_err(reported)?;
    let mut kept = Vec::new();
    client.download_file("last", &HashMap::new(), &mut kept).await.map_err(reported)?;
    ensure(kept == content, || format!("{} bytes were kept", kept.len()))
}

async fn download_file(url: &str) -> Outcome {
    let client = Client::new(url).map_err(reported)?;
    let mut content = Vec::new();
    client.download_file("dl.txt", &HashMap::new(), &mut content).await.map_err(reported)?;
    ensure(content == b"file:dl.txt", || format!("got {content:?}"))
}

async fn reflection(url: &str) -> Outcome {
    let client = Client::new(url).map_err(reported)?;
    let text: String = client.call("Reflection/GetService", "Arith").await.map_err(reported)?;
    ensure(text.contains("type (s *Arith) Mul(ctx context.Context, arg *Args, reply *Reply)"), || text)
}

fn blocking(url: &str) -> Outcome {
    let arith = ArithBlockingClient::new(polyrpc::blocking::Client::new(url).map_err(reported)?);
    for n in 0..100 {
        let reply = arith.mul(Args { a: n, b: 2 }).map_err(reported)?;
        ensure(reply.c == 2 * n, || format!("got {reply:?}"))?;
    }
    Ok(())
}
