//! What callers of the role `Write` do besides changing the program's own settings: filter the log, drain, end connections.

mod common;

use std::sync::{Arc, Mutex};

use common::{observe, send, services, wait_until};
use polyrpc::discovery::{Attributes, InProcess};
use polyrpc::layers::Metrics;
use polyrpc::server::Registration;
use polyrpc::{Address, Client};
use polyrpc_console::{Admin, AdminHandle, Console, Role};

const WRITE: &str = "a-token-for-writing";

fn writable(console: &Console) -> AdminHandle {
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, WRITE).anonymous(Role::Read);
    admin.writable().start(console).unwrap()
}

/// Changes a setting; returns the status.
fn set(admin: &AdminHandle, target: &str) -> u16 {
    send(admin.address(), "GET", target, &format!("Authorization: Bearer {WRITE}\r\n"), "").status
}

fn json(address: &Address, target: &str) -> serde_json::Value {
    send(address, "GET", target, "Accept: application/json\r\n", "").json()
}

fn port(address: &Address) -> String {
    address.to_string().rsplit_once(':').unwrap().1.to_owned()
}

/// The filter is a setting of the process: one test has it all.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn log_filter_is_changed_recorded_and_expires() {
    let (console, _server) = observe(services()).await;
    let applied = Arc::new(Mutex::new(Vec::new()));
    let seen = applied.clone();
    console.log_filter("info", move |filter| {
        seen.lock().unwrap().push(filter.to_owned());
        true
    });
    let admin = writable(&console);
    assert_eq!(json(admin.address(), "/vlog")["data"]["filter"], "info");
    assert_eq!(send(admin.address(), "GET", "/vlog?setvalue=debug", "", "").status, 403);
    for wrong in ["loud", "", "polyrpc=loud"] {
        assert_eq!(set(&admin, &format!("/vlog?setvalue={wrong}")), 400, "{wrong}");
    }
    assert_eq!(set(&admin, "/vlog?setvalue=polyrpc%3Dtrace,warn&for=5s"), 200);
    assert_eq!(json(admin.address(), "/vlog")["data"]["filter"], "polyrpc=trace,warn");
    let changes = json(admin.address(), "/flags/log_filter")["data"]["changes"].clone();
    assert_eq!(changes[0]["old"], "info");
    assert!(changes[0]["author"].as_str().unwrap().starts_with("token from 127.0.0.1"), "{changes}");
    wait_until(|| json(admin.address(), "/vlog")["data"]["filter"] == "info").await;
    assert_eq!(*applied.lock().unwrap(), ["polyrpc=trace,warn", "info"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn drained_server_is_not_ready_and_ends_its_connections() {
    let registry = InProcess::new();
    let console = Console::new();
    let registration = Registration::new().attributes(Attributes::new().with("weight", "5"));
    let registration = registration.services(["example.EchoService"]);
    let server = services().count_calls(&Metrics::new()).register_in(registry.clone(), registration);
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    console.observe(&server);
    let admin = writable(&console);
    assert_eq!(set(&admin, "/flags/drain_delay_second?setvalue=0"), 200);
    let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
    let _: i64 = client.call("add", &(1, 2)).await.unwrap();
    assert_eq!(server.connection_count(), 1);
    let port = port(server.address());
    let attribute = |name: &str| {
        let entries = registry.list();
        let instance = entries.get("example.EchoService").and_then(|instances| instances.first());
        instance.and_then(|instance| instance.attributes.value(name).map(str::to_owned))
    };
    assert_eq!(set(&admin, &format!("/flags/weight@{port}?setvalue=9")), 200);
    assert_eq!(set(&admin, &format!("/flags/weight@{port}?setvalue=x")), 400);
    wait_until(|| attribute("weight").as_deref() == Some("9")).await;
    assert_eq!(set(&admin, &format!("/flags/drain@{port}?setvalue=maybe")), 400);
    assert_eq!(set(&admin, &format!("/flags/drain@{port}?setvalue=true")), 200);
    assert_eq!(send(admin.address(), "GET", "/readyz", "", "").status, 503);
    wait_until(|| attribute("state").as_deref() == Some("inactive")).await;
    wait_until(|| server.connection_count() == 0).await;
    // Callers that look at neither are served.
    let _: i64 = client.call("add", &(1, 2)).await.unwrap();
    assert_eq!(set(&admin, &format!("/flags/drain@{port}?setvalue=false")), 200);
    assert_eq!(send(admin.address(), "GET", "/readyz", "", "").status, 200);
    wait_until(|| attribute("state").is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_are_ended_from_their_list() {
    let (console, server) = observe(services()).await;
    let admin = writable(&console);
    for action in ["close", "drain"] {
        let client = Client::new(&format!("rpcx://{}", server.address())).unwrap();
        let _: i64 = client.call("add", &(1, 2)).await.unwrap();
        let id = json(admin.address(), "/connections")["data"]["connections"][0]["id"].clone();
        let body = format!("{action}={id}");
        let post =
            |fields: &str, body: &str| send(admin.address(), "POST", "/connections", fields, body).status;
        assert_eq!(post("", &body), 403);
        let bearer = format!("Authorization: Bearer {WRITE}\r\n");
        assert_eq!(post(&bearer, "close=x"), 400);
        assert_eq!(post(&bearer, &format!("{action}=999999")), 404);
        assert_eq!(post(&bearer, &body), 303);
        wait_until(|| server.connection_count() == 0).await;
    }
    // Readers see no buttons.
    let html = send(admin.address(), "GET", "/connections", "User-Agent: Mozilla/5.0\r\n", "").body;
    assert!(!html.contains("name=token") && !html.contains("<button name="), "{html}");
}
