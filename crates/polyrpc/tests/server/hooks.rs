//! Server hooks: events of connections and calls, and their effects.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::introspection::Connection;
use polyrpc::layers::{IpList, RateLimit};
use polyrpc::server::{AnsweredCall, Hook, IncomingCall};
use polyrpc::service::Peer;
use polyrpc::{Client, Code, Format, Protocol, Push, Result, Scope, Server, Status};

use crate::common::{ADORNED, PROTOCOLS, Prober, Socket, Wire, client, json_call, serve, soon, until};

/// Records events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Hook for Log {
    fn on_register(&self, service: &str, methods: &[String]) -> Result<(), Status> {
        self.note(format!("registered {service} {}", methods.join(",")));
        Ok(())
    }

    fn on_unregister(&self, service: &str) {
        self.note(format!("unregistered {service}"));
    }

    fn on_accept(&self, connection: &Connection) -> Result<(), Status> {
        assert!(connection.protocol.is_none());
        self.note(format!("accepted {}", connection.id));
        Ok(())
    }

    fn on_close(&self, connection: &Connection) {
        self.note(format!("closed {} {}", connection.id, connection.calls.started));
    }

    fn on_request(&self, call: &mut IncomingCall<'_>) -> Result<(), Status> {
        self.note(format!("received {} {}", call.service(), call.method()));
        Ok(())
    }

    fn on_response(&self, call: &AnsweredCall<'_>) {
        let known = if call.method_found { "known" } else { "unknown" };
        let failure = call.failure.map_or_else(|| "ok".to_owned(), |status| status.code().to_string());
        self.note(format!("answered {} {} {known} {failure}", call.service, call.method));
    }

    fn on_heartbeat(&self, peer: &Peer, protocol: Protocol) {
        assert!(peer.address().is_some());
        self.note(format!("heartbeat {}", protocol.as_str()));
    }

    fn on_push(&self, _: &Peer, push: &Push) {
        self.note(format!("pushed {}", push.method));
    }
}

async fn logged(prober: &Prober) -> (Log, polyrpc::server::ServerHandle) {
    let log = Log::default();
    let server = serve(prober.server().hook(log.clone())).await;
    log.take();
    (log, server)
}

#[tokio::test]
async fn hooks_see_the_start_and_end_of_every_call() {
    let (log, server) = logged(&Prober::default()).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        soon(client.call::<String>("Probe/Echo", "x")).await.unwrap();
        soon(client.call::<String>("Probe/Nothing", "x")).await.unwrap_err();
        until(|| log.lines().iter().filter(|line| line.starts_with("answered")).count() == 2).await;
        let calls: Vec<_> = log.take().into_iter().filter(|line| !line.starts_with("accepted")).collect();
        let calls: Vec<_> = calls.into_iter().filter(|line| !line.starts_with("closed")).collect();
        assert_eq!(
            calls,
            [
                "received Probe Echo",
                "answered Probe Echo known ok",
                "received Probe Nothing",
                "answered Probe Nothing unknown unimplemented",
            ],
            "{protocol:?}"
        );
    }
}

#[tokio::test]
async fn hooks_see_a_cancelled_call_once() {
    let prober = Prober::default();
    let (log, server) = logged(&prober).await;
    // Its status can express that.
    let client = client(Protocol::Grpc, &server);
    let waiting = tokio::spawn(async move { client.call::<String>("Probe/Wait", "x").await });
    prober.gate.came(1).await;
    waiting.abort();
    drop(waiting.await);
    let answered = || log.lines().iter().filter(|line| line.starts_with("answered")).count();
    until(|| answered() == 1).await;
    assert!(log.lines().contains(&"answered Probe Wait known cancelled".to_owned()), "{:?}", log.lines());
}

#[tokio::test]
async fn hooks_see_connections_open_and_close() {
    let (log, server) = logged(&Prober::default()).await;
    let mut wire = Wire::connect(Protocol::BaiduStd, &server).await;
    wire.send(1, &json_call("Probe", "Echo", "\"a\"")).await;
    wire.reply().await.unwrap();
    drop(wire);
    until(|| log.lines().len() == 4).await;
    let lines = log.take();
    assert!(lines[0].starts_with("accepted") && lines[3].starts_with("closed"), "{lines:?}");
    let number = lines[0].trim_start_matches("accepted ");
    assert_eq!(lines[3], format!("closed {number} 1"));
    drop(Socket::connect(&server).await);
    until(|| log.lines().len() == 2).await;
    assert_ne!(log.lines()[0], lines[0], "every connection has its own number");
}

