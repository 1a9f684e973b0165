use std::collections::BTreeMap;
use std::time::Duration;

use polyrpc::client::{ConnectionMode, Request};
use polyrpc::{Client, Code, Result};
use serde::{Deserialize, Serialize};

use crate::{Outcome, ensure, reported};

/// As the Go server declares them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Args {
    a: i64,
    b: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Reply {
    // What is zero may be left out.
    #[serde(default)]
    c: i64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Point {
    x: i32,
    y: i32,
}

/// Lists and maps may be missing, as Go's are when they are nil.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Shape {
    name: String,
    visible: bool,
    sides: u16,
    area: f64,
    scale: f32,
    offset: i64,
    origin: Point,
    corners: Option<Vec<Point>>,
    tags: Option<Vec<String>>,
    grid: Option<Vec<Vec<i64>>>,
    labels: Option<BTreeMap<String, String>>,
    named: Option<BTreeMap<String, Point>>,
    center: Option<Point>,
    absent: Option<Point>,
    parent: Option<Box<Self>>,
}

#[polyrpc::service(name = "Arith")]
pub(crate) trait Arith {
    async fn mul(&self, args: Args) -> Result<Reply>;
    async fn error(&self, args: Args) -> Result<Reply>;
    async fn sleep(&self, args: Args) -> Result<Reply>;
}

#[polyrpc::service(name = "Shapes")]
pub(crate) trait Shapes {
    async fn echo(&self, shape: Shape) -> Result<Shape>;
}

pub(crate) async fn cases(url: &str) -> Vec<(&'static str, Outcome)> {
    vec![
        ("nested_shape", nested_shape(url).await),
        ("a_failure_ends_its_call_alone", failures(url).await),
        ("100_calls_on_one_connection", many_calls(url, ConnectionMode::Shared).await),
        ("100_calls_on_pooled_connections", many_calls(url, ConnectionMode::Pooled).await),
        ("a_late_reply_reaches_nobody", late_reply(url).await),
        ("large_text", large_text(url).await),
        ("blocking", blocking(url)),
    ]
}

fn triangle() -> Shape {
    let point = |x, y| Point { x, y };
    let text = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    let parent = Shape { name: "parent".into(), labels: text(&[("only", "this")]), ..Shape::default() };
    Shape {
        name: "triangle △".into(),
        visible: true,
        sides: 3,
        area: 10.5,
        scale: 0.25,
        offset: -1 << 40,
        origin: point(1, -2),
        corners: Some(vec![point(0, 0), point(3, 0), point(0, 7)]),
        tags: Some(vec!["sharp".into(), String::new(), "flat".into()]),
        grid: Some(vec![vec![1, 2], vec![3]]),
        labels: text(&[("a", "1"), ("b", "")]),
        named: Some(BTreeMap::from([("p".to_owned(), point(5, 6))])),
        center: Some(point(1, 2)),
        absent: None,
        parent: Some(Box::new(parent)),
    }
}

async fn nested_shape(url: &str) -> Outcome {
    let shapes = ShapesClient::new(Client::new(url).map_err(reported)?);
    for sent in [triangle(), Shape::default(), triangle()] {
        let got = shapes.echo(sent.clone()).await.map_err(reported)?;
        ensure(got == sent, || format!("sent {sent:?}, got {got:?}"))?;
    }
    Ok(())
}

async fn failures(url: &str) -> Outcome {
    let arith = ArithClient::new(Client::new(url).map_err(reported)?);
    for n in 0..3 {
        let error = arith.error(Args { a: 1, b: 2 }).await.err().ok_or("a call that must fail succeeded")?;
        ensure(error.message() == "boom", || reported(error))?;
        let reply = arith.mul(Args { a: n, b: -n }).await.map_err(reported)?;
        ensure(reply.c == -n * n, || format!("got {reply:?}"))?;
    }
    Ok(())
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

async fn large_text(url: &str) -> Outcome {
    let shapes = ShapesClient::new(Client::new(url).map_err(reported)?);
    let sent = Shape { name: "0123456789abcdef".repeat(1 << 16), ..Shape::default() };
    let got = shapes.echo(sent.clone()).await.map_err(reported)?;
    ensure(got == sent, || format!("{} bytes came back of {}", got.name.len(), sent.name.len()))
}

fn blocking(url: &str) -> Outcome {
    let arith = ArithBlockingClient::new(polyrpc::blocking::Client::new(url).map_err(reported)?);
    for n in 0..100 {
        let reply = arith.mul(Args { a: n, b: 2 }).map_err(reported)?;
        ensure(reply.c == 2 * n, || format!("got {reply:?}"))?;
    }
    Ok(())
}
