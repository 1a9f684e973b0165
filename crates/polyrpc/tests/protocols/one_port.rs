//! Every protocol on one port concurrently, with and without TLS: each caller gets back what it
//! sent, a million times.

use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Raw};
use polyrpc::server::{Limits, Listen};
use polyrpc::service::ServiceBuilder;
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::{Client, Context, Format, Server};

use crate::authority::Authority;

/// Protocols by client URL: all that can be detected by their first bytes.
const SPOKEN: [&str; 11] = [
    "baidu-std",
    "rpcx",
    "fb-rpc",
    "fb-rpc?version=brpc-two-dots",
    "grpc",
    "http",
    "http?dialect=json-rpc",
    "net-rpc",
    "net-rpc?codec=json",
    "rest-rpc",
    "rest-rpc?version=0.20",
];

/// Callers of each protocol, without and again with TLS.
const CALLERS: usize = 64;

/// Total number of calls.
const CALLS: usize = 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn million_concurrent_calls_of_every_protocol_have_no_wrong_response() {
    let authority = Authority::new("authority");
    let issued = authority.issue(&["127.0.0.1"]);
    let identity = Identity::new(Pem::bytes(issued.certificate.clone()), Pem::bytes(issued.key.clone()));
    let listen = Listen::on("127.0.0.1:0").tls(tls::Server::builder(identity).build().unwrap());
    let server = server().bind(listen).await.unwrap().start();

    let trust = tls::Client::new().ca(Pem::bytes(authority.pem()));
    let mut callers = Vec::new();
    for spoken in SPOKEN {
        let url = crate::common::url_of(spoken, server.address());
        let within_tls = client(&url.replacen("://", "+tls://", 1), Some(&trust));
        let clear = client(&url, None);
        for (client, way) in [(clear, "clear"), (within_tls, "tls")] {
            for caller in 0..CALLERS {
                let name = format!("{spoken} {way} {caller}");
                callers.push(tokio::spawn(call(client.clone(), spoken.starts_with("fb"), name)));
            }
        }
    }
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    assert!(calls >= CALLS, "{calls}");
    assert_eq!(server.info().calls.failed, 0);
}

fn server() -> Server {
    let echo = |cx: Context, body: Bytes| async { (cx, Ok(body)) };
    // A function cannot take a FlatBuffer as a string.
    let numbered = ServiceBuilder::new("Numbered").method::<Raw, Bytes, Bytes, _, _>("Echo", echo).id(7);
    Server::new()
        .service(numbered)
        .function("answer", |caller: String, number: u64| async move { format!("{caller} {number}") })
        .limits(Limits { in_flight: 1 << 20, ..Limits::default() })
}

fn client(url: &str, trust: Option<&tls::Client>) -> Client {
    // More than two thousand callers share two cores.
    let builder =
        Client::builder(url).timeout(Duration::from_secs(120)).connect_timeout(Duration::from_secs(60));
    match trust {
        Some(trust) => builder.tls(trust.clone()).build(),
        None => builder.build(),
    }
    .unwrap()
}

/// Makes one caller's calls, and returns the number of correct responses.
async fn call(client: Client, numbered: bool, name: String) -> usize {
    let calls = CALLS.div_ceil(SPOKEN.len() * 2 * CALLERS);
    for number in 0..calls as u64 {
        let wanted = format!("{name} {number}");
        let answer = match numbered {
            true => echo(&client, &wanted).await,
            false => client.call::<String>("answer", &(&name, number)).await,
        };
        assert_eq!(answer.unwrap_or_else(|error| panic!("{wanted}: {error}")), wanted);
    }
    calls
}

async fn echo(client: &Client, text: &str) -> polyrpc::client::Result<String> {
    let body = Body::new(Format::FlatBuffers, Bytes::from(text.to_owned()));
    let reply = client.call_raw("Numbered/Echo#7,0", body, CallOptions::default()).await?;
    Ok(String::from_utf8_lossy(&reply.message.bytes).into_owned())
}
