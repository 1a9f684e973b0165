//! A server that stops during a call: the call finishes, new ones are rejected.
//!
//! A program that serves until a signal uses `run_until(signal::shutdown(), grace)` instead, as `arith_server` does.

use std::time::Duration;

use polyrpc::{Client, Result, Server};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<()> {
    let (began, mut begun) = mpsc::unbounded_channel();
    let server = Server::new()
        .function("work", move || {
            let began = began.clone();
            async move {
                let _ = began.send(());
                tokio::time::sleep(Duration::from_millis(200)).await;
                "done".to_owned()
            }
        })
        .bind("127.0.0.1:0")
        .await?
        .start();
    let client = Client::new(&format!("baidu-std://{}", server.address()))?;

    let accepted = tokio::spawn({
        let client = client.clone();
        async move { client.call::<String>("work", &()).await }
    });
    begun.recv().await;

    // At most this long; unfinished calls are then aborted.
    server.shutdown(Duration::from_secs(5)).await;
    println!("stopped");
    println!("the call that was accepted: {}", accepted.await??);
    let error = client.call::<String>("work", &()).await.unwrap_err();
    println!("a call that came too late: {}", error.code());
    Ok(())
}
