//! Client hooks: events, their order, and their effects.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyrpc::client::{Attempt, Hook, Request};
use polyrpc::codec::Body;
use polyrpc::{Address, Bytes, Client, Code, Context, Cores, Format, Metadata, Protocol, Server, Status};

use crate::common::{ProbeClient, Prober, serve, soon, unreachable_address, until, url};

/// Records all events.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn note(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn has(&self, note: &str) -> bool {
        self.0.lock().unwrap().iter().any(|known| known.starts_with(note))
    }
}

impl Hook for Notes {
    fn on_connect(&self, _: &Address) -> Result<(), Status> {
        self.note("connected");
        Ok(())
    }

    fn on_connect_error(&self, _: &Address, failure: &Status) {
        self.note(format!("connect failed: {}", failure.code()));
    }

    fn on_close(&self, _: &Address, reason: &Status) {
        self.note(format!("closed: {}", reason.message()));
    }

    fn on_attempt(&self, attempt: &Attempt<'_>) -> Result<(), Status> {
        self.note(format!("attempting {}/{}", attempt.service, attempt.method));
        Ok(())
    }

    fn on_attempt_end(&self, _: &Attempt<'_>, failure: Option<&Status>) {
        self.note(format!("attempted: {:?}", failure.map(Status::code)));
    }

    fn on_send(&self, _: &Attempt<'_>, _: &mut Metadata, body: &mut Bytes) {
        self.note(format!("sending {} bytes", body.len()));
    }

    fn on_receive(&self, _: &Attempt<'_>, _: &mut Metadata, result: &mut Result<Bytes, Status>) {
        self.note(format!("received: {}", result.is_ok()));
    }
}

fn hooked(protocol: Protocol, server: &polyrpc::server::ServerHandle, hook: impl Hook) -> Client {
    Client::builder(&url(protocol, server)).hook(hook).build().unwrap()
}

#[tokio::test]
async fn hooks_see_connection_events_and_each_attempt() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let notes = Notes::default();
    let client = hooked(Protocol::Rpcx, &server, notes.clone());
    let probe = ProbeClient::new(client.clone());
    probe.echo("hello".into()).await.unwrap();
    let reported = notes.take();
    assert_eq!(reported[..2], ["connected", "attempting Probe/Echo"]);
    assert!(reported[2].starts_with("sending "));
    assert_eq!(reported[3..], ["received: true", "attempted: None"]);
    let missing: polyrpc::client::Result<String> = client.call("Probe/nope", &()).await;
    let code = missing.unwrap_err().code();
    let reported = notes.take();
    assert_eq!(reported[0], "attempting Probe/nope", "the connection is there already");
    assert_eq!(reported[2..], ["received: false".to_owned(), format!("attempted: {:?}", Some(code))]);
    drop(server);
    until(|| notes.has("closed: ")).await;
}

#[tokio::test]
async fn hooks_see_a_cancelled_call() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let notes = Notes::default();
    let probe = ProbeClient::new(hooked(Protocol::Grpc, &server, notes.clone()));
    let call = tokio::spawn(async move { probe.wait("x".into()).await });
    prober.gate.came(1).await;
    call.abort();
    until(|| notes.has("attempted: Some(Cancelled)")).await;
}

#[tokio::test]
async fn hooks_see_a_failed_connect() {
    let notes = Notes::default();
    let url = format!("rpcx://{}", unreachable_address());
    let client = Client::builder(&url).hook(notes.clone()).build().unwrap();
    assert_eq!(client.call::<()>("m", &()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(notes.take(), ["connect failed: unavailable"]);
}

/// Fails at a given event.
struct Objection(&'static str);

impl Hook for Objection {
    fn on_connect(&self, _: &Address) -> Result<(), Status> {
        self.object("connected")
    }

    fn on_attempt(&self, _: &Attempt<'_>) -> Result<(), Status> {
        self.object("attempting")
    }
}

impl Objection {
    fn object(&self, here: &str) -> Result<(), Status> {
        if self.0 == here { Err(Status::permission_denied("I object")) } else { Ok(()) }
    }
}

#[tokio::test]
async fn hook_that_fails_ends_the_call_or_the_connection() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    for stage in ["connected", "attempting"] {
        for protocol in [Protocol::Rpcx, Protocol::Grpc] {
            let probe = ProbeClient::new(hooked(protocol, &server, Objection(stage)));
            let error = soon(probe.echo("x".into())).await.unwrap_err();
            assert_eq!((error.code(), error.message()), (Code::PermissionDenied, "I object"), "{stage}");
        }
    }
    assert_eq!(prober.ran(), 0);
    until(|| server.connection_count() <= 2).await;
}

/// Edits requests and replies.
struct Editor;

impl Hook for Editor {
    fn on_send(&self, attempt: &Attempt<'_>, metadata: &mut Metadata, _: &mut Bytes) {
        metadata.insert("method", attempt.method.to_owned());
    }

    fn on_receive(&self, _: &Attempt<'_>, metadata: &mut Metadata, _: &mut Result<Bytes, Status>) {
        metadata.insert("seen", "yes");
    }
}

#[polyrpc::service]
trait Tell {
    async fn tell(&self, cx: &mut Context) -> polyrpc::Result<String>;
}

struct Teller;

impl Tell for Teller {
    async fn tell(&self, cx: &mut Context) -> polyrpc::Result<String> {
        Ok(cx.metadata().get("method").unwrap_or("-").to_owned())
    }
}

#[tokio::test]
async fn hooks_can_edit_requests_and_replies() {
    let server = serve(Server::new().service(TellServer::new(Teller))).await;
    for protocol in [Protocol::BaiduStd, Protocol::Rpcx, Protocol::Http] {
        let tell = TellClient::new(hooked(protocol, &server, Editor));
        let reply = tell.tell_with(Request::new(())).await.unwrap();
        assert_eq!((&*reply.message, reply.metadata.get("seen")), ("Tell", Some("yes")), "{protocol:?}");
    }
}

#[tokio::test]
async fn blocking_client_rejects_what_needs_a_runtime() {
    let builder = || Client::builder("rpcx://127.0.0.1:1");
    for builder in [
        builder().hook(Editor),
        builder().keepalive(Duration::from_secs(10)),
        builder().executor(Cores::start(1).unwrap()),
    ] {
        assert_eq!(builder.build_blocking().unwrap_err().code(), Code::Unimplemented);
    }
    let client = builder().build_blocking().unwrap();
    let options = Request::new(()).with_wait_for_ready().options;
    let body = Body::new(Format::MessagePack, Bytes::new());
    let error = client.call_raw("Tell/Tell", body, options).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented, "{error}");
}
