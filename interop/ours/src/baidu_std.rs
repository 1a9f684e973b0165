use polyrpc::client::{ConnectionMode, Request};
use polyrpc::{Checksum, Client};
use polyrpc_cli::proto::example::{EchoRequest, EchoServiceBlockingClient, EchoServiceClient};

use crate::{Outcome, ensure, reported};

pub(crate) async fn cases(url: &str) -> Vec<(&'static str, Outcome)> {
    vec![
        ("100_calls_on_one_connection", many_calls(url, ConnectionMode::Shared).await),
        ("100_calls_on_pooled_connections", many_calls(url, ConnectionMode::Pooled).await),
        ("attachment_comes_back", attachment(url).await),
        ("blocking", blocking(url)),
    ]
}

fn request(message: &str) -> EchoRequest {
    EchoRequest { message: message.to_owned(), ..Default::default() }
}

async fn many_calls(url: &str, kind: ConnectionMode) -> Outcome {
    let client = Client::builder(url).connection_mode(kind).build().map_err(reported)?;
    let calls: Vec<_> = (0..100)
        .map(|n| {
            let echo = EchoServiceClient::new(client.clone());
            tokio::spawn(async move {
                let message = format!("message {n}");
                echo.echo(request(&message)).await.map(|reply| reply.message == message)
            })
        })
        .collect();
    for call in calls {
        let right = call.await.map_err(|error| error.to_string())?.map_err(reported)?;
        ensure(right, || "a caller got another's reply".to_owned())?;
    }
    Ok(())
}

async fn attachment(url: &str) -> Outcome {
    let echo = EchoServiceClient::new(Client::new(url).map_err(reported)?);
    let mut request = Request::new(request("hi")).with_attachment(&b"ATTACH\x01\x02"[..]);
    request.options.checksum = Checksum::None;
    let reply = echo.echo_with(request).await.map_err(reported)?;
    ensure(&reply.attachment[..] == b"ATTACH\x01\x02", || format!("got {:?}", reply.attachment))
}

fn blocking(url: &str) -> Outcome {
    let echo = EchoServiceBlockingClient::new(polyrpc::blocking::Client::new(url).map_err(reported)?);
    for length in [0, 1, 32, 1 << 10, 64 << 10, 1 << 20] {
        let message = "x".repeat(length);
        let reply = echo.echo(request(&message)).map_err(reported)?;
        ensure(reply.message == message, || format!("{} bytes came back for {length}", reply.message.len()))?;
    }
    Ok(())
}
