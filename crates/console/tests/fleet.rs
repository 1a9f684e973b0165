//! The servers of a registry on one page: consoles, a server with brpc's text pages, and peers that mean harm.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::{Answer, page, send, wait_until};
use polyrpc::discovery::{Advertisement, Attributes, InProcess, Instance, Registrar};
use polyrpc::layers::Metrics;
use polyrpc::server::{Registration, ServerHandle};
use polyrpc::{Client, Server};
use polyrpc_console::{Admin, AdminHandle, Console, Role};
use serde_json::Value;

const WRITE: &str = "a-token-for-writing";
const SERVICE: &str = "Shop";

const STATUS: &str = "version: <script>alert(1)</script>\nconnection_count: 3\n[Shop]\n\nBuy (Request) returns (Response)\n\
                      count: 9\nqps: 7\nerror: 0\neps: 0\nlatency_50: 11\nlatency_99: 22\nconcurrency: 1\n";

/// A server with its console, listed in a registry with the address of its pages.
async fn member(
    registry: &InProcess,
    version: &str,
    delay: Duration,
) -> (Console, ServerHandle, AdminHandle) {
    // The port of its pages is known before it is published.
    let console = Console::new();
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, WRITE).anonymous(Role::Read).writable();
    let admin = admin.start(&console).unwrap();
    let buy = move || async move { tokio::time::sleep(delay).await };
    let attributes = Attributes::new().with("admin", admin.address().to_string());
    let registration =
        Registration::new().attributes(attributes).refresh_interval(Duration::from_millis(100));
    let server = Server::new().version(version).function("Shop/Buy", buy).count_calls(&Metrics::new());
    let server = server.register_in(registry.clone(), registration);
    let server = server.bind("127.0.0.1:0").await.unwrap().start();
    console.observe(&server);
    (console, server, admin)
}

/// A peer that answers each request with what a function makes of its target.
fn peer(answer: impl Fn(&str) -> Option<String> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut line = String::new();
            let _ = BufReader::new(&mut stream).read_line(&mut line);
            let target = line.split(' ').nth(1).unwrap_or_default();
            match answer(target) {
                Some(body) => drop(write!(stream, "HTTP/1.1 200 OK\r\n\r\n{body}")),
                // No answer, until the other side leaves.
                None => drop(thread::spawn(move || drop(stream.read(&mut [0; 64])))),
            }
        }
    });
    address
}

async fn list(registry: &InProcess, address: &str) {
    let advertisement = Advertisement::new(SERVICE, Instance::tcp(address), Duration::from_secs(600));
    registry.publish(&advertisement).await.unwrap();
}

fn data(admin: &AdminHandle) -> Value {
    page(admin, "/fleet?format=json").json()["data"].clone()
}

