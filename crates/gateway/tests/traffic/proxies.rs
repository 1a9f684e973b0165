//! Gateways behind proxies.

use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc::{Format, Json, Server};
use polyrpc_gateway::{Config, Gateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server that answers with the field that tells where the call comes from.
async fn server() -> ServerHandle {
    let server = Server::new().fallback(|mut call: RawRequest| async move {
        call.body().await?;
        let origin = call.metadata().get("x-forwarded-for").unwrap_or("nobody");
        let mut response = RawResponse::message(format!("{{\"origin\":\"{origin}\"}}"));
        response.format = Some(Format::Json(Json::Brpc));
        Ok(response)
    });
    server.bind("127.0.0.1:0").await.unwrap().start()
}

async fn gateway(to: &ServerHandle, listen: &str) -> Gateway {
    let text = format!(
        r#"
            [[listen]]
            address = "127.0.0.1:0"
            {listen}
            [[upstream]]
            name = "a"
            url = "http://{}"
            forwarded = true
            [[route]]
            to = "a"
        "#,
        to.address()
    );
    Gateway::start(Config::parse(&text).unwrap()).await.unwrap()
}

/// Sends a call with these bytes before it and these fields, and returns what comes back.
async fn call(gateway: &Gateway, before: &[u8], fields: &str) -> String {
    let address = gateway.addresses()[0].to_string();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = format!(
        "POST /a/b HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\
         Connection: close\r\n{fields}\r\n{{}}"
    );
    stream.write_all(&[before, request.as_bytes()].concat()).await.unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).into_owned()
}

const TRUSTED: &str = "trusted = [\"127.0.0.1\"]";

#[tokio::test]
async fn only_trusted_proxies_have_their_forwarded_addresses_passed_on() {
    let server = server().await;
    let (open, behind) = (gateway(&server, "").await, gateway(&server, TRUSTED).await);
    let fields = "X-Forwarded-For: 192.0.2.7\r\n";
    assert!(call(&open, b"", fields).await.contains(r#""origin":"127.0.0.1""#));
    assert!(call(&behind, b"", fields).await.contains(r#""origin":"192.0.2.7, 127.0.0.1""#));
}

#[tokio::test]
async fn header_of_the_proxy_protocol_sets_the_peer() {
    let server = server().await;
    let behind = gateway(&server, &format!("{TRUSTED}\nproxy_protocol = true")).await;
    let text = call(&behind, b"PROXY TCP4 192.0.2.7 192.0.2.1 51000 443\r\n", "").await;
    assert!(text.contains(r#""origin":"192.0.2.7""#), "{text}");
    let binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc6\x33\x64\x01\xc0\0\x02\x01\xc7\x38\x01\xbb";
    let binary = call(&behind, binary, "").await;
    assert!(binary.contains(r#""origin":"198.51.100.1""#), "{binary}");
    let local = call(&behind, b"PROXY UNKNOWN\r\n", "").await;
    assert!(local.contains(r#""origin":"127.0.0.1""#), "{local}");
    // A proxy must send it, and nobody else may.
    assert_eq!(call(&behind, b"", "").await, "");
    let distrustful = gateway(&server, "trusted = [\"192.0.2.1\"]\nproxy_protocol = true").await;
    assert!(call(&distrustful, b"", "").await.contains(r#""origin":"127.0.0.1""#));
    assert!(
        !call(&distrustful, b"PROXY TCP4 192.0.2.7 192.0.2.1 51000 443\r\n", "").await.contains("origin")
    );
}
