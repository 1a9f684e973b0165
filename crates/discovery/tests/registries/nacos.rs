//! Nacos: a fake of both versions of its HTTP API, and a real server (r-nacos) if one is installed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake::{Fake, FakeRequest, Program, Reply, entry, free_port, next, next_set, until};
use futures_util::future::join_all;
use polyrpc::Code;
use polyrpc::discovery::{Attributes, Discover, Registrar};
use polyrpc_discovery::nacos::Nacos;
use polyrpc_discovery::{discover, registrar};
use serde_json::{Value, json};

/// A fake Nacos with the used part of the API.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    hosts: BTreeMap<String, (Attributes, Value)>,
    newer: bool,
    /// The required token.
    token: Option<String>,
    logins: usize,
    beats: usize,
    /// Overrides the response to a beat.
    mute: bool,
}

impl Server {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn newer() -> Self {
        let server = Self::new();
        server.0.lock().unwrap().newer = true;
        server
    }

    async fn serve(&self) -> Fake {
        let server = self.clone();
        Fake::start(move |asked| {
            let server = server.clone();
            async move { server.answer(&asked) }
        })
        .await
    }

    fn answer(&self, asked: &FakeRequest) -> Reply {
        let state = &mut *self.0.lock().unwrap();
        let (line, newer) = (asked.line(), state.newer);
        let (login, instance) = match newer {
            false => ("POST /nacos/v1/auth/login", "/nacos/v1/ns/instance"),
            true => ("POST /nacos/v3/auth/user/login", "/nacos/v3/client/ns/instance"),
        };
        if line == login {
            return state.log_in(asked);
        }
        let Some(path) = asked.path.strip_prefix(instance) else { return Reply::status(404, "No endpoint") };
        if state.token.is_some() && asked.query.value("accessToken") != state.token.as_deref() {
            return Reply::status(403, r#"{"status":403,"message":"token invalid"}"#);
        }
        let beats = path == "/beat" || asked.query.value("heartBeat") == Some("true");
        match (&*asked.method, path) {
            ("GET", "/list") => state.list(&asked.query),
            (_, _) if beats => state.beat(&asked.query),
            ("POST", "") => state.enter(&asked.query),
            ("DELETE", "") => {
                state.hosts.remove(&key(&asked.query));
                if newer { Reply::json(json!({"code": 0, "data": "ok"})) } else { Reply::json("ok") }
            }
            _ => Reply::status(405, ""),
        }
    }
}

impl State {
    fn log_in(&mut self, asked: &FakeRequest) -> Reply {
        assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded"));
        if asked.body != b"password=p%26p&username=u" {
            return Reply::status(403, "unknown user!");
        }
        self.logins += 1;
        let token = format!("token-{}", self.logins);
        self.token = Some(token.clone());
        Reply::json(json!({"accessToken": token, "tokenTtl": 18000, "globalAdmin": true}))
    }

    fn list(&self, query: &Attributes) -> Reply {
        let same = |said: &Attributes| {
            ["serviceName", "groupName", "namespaceId"]
                .iter()
                .all(|name| said.value(name) == query.value(name))
        };
        let cluster = query.value(if self.newer { "clusterName" } else { "clusters" });
        let hosts: Vec<_> = self
            .hosts
            .values()
            .filter(|(said, _)| same(said) && (cluster.is_none() || said.value("clusterName") == cluster))
            .map(|(_, host)| host.clone())
            .collect();
        match self.newer {
            false => Reply::json(json!({"name": "x", "cacheMillis": 100, "hosts": hosts})),
            true => Reply::json(json!({"code": 0, "message": "success", "data": hosts})),
        }
    }

