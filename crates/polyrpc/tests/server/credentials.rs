//! Every protocol, on every transport, with every order of credentials: no handler runs for a call whose credential was
//! not accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Raw};
use polyrpc::server::{Limits, Listen, ServerHandle};
use polyrpc::service::ServiceBuilder;
use polyrpc::tls::{self, Identity, Pem};
use polyrpc::{Client, Context, Format, Retry, Server, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::authority::Authority;
use crate::common::{Socket, soon, url_of};

/// The credential of a call: none, a wrong one, the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credentials {
    Nothing,
    Wrong,
    Right,
}

use Credentials::{Nothing, Right, Wrong};

impl Credentials {
    fn credential(self) -> Option<&'static str> {
        match self {
            Nothing => None,
            Wrong => Some("guess"),
            Right => Some("secret"),
        }
    }
}

/// The calls of one connection.
const ORDERS: [&[Credentials]; 7] = [
    &[Nothing],
    &[Wrong],
    &[Right],
    &[Right, Nothing],
    &[Right, Wrong],
    &[Right, Nothing, Right, Wrong, Nothing],
    &[Nothing, Right],
];

/// Scope of a credential in a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Each call carries its credential.
    Call,
    /// The protocol carries none.
    Never,
}

/// Protocols by client URL. All with and without TLS.
const SPOKEN: [(&str, Proof); 15] = [
    ("rpcx", Proof::Call),
    ("rpcx?transport=http-connect", Proof::Call),
    ("rpcx?transport=ws", Proof::Call),
    ("grpc", Proof::Call),
    ("grpc?transport=ws", Proof::Call),
    ("http", Proof::Call),
    ("http?transport=ws", Proof::Call),
    ("http?dialect=json-rpc", Proof::Call),
    ("net-rpc", Proof::Call),
    ("net-rpc?codec=json", Proof::Call),
    ("net-rpc?transport=http-connect", Proof::Call),
    ("rest-rpc", Proof::Never),
    ("rest-rpc?version=0.20", Proof::Never),
    ("fb-rpc", Proof::Never),
    ("fb-rpc?version=brpc-two-dots", Proof::Never),
];

/// A server with an authenticator, whose handlers count.
struct GuardedServer {
    server: ServerHandle,
    ran: Arc<AtomicUsize>,
    trust: tls::Client,
}

impl GuardedServer {
    async fn start() -> Self {
        Self::start_with(|listen| listen).await
    }

    async fn start_with(options: impl Fn(Listen) -> Listen) -> Self {
        let authority = Authority::new("authority");
        let issued = authority.issue(&["127.0.0.1"]);
        let identity = Identity::new(Pem::bytes(issued.certificate.clone()), Pem::bytes(issued.key.clone()));
        let listen = Listen::on("127.0.0.1:0")
            .tls(tls::Server::builder(identity).build().unwrap())
            .authenticate(|credential, _peer| match credential {
                Some(b"secret") => Ok(()),
                _ => Err(Status::unauthenticated("who are you?")),
            });
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = ran.clone();
        let echo = move |cx: Context, body: Bytes| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { (cx, Ok(body)) }
        };
        let service = ServiceBuilder::new("Probe").method::<Raw, Bytes, Bytes, _, _>("Echo", echo).id(7);
        // Wrong ones are answered at once, whatever their number.
        let limits = Limits { credential_failures: 100_000, ..Limits::default() };
        let server =
            Server::new().limits(limits).service(service).bind(options(listen)).await.unwrap().start();
        Self { server, ran, trust: tls::Client::new().ca(Pem::bytes(authority.pem())) }
    }

    fn client(&self, scheme: &str, secured: bool) -> Client {
        let url = url_of(scheme, self.server.address());
        let builder = match secured {
            true => Client::builder(&url.replacen("://", "+tls://", 1)).tls(self.trust.clone()),
            false => Client::builder(&url),
        };
        builder.build().unwrap()
    }

    /// Number of handler runs since the last call.
    fn ran(&self) -> usize {
        self.ran.swap(0, Ordering::SeqCst)
    }
}

#[tokio::test]
async fn no_handler_runs_without_an_accepted_credential_in_any_protocol() {
    let guarded = GuardedServer::start().await;
    for (scheme, proof) in SPOKEN {
        for secured in [false, true] {
            // In the TLS handshake our gRPC client requests HTTP/2, over which no WebSocket can be opened.
            if secured && scheme == "grpc?transport=ws" {
                continue;
            }
            for order in ORDERS {
                check(&guarded, scheme, proof, secured, order).await;
            }
        }
    }
}

