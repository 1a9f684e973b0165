//! Authentication in each protocol: no handler runs for an unauthenticated caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::server::{Listen, ServerHandle};
use polyrpc::{Client, Code, Format, Json, Protocol, Status};
use polyrpc_core::Credential;

use crate::common::{PROTOCOLS, Prober, Socket, Wire, json_call, soon, url};

/// A server with an authenticator, and the calls of both.
struct GuardedServer {
    server: ServerHandle,
    prober: Prober,
    judged: Arc<AtomicUsize>,
}

impl GuardedServer {
    async fn start() -> Self {
        Self::start_with(|listen| listen).await
    }

    async fn start_with(options: impl Fn(Listen) -> Listen) -> Self {
        let (prober, judged) = (Prober::default(), Arc::new(AtomicUsize::new(0)));
        let counted = judged.clone();
        let listen = Listen::on("127.0.0.1:0").authenticate(move |credential, peer| {
            counted.fetch_add(1, Ordering::SeqCst);
            assert!(peer.to_string().starts_with("127.0.0.1:"));
            match credential {
                Some(b"secret") => Ok(()),
                Some(_) => Err(Status::unauthenticated("wrong token")),
                None => Err(Status::unauthenticated("")),
            }
        });
        let server = prober.server().bind(options(listen)).await.unwrap().start();
        Self { server, prober, judged }
    }

    fn client(&self, protocol: Protocol, credential: &'static str) -> Client {
        Client::builder(&url(protocol, &self.server)).credential(credential).build().unwrap()
    }

    /// Number of authentications and of handler runs since the last call.
    fn counts(&self) -> (usize, usize) {
        (self.judged.swap(0, Ordering::SeqCst), self.prober.ran.swap(0, Ordering::SeqCst))
    }
}

#[tokio::test]
async fn every_credential_is_checked_and_baidu_std_sends_one_per_connection() {
    let guarded = GuardedServer::start().await;
    for (protocol, judged) in [(Protocol::BaiduStd, 1), (Protocol::Rpcx, 5), (Protocol::Http, 5)] {
        let client = guarded.client(protocol, "secret");
        for _ in 0..5 {
            assert_eq!(soon(client.call::<String>("Probe/Echo", "a")).await.unwrap(), "a", "{protocol:?}");
        }
        assert_eq!(guarded.counts(), (judged, 5), "{protocol:?}");
    }
    let url = format!("http://{}?dialect=json-rpc", guarded.server.address());
    let client = Client::builder(&url).credential("secret").build().unwrap();
    for _ in 0..5 {
        assert_eq!(soon(client.call::<String>("Probe/Echo", "a")).await.unwrap(), "a");
    }
    assert_eq!(guarded.counts(), (5, 5));
}

#[tokio::test]
async fn callers_sharing_a_connection_share_its_credential() {
    let guarded = GuardedServer::start().await;
    let client = guarded.client(Protocol::BaiduStd, "secret");
    let callers: Vec<_> = (0..32)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.call::<String>("Probe/Echo", &n.to_string()).await })
        })
        .collect();
    for caller in callers {
        soon(caller).await.unwrap().unwrap();
    }
    assert_eq!(guarded.counts(), (1, 32));
}

#[tokio::test]
async fn unauthenticated_call_reaches_no_handler() {
    let guarded = GuardedServer::start().await;
    for protocol in PROTOCOLS {
        for client in [guarded.client(protocol, "guess"), crate::common::client(protocol, &guarded.server)] {
            for _ in 0..3 {
                let error = soon(client.call::<String>("Probe/Echo", "a")).await.unwrap_err();
                // The next call may race with the closing of the connection.
                assert!(
                    matches!(
                        error.code(),
                        Code::Unauthenticated | Code::PermissionDenied | Code::Unavailable | Code::Unknown
                    ),
                    "{protocol:?}: {error}"
                );
            }
        }
        assert_eq!(guarded.counts().1, 0, "{protocol:?}");
    }
}

