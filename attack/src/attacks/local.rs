//! Checks without a server under attack: our client against a broken server, files, and output.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use polyrpc::client::{CallOptions, Request};
use polyrpc::{Client, Server};
use tokio::net::TcpListener;

use super::{Attack, AttackContext, End, Form, Outcome, attack};

pub(super) const ATTACKS: [Attack; 3] = [
    attack(
        "accept_and_close",
        "10",
        "a server that accepts and closes: how often our client with 50 callers dials",
        End::Brief,
        |context| Box::pin(dial(context)),
    )
    .with_form(Form::Alone),
    attack(
        "unix_path_is_a_file",
        "11",
        "a server configured to listen at the path of a regular file: it must stay",
        End::Brief,
        |_| Box::pin(listen_at_file()),
    )
    .with_form(Form::Alone),
    attack(
        "printed_credentials",
        "17",
        "what {:?} prints of options and requests with a credential",
        End::Brief,
        |_| Box::pin(print()),
    )
    .with_form(Form::Alone),
];

async fn dial(context: AttackContext) -> io::Result<Outcome> {
    let time = context.pick(Duration::from_secs(5), Duration::from_secs(2));
    let mut outcome = Outcome::default();
    let tried = join_all(["rpcx", "grpc", "http", "baidu-std"].map(async |scheme| {
        let dials = dials_within(time, scheme).await?;
        Ok::<_, io::Error>((scheme, dials))
    }))
    .await;
    for tried in tried {
        let (scheme, dials) = tried?;
        // A few initial ones, then two a second.
        let max = 5 + 2 * time.as_secs() as usize;
        outcome.connections += dials;
        outcome = outcome
            .note(format!("{scheme}: {dials} dials in {} s", time.as_secs()))
            .check(dials <= max, format!("{scheme}: {dials} dials in {} s, not {max}", time.as_secs()));
    }
    Ok(outcome)
}

/// Number of dials of a client with 50 callers to a server that closes every connection.
async fn dials_within(time: Duration, scheme: &str) -> io::Result<usize> {
    let (address, dials) = closing_server().await?;
    let client = Client::builder(&format!("{scheme}://{address}"))
        .retries(0)
        .build()
        .map_err(|error| io::Error::other(error.to_string()))?;
    let callers = (0..50).map(|_| {
        let client = client.clone();
        async move {
            loop {
                let _ = client.call::<String>("Plain/Echo", "x").await;
                tokio::task::yield_now().await;
            }
        }
    });
    let _ = tokio::time::timeout(time, join_all(callers)).await;
    Ok(dials.load(Ordering::Relaxed))
}

/// A server that closes every connection, and their number.
async fn closing_server() -> io::Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = dials.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    Ok((address, dials))
}

async fn listen_at_file() -> io::Result<Outcome> {
    let path = std::env::temp_dir().join(format!("polyrpc-attack-{}.txt", std::process::id()));
    std::fs::write(&path, "a file of value")?;
    let bound = Server::new().bind(format!("unix:{}", path.display())).await;
    let kept = std::fs::read_to_string(&path).is_ok_and(|text| text == "a file of value");
    let refused = bound.is_err();
    drop(bound);
    let _ = std::fs::remove_file(&path);
    Ok(Outcome::default().check(kept, "the file is gone").check(refused, "the server listens all the same"))
}

async fn print() -> io::Result<Outcome> {
    const CREDENTIAL: &str = "a-credential-to-keep";
    let options = CallOptions { credential: Some(CREDENTIAL.into()), ..CallOptions::default() };
    let request = Request { message: "x", options: options.clone() };
    let builder = Client::builder("rpcx://127.0.0.1:1").credential(CREDENTIAL);
    let client = builder.build().map_err(|error| io::Error::other(error.to_string()))?;
    let printed = [
        ("Options", format!("{options:?}")),
        ("Request", format!("{request:?}")),
        ("Client", format!("{client:?}")),
        ("Client, alternate", format!("{client:#?}")),
    ];
    Ok(printed.into_iter().fold(Outcome::default(), |outcome, (what, text)| {
        outcome.check(!text.contains(CREDENTIAL), format!("{what} prints the credential"))
    }))
}
