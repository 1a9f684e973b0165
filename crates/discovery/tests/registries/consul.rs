//! Consul: a stateful fake agent, network faults, and a real agent if one is
//! installed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake::{Fake, FakeRequest, Program, Reply, entry, free_port, next, next_set, until};
use futures_util::future::join_all;
use polyrpc::Code;
use polyrpc::discovery::Discover;
use polyrpc_discovery::consul::Consul;
use polyrpc_discovery::{discover, registrar};
use serde_json::{Value, json};
use tokio::sync::watch;

/// A fake agent with the used part of the API.
#[derive(Clone)]
struct Agent {
    state: Arc<Mutex<State>>,
    index: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    keys: BTreeMap<String, Key>,
    sessions: Vec<String>,
    services: BTreeMap<String, Value>,
    made: usize,
}

#[derive(Clone)]
struct Key {
    value: Vec<u8>,
    flags: String,
    session: Option<String>,
}

impl Agent {
    fn new() -> Self {
        Self { state: Arc::default(), index: watch::Sender::new(1) }
    }

    async fn serve(&self) -> Fake {
        let agent = self.clone();
        Fake::start(move |asked| {
            let agent = agent.clone();
            async move { agent.answer(asked).await }
        })
        .await
    }

    async fn answer(&self, asked: FakeRequest) -> Reply {
        if let Some(path) = asked.path.strip_prefix("/v1/kv/") {
            let path = percent_decoded(path);
            return match &*asked.method {
                "GET" if asked.query.value("recurse").is_some() => {
                    self.wait(&asked).await;
                    self.list(&path)
                }
                "GET" => self.list(&path),
                "PUT" => self.write(path, &asked),
                _ => {
                    self.change(|state| state.keys.remove(&path));
                    Reply::json("true")
                }
            };
        }
        let path = asked.path.clone();
        let id = percent_decoded(path.rsplit_once('/').map_or("", |(_, id)| id));
        match &*path {
            "/v1/session/create" => self.open(&asked),
            "/v1/agent/service/register" => {
                let service: Value = serde_json::from_slice(&asked.body).unwrap();
                let id = service["ID"].as_str().unwrap().to_owned();
                self.change(|state| state.services.insert(id, service));
                Reply::json("")
            }
            _ if path.starts_with("/v1/session/renew/") => {
                match self.state.lock().unwrap().sessions.contains(&id) {
                    true => Reply::json(json!([{"ID": id}])),
                    false => Reply::status(404, "Session id not found"),
                }
            }
            _ if path.starts_with("/v1/session/destroy/") => {
                self.end(&id);
                Reply::json("true")
            }
            _ if path.starts_with("/v1/agent/check/pass/") => {
                let service = id.strip_prefix("service:").unwrap();
                match self.state.lock().unwrap().services.contains_key(service) {
                    true => Reply::json(""),
                    false => Reply::status(404, "Unknown check"),
                }
            }
            _ if path.starts_with("/v1/agent/service/deregister/") => {
                match self.change(|state| state.services.remove(&id)) {
                    Some(_) => Reply::json(""),
                    None => Reply::status(404, "Unknown service"),
                }
            }
            _ if path.starts_with("/v1/agent/service/") => {
                match self.state.lock().unwrap().services.get(&id) {
                    Some(service) => Reply::json(service.clone()),
                    None => Reply::status(404, "unknown service ID"),
                }
            }
            _ if path.starts_with("/v1/health/service/") => {
                self.wait(&asked).await;
                self.healthy(&id)
            }
            _ => Reply::status(404, "what?"),
        }
    }

