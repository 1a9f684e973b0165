use std::sync::Mutex;
use std::time::Duration;

use polyrpc::client::{Kind, Request};
use polyrpc::{Client, Code, Push, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{Outcome, ensure, told};

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
        ("100_calls_on_one_connection", many_calls(url, Kind::Single).await),
        ("100_calls_on_pooled_connections", many_calls(url, Kind::Pooled).await),
        ("a_late_reply_reaches_nobody", late_reply(url).await),
        ("blocking", blocking(url)),
    ]
}

/// While a call takes many heartbeat intervals, the server answers each of them: else the client would close the
/// connection and the call would fail with it.
async fn heartbeat(url: &str) -> Outcome {
    let client = Client::builder(url).keepalive(Duration::from_millis(50)).build().map_err(told)?;
    let arith = ArithClient::new(client);
    let reply = arith.sleep(Args { a: 600, b: 0 }).await.map_err(told)?;
    ensure(reply.c == 600, || format!("got {reply:?}"))
}

async fn push(url: &str) -> Outcome {
    let (queue, mut pushed) = mpsc::unbounded_channel::<Push>();
    let queue = Mutex::new(queue);
    let on_push = move |push| {
        let queue = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Nobody listens any more once the case has failed.
        let _ = queue.send(push);
    };
    let client = Client::builder(url).on_push(on_push).build().map_err(told)?;
    let reply = ArithClient::new(client).push(Args { a: 7, b: 8 }).await.map_err(told)?;
    ensure(reply.c == 1, || format!("got {reply:?}"))?;
    let waited = tokio::time::timeout(Duration::from_secs(3), pushed.recv()).await;
    let push = waited.ok().flatten().ok_or("nothing was pushed")?;
    let right = push.service == "push_path"
        && push.method == "push_method"
        && push.metadata.get("pk") == Some("pv")
        && push.body == "abcde";
    ensure(right, || format!("got {push:?}"))
}

async fn many_calls(url: &str, kind: Kind) -> Outcome {
    let client = Client::builder(url).kind(kind).build().map_err(told)?;
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let arith = ArithClient::new(client.clone());
            tokio::spawn(async move { arith.mul(Args { a: n, b: n }).await.map(|reply| reply.c == n * n) })
        })
        .collect();
    for call in calls {
        let right = call.await.map_err(|error| error.to_string())?.map_err(told)?;
        ensure(right, || "a caller got another's reply".to_owned())?;
    }
    Ok(())
}

/// A call that was given up is answered all the same; its reply must not reach a later call.
async fn late_reply(url: &str) -> Outcome {
    let arith = ArithClient::new(Client::new(url).map_err(told)?);
    let given_up = Request::new(Args { a: 100, b: 0 }).with_timeout(Duration::from_millis(20));
    let error = arith.sleep_with(given_up).await.err().ok_or("the call did not time out")?;
    ensure(error.code() == Code::DeadlineExceeded, || told(error))?;
    for n in 0..20 {
        let reply = arith.sleep(Args { a: 10, b: n }).await.map_err(told)?;
        ensure(reply.c == 10, || format!("got {reply:?}"))?;
    }
    Ok(())
}

fn blocking(url: &str) -> Outcome {
    let arith = ArithBlockingClient::new(polyrpc::blocking::Client::new(url).map_err(told)?);
    for n in 0..100 {
        let reply = arith.mul(Args { a: n, b: 2 }).map_err(told)?;
        ensure(reply.c == 2 * n, || format!("got {reply:?}"))?;
    }
    Ok(())
}