#[tokio::test]
async fn rejected_call_is_answered_and_its_connection_closed() {
    let guarded = GuardedServer::start().await;
    for (protocol, text) in [(Protocol::BaiduStd, "wrong token"), (Protocol::Rpcx, "wrong token")] {
        let mut wire = Wire::connect(protocol, &guarded.server).await;
        let mut call = json_call("Probe", "Echo", "\"a\"");
        call.head.metadata.insert("unused", "x");
        let mut guess = call.clone();
        guess.credential = Credential::Call(Some("guess".into()));
        // A valid call follows the wrong one in the same packet.
        let mut bytes = match protocol {
            Protocol::BaiduStd => crate::common::baidu_with_credential(1, "guess"),
            _ => wire.encode(1, &guess),
        };
        if protocol == Protocol::BaiduStd {
            wire.encode(1, &call);
            bytes.extend(crate::common::baidu_with_credential(2, "secret"));
        } else {
            let mut good = call.clone();
            good.credential = Credential::Call(Some("secret".into()));
            bytes.extend(wire.encode(2, &good));
        }
        wire.socket.send(&bytes).await;
        let (id, reply) = wire.reply().await.expect("the first is answered");
        let status = reply.result.unwrap_err();
        assert_eq!(id, 1, "{protocol:?}");
        assert!(status.message().contains(text), "{protocol:?}: {status}");
        assert!(wire.reply().await.is_none(), "{protocol:?}: the connection is over");
        assert_eq!(guarded.counts(), (1, 0), "{protocol:?}");
    }
}