    fn change<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        let result = how(&mut self.state.lock().unwrap());
        self.index.send_modify(|index| *index += 1);
        result
    }

    async fn wait(&self, asked: &FakeRequest) {
        let Some(index) = asked.query.value("index") else { return };
        let known: u64 = index.parse().unwrap();
        let mut news = self.index.subscribe();
        let news = news.wait_for(|index| *index > known);
        // A shorter wait than requested, which an agent may use.
        let _ = tokio::time::timeout(Duration::from_secs(1), news).await;
    }

    fn list(&self, prefix: &str) -> Reply {
        let state = self.state.lock().unwrap();
        let pairs: Vec<_> = state
            .keys
            .iter()
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, held)| json!({"Key": key, "Value": base64(&held.value), "Session": held.session}))
            .collect();
        let status = if pairs.is_empty() { 404 } else { 200 };
        Reply::Whole(status, self.headers(), Value::from(pairs).to_string())
    }

    fn write(&self, key: String, asked: &FakeRequest) -> Reply {
        let flags = asked.query.value("flags").unwrap_or_default().to_owned();
        let session = asked.query.value("acquire").map(str::to_owned);
        let mut state = self.state.lock().unwrap();
        if let Some(session) = &session {
            if !state.sessions.contains(session) {
                return Reply::status(500, "rpc error: invalid session \"x\"");
            }
            let holder = state.keys.get(&key).and_then(|held| held.session.as_ref());
            if holder.is_some_and(|holder| holder != session) {
                return Reply::json("false");
            }
        }
        state.keys.insert(key, Key { value: asked.body.clone(), flags, session });
        drop(state);
        self.change(|_| ());
        Reply::json("true")
    }

    fn open(&self, asked: &FakeRequest) -> Reply {
        let wanted: Value = serde_json::from_slice(&asked.body).unwrap();
        assert_eq!((&wanted["Behavior"], &wanted["LockDelay"]), (&json!("delete"), &json!("1ms")));
        assert_eq!(wanted["TTL"], "10s");
        let id = self.change(|state| {
            state.made += 1;
            state.sessions.push(format!("session-{}", state.made));
            format!("session-{}", state.made)
        });
        Reply::json(json!({ "ID": id }))
    }

    /// Ends a session, and removes its keys.
    fn end(&self, id: &str) {
        self.change(|state| {
            state.sessions.retain(|session| session != id);
            state.keys.retain(|_, held| held.session.as_deref() != Some(id));
        });
    }

    fn lose_everything(&self) {
        self.change(|state| *state = State::default());
        self.index.send_replace(1);
    }

    fn healthy(&self, name: &str) -> Reply {
        let state = self.state.lock().unwrap();
        let services = state.services.values().filter(|service| service["Name"] == name);
        let healthy: Vec<_> =
            services.map(|service| json!({"Node": {"Address": "node"}, "Service": service})).collect();
        Reply::Whole(200, self.headers(), Value::from(healthy).to_string())
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        vec![("X-Consul-Index", self.index.borrow().to_string())]
    }
}

/// Cases for both the fake and a real agent.
mod cases {
    use super::*;

    pub(crate) async fn servers_are_registered_found_changed_and_removed(finding: &str, registering: &str) {
        let mut sets = discover(finding).unwrap().watch();
        let registry = registrar(registering).unwrap();
        let one = entry("Arith", "tcp@127.0.0.1:8972", "group=a&group=b&weight=7");
        let other = entry("Arith", "quic@127.0.0.1:8973", "");
        registry.publish(&one).await.unwrap();
        until(&mut sets, &["tcp@127.0.0.1:8972 group=a&group=b&weight=7".to_owned()]).await;

        registry.publish(&other).await.unwrap();
        registry.publish(&entry("Arith2", "tcp@127.0.0.1:1", "")).await.unwrap();
        let both = ["tcp@127.0.0.1:8972 group=a&group=b&weight=7", "quic@127.0.0.1:8973"].map(str::to_owned);
        until(&mut sets, &both).await;

        let changed = entry("Arith", "tcp@127.0.0.1:8972", "state=inactive");
        registry.publish(&changed).await.unwrap();
        registry.publish(&changed).await.unwrap();
        let both = ["tcp@127.0.0.1:8972 state=inactive", "quic@127.0.0.1:8973"].map(str::to_owned);
        until(&mut sets, &both).await;

        registry.withdraw(&changed).await.unwrap();
        until(&mut sets, &both[1..]).await;
        registry.withdraw(&other).await.unwrap();
        until(&mut sets, &[]).await;
        registry.withdraw(&other).await.unwrap();
    }

    pub(crate) async fn restarted_server_takes_over_its_entry(url: &str) {
        let mut sets = discover(&format!("consul://{url}/again/Arith")).unwrap().watch();
        let registering = format!("consul://{url}/again");
        let killed = registrar(&registering).unwrap();
        killed.publish(&entry("Arith", "tcp@127.0.0.1:8972", "weight=1")).await.unwrap();
        let back = registrar(&registering).unwrap();
        let entry = entry("Arith", "tcp@127.0.0.1:8972", "weight=2");
        back.publish(&entry).await.unwrap();
        until(&mut sets, &["tcp@127.0.0.1:8972 weight=2".to_owned()]).await;
        back.withdraw(&entry).await.unwrap();
        until(&mut sets, &[]).await;
    }
}