#[tokio::test]
async fn hooks_see_services_before_listening_and_at_shutdown() {
    let log = Log::default();
    let server = Prober::default().server().function("f", || async { 1 }).hook(log.clone());
    let server = serve(server).await;
    assert_eq!(log.take(), ["registered  f", "registered Probe Echo,Peer,Thread,Wait"]);
    server.shutdown(Duration::from_secs(1)).await;
    assert_eq!(log.take(), ["unregistered ", "unregistered Probe"]);
}

/// Fails at the first event.
struct Objects;

impl Hook for Objects {
    fn on_register(&self, service: &str, _: &[String]) -> Result<(), Status> {
        Err(Status::already_exists(format!("{service} is taken")))
    }
}

#[tokio::test]
async fn hook_that_rejects_a_service_fails_the_bind() {
    let error = Prober::default().server().hook(Objects).bind("127.0.0.1:0").await.unwrap_err();
    assert!(error.to_string().contains("Probe is taken"), "{error}");
}

/// Redirects names, records credentials, and rejects some calls.
#[derive(Default)]
struct Clerk {
    seen: Mutex<Vec<Option<Vec<u8>>>>,
}

impl Hook for Clerk {
    fn on_request(&self, call: &mut IncomingCall<'_>) -> Result<(), Status> {
        self.seen.lock().unwrap().push(call.credential().map(<[u8]>::to_vec));
        match call.method() {
            "Old" => call.redirect("Told", "Metadata"),
            "Forbidden" => return Err(Status::permission_denied("not here")),
            "Hated" => return Err(Status::permission_denied("go away").with_scope(Scope::Connection)),
            _ => {}
        }
        call.metadata_mut().insert("k-added", "by the clerk");
        Ok(())
    }
}

fn reported() -> polyrpc::service::ServiceBuilder {
    use polyrpc::Context;
    use polyrpc::codec::Serde;
    polyrpc::service::ServiceBuilder::new("Told").method::<Serde, Option<String>, String, _, _>(
        "Metadata",
        |cx: Context, _| async {
            let added = cx.metadata().get("k-added").unwrap_or("nothing").to_owned();
            (cx, Ok(added))
        },
    )
}

#[tokio::test]
async fn hook_can_redirect_a_call_and_add_metadata() {
    let server = serve(Server::new().service(reported()).hook(Arc::new(Clerk::default()))).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        for name in ["Told/Metadata", "Elsewhere/Old"] {
            let answer: String = soon(client.call(name, "x")).await.unwrap();
            assert_eq!(answer, "by the clerk", "{protocol:?} {name}");
        }
    }
}

#[tokio::test]
async fn hook_can_reject_a_call_and_its_connection_stays_open() {
    let clerk = Arc::new(Clerk::default());
    let server = serve(Server::new().service(reported()).hook(clerk.clone())).await;
    for protocol in ADORNED {
        let mut wire = Wire::connect(protocol, &server).await;
        wire.send(1, &json_call("Told", "Forbidden", "\"x\"")).await;
        let status = wire.reply().await.unwrap().1.result.unwrap_err();
        assert!(status.message().contains("not here"), "{protocol:?}: {status}");
        wire.send(3, &json_call("Told", "Metadata", "\"x\"")).await;
        assert!(wire.reply().await.unwrap().1.result.is_ok(), "{protocol:?}");
    }
    for protocol in [Protocol::BaiduStd, Protocol::Rpcx] {
        let mut wire = Wire::connect(protocol, &server).await;
        wire.send(1, &json_call("Told", "Hated", "\"x\"")).await;
        assert!(wire.reply().await.unwrap().1.result.is_err(), "{protocol:?}");
        assert!(wire.reply().await.is_none(), "{protocol:?}");
    }
    clerk.seen.lock().unwrap().clear();
    let options = CallOptions { credential: Some("secret".into()), ..CallOptions::default() };
    let body = Body::new(Format::Json(polyrpc::Json::Go), "\"x\"");
    soon(client(Protocol::Rpcx, &server).call_raw("Told/Metadata", body, options)).await.unwrap();
    assert_eq!(*clerk.seen.lock().unwrap(), [Some(b"secret".to_vec())]);
}

