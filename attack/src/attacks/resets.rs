//! HTTP/2 streams reset legitimately and abusively; long metadata.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::{Attack, AttackContext, End, Outcome, attack};
use crate::raw::h2::grpc_message;

pub(super) const ATTACKS: [Attack; 2] = [
    attack(
        "watches_cancelled",
        "7",
        "one connection opens and cancels 2,500 watches at 50/s (1,200 at 400/s in the short form)",
        End::Brief,
        |context| Box::pin(cancel_watches(context)),
    ),
    attack(
        "long_metadata",
        "8",
        "10 kB, 16 kB, 70 kB, 230 and 500 entries of metadata on single streams of one connection",
        End::Brief,
        |context| Box::pin(metadata(context)),
    ),
];

/// Converts an HTTP/2 error to an I/O error.
fn to_io_error(error: h2::Error) -> io::Error {
    io::Error::other(error)
}

/// A well-behaved HTTP/2 connection.
async fn connect(context: &AttackContext) -> io::Result<SendRequest<Bytes>> {
    let socket = TcpStream::connect(&context.target.open).await?;
    let (sender, connection) = h2::client::handshake(socket).await.map_err(to_io_error)?;
    tokio::spawn(connection);
    Ok(sender)
}

fn request(path: &str) -> http::request::Builder {
    http::Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

async fn cancel_watches(context: AttackContext) -> io::Result<Outcome> {
    let (watches, rate) = context.pick((2_500, 50), (1_200, 400));
    let sender = connect(&context).await?;
    let mut outcome = Outcome { connections: 1, ..Outcome::default() };
    let begun = Instant::now();
    for n in 0..watches {
        sleep_until(begun + Duration::from_secs(1) * n / rate).await;
        if let Err(error) = watch(&sender).await {
            return Ok(outcome.check(false, format!("watch {n}: {error}")));
        }
    }
    let answer = echo(&sender, &[]).await;
    outcome = outcome.check(answer.is_ok(), format!("a call behind the watches: {answer:?}"));
    Ok(outcome)
}

/// Opens a watch, waits for its first message, and cancels it.
async fn watch(sender: &SendRequest<Bytes>) -> io::Result<()> {
    let request = request("/grpc.health.v1.Health/Watch").body(()).map_err(io::Error::other)?;
    let mut sender = sender.clone().ready().await.map_err(to_io_error)?;
    let (response, mut body) = sender.send_request(request, false).map_err(to_io_error)?;
    body.send_data(grpc_message(0, b"").into(), true).map_err(to_io_error)?;
    let mut body = response.await.map_err(to_io_error)?.into_body();
    // Dropping an unfinished response resets the stream.
    body.data().await.transpose().map_err(to_io_error).map(drop)
}

/// Makes a call with metadata. Returns the gRPC status and its text.
async fn echo(sender: &SendRequest<Bytes>, metadata: &[(String, String)]) -> io::Result<(String, String)> {
    let mut request = request("/Bare/Echo");
    for (name, value) in metadata {
        request = request.header(name, value);
    }
    let request = request.body(()).map_err(io::Error::other)?;
    let mut sender = sender.clone().ready().await.map_err(to_io_error)?;
    let (response, mut body) = sender.send_request(request, false).map_err(to_io_error)?;
    body.send_data(grpc_message(0, b"x").into(), true).map_err(to_io_error)?;
    let response = response.await.map_err(to_io_error)?;
    let (head, mut body) = response.into_parts();
    while let Some(data) = body.data().await {
        data.map_err(to_io_error)?;
    }
    let trailers = body.trailers().await.map_err(to_io_error)?.unwrap_or(head.headers);
    let text =
        |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    Ok((text("grpc-status"), text("grpc-message")))
}

const RESOURCE_EXHAUSTED: &str = "8";

async fn metadata(context: AttackContext) -> io::Result<Outcome> {
    let entry = |n: usize, bytes: usize| (format!("x-entry-{n}"), "v".repeat(bytes));
    let entries = |count: usize| (0..count).map(|n| entry(n, 10)).collect::<Vec<_>>();
    let cases = [
        // Whether the call must be served.
        ("10 kB", vec![entry(0, 10_000)], true),
        ("16 kB", vec![entry(0, 16_000)], true),
        ("230 entries", entries(230), true),
        ("500 entries", entries(500), context.target.entries >= 500),
        ("70 kB", vec![entry(0, 70_000)], false),
        ("200 kB", (0..20).map(|n| entry(n, 10_000)).collect(), false),
    ];
    let mut outcome = Outcome::default();
    for (name, metadata, must_be_served) in cases {
        let sender = connect(&context).await?;
        outcome.connections += 1;
        let (long, innocent) = tokio::join!(echo(&sender, &metadata), echo(&sender, &[]));
        context.count(metadata.iter().map(|(name, value)| name.len() + value.len()).sum());
        outcome = match &long {
            Ok((status, _)) if status == "0" => outcome,
            Ok((status, text)) => outcome
                .check(!must_be_served, format!("{name}: refused with {status}: {text}"))
                .check(status == RESOURCE_EXHAUSTED, format!("{name}: refused with {status}: {text}"))
                .check(!text.is_empty(), format!("{name}: refused without a text")),
            Err(error) => outcome.check(false, format!("{name}: no status but: {error}")),
        };
        let is_served =
            |answer: &io::Result<(String, String)>| matches!(answer, Ok((status, _)) if status == "0");
        outcome = outcome.check(is_served(&innocent), format!("a call beside {name}: {innocent:?}"));
        let later = echo(&sender, &[]).await;
        outcome = outcome.check(is_served(&later), format!("a call behind {name}: {later:?}"));
    }
    Ok(outcome)
}
