//! Shared by the tests: a service, and curl.

#![allow(dead_code, reason = "every test file uses its own part of it")]

use std::process::Stdio;
use std::time::Duration;

use polyrpc::{Context, Result, Server, Status, Streaming};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

#[polyrpc::service]
pub(crate) trait Greeter {
    async fn greet(&self, cx: &mut Context, name: String) -> Result<String>;
    async fn count(&self, to: u64) -> Result<Streaming<u64>>;
    async fn double(&self, numbers: Streaming<u64>) -> Result<Streaming<u64>>;
}

pub(crate) struct Polite;

impl Greeter for Polite {
    async fn greet(&self, cx: &mut Context, name: String) -> Result<String> {
        cx.reply_options().trailers.insert("behind", "it");
        match name.is_empty() {
            true => Err(Status::invalid_argument("no name").into()),
            false => Ok(format!("hello, {name}")),
        }
    }

    async fn count(&self, to: u64) -> Result<Streaming<u64>> {
        Ok(Streaming::from_iter(1..=to))
    }

    async fn double(&self, mut numbers: Streaming<u64>) -> Result<Streaming<u64>> {
        Ok(Streaming::produce(move |sender| async move {
            while let Some(n) = numbers.message().await? {
                sender.send(2 * n).await?;
            }
            Ok(())
        }))
    }
}

pub(crate) fn greeting() -> Server {
    Server::new().service(GreeterServer::new(Polite))
}

/// Waits for an event that must happen.
pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), event).await.expect("it happens in time")
}

/// The HTTP versions that curl uses without TLS.
pub(crate) const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

/// The output of curl: with `-i` including heads.
pub(crate) async fn curl(arguments: &[&str]) -> String {
    curl_with(arguments, &[]).await
}

/// The same with a body, which curl sends if `--data-binary @-` is among the arguments.
pub(crate) async fn curl_with(arguments: &[&str], body: &[u8]) -> String {
    let mut curl = Command::new("curl")
        .args(["-s", "-S", "--max-time", "20"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl is installed");
    let mut stdin = curl.stdin.take().unwrap();
    let body = body.to_vec();
    let feeding = tokio::spawn(async move {
        // curl may not read it.
        let _ = stdin.write_all(&body).await;
    });
    let output = soon(curl.wait_with_output()).await.unwrap();
    feeding.await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    String::from_utf8_lossy(&output.stdout).into_owned() + &errors
}

/// A gRPC-Web message.
pub(crate) fn framed(message: &str) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message.as_bytes());
    frame
}