/// Panics at every event.
struct Panics;

impl Hook for Panics {
    fn on_close(&self, _: &Connection) {
        panic!("closed");
    }

    fn on_request(&self, call: &mut IncomingCall<'_>) -> Result<(), Status> {
        assert_ne!(call.method(), "Wait", "no waiting");
        Ok(())
    }

    fn on_response(&self, _: &AnsweredCall<'_>) {
        panic!("answered");
    }
}

#[tokio::test]
async fn panicking_hook_fails_its_call_only() {
    let server = serve(Prober::default().server().hook(Panics)).await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        let error = soon(client.call::<String>("Probe/Wait", "x")).await.unwrap_err();
        assert!(error.message().contains("a hook panicked"), "{protocol:?}: {error}");
        assert_eq!(soon(client.call::<String>("Probe/Echo", "x")).await.unwrap(), "x", "{protocol:?}");
    }
}

#[tokio::test]
async fn hooks_see_heartbeats_and_pushes() {
    let log = Log::default();
    let service = Server::new().service({
        use polyrpc::Context;
        use polyrpc::codec::Serde;
        polyrpc::service::ServiceBuilder::new("S").method::<Serde, Option<String>, bool, _, _>(
            "Push",
            |cx: Context, _| async {
                let (service, method) = ("s".to_owned(), "news".to_owned());
                let push = Push { service, method, metadata: Default::default(), body: Bytes::new() };
                cx.pusher().push(push).unwrap();
                (cx, Ok(true))
            },
        )
    });
    let server = serve(service.hook(log.clone())).await;
    let mut socket = Socket::connect(&server).await;
    // An empty rpcx message with the heartbeat bit.
    let mut heartbeat = crate::common::rpcx_frame("", "", 1, false, b"");
    heartbeat[2] |= 0x40;
    socket.send(&heartbeat).await;
    until(|| log.lines().contains(&"heartbeat rpcx".to_owned())).await;
    let mut wire = Wire::new(socket, Protocol::Rpcx);
    wire.send(1, &json_call("S", "Push", "\"x\"")).await;
    wire.reply().await.unwrap();
    until(|| log.lines().contains(&"pushed news".to_owned())).await;
}

#[tokio::test]
async fn ip_lists_reject_connections() {
    let prober = Prober::default();
    let (outer, inner) = (Log::default(), Log::default());
    let server = prober.server().hook(outer.clone()).hook(IpList::deny(["127.0.0.0/8"]).unwrap());
    let server = serve(server.hook(inner.clone())).await;
    outer.take();
    inner.take();
    for protocol in PROTOCOLS {
        let error = soon(client(protocol, &server).call::<String>("Probe/Echo", "x")).await.unwrap_err();
        assert_ne!(error.code(), Code::DeadlineExceeded, "{protocol:?}: {error}");
    }
    let mut socket = Socket::connect(&server).await;
    assert!(socket.rest().await.is_empty());
    assert_eq!(prober.ran(), 0);
    // Hooks that saw a connection open see it close, others do not.
    until(|| server.connection_count() == 0).await;
    let (came, gone): (Vec<_>, Vec<_>) =
        outer.lines().into_iter().partition(|line| line.starts_with("accepted"));
    assert_eq!(came.len(), gone.len());
    assert_eq!(inner.lines(), [""; 0]);
    // In-process calls are still allowed.
    let inside = server.client(Protocol::Rpcx).unwrap();
    assert_eq!(soon(inside.call::<String>("Probe/Echo", "x")).await.unwrap(), "x");
}

#[tokio::test]
async fn connection_rate_can_be_limited() {
    let server = serve(Prober::default().server().hook(RateLimit::new(0.001, 2).for_connections())).await;
    let mut answers = Vec::new();
    for _ in 0..4 {
        let client = Client::new(&crate::common::url(Protocol::Rpcx, &server)).unwrap();
        answers.push(soon(client.call::<String>("Probe/Echo", "x")).await.is_ok());
    }
    assert_eq!(answers, [true, true, false, false]);
}