#[tokio::test]
async fn rpcx_keys_are_registered_found_changed_and_removed() {
    let fake = Agent::new().serve().await;
    let (finding, registering) = (
        format!("consul://{}/rpcx_test/Arith", fake.address),
        format!("consul://{}/rpcx_test", fake.address),
    );
    cases::servers_are_registered_found_changed_and_removed(&finding, &registering).await;
}

#[tokio::test]
async fn services_are_registered_found_changed_and_removed() {
    let fake = Agent::new().serve().await;
    let (finding, registering) =
        (format!("consul://{}/Arith", fake.address), format!("consul://{}", fake.address));
    cases::servers_are_registered_found_changed_and_removed(&finding, &registering).await;
}

#[tokio::test]
async fn external_changes_of_a_service_are_reported_and_kept() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let mut sets = discover(&format!("consul://{}/Arith", fake.address)).unwrap().watch();
    let registry = registrar(&format!("consul://{}", fake.address)).unwrap();
    // Consul does not support a weight of zero.
    let mut entry = entry("Arith", "tcp@127.0.0.1:8972", "group=a&group=b&tag=x&weight=0");
    assert_eq!(registry.current_attributes(&entry).await.unwrap(), None);
    registry.publish(&entry).await.unwrap();
    assert_eq!(registry.current_attributes(&entry).await.unwrap().as_ref(), Some(&entry.instance.attributes));

    agent.change(|state| {
        let service = state.services.values_mut().next().unwrap();
        service["Meta"]["state"] = json!("inactive");
        service["Meta"]["owner"] = json!("me");
        service["Tags"] = json!(["x", "canary"]);
        service["Weights"]["Passing"] = json!(7);
    });
    let current = registry.current_attributes(&entry).await.unwrap().unwrap();
    let all = "group=a&group=b&owner=me&state=inactive&tag=x&tag=canary&weight=7";
    assert_eq!(current.to_string(), all);
    // The server registers again with it, as after the agent has lost everything.
    entry.instance = entry.instance.with(current.clone());
    agent.lose_everything();
    registry.publish(&entry).await.unwrap();
    assert_eq!(registry.current_attributes(&entry).await.unwrap(), Some(current));
    until(&mut sets, &[format!("tcp@127.0.0.1:8972 {all}")]).await;
}

#[tokio::test]
async fn services_written_by_older_rpcx_are_found() {
    let fake = Agent::new().serve().await;
    let (finding, registering) =
        (format!("consul://{}/Arith", fake.address), format!("consul://{}?by=agent", fake.address));
    cases::servers_are_registered_found_changed_and_removed(&finding, &registering).await;
}

#[tokio::test]
async fn restarted_server_takes_over_its_old_entry() {
    let fake = Agent::new().serve().await;
    cases::restarted_server_takes_over_its_entry(&fake.address).await;
}

#[tokio::test]
async fn all_cases_pass_against_a_real_agent() {
    let (port, data) = (free_port(), [free_port(), free_port(), free_port()]);
    let agent = Program::start("consul", |command| {
        command.args(["agent", "-dev", "-bind", "127.0.0.1", "-client", "127.0.0.1"]);
        command.args([
            "-grpc-port",
            "-1",
            "-grpc-tls-port",
            "-1",
            "-dns-port",
            "-1",
            "-disable-host-node-id",
        ]);
        command.args(["-http-port", &port.to_string(), "-server-port", &data[0].to_string()]);
        command.args(["-serf-lan-port", &data[1].to_string(), "-serf-wan-port", &data[2].to_string()]);
    });
    let Some(_agent) = agent else { return };
    let url = format!("127.0.0.1:{port}");
    // It answers with an index as soon as it has a leader.
    next_set(&mut discover(&format!("consul://{url}/b/S")).unwrap().watch()).await;
    let url_with = |path: &str| format!("consul://{url}{path}");
    cases::servers_are_registered_found_changed_and_removed(
        &url_with("/rpcx_test/Arith"),
        &url_with("/rpcx_test"),
    )
    .await;
    cases::servers_are_registered_found_changed_and_removed(&url_with("/Arith"), &url_with("")).await;
    cases::servers_are_registered_found_changed_and_removed(&url_with("/Arith"), &url_with("?by=agent"))
        .await;
    cases::restarted_server_takes_over_its_entry(&url).await;
}

