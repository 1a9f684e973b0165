//! A server that records its calls: some of them, those that fail, and those that take long.

use std::collections::HashMap;
use std::time::Duration;
use std::{env, fs, process};

use polyrpc::{Client, Server, Status};
use polyrpc_record::layer::Recorder;
use polyrpc_record::redact::Redaction;

async fn login(request: HashMap<String, String>) -> Result<String, Status> {
    match request.get("user").map(String::as_str) {
        Some("ann") => Ok("welcome".to_owned()),
        _ => Err(Status::permission_denied("nobody of that name")),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::temp_dir().join(format!("recorded-server-{}.rec", process::id()));
    // A hundredth of the calls, all that fail, and all slow ones; without the field `password`.
    let recorder = Recorder::options()
        .sample_rate(0.01)
        .failures()
        .slower_than(Duration::from_millis(200))
        .redaction(Redaction::new().drop_field("password".parse()?))
        .open(&path)?;
    let server = Server::new().function("login", login).layer(recorder.clone());
    let server = server.bind("127.0.0.1:0").await?.start();

    let client = Client::new(&format!("rpcx://{}", server.address()))?;
    let mallory = HashMap::from([("user", "mallory"), ("password", "hunter2")]);
    let refused = client.call::<String>("login", &mallory).await;
    println!("refused: {}", refused.is_err());
    server.shutdown(Duration::from_secs(1)).await;
    recorder.close();

    let recording = fs::read(&path)?;
    fs::remove_file(&path)?;
    println!("the password is in the recording: {}", recording.windows(7).any(|part| part == b"hunter2"));
    println!("recorded calls: {}", recorder.stats().recorded);
    Ok(())
}