/// Waits until the page has what is expected; returns it as it was then.
async fn wait_for(admin: &AdminHandle, is: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let known = data(admin);
        if is(&known) {
            return known;
        }
        assert!(Instant::now() < end, "{known:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn row(data: &Value, address: &str) -> Value {
    let rows = data["servers"].as_array().unwrap();
    rows.iter().find(|row| row["address"] == address).cloned().unwrap_or_default()
}

fn post(admin: &AdminHandle, fields: &str, body: &str) -> Answer {
    send(admin.address(), "POST", "/fleet", fields, body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_of_a_registry_are_on_one_page() {
    let registry = InProcess::new();
    let fast = Duration::from_millis(1);
    let (_one, first, _first) = member(&registry, "1", fast).await;
    let (_two, second, _second) = member(&registry, "1", fast).await;
    let (_three, third, _third) = member(&registry, "2", Duration::from_millis(60)).await;
    let brpc = peer(|target| match target {
        "/status?console=1" => Some(STATUS.into()),
        "/health" => Some("OK".into()),
        "/version?console=1" => Some("Impl".into()),
        "/vars/process_uptime?console=1" => Some("process_uptime : 12.5\r\n".into()),
        _ => Some("not found".into()),
    });
    let silent = peer(|_| None);
    let endless = peer(|_| Some("x".repeat(2 << 20)));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for address in [&brpc, &silent, &endless, &gone] {
        list(&registry, address).await;
    }

    let console = Console::new();
    console
        .observe_fleet("the <b>shop</b>", Box::new(registry.discover(SERVICE)), Some(WRITE.into()))
        .unwrap();
    let admin = Admin::on("127.0.0.1:0").token(Role::Write, WRITE).anonymous(Role::Read).writable();
    let admin = admin.start(&console).unwrap();
    let servers = [&first, &second, &third].map(|server| server.address().to_string());
    let calls: Vec<_> = servers.iter().cloned().map(|address| tokio::spawn(call(address))).collect();

    let known = wait_for(&admin, |known| {
        known["reachable"] == 4
            && row(known, &silent)["state"] == "unreachable"
            && row(known, &servers[2])["outlier"].is_string()
    })
    .await;
    for (address, why) in [(&silent, "no answer within 3 s"), (&endless, "too long"), (&gone, "refused")] {
        let failure = row(&known, address)["failure"].clone();
        assert!(failure.as_str().is_some_and(|text| text.contains(why)), "{address}: {failure}");
    }
    let of_brpc = row(&known, &brpc);
    assert_eq!((of_brpc["kind"].as_str(), of_brpc["p99"].as_u64()), (Some("brpc"), Some(22)), "{of_brpc}");
    assert_eq!((of_brpc["uptime"].as_f64(), of_brpc["connections"].as_u64()), (Some(12.5), Some(3)));
    let slow = row(&known, &servers[2]);
    assert!(slow["p50"].as_u64().is_some_and(|p50| p50 > 40_000), "{slow}");
    // The method of all servers: most calls are quick, and the slow ones are its upper end.
    let method =
        known["methods"].as_array().unwrap().iter().find(|method| method["name"] == "Shop/Buy").unwrap();
    assert_eq!((method["servers"].as_u64(), method["without"].as_u64()), (Some(4), Some(1)), "{method}");
    let percentile = |at: usize| method["percentiles"][at].as_u64().unwrap();
    assert!(percentile(0) < 40_000 && percentile(3) > 40_000, "{method}");
    assert!(known["versions"].as_array().unwrap().iter().any(|version| version[0] == "2"), "{known}");

    let html = send(admin.address(), "GET", "/fleet", "User-Agent: Mozilla/5.0\r\n", "").body;
    assert!(html.contains("&lt;script&gt;alert(1)") && !html.contains("<script>alert"), "{html}");
    assert!(html.contains("the &lt;b&gt;shop&lt;/b&gt;") && !html.contains("name=token"), "{html}");
    let text = page(&admin, "/fleet").body;
    assert!(text.contains("\nShop/Buy (4): ") && text.contains("version 2: "), "{text}");

    drain(&admin, &registry, &servers, &brpc).await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Calls a server again and again.
async fn call(address: String) {
    let client = Client::new(&format!("rpcx://{address}")).unwrap();
    loop {
        // A drained connection refuses calls for a moment.
        let _: Result<(), _> = client.call("Shop/Buy", &()).await;
    }
}

async fn drain(admin: &AdminHandle, registry: &InProcess, servers: &[String; 3], brpc: &str) {
    let bearer = format!("Authorization: Bearer {WRITE}\r\n");
    assert_eq!(post(admin, "", &format!("drain={}", servers[0])).status, 403);
    assert_eq!(post(admin, &bearer, "drain=127.0.0.1:1").status, 404, "only what is listed is called");
    assert_eq!(post(admin, &bearer, "x=y").status, 400);
    assert_eq!(post(admin, &bearer, &format!("drain={}", servers[0])).status, 303);
    wait_until(|| row(&data(admin), &servers[0])["state"] == "not ready").await;
    let is_inactive = || {
        let listed = registry.list();
        let own = listed[SERVICE].iter().find(|instance| instance.address == servers[0]);
        own.is_some_and(|instance| instance.attributes.value("state") == Some("inactive"))
    };
    wait_until(is_inactive).await;
    // It holds, over several refreshes of the entry.
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        assert!(is_inactive());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    wait_for(admin, |known| known["skews"].as_array().unwrap().iter().any(|skew| skew[0] == "drain")).await;
    assert_eq!(post(admin, &bearer, &format!("serve={}", servers[0])).status, 303);
    wait_until(|| row(&data(admin), &servers[0])["state"] == "ready").await;
    assert_eq!(post(admin, &bearer, &format!("drain={brpc}")).status, 303);
    wait_until(|| row(&data(admin), brpc)["order"] == "refused: the server has no setting drain").await;
}

/// Its services were queried instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_an_unusable_attribute_admin_is_not_queried() {
    let registry = InProcess::new();
    let server = peer(|_| Some("OK".into()));
    let instance = Instance::tcp(&server).with(Attributes::new().with("admin", "https://admin.example"));
    let advertisement = Advertisement::new(SERVICE, instance, Duration::from_secs(600));
    registry.publish(&advertisement).await.unwrap();
    let console = Console::new();
    console.observe_fleet("shop", Box::new(registry.discover(SERVICE)), None).unwrap();
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let known = wait_for(&admin, |known| row(known, &server)["state"] == "unreachable").await;
    let failure = row(&known, &server)["failure"].clone();
    assert!(failure.as_str().is_some_and(|why| why.contains("https is not supported")), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn process_without_a_registry_says_so() {
    let admin = Admin::on("127.0.0.1:0").start(&Console::new()).unwrap();
    let answer = send(admin.address(), "GET", "/fleet", "", "");
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("polyrpc console REGISTRY-URL"), "{answer:?}");
    assert_eq!(page(&admin, "/fleet/self").json()["page"], "fleet-self");
    assert_eq!(send(admin.address(), "GET", "/fleet/x", "", "").status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_shows_the_graph_of_calls() {
    let registry = InProcess::new();
    let (_console, shop, _shop) = member(&registry, "1", Duration::ZERO).await;
    let (front_console, front, _front) = member(&registry, "1", Duration::ZERO).await;
    // One that is in no registry.
    let outside = Server::new().function("Shop/Buy", || async {}).bind("127.0.0.1:0").await.unwrap().start();
    let client = Client::new(&format!("rpcx+list://{},{}", shop.address(), outside.address())).unwrap();
    let _shown = front_console.observe_client("the <b>shop</b>", &client);
    let console = Console::new();
    console.observe_fleet("shop", Box::new(registry.discover(SERVICE)), Some(WRITE.into())).unwrap();
    let admin = Admin::on("127.0.0.1:0").start(&console).unwrap();
    let calls = tokio::spawn(async move {
        loop {
            let () = client.call("Shop/Buy", &()).await.unwrap();
        }
    });
    let (caller, callee) = (front.address().to_string(), shop.address().to_string());
    let link = |data: &Value, callee: &str| {
        let links = data["calls"]["links"].as_array().cloned().unwrap_or_default();
        links.into_iter().find(|link| link["caller"] == *caller && link["callee"] == *callee)
    };
    let known = wait_for(&admin, |known| {
        [&callee, &outside.address().to_string()]
            .iter()
            .all(|callee| link(known, callee).is_some_and(|link| link["per_second"].as_f64() > Some(0.0)))
    })
    .await;
    let (inner, outer) =
        (link(&known, &callee).unwrap(), link(&known, &outside.address().to_string()).unwrap());
    assert_eq!(
        (inner["is_listed"].as_bool(), outer["is_listed"].as_bool()),
        (Some(true), Some(false)),
        "{known}"
    );
    assert_eq!(
        (inner["client"].as_str(), inner["protocol"].as_str()),
        (Some("the <b>shop</b>"), Some("rpcx"))
    );
    let nodes = known["calls"]["nodes"].as_array().unwrap();
    assert!(
        nodes.iter().any(|node| node["servers"] == 2) && nodes.iter().any(|node| node["servers"] == 0),
        "{known}"
    );
    let html = send(admin.address(), "GET", "/fleet", "User-Agent: Mozilla/5.0\r\n", "").body;
    assert!(html.contains("<svg class=calls ") && html.contains("not in the registry"), "{html}");
    assert!(html.contains("the &lt;b&gt;shop") && !html.contains("<b>shop"), "{html}");
    assert!(page(&admin, "/fleet").body.lines().any(|line| line.starts_with("calls ")));
    calls.abort();
}