#[tokio::test]
async fn keys_are_written_as_rpcx_writes_them() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let registry = registrar(&format!("consul://{}/com/example", fake.address)).unwrap();
    registry.publish(&entry("Arith", "tcp@127.0.0.1:8972", "weight=7&group=a")).await.unwrap();
    let state = agent.state.lock().unwrap();
    let written: Vec<_> = state
        .keys
        .iter()
        .map(|(key, held)| (&**key, str::from_utf8(&held.value).unwrap(), held.session.is_some()))
        .collect();
    assert_eq!(
        written,
        [
            ("com/example", "rpcx_path", false),
            ("com/example/Arith", "Arith", false),
            ("com/example/Arith/tcp@127.0.0.1:8972", "group=a&weight=7", true),
        ]
    );
    assert!(state.keys.values().all(|held| held.flags == "3304740253564472344"));
}

#[tokio::test]
async fn repeated_publishing_uses_one_session() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let registry = registrar(&format!("consul://{}/b", fake.address)).unwrap();
    for calls in 0..5 {
        registry.publish(&entry("S", "tcp@h:1", &format!("calls={calls}"))).await.unwrap();
    }
    assert_eq!(agent.state.lock().unwrap().made, 1);
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn unchanged_entry_is_not_written_again() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let registry = registrar(&format!("consul://{}/b", fake.address)).unwrap();
    let entry = entry("S", "tcp@h:1", "weight=2");
    registry.publish(&entry).await.unwrap();
    let index = *agent.index.borrow();
    registry.publish(&entry).await.unwrap();
    assert_eq!(*agent.index.borrow(), index);
    // Another client has deleted or changed the key.
    agent.change(|state| state.keys.remove("b/S/tcp@h:1"));
    registry.publish(&entry).await.unwrap();
    assert!(agent.state.lock().unwrap().keys.contains_key("b/S/tcp@h:1"));
    agent.change(|state| state.keys.values_mut().for_each(|held| held.value = b"weight=9".to_vec()));
    registry.publish(&entry).await.unwrap();
    assert_eq!(agent.state.lock().unwrap().keys["b/S/tcp@h:1"].value, b"weight=2");
}

#[tokio::test]
async fn lost_entry_is_registered_again() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    for path in ["/b", ""] {
        let registry = registrar(&format!("consul://{}{path}", fake.address)).unwrap();
        let entry = entry("S", "tcp@h:1", "weight=2");
        registry.publish(&entry).await.unwrap();
        agent.lose_everything();
        let finding = format!("consul://{}{path}/S", fake.address);
        assert!(next_set(&mut discover(&finding).unwrap().watch()).await.is_empty());
        registry.publish(&entry).await.unwrap();
        assert_eq!(next_set(&mut discover(&finding).unwrap().watch()).await, ["tcp@h:1 weight=2"]);
        agent.lose_everything();
    }
}

#[tokio::test]
async fn session_that_expires_between_two_steps_is_recreated() {
    let agent = Agent::new();
    let ending = agent.clone();
    // Renewed, but expired before the key is acquired.
    let fake = Fake::start(move |asked| {
        let agent = ending.clone();
        async move {
            let renewed = asked.path.starts_with("/v1/session/renew/");
            let reply = agent.answer(asked).await;
            if renewed {
                agent.end("session-1");
            }
            reply
        }
    })
    .await;
    let registry = registrar(&format!("consul://{}/b", fake.address)).unwrap();
    registry.publish(&entry("S", "tcp@h:1", "")).await.unwrap();
    registry.publish(&entry("S", "tcp@h:1", "weight=3")).await.unwrap();
    let mut sets = discover(&format!("consul://{}/b/S", fake.address)).unwrap().watch();
    assert_eq!(next_set(&mut sets).await, ["tcp@h:1 weight=3"]);
}

#[tokio::test]
async fn watch_restarts_if_the_index_goes_backwards() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let registry = registrar(&format!("consul://{}/b", fake.address)).unwrap();
    for port in 1..5 {
        registry.publish(&entry("S", &format!("tcp@h:{port}"), "")).await.unwrap();
    }
    let mut sets = discover(&format!("consul://{}/b/S", fake.address)).unwrap().watch();
    assert_eq!(next_set(&mut sets).await.len(), 4);
    agent.lose_everything();
    // The index is small now; the watch waits for a larger one until it polls again.
    let address = fake.address.clone();
    fake.stop().await;
    let again = agent.clone();
    let _fake = Fake::start_at(&address, move |asked| {
        let agent = again.clone();
        async move { agent.answer(asked).await }
    })
    .await;
    until(&mut sets, &[]).await;
}