#[tokio::test]
async fn baidu_std_reports_the_authentication_failure() {
    let guarded = GuardedServer::start().await;
    let error = crate::common::client(Protocol::BaiduStd, &guarded.server)
        .call::<()>("Probe/Echo", "a")
        .await
        .unwrap_err();
    assert_eq!((error.status().number(), error.message()), (Some(1004), "Fail to authenticate"));
    assert_eq!(error.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn baidu_std_message_without_a_credential_inherits_that_of_the_connection() {
    let guarded = GuardedServer::start().await;
    let mut wire = Wire::connect(Protocol::BaiduStd, &guarded.server).await;
    wire.socket.send(&crate::common::baidu_with_credential(1, "secret")).await;
    assert!(wire.reply().await.unwrap().1.result.is_ok());
    wire.socket.send(&crate::common::baidu_frame("Probe", "Echo", 2, 0, b"\"a\"")).await;
    assert!(wire.reply().await.unwrap().1.result.is_ok());
    assert_eq!(guarded.counts(), (1, 2));
    // Each call is checked, regardless of earlier ones.
    wire.socket.send(&crate::common::baidu_with_credential(3, "guess")).await;
    assert_eq!(wire.reply().await.unwrap().1.result.unwrap_err().code(), Code::Unauthenticated);
    assert!(wire.reply().await.is_none(), "the connection is over");
    assert_eq!(guarded.counts(), (1, 0));
}

#[tokio::test]
async fn rpcx_checks_the_credential_of_each_call() {
    let guarded = GuardedServer::start().await;
    let client = guarded.client(Protocol::Rpcx, "secret");
    assert!(client.call::<String>("Probe/Echo", "a").await.is_ok());
    let options = CallOptions { credential: Some("guess".into()), ..CallOptions::default() };
    let body = Body::new(Format::Json(Json::Go), "\"a\"");
    let error = soon(client.call_raw("Probe/Echo", body, options)).await.unwrap_err();
    assert_eq!(error.message(), "wrong token");
    assert_eq!(guarded.counts(), (2, 1));
    assert_eq!(crate::common::again(|| client.call::<String>("Probe/Echo", "a")).await, "a");
}

#[tokio::test]
async fn gateway_and_json_rpc_check_each_call_and_keep_the_connection_open() {
    let guarded = GuardedServer::start().await;
    let gateway = |credential: &str| {
        format!(
            "POST /Probe HTTP/1.1\r\nHost: a\r\nX-RPCX-ServiceMethod: Echo\r\nX-RPCX-SerializeType: 1\r\n\
             {credential}Content-Length: 3\r\n\r\n\"a\""
        )
    };
    let json_rpc = |credential: &str| {
        let body = r#"{"jsonrpc":"2.0","method":"Probe.Echo","params":["a"],"id":1}"#;
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nX-JSONRPC-2.0: true\r\n{credential}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let good = "Authorization: secret\r\n";
    let mut socket = Socket::connect(&guarded.server).await;
    assert_eq!(socket.http(&gateway("")).await.0, 401);
    assert_eq!(socket.http(&gateway(good)).await, (200, "\"a\"".to_owned()));
    assert_eq!(socket.http(&gateway("Authorization: guess\r\n")).await.0, 401);
    let (status, body) = socket.http(&json_rpc("")).await;
    assert!(status == 200 && body.contains("\"error\""), "{body}");
    let (status, body) = socket.http(&json_rpc(good)).await;
    assert!(status == 200 && body.contains("\"result\":\"a\""), "{body}");
    assert_eq!(guarded.counts(), (5, 2));
}

#[tokio::test]
async fn request_without_a_credential_does_not_inherit_that_of_another() {
    let guarded = GuardedServer::start().await;
    let request = |credential: &str| {
        format!("POST /Probe/Echo HTTP/1.1\r\nHost: a\r\n{credential}Content-Length: 3\r\n\r\n\"a\"")
    };
    let mut socket = Socket::connect(&guarded.server).await;
    assert_eq!(socket.http(&request("Authorization: secret\r\n")).await.0, 200);
    for credential in ["", "Authorization: guess\r\n", ""] {
        socket.send(request(credential).as_bytes()).await;
        let head = socket.up_to("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("WWW-Authenticate: Bearer"), "{head}");
        assert!(!head.contains("Connection: close"), "the other callers of a proxy go on: {head}");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        soon(tokio::io::AsyncReadExt::read_exact(&mut socket.stream, &mut body)).await.unwrap();
    }
    assert_eq!(socket.http(&request("Authorization: secret\r\n")).await.0, 200);
    assert_eq!(guarded.counts(), (5, 2));
}

#[tokio::test]
async fn brpc_listener_trusts_an_http_connection_and_answers_403_before_it_closes() {
    let guarded = GuardedServer::start_with(Listen::trust_http_connections).await;
    let request = |credential: &str| {
        format!("POST /Probe/Echo HTTP/1.1\r\nHost: a\r\n{credential}Content-Length: 3\r\n\r\n\"a\"")
    };
    let mut socket = Socket::connect(&guarded.server).await;
    assert_eq!(socket.http(&request("Authorization: secret\r\n")).await.0, 200);
    assert_eq!(socket.http(&request("")).await.0, 200);
    let (status, _) = socket.http(&request("Authorization: guess\r\n")).await;
    assert!(matches!(status, 401 | 403), "{status}");
    let mut socket = Socket::connect(&guarded.server).await;
    let (status, _) = socket.http(&request("")).await;
    assert!(matches!(status, 401 | 403), "{status}");
    assert!(socket.rest().await.is_empty());
    assert_eq!(guarded.counts(), (3, 2));
}

#[tokio::test]
async fn protocol_switch_requires_a_new_credential() {
    let guarded = GuardedServer::start_with(Listen::allow_protocol_switch).await;
    let mut socket = Socket::connect(&guarded.server).await;
    let good =
        "POST /Probe/Echo HTTP/1.1\r\nHost: a\r\nAuthorization: secret\r\nContent-Length: 3\r\n\r\n\"a\"";
    assert_eq!(socket.http(good).await.0, 200);
    socket.send(&crate::common::baidu_frame("Probe", "Echo", 1, 0, b"\"a\"")).await;
    let answer = socket.rest().await;
    assert!(answer.starts_with(b"PRPC") && answer.ends_with(b"\x01"), "{}", answer.escape_ascii());
    assert_eq!(guarded.counts(), (2, 1));

    let mut socket = Socket::connect(&guarded.server).await;
    socket.send(b"CONNECT /_rpcx_ HTTP/1.0\n\n").await;
    assert_eq!(socket.up_to("\n\n").await, "HTTP/1.0 200 Connected to rpcx\n\n");
    socket.send(&crate::common::rpcx_frame("Probe", "Echo", 1, false, b"\"a\"")).await;
    let answer = socket.rest().await;
    assert!(answer.first() == Some(&8) && answer[2] & 1 == 1, "{}", answer.escape_ascii());
    assert_eq!(guarded.counts().1, 0);
}