    fn enter(&mut self, query: &Attributes) -> Reply {
        let number = |name: &str| query.value(name).unwrap().parse::<f64>().unwrap();
        assert_eq!(query.value("ephemeral"), Some("true"));
        let host = json!({
            "ip": query.value("ip"),
            "port": number("port") as u16,
            "weight": number("weight"),
            "enabled": query.value("enabled") == Some("true"),
            "healthy": true,
            "metadata": serde_json::from_str::<Value>(query.value("metadata").unwrap()).unwrap(),
        });
        self.hosts.insert(key(query), (query.clone(), host));
        if self.newer { Reply::json(json!({"code": 0, "data": "ok"})) } else { Reply::json("ok") }
    }

    fn beat(&mut self, query: &Attributes) -> Reply {
        self.beats += 1;
        if !self.newer {
            let beat: Value = serde_json::from_str(query.value("beat").unwrap()).unwrap();
            assert_eq!(beat["serviceName"], format!("{}@@Arith", query.value("groupName").unwrap()));
        }
        let known = self.mute || self.hosts.contains_key(&key(query));
        let code = match (self.newer, known) {
            (false, true) => 10200,
            (false, false) => 20404,
            (true, true) => 0,
            (true, false) => 21003,
        };
        Reply::json(json!({"code": code, "clientBeatInterval": 5000, "lightBeatEnabled": true}))
    }
}

fn key(query: &Attributes) -> String {
    ["namespaceId", "groupName", "serviceName", "ip", "port"]
        .map(|name| query.value(name).unwrap_or(""))
        .join("|")
}

/// The case for both the fake and a real server.
/// `inactive` is the registry's listing of an inactive instance, if it lists it.
async fn servers_are_registered_found_changed_and_removed(
    address: &str,
    settings: &str,
    inactive: Option<&str>,
) {
    let mut sets = discover(&format!("nacos://{address}/Arith{settings}")).unwrap().watch();
    let registry = registrar(&format!("nacos://{address}{settings}")).unwrap();
    let one = entry("Arith", "tcp@127.0.0.1:8972", "group=a&group=b&weight=7");
    let other = entry("Arith", "quic@127.0.0.1:8973", "");
    registry.publish(&one).await.unwrap();
    registry.publish(&one).await.unwrap();
    until(&mut sets, &["tcp@127.0.0.1:8972 group=a&group=b&weight=7".to_owned()]).await;

    registry.publish(&other).await.unwrap();
    registry.publish(&entry("Arith2", "tcp@127.0.0.1:1", "")).await.unwrap();
    let both = ["tcp@127.0.0.1:8972 group=a&group=b&weight=7", "quic@127.0.0.1:8973"].map(str::to_owned);
    until(&mut sets, &both).await;

    registry.publish(&entry("Arith", "tcp@127.0.0.1:8972", "weight=2")).await.unwrap();
    let both = ["tcp@127.0.0.1:8972 weight=2", "quic@127.0.0.1:8973"].map(str::to_owned);
    until(&mut sets, &both).await;

    registry.publish(&entry("Arith", "tcp@127.0.0.1:8972", "state=inactive")).await.unwrap();
    let left: Vec<_> = inactive.into_iter().chain(["quic@127.0.0.1:8973"]).map(str::to_owned).collect();
    until(&mut sets, &left).await;

    registry.withdraw(&one).await.unwrap();
    registry.withdraw(&other).await.unwrap();
    until(&mut sets, &[]).await;
    registry.withdraw(&other).await.unwrap();
}

#[tokio::test]
async fn servers_are_found_by_both_api_versions() {
    let tried = [Server::new(), Server::newer()].map(|server| async move {
        let fake = server.serve().await;
        let scopes = ["", "?group=g&namespace=n&cluster=c"];
        let inactive = Some("tcp@127.0.0.1:8972 state=inactive");
        let tried = scopes
            .map(|scope| servers_are_registered_found_changed_and_removed(&fake.address, scope, inactive));
        join_all(tried).await;
    });
    join_all(tried).await;
}

#[tokio::test]
async fn all_cases_pass_against_a_real_server() {
    let (http, grpc, console) = (free_port(), free_port(), free_port());
    let data = std::env::temp_dir().join(format!("polyrpc-nacos-{http}"));
    let server = Program::start("rnacos", |command| {
        command.env("RNACOS_SDK_HOST", "127.0.0.1").env("RNACOS_CONSOLE_HOST", "127.0.0.1");
        command.env("RNACOS_HTTP_PORT", http.to_string()).env("RNACOS_GRPC_PORT", grpc.to_string());
        command.env("RNACOS_HTTP_CONSOLE_PORT", console.to_string()).env("RNACOS_DATA_DIR", &data);
    });
    let Some(server) = server else { return };
    let address = format!("127.0.0.1:{http}");
    assert!(next_set(&mut discover(&format!("nacos://{address}/S")).unwrap().watch()).await.is_empty());
    // It does not list disabled instances.
    servers_are_registered_found_changed_and_removed(&address, "", None).await;
    drop(server);
    let _ = std::fs::remove_dir_all(data);
}

#[tokio::test]
async fn registration_equals_that_of_rpcx() {
    let server = Server::new();
    let fake = server.serve().await;
    let nacos = Nacos::new(&fake.address).unwrap();
    nacos.publish(&entry("Arith", "kcp@10.0.0.1:8972", "weight=7&group=a")).await.unwrap();
    let asked = fake.asked().swap_remove(0);
    assert_eq!(asked.line(), "POST /nacos/v1/ns/instance");
    let said = |name| asked.query.value(name).unwrap_or("-").to_owned();
    assert_eq!(
        ["ip", "port", "weight", "enabled", "healthy"].map(said),
        ["10.0.0.1", "8972", "7", "true", "true"]
    );
    assert_eq!(["serviceName", "groupName", "namespaceId"].map(said), ["Arith", "DEFAULT_GROUP", "-"]);
    let metadata: Value = serde_json::from_str(&said("metadata")).unwrap();
    assert_eq!(
        metadata,
        json!({"network": "kcp", "weight": "7", "group": "a", "preserved.heart.beat.interval": "6666",
            "preserved.heart.beat.timeout": "20000", "preserved.ip.delete.timeout": "20000"})
    );
}

#[tokio::test]
async fn external_changes_of_an_instance_are_reported_and_kept() {
    for server in [Server::new(), Server::newer()] {
        let fake = server.serve().await;
        let registry = registrar(&format!("nacos://{}", fake.address)).unwrap();
        let mut entry = entry("Arith", "tcp@127.0.0.1:8972", "group=a&group=b&weight=3");
        assert_eq!(registry.current_attributes(&entry).await.unwrap(), None);
        registry.publish(&entry).await.unwrap();
        assert_eq!(
            registry.current_attributes(&entry).await.unwrap().as_ref(),
            Some(&entry.instance.attributes)
        );

        let change = |enabled: bool, weight: f64, owner: &str| {
            let state = &mut *server.0.lock().unwrap();
            let (_, host) = state.hosts.values_mut().next().unwrap();
            (host["enabled"], host["weight"]) = (json!(enabled), json!(weight));
            host["metadata"]["owner"] = json!(owner);
        };
        for (enabled, weight, said) in [
            (false, 3.0, "group=a&group=b&owner=me&state=inactive&weight=3"),
            (true, 0.0, "group=a&group=b&owner=me&weight=0"),
            // A fractional weight, which ours cannot be, is left to Nacos.
            (true, 0.5, "group=a&group=b&owner=me&weight=3"),
            (true, 9.0, "group=a&group=b&owner=me&weight=9"),
        ] {
            change(enabled, weight, "me");
            let found = registry.current_attributes(&entry).await.unwrap().unwrap();
            assert_eq!(found.to_string(), said, "{enabled} {weight}");
        }
        // The server registers again with it, and re-enabling it is applied.
        change(false, 9.0, "me");
        let said = registry.current_attributes(&entry).await.unwrap().unwrap();
        entry.instance = entry.instance.with(said.clone());
        registry.publish(&entry).await.unwrap();
        assert_eq!(registry.current_attributes(&entry).await.unwrap(), Some(said));
        change(true, 9.0, "you");
        let said = registry.current_attributes(&entry).await.unwrap().unwrap();
        assert_eq!(said.to_string(), "group=a&group=b&owner=you&weight=9");
    }
}

#[tokio::test]
async fn unchanged_instance_sends_beats_and_is_registered_again_if_lost() {
    for server in [Server::new(), Server::newer()] {
        let fake = server.serve().await;
        let nacos = Nacos::new(&fake.address).unwrap();
        let entry = entry("Arith", "tcp@h:1", "");
        for _ in 0..3 {
            nacos.publish(&entry).await.unwrap();
        }
        assert_eq!(server.0.lock().unwrap().beats, 2);
        server.0.lock().unwrap().hosts.clear();
        nacos.publish(&entry).await.unwrap();
        assert_eq!(server.0.lock().unwrap().hosts.len(), 1);
    }
}

#[tokio::test]
async fn login_happens_once_and_again_if_its_token_is_rejected() {
    for server in [Server::new(), Server::newer()] {
        server.0.lock().unwrap().token = Some("nobody knows".to_owned());
        let fake = server.serve().await;
        let nacos = Nacos::new(&fake.address).unwrap().login("u", "p&p");
        for _ in 0..3 {
            nacos.publish(&entry("Arith", "tcp@h:1", "")).await.unwrap();
        }
        assert_eq!(server.0.lock().unwrap().logins, 1);
        server.0.lock().unwrap().token = Some("another".to_owned());
        let mut sets = nacos.service("Arith").watch();
        assert_eq!(next_set(&mut sets).await, ["tcp@h:1"]);
        assert_eq!(server.0.lock().unwrap().logins, 2);
        assert!(!format!("{nacos:?}").contains("p&p"));
    }
}

#[tokio::test]
async fn wrong_password_fails_discovery() {
    let server = Server::new();
    server.0.lock().unwrap().token = Some("x".to_owned());
    let fake = server.serve().await;
    for settings in ["", "?username=u&password=wrong"] {
        let mut sets = discover(&format!("nacos://{}/Arith{settings}", fake.address)).unwrap().watch();
        assert_eq!(next(&mut sets).await.unwrap_err().code(), Code::PermissionDenied);
    }
}

#[tokio::test]
async fn upgraded_server_is_called_by_its_new_api() {
    let server = Server::new();
    let fake = server.serve().await;
    let nacos = Nacos::new(&fake.address).unwrap();
    let entry = entry("Arith", "tcp@h:1", "");
    nacos.publish(&entry).await.unwrap();
    let mut sets = nacos.service("Arith").watch();
    assert_eq!(next_set(&mut sets).await.len(), 1);
    *server.0.lock().unwrap() = State { newer: true, ..State::default() };
    nacos.publish(&entry).await.unwrap();
    assert_eq!(server.0.lock().unwrap().hosts.len(), 1);
    assert_eq!(next_set(&mut nacos.service("Arith").watch()).await.len(), 1);
}

#[tokio::test]
async fn next_server_is_tried_if_one_is_down() {
    let server = Server::new();
    let fake = server.serve().await;
    let address = format!("127.0.0.1:{},{}", free_port(), fake.address);
    let nacos = Nacos::new(&address).unwrap();
    nacos.publish(&entry("Arith", "tcp@h:1", "")).await.unwrap();
    let mut sets = discover(&format!("nacos://{address}/Arith")).unwrap().watch();
    assert_eq!(next(&mut sets).await.unwrap().len(), 1);
}

#[tokio::test]
async fn url_of_brpc_is_accepted() {
    let server = Server::new();
    let fake = server.serve().await;
    Nacos::new(&fake.address).unwrap().group("g").publish(&entry("Echo", "tcp@h:1", "")).await.unwrap();
    let url = format!("nacos://{}?serviceName=Echo&groupName=g", fake.address);
    assert_eq!(next_set(&mut discover(&url).unwrap().watch()).await, ["tcp@h:1"]);
    assert!(discover("nacos://serviceName=Echo&groupName=g").is_ok());
}

#[tokio::test]
async fn watch_survives_any_invalid_response() {
    let faults = || {
        vec![
            Reply::status(500, "caused: java.lang.NullPointerException"),
            Reply::status(404, "<html>"),
            Reply::Half("{".to_owned()),
            Reply::Raw("\r\n\r\n"),
            Reply::Nothing,
            Reply::json("[]"),
            Reply::json(r#"{"hosts":{}}"#),
            Reply::json(r#"{"hosts":[1,"x"],"cacheMillis":-1}"#),
            Reply::json(r#"{"hosts":[{"ip":7}]}"#),
        ]
    };
    let tried = (0..faults().len()).map(|at| async move {
        let server = Server::new();
        let first = Mutex::new(true);
        let fake = Fake::start(move |asked| {
            let newer = asked.path.contains("/v3/");
            let fault = std::mem::take(&mut *first.lock().unwrap()).then(|| faults().swap_remove(at));
            let reply =
                fault.unwrap_or_else(|| if newer { Reply::status(404, "") } else { server.answer(&asked) });
            async move { reply }
        })
        .await;
        let mut sets = discover(&format!("nacos://{}/Arith", fake.address)).unwrap().watch();
        assert!(next(&mut sets).await.is_err(), "{:?}", faults().swap_remove(at));
        assert!(next_set(&mut sets).await.is_empty());
    });
    join_all(tried).await;
}

#[tokio::test]
async fn invalid_instance_does_not_hide_the_others() {
    let fake = Fake::start(|_| async {
        Reply::json(
            r#"{"hosts":[{"ip":7},{"ip":"h","port":1,"enabled":true,"healthy":true},
                {"ip":"h","port":1,"enabled":true,"healthy":true,"metadata":{}},{"ip":"h","port":0}]}"#,
        )
    })
    .await;
    let mut sets = discover(&format!("nacos://{}/Arith", fake.address)).unwrap().watch();
    assert_eq!(next_set(&mut sets).await, ["tcp@h:1"]);
    let complaint = next(&mut sets).await.unwrap_err();
    assert_eq!(complaint.message(), "1 of the 4 instances of Arith in Nacos cannot be read");
}

#[tokio::test]
async fn poll_interval_is_taken_from_the_server() {
    let server = Server::new();
    let fake = server.serve().await;
    let mut sets = discover(&format!("nacos://{}/Arith", fake.address)).unwrap().watch();
    assert!(next_set(&mut sets).await.is_empty());
    let start = std::time::Instant::now();
    let nacos = Nacos::new(&fake.address).unwrap();
    for port in 1..=6 {
        nacos.publish(&entry("Arith", &format!("tcp@h:{port}"), "")).await.unwrap();
        assert_eq!(next_set(&mut sets).await.len(), port);
    }
    // Without the server's interval of 100 ms, each poll would come after three seconds.
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
}

#[tokio::test]
async fn instance_without_a_port_is_rejected() {
    let nacos = Nacos::new("127.0.0.1:1").unwrap();
    let error = nacos.publish(&entry("Arith", "unix@/run/x", "")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}

#[test]
fn invalid_url_is_rejected() {
    for url in [
        "nacos://h:8848",
        "nacos://h:8848/a/b",
        "nacos://h:x/a",
        "nacos://h/a?grup=x",
        "nacos:///a",
        "nacos://h/a?username=u",
        "nacos://h/a?password=p",
        "nacos://h/a?group=g&groupName=h",
    ] {
        assert!(discover(url).is_err(), "{url}");
    }
    assert!(registrar("nacos://h:8848/Arith").is_err());
}
