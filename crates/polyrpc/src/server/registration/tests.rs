use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use polyrpc_core::Status;
use polyrpc_wire::Protocol;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;
use crate::Client;
use crate::client::Result;
use crate::discovery::testing::next_text;
use crate::discovery::{Discover, InProcess, Registrar};
use crate::introspection::Health;
use crate::server::{Server, ServerHandle};

fn server() -> Server {
    Server::new().function("Arith/Add", |a: i64, b: i64| async move { a + b })
}

async fn start(server: Server) -> ServerHandle {
    server.bind("127.0.0.1:0").await.unwrap().start()
}

/// Waits until the service is published.
async fn wait_published(registry: &InProcess, service: &str) -> String {
    let mut sets = registry.discover(service).watch();
    loop {
        let text = next_text(&mut sets).await;
        if !text.is_empty() {
            return text;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn server_is_registered_when_it_runs_and_withdrawn_at_shutdown() {
    let registry = InProcess::new();
    let bound = server()
        .function("Echo/Say", |text: String| async move { text })
        .health(&Health::new())
        .reflection()
        .register_in(registry.clone(), Registration::new())
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(registry.list().is_empty(), "bound but not running");
    let address = bound.address().to_string();
    let running = bound.start();
    assert_eq!(wait_published(&registry, "Arith").await, format!("tcp@{address}"));
    assert_eq!(wait_published(&registry, "Echo").await, format!("tcp@{address}"));
    assert_eq!(registry.list().len(), 2, "the server's built-in services are not registered");
    running.shutdown(Duration::from_secs(1)).await;
    assert!(registry.list().is_empty());
}

#[tokio::test]
async fn server_is_withdrawn_before_it_rejects_calls() {
    let (registry, entered_call, go_on) =
        (InProcess::new(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, wait) = (entered_call.clone(), go_on.clone());
    let slow = move || {
        let (begun, wait) = (begun.clone(), wait.clone());
        async move {
            begun.notify_one();
            wait.notified().await;
            "done".to_owned()
        }
    };
    let running =
        start(Server::new().function("S/Slow", slow).register_in(registry.clone(), Registration::new()))
            .await;
    wait_published(&registry, "S").await;
    let client = running.client(Protocol::Rpcx).unwrap();
    let call = tokio::spawn(async move { client.call::<String>("S/Slow", &()).await });
    entered_call.notified().await;
    let mut sets = registry.discover("S").watch();
    sets.next().await.unwrap().unwrap();
    let shutdown = tokio::spawn(running.shutdown(Duration::from_secs(10)));
    assert_eq!(next_text(&mut sets).await, "");
    assert!(!shutdown.is_finished(), "it still answers the call that it accepted");
    go_on.notify_one();
    assert_eq!(call.await.unwrap().unwrap(), "done");
    shutdown.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn lost_registration_is_restored_within_seconds() {
    let registry = InProcess::new();
    let running = start(server().register_in(registry.clone(), Registration::new())).await;
    wait_published(&registry, "Arith").await;
    for _ in 0..5 {
        registry.clear();
        let lost = Instant::now();
        wait_published(&registry, "Arith").await;
        assert!(lost.elapsed() < Duration::from_secs(4));
    }
    // It is refreshed before it expires.
    let mut sets = registry.discover("Arith").watch();
    sets.next().await.unwrap().unwrap();
    let unchanged = tokio::time::timeout(Duration::from_secs(60), sets.next()).await;
    assert!(unchanged.is_err());
    drop(running);
    assert_eq!(next_text(&mut sets).await, "", "a server that vanished expires");
}

#[tokio::test(start_paused = true)]
async fn attributes_can_change_while_the_server_runs() {
    let registry = InProcess::new();
    let attributes = |text: &str| text.parse::<Attributes>().unwrap();
    let registration = Registration::new()
        .attributes(attributes("group=a&group=b&weight=3"))
        .attributes_of("Arith", attributes("weight=4&x=1"))
        .advertise("example.org:80");
    let more = server().function("Echo/Say", |text: String| async move { text });
    let running = start(more.register_in(registry.clone(), registration)).await;
    let (mut arith, mut echo) = (registry.discover("Arith").watch(), registry.discover("Echo").watch());
    wait_published(&registry, "Echo").await;
    wait_published(&registry, "Arith").await;
    assert_eq!(next_text(&mut arith).await, "tcp@example.org:80?group=a&group=b&weight=4&x=1");
    assert_eq!(next_text(&mut echo).await, "tcp@example.org:80?group=a&group=b&weight=3");

    let before = Instant::now();
    let registration = running.registration();
    registration.set("weight", "5");
    registration.set("weight", "5");
    assert_eq!(next_text(&mut arith).await, "tcp@example.org:80?group=a&group=b&weight=5&x=1");
    assert_eq!(next_text(&mut echo).await, "tcp@example.org:80?group=a&group=b&weight=5");
    registration.set_of("Arith", "state", "inactive");
    assert_eq!(next_text(&mut arith).await, "tcp@example.org:80?group=a&group=b&state=inactive&weight=5&x=1");
    registration.remove("group");
    registration.remove("state");
    assert_eq!(next_text(&mut arith).await, "tcp@example.org:80?weight=5&x=1");
    assert_eq!(next_text(&mut echo).await, "tcp@example.org:80?weight=5");
    assert!(before.elapsed() < Duration::from_millis(100), "changes are registered at once");
}

#[tokio::test(start_paused = true)]
async fn call_and_connection_rates_are_reported() {
    let registry = InProcess::new();
    let running = start(server().register_in(registry.clone(), Registration::new().publish_rates())).await;
    let address = running.address().to_string();
    let mut sets = registry.discover("Arith").watch();
    wait_published(&registry, "Arith").await;
    assert!(next_text(&mut sets).await.ends_with("?calls=0.00&connections=0.00"));
    for _ in 0..3 {
        let client = Client::new(&format!("rpcx://{address}")).unwrap();
        for _ in 0..10 {
            assert_eq!(client.call::<i64>("Arith/Add", &(1, 2)).await.unwrap(), 3);
        }
    }
    let attributes = sets.next().await.unwrap().unwrap().remove(0).attributes;
    let rate = |name| attributes.value(name).unwrap().parse::<f64>().unwrap();
    // Thirty calls and three connections within the first period, which is 3 s, give or take a tenth.
    assert!((9.0..=11.2).contains(&rate("calls")), "{attributes}");
    assert!((0.9..=1.12).contains(&rate("connections")), "{attributes}");
}

/// A registry that can be down.
#[derive(Clone, Default)]
struct Flaky {
    registry: InProcess,
    is_down: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Flaky {
    async fn ask(&self) -> Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match self.is_down.load(Ordering::Relaxed) {
            true => Err(Status::unavailable("no registry").into()),
            false => Ok(()),
        }
    }
}

impl Registrar for Flaky {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async move {
            self.ask().await?;
            self.registry.publish(entry).await
        }
        .boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async move {
            self.ask().await?;
            self.registry.withdraw(entry).await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_registry_is_retried_and_reported() {
    let flaky = Flaky::default();
    flaky.is_down.store(true, Ordering::Relaxed);
    let events = Arc::new(Mutex::new(Vec::new()));
    let telling = events.clone();
    let registration = Registration::new().on_event(move |event| {
        let text = match event {
            RegistrationEvent::Registered(entry) => format!("entered {}", entry.service),
            RegistrationEvent::Failed(entry, error) => format!("{}: {}", entry.service, error.message()),
            RegistrationEvent::Deregistered(entry) => format!("withdrawn {}", entry.service),
            RegistrationEvent::Overridden(entry) => format!("overruled {}", entry.service),
        };
        telling.lock().unwrap().push(text);
        panic!("a listener's error does not affect the others");
    });
    let running = start(server().register_in(flaky.clone(), registration)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let asked = flaky.asked.load(Ordering::Relaxed);
    assert!((15..=30).contains(&asked), "it was asked {asked} times in 30 s");

    flaky.is_down.store(false, Ordering::Relaxed);
    let back = Instant::now();
    wait_published(&flaky.registry, "Arith").await;
    assert!(back.elapsed() < Duration::from_secs(2));
    running.shutdown(Duration::from_secs(1)).await;
    let mut events = events.lock().unwrap().clone();
    events.dedup();
    assert_eq!(events, ["Arith: no registry", "entered Arith", "withdrawn Arith"]);
}

#[tokio::test(start_paused = true)]
async fn silent_registry_does_not_block_for_long() {
    let flaky = Flaky::default();
    flaky.hangs.store(true, Ordering::Relaxed);
    let running = start(server().register_in(flaky.clone(), Registration::new())).await;
    let client = running.client(Protocol::Rpcx).unwrap();
    assert_eq!(client.call::<i64>("Arith/Add", &(1, 2)).await.unwrap(), 3);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(flaky.asked.load(Ordering::Relaxed) >= 2, "it is asked again");
    drop(client);
    let before = Instant::now();
    running.shutdown(Duration::from_secs(1)).await;
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
}

#[tokio::test]
async fn invalid_registration_fails_the_bind() {
    let refused = async |server: Server, registration| {
        let bound = server.register_in(InProcess::new(), registration).bind("127.0.0.1:0").await;
        bound.unwrap_err().to_string()
    };
    let functions = || Server::new().function("add", |a: i64, b: i64| async move { a + b });
    assert!(refused(functions(), Registration::new()).await.contains("Registration::functions_as"));
    assert!(refused(server(), Registration::new().services(["Echo"])).await.contains("no service `Echo`"));
    assert!(
        refused(server(), Registration::new().advertise("a:b")).await.contains("expected network@host:port")
    );

    let registry = InProcess::new();
    let named = Registration::new().functions_as("calc");
    let _running = start(functions().register_in(registry.clone(), named)).await;
    wait_published(&registry, "calc").await;
}

#[tokio::test(start_paused = true)]
async fn external_changes_in_a_registry_are_kept_and_applied() {
    let (registry, other) = (InProcess::new(), InProcess::new());
    let overruled = Arc::new(Mutex::new(Vec::new()));
    let told_of = overruled.clone();
    let registration = Registration::new()
        .advertise("h:1")
        .attributes("weight=3".parse::<Attributes>().unwrap())
        .on_event(move |event| {
            if let RegistrationEvent::Overridden(entry) = event {
                told_of.lock().unwrap().push(entry.instance.attributes.is_active());
            }
        });
    let server = server().register_in(registry.clone(), registration.clone());
    let running = start(server.register_in(other.clone(), registration)).await;
    let (mut here, mut there) = (registry.discover("Arith").watch(), other.discover("Arith").watch());
    wait_published(&registry, "Arith").await;
    wait_published(&other, "Arith").await;
    assert_eq!(next_text(&mut here).await, "tcp@h:1?weight=3");
    assert_eq!(next_text(&mut there).await, "tcp@h:1?weight=3");

    // As rpcx-ui writes it: in addition to the existing attributes.
    let say = |name: &'static str, value: &'static str| {
        assert!(registry.change("Arith", "h:1", |attributes| attributes.set(name, value)));
    };
    say("note", "by hand");
    assert_eq!(next_text(&mut here).await, "tcp@h:1?note=by+hand&weight=3");
    say("state", "inactive");
    assert_eq!(next_text(&mut here).await, "tcp@h:1?note=by+hand&state=inactive&weight=3");
    // It is so in all registries, and stays so.
    assert_eq!(next_text(&mut there).await, "tcp@h:1?state=inactive&weight=3");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(registry.list()["Arith"][0].to_string(), "tcp@h:1");
    let attributes = registry.list()["Arith"][0].attributes.to_string();
    assert_eq!(attributes, "note=by+hand&state=inactive&weight=3");
    assert!(overruled.lock().unwrap().ends_with(&[false]));

    say("state", "active");
    assert_eq!(next_text(&mut here).await, "tcp@h:1?note=by+hand&state=active&weight=3");
    assert_eq!(next_text(&mut there).await, "tcp@h:1?state=active&weight=3");
    assert!(overruled.lock().unwrap().ends_with(&[true]));
    // Others may overrule the server, until it sets another value.
    say("weight", "9");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(registry.list()["Arith"][0].attributes.value("weight"), Some("9"));
    running.registration().set("weight", "4");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(registry.list()["Arith"][0].attributes.value("weight"), Some("4"));
}