async fn check(guarded: &GuardedServer, scheme: &str, proof: Proof, secured: bool, order: &[Credentials]) {
    let client = guarded.client(scheme, secured);
    for (at, brings) in order.iter().enumerate() {
        let row = format!("{scheme} tls={secured} {:?}", &order[..=at]);
        let reply = soon(async {
            loop {
                match call(&client, scheme, *brings).await {
                    // It raced with the closing of the connection after a refusal, and no handler ran.
                    Err(error)
                        if (proof, *brings) == (Proof::Call, Right)
                            && error.status().retry() != Retry::Never => {}
                    reply => break reply,
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        let ran = guarded.ran();
        assert_eq!(ran, usize::from(reply.is_ok()), "{row}: {reply:?}");
        let may = match (proof, brings) {
            (Proof::Never, _) | (_, Wrong) => false,
            (_, Right) => true,
            (Proof::Call, Nothing) => false,
        };
        assert_eq!(ran, usize::from(may), "{row}: {reply:?}");
    }
}

async fn call(client: &Client, scheme: &str, brings: Credentials) -> polyrpc::client::Result<Bytes> {
    let numbered = scheme.starts_with("fb");
    let (method, format, body) = match scheme {
        _ if numbered => ("Probe/Echo#7,0", Format::FlatBuffers, &b"\"a\""[..]),
        // A string in gob.
        "net-rpc" | "net-rpc?transport=http-connect" => ("Probe/Echo", Format::Gob, &b"\x04\x0c\0\x01a"[..]),
        _ => ("Probe/Echo", Format::Json(polyrpc::Json::Go), &b"\"a\""[..]),
    };
    let options = CallOptions { credential: brings.credential().map(Bytes::from), ..CallOptions::default() };
    let reply = client.call_raw(method, Body::new(format, body), options).await?;
    Ok(reply.message.bytes)
}

#[tokio::test]
async fn baidu_std_call_inherits_the_credential_of_its_connection() {
    let guarded = GuardedServer::start().await;
    for order in ORDERS {
        let mut socket = Socket::connect(&guarded.server).await;
        let (mut proved, mut open) = (false, true);
        for (at, brings) in order.iter().enumerate() {
            let id = at as u64 + 1;
            socket
                .offer(&match brings.credential() {
                    Some(credential) => crate::common::baidu_with_credential(id, credential),
                    None => crate::common::baidu_frame("Probe", "Echo", id, 0, b"\"a\""),
                })
                .await;
            let mut head = [0; 12];
            let answered = soon(socket.stream.read_exact(&mut head)).await.is_ok();
            assert_eq!(answered, open, "{order:?}: a refusal ends the connection");
            if answered {
                let mut rest = vec![0; u32::from_be_bytes(head[4..8].try_into().unwrap()) as usize];
                soon(socket.stream.read_exact(&mut rest)).await.unwrap();
            }
            let may = open && (*brings == Right || *brings == Nothing && proved);
            assert_eq!(guarded.ran(), usize::from(may), "{order:?} at {at}");
            (proved, open) = (proved || may, may);
        }
    }
}

/// An HTTP request, with placeholders for headers and body.
const FORMS: [&str; 3] = [
    "POST /Probe/Echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nX-RPCX-ServicePath: Probe\r\nX-RPCX-ServiceMethod: Echo\r\nX-RPCX-SerializeType: 0\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\n",
];

const JSON_RPC: &str = r#"{"jsonrpc":"2.0","method":"Probe.Echo","params":["a"],"id":1}"#;

#[tokio::test]
async fn each_http_request_carries_its_credential() {
    let guarded = GuardedServer::start().await;
    for form in FORMS {
        for order in ORDERS {
            for split in [false, true] {
                let mut socket = Socket::connect(&guarded.server).await;
                for brings in order {
                    let body = if form.contains("JSONRPC") { JSON_RPC } else { "\"a\"" };
                    let field = brings.credential().map(|reported| format!("Authorization: {reported}\r\n"));
                    let length = format!("Content-Length: {}\r\n\r\n", body.len());
                    let head = [form, &field.unwrap_or_default(), &length].concat();
                    socket.send(head.as_bytes()).await;
                    if split {
                        // The head is authenticated before the body arrives.
                        tokio::task::yield_now().await;
                    }
                    socket.send(body.as_bytes()).await;
                    let (status, text) = socket.http_response().await;
                    assert_eq!(guarded.ran(), usize::from(*brings == Right), "{form} {brings:?} {text}");
                    let want = if form.contains("JSONRPC") || *brings == Right { 200 } else { 401 };
                    assert_eq!(status, want, "{form} {order:?} {text}");
                }
            }
        }
    }
}

#[tokio::test]
async fn each_http_2_request_carries_its_credential() {
    // Trusting an HTTP/1.1 connection does not apply to HTTP/2.
    for guarded in
        [GuardedServer::start().await, GuardedServer::start_with(Listen::trust_http_connections).await]
    {
        for order in ORDERS {
            let mut socket = Socket::connect(&guarded.server).await;
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
            for (at, brings) in order.iter().enumerate() {
                let stream = 1 + 2 * at as u8;
                // POST, http, the path, the authority, octets.
                let mut block =
                    b"\x83\x86\x44\x0b/Probe/Echo\x41\x01h\x0f\x10\x18application/octet-stream".to_vec();
                if let Some(credential) = brings.credential() {
                    block.extend([0x0f, 0x08, credential.len() as u8]);
                    block.extend(credential.as_bytes());
                }
                bytes.extend([0, 0, block.len() as u8, 1, 4, 0, 0, 0, stream]);
                bytes.extend(block);
                bytes.extend([0, 0, 3, 0, 1, 0, 0, 0, stream]);
                bytes.extend(b"\"a\"");
                socket.send(&bytes).await;
                bytes.clear();
                let data = data_of(&mut socket, stream).await;
                assert_eq!(guarded.ran(), usize::from(*brings == Right), "{order:?}");
                assert_eq!(data == b"\"a\"", *brings == Right, "{order:?} {}", data.escape_ascii());
            }
        }
    }
}

#[tokio::test]
async fn request_with_two_credentials_is_rejected() {
    let guarded = GuardedServer::start().await;
    for form in FORMS {
        for (first, second) in [("guess", "secret"), ("secret", "guess"), ("secret", "secret")] {
            let body = if form.contains("JSONRPC") { JSON_RPC } else { "\"a\"" };
            let headers = format!("Authorization: {first}\r\nauthorization: {second}\r\n");
            let meta = format!("X-RPCX-Meta: __AUTH={first}&__AUTH={second}\r\n");
            for fields in [&headers, &meta] {
                let mut socket = Socket::connect(&guarded.server).await;
                let length = format!("Content-Length: {}\r\n\r\n", body.len());
                socket.send([form, fields, &length, body].concat().as_bytes()).await;
                let (status, text) = socket.http_response().await;
                assert_eq!(guarded.ran(), 0, "{form}{fields} {text}");
                // rpcx's gateway reports malformed metadata in a field.
                assert!(status == 400 || *fields == meta, "{form}{fields} {status} {text}");
            }
        }
    }
}

#[tokio::test]
async fn half_closed_request_is_answered_after_its_credential_was_checked() {
    let slowly = |listen: Listen| {
        listen.authenticate_async(|credential, _peer| async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            match credential {
                Some(credential) if credential == "secret" => Ok(()),
                _ => Err(Status::unauthenticated("who are you?")),
            }
        })
    };
    let guarded = GuardedServer::start_with(slowly).await;
    for (brings, want) in [(Right, 200), (Wrong, 401)] {
        let mut socket = Socket::connect(&guarded.server).await;
        let credential = brings.credential().unwrap();
        let head = format!(
            "POST /Probe/Echo HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
             Authorization: {credential}\r\nContent-Length: 3\r\n\r\n"
        );
        socket.send(head.as_bytes()).await;
        // The head is authenticated on its own if the body arrives later.
        tokio::time::sleep(Duration::from_millis(20)).await;
        socket.send(b"\"a\"").await;
        socket.stream.shutdown().await.unwrap();
        let (status, text) = socket.http_response().await;
        assert_eq!((status, guarded.ran()), (want, usize::from(brings == Right)), "{text}");
    }
}

/// The first data on a stream.
async fn data_of(socket: &mut Socket, stream: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        soon(socket.stream.read_exact(&mut head)).await.expect("a frame");
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        soon(socket.stream.read_exact(&mut payload)).await.expect("all of it");
        if (head[3], head[8]) == (0, stream) {
            return payload;
        }
    }
}
