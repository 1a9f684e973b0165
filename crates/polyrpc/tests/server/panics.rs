//! A panic ends its call and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyrpc::server::Listen;
use polyrpc::{Client, Context, Protocol, Result, Server};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::common::{Gate, PROTOCOLS, client, serve, soon};

#[polyrpc::service]
trait Fragile {
    async fn at_once(&self) -> Result<()>;
    async fn after_a_while(&self) -> Result<()>;
    #[rpc(blocking)]
    async fn blocking(&self) -> Result<()>;
    async fn reading(&self, mine: Mine) -> Result<()>;
    #[rpc(blocking)]
    async fn reading_aside(&self, mine: Mine) -> Result<()>;
    async fn writing(&self) -> Result<Mine>;
    async fn with_a_number(&self) -> Result<()>;
    async fn wait(&self, cx: &mut Context) -> Result<String>;
}

#[derive(Debug)]
struct Mine;

impl<'de> Deserialize<'de> for Mine {
    fn deserialize<D: Deserializer<'de>>(_: D) -> std::result::Result<Self, D::Error> {
        panic!("boom")
    }
}

impl Serialize for Mine {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match std::thread::current().name() {
            // The client's side must be able to write one.
            Some("client") => serializer.serialize_unit(),
            _ => panic!("boom"),
        }
    }
}

#[derive(Clone)]
struct Glass(Gate);

impl Fragile for Glass {
    async fn at_once(&self) -> Result<()> {
        panic!("boom")
    }

    async fn after_a_while(&self) -> Result<()> {
        tokio::task::yield_now().await;
        panic!("{}", "boom".to_owned())
    }

    async fn blocking(&self) -> Result<()> {
        panic!("boom")
    }

    async fn reading(&self, _: Mine) -> Result<()> {
        Ok(())
    }

    async fn reading_aside(&self, _: Mine) -> Result<()> {
        Ok(())
    }

    async fn writing(&self) -> Result<Mine> {
        Ok(Mine)
    }

    async fn with_a_number(&self) -> Result<()> {
        std::panic::panic_any(42)
    }

    async fn wait(&self, _: &mut Context) -> Result<String> {
        self.0.pass().await;
        Ok("waited".into())
    }
}

#[tokio::test]
async fn panic_anywhere_fails_its_call_only() {
    for protocol in PROTOCOLS {
        let gate = Gate::default();
        let server = serve(Server::new().service(FragileServer::new(Glass(gate.clone())))).await;
        let client = client(protocol, &server);
        let waiting = tokio::spawn({
            let fragile = FragileClient::new(client.clone());
            async move { fragile.wait().await }
        });
        gate.came(1).await;
        for method in ["AtOnce", "AfterAWhile", "Blocking", "Reading", "ReadingAside", "Writing"] {
            let error = soon(client.call::<()>(&format!("Fragile/{method}"), &1)).await.unwrap_err();
            let method_without_arguments = !method.starts_with("Reading");
            assert!(!error.message().contains("boom"), "{protocol:?} {method}: {error}");
            if method_without_arguments {
                let error = soon(client.call::<()>(&format!("Fragile/{method}"), &())).await.unwrap_err();
                assert!(
                    error.message().contains("[service internal error]: the handler panicked"),
                    "{protocol:?} {method}: {error}"
                );
            } else {
                assert!(
                    error.message().contains("[service internal error]: the handler panicked"),
                    "{protocol:?} {method}: {error}"
                );
            }
        }
        // rpcx names the method.
        for method in ["AtOnce", "AfterAWhile", "Blocking"] {
            let error = soon(client.call::<()>(&format!("Fragile/{method}"), &())).await.unwrap_err();
            let names = error.message()
                == format!("[service internal error]: the handler panicked, method: {method}");
            assert_eq!(names, protocol == Protocol::Rpcx, "{protocol:?} {method}: {error}");
        }
        let error = soon(client.call::<()>("Fragile/WithANumber", &())).await.unwrap_err();
        assert!(error.message().contains("the handler panicked"), "{protocol:?}: {error}");
        gate.open();
        assert_eq!(soon(waiting).await.unwrap().unwrap(), "waited", "{protocol:?}");
        assert_eq!(server.connection_count(), if protocol == Protocol::Http { 2 } else { 1 }, "{protocol:?}");
    }
}

#[tokio::test]
async fn function_that_panics_before_returning_its_future_fails_its_call_only() {
    let server = serve(Server::new().function("early", |fine: bool| {
        assert!(fine, "not fine");
        async { "fine".to_owned() }
    }))
    .await;
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        let error = client.call::<String>("early", &false).await.unwrap_err();
        assert!(!error.message().contains("not fine"), "{protocol:?}: {error}");
        assert_eq!(client.call::<String>("early", &true).await.unwrap(), "fine");
    }
}

#[tokio::test]
async fn server_that_exposes_errors_sends_the_panic_message() {
    let server = Server::new().service(FragileServer::new(Glass(Gate::default())));
    let server = serve(server.expose_errors()).await;
    for protocol in PROTOCOLS {
        for method in ["AtOnce", "AfterAWhile", "Blocking", "Writing"] {
            let call = format!("Fragile/{method}");
            let error = soon(client(protocol, &server).call::<()>(&call, &())).await.unwrap_err();
            let text = error.message();
            assert!(text.contains("[service internal error]: boom"), "{protocol:?} {method}: {text}");
        }
    }
}

#[tokio::test]
async fn panicking_authenticator_rejects_the_call() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let server = Server::new().function("run", move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async {}
    });
    let listen = Listen::on("127.0.0.1:0").authenticate(|_, _| panic!("boom"));
    let server = server.bind(listen).await.unwrap().start();
    for protocol in PROTOCOLS {
        let client = client(protocol, &server);
        for _ in 0..2 {
            soon(client.call::<()>("run", &())).await.unwrap_err();
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicking_push_handler_fails_no_call() {
    #[polyrpc::service]
    trait Pushes {
        async fn push(&self, cx: &mut Context) -> Result<u32>;
    }
    struct Pusher;
    impl Pushes for Pusher {
        async fn push(&self, cx: &mut Context) -> Result<u32> {
            let push = polyrpc::Push {
                service: "s".into(),
                method: "m".into(),
                metadata: Default::default(),
                body: Default::default(),
            };
            cx.pusher().push(push)?;
            Ok(1)
        }
    }
    let server = serve(Server::new().service(PushesServer::new(Pusher))).await;
    let pushed = Arc::new(AtomicUsize::new(0));
    let counted = pushed.clone();
    let client = Client::builder(&crate::common::url(Protocol::Rpcx, &server))
        .on_push(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("boom")
        })
        .build()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(soon(client.call::<u32>("Pushes/Push", &())).await.unwrap(), 1);
    }
    crate::common::until(|| pushed.load(Ordering::SeqCst) == 3).await;
    assert_eq!(server.connection_count(), 1);
}