#[tokio::test]
async fn watch_yields_an_error_while_the_agent_is_down_and_a_set_afterwards() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let registry = registrar(&format!("consul://{}/b", fake.address)).unwrap();
    registry.publish(&entry("S", "tcp@h:1", "")).await.unwrap();
    let mut sets = discover(&format!("consul://{}/b/S", fake.address)).unwrap().watch();
    assert_eq!(next(&mut sets).await.unwrap().len(), 1);
    let address = fake.address.clone();
    fake.stop().await;
    assert_eq!(next(&mut sets).await.unwrap_err().code(), Code::Unavailable);
    assert!(registry.publish(&entry("S", "tcp@h:1", "")).await.is_err());
    let _fake = Fake::start_at(&address, move |asked| {
        let agent = agent.clone();
        async move { agent.answer(asked).await }
    })
    .await;
    assert_eq!(next_set(&mut sets).await, ["tcp@h:1"]);
    registry.publish(&entry("S", "tcp@h:1", "")).await.unwrap();
}

#[tokio::test]
async fn watch_survives_any_invalid_response() {
    let faults = || {
        vec![
            Reply::status(500, "no leader"),
            Reply::status(429, "slow down"),
            Reply::Half("[{".to_owned()),
            Reply::Raw("SSH-2.0-OpenSSH\r\n"),
            Reply::Raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
            Reply::Raw("HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n[]"),
            Reply::Nothing,
            Reply::json("{}"),
            Reply::json("\u{0}"),
            Reply::json("[]"),
            Reply::Whole(200, vec![("X-Consul-Index", "-1".to_owned())], "[]".to_owned()),
            Reply::Whole(200, vec![("X-Consul-Index", "9".to_owned())], r#"[1,{"Key":7}]"#.to_owned()),
        ]
    };
    let pairs = ["/b/S", "/S"].into_iter().flat_map(|path| (0..faults().len()).map(move |at| (path, at)));
    let tried = pairs.map(|(path, at)| async move {
        let fault = Arc::new(Mutex::new(Some(faults().swap_remove(at))));
        let agent = Agent::new();
        let fake = Fake::start(move |asked| {
            let (agent, fault) = (agent.clone(), fault.lock().unwrap().take());
            async move {
                match fault {
                    Some(reply) => reply,
                    None => agent.answer(asked).await,
                }
            }
        })
        .await;
        let mut sets = discover(&format!("consul://{}{path}", fake.address)).unwrap().watch();
        assert!(next(&mut sets).await.is_err(), "{:?}", faults().swap_remove(at));
        assert!(next_set(&mut sets).await.is_empty());
    });
    join_all(tried).await;
}

#[tokio::test]
async fn invalid_entries_hide_no_instance_and_are_reported() {
    let fake = Fake::start(|asked| async move {
        let body = match asked.path.starts_with("/v1/kv/") {
            true => json!([
                {"Key": "b/S/tcp@h:1", "Value": base64(b"weight=3&colour=red&latitude=north")},
                {"Key": "b/S/tcp@h:2", "Value": "%%"},
                {"Key": "b/S/tcp@h:3", "Value": base64(b"\xff")},
                {"Key": "b/S/tcp@h:99999", "Value": null},
                {"Key": "b/S/tcp@h:1", "Value": base64(b"weight=9")},
                {"Key": 7},
                null,
            ]),
            false => json!([
                {"Service": {"Address": "h", "Port": 1, "Tags": ["x"], "Meta": {"weight": "3", "colour": "red"}}},
                {"Service": {"Address": "h", "Port": 99999}},
                {"Service": {"Address": "", "Port": 1}},
                {"Service": {"Address": "h", "Port": 2, "Meta": {"network": "pigeon"}}},
                {"Service": null},
                "S",
            ]),
        };
        match asked.query.value("index") {
            None => Reply::Whole(200, vec![("X-Consul-Index", "7".to_owned())], body.to_string()),
            Some(_) => std::future::pending().await,
        }
    })
    .await;
    for (path, instance, complaint) in [
        ("/b/S", "tcp@h:1 colour=red&latitude=north&weight=3", "5 of the 7 keys under b/S/ in Consul"),
        ("/S", "tcp@h:1 colour=red&tag=x&weight=3", "5 of the 6 instances of S in Consul"),
    ] {
        let mut sets = discover(&format!("consul://{}{path}", fake.address)).unwrap().watch();
        assert_eq!(next_set(&mut sets).await, [instance]);
        let reported = next(&mut sets).await.unwrap_err();
        assert_eq!(reported.message(), format!("{complaint} cannot be read"));
    }
}

#[tokio::test]
async fn rejection_is_reported_without_the_token() {
    let fake = Fake::start(|asked| async move {
        assert_eq!(asked.header("x-consul-token"), Some("secret"));
        assert_eq!(asked.query.value("dc"), Some("east"));
        Reply::status(403, "Permission denied: no key:read")
    })
    .await;
    let url = format!("consul://{}/b/S?token=secret&dc=east", fake.address);
    let error = next(&mut discover(&url).unwrap().watch()).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.message().contains("no key:read") && !error.message().contains("secret"), "{error:?}");
    let consul = Consul::new(&fake.address).unwrap().token("secret").unwrap();
    assert!(!format!("{consul:?}").contains("secret"));
}

#[tokio::test]
async fn only_healthy_instances_with_the_tag_are_requested() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let mut sets = discover(&format!("consul://{}/Echo?tag=v2", fake.address)).unwrap().watch();
    assert!(next_set(&mut sets).await.is_empty());
    let asked = fake.asked();
    let asked = asked.first().unwrap();
    assert_eq!(asked.line(), "GET /v1/health/service/Echo");
    assert_eq!(asked.query.to_string(), "passing=&stale=&tag=v2");
}

#[tokio::test]
async fn ten_thousand_keys_are_one_set() {
    let agent = Agent::new();
    agent.change(|state| {
        for port in 1..=10_000 {
            let held = Key { value: b"weight=1".to_vec(), flags: String::new(), session: None };
            state.keys.insert(format!("b/S/tcp@10.0.0.1:{port}"), held.clone());
            state.keys.insert(format!("b/S/bird@10.0.0.1:{port}"), held);
        }
    });
    let fake = agent.serve().await;
    let mut sets = discover(&format!("consul://{}/b/S", fake.address)).unwrap().watch();
    assert_eq!(next_set(&mut sets).await.len(), 10_000);
}

#[tokio::test]
async fn watch_yields_at_most_twenty_sets_a_second() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let busy = tokio::spawn(async move {
        for port in 1..60_000_u32 {
            let held = Key { value: Vec::new(), flags: String::new(), session: None };
            agent.change(|state| {
                state.keys.clear();
                state.keys.insert(format!("b/S/tcp@h:{port}"), held)
            });
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let mut sets = discover(&format!("consul://{}/b/S", fake.address)).unwrap().watch();
    let start = std::time::Instant::now();
    for _ in 0..11 {
        next_set(&mut sets).await;
    }
    assert!(start.elapsed() >= Duration::from_millis(490), "{:?}", start.elapsed());
    busy.abort();
}

#[tokio::test]
async fn dropped_watch_closes_its_connection() {
    let agent = Agent::new();
    let fake = agent.serve().await;
    let mut sets = Consul::new(&fake.address).unwrap().keys("b").service("S").watch();
    assert!(next_set(&mut sets).await.is_empty());
    let waiting = tokio::spawn(async move { next(&mut sets).await });
    while agent.index.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    agent.index.closed().await;
}

#[test]
fn invalid_url_is_rejected() {
    for url in [
        "consul://",
        "consul://h:8500",
        "consul://h:8500/b/S?by=magic",
        "consul://h:8500/b/S?tocken=x",
        "consul://h:0/b/S",
        "consul://h:8500/b/S?token=a%0Ab",
        // Settings that would have no effect.
        "consul://h:8500/b/S?tag=v2",
        "consul://h:8500/S?by=keys&tag=v2",
        "consul://h:8500/b/S?by=health",
        "consul://h:8500/b/S?by=agent",
        "consul://Echo?by=keys",
        "consul://Echo?by=magic",
        "consul://Echo?tls",
        "magic://h",
        "h:8500",
    ] {
        assert!(discover(url).is_err(), "{url}");
    }
    for url in ["consul://Echo", "consul://Echo?by=health&tag=v2", "consul://h:8500/S?tag=v2"] {
        assert!(discover(url).is_ok(), "{url}");
    }
    for url in ["consul://h:8500?by=magic", "consul://h:8500/b?by=health", "consul://h:8500?tag=v2"] {
        assert!(registrar(url).is_err(), "{url}");
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = (number >> (18 - 6 * at)) as usize & 63;
            text.push(if at <= chunk.len() { char::from(LETTERS[digit]) } else { '=' });
        }
    }
    text
}
