//! Kubernetes: a fake API server with lists and watches, and every failure of a watch.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake::{Fake, FakeRequest, Reply, next, next_set, until};
use futures_util::future::join_all;
use polyrpc::Code;
use polyrpc::discovery::{Discover, InstanceStream};
use polyrpc_discovery::discover;
use polyrpc_discovery::kubernetes::Kubernetes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// State of the API, and its watchers.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    slices: Vec<Value>,
    version: u64,
    watchers: Vec<mpsc::UnboundedSender<String>>,
    /// Number of watches to reject as too old.
    gone: usize,
    /// Response to a watch instead of events.
    fault: Option<Reply>,
}

impl Api {
    async fn serve(&self) -> Fake {
        let api = self.clone();
        Fake::start(move |asked| {
            let reply = api.answer(&asked);
            async move { reply }
        })
        .await
    }

    fn answer(&self, asked: &FakeRequest) -> Reply {
        assert_eq!(asked.line(), "GET /apis/discovery.k8s.io/v1/namespaces/shop/endpointslices");
        assert_eq!(asked.query.value("labelSelector"), Some("kubernetes.io/service-name=echo"));
        let state = &mut *self.0.lock().unwrap();
        if asked.query.value("watch").is_none() {
            return state.list(asked.query.value("continue"));
        }
        if let Some(fault) = state.fault.take() {
            return fault;
        }
        if state.gone > 0 {
            state.gone -= 1;
            return Reply::status(410, r#"{"kind":"Status","code":410,"reason":"Expired"}"#);
        }
        assert_eq!(asked.query.value("allowWatchBookmarks"), Some("true"));
        assert_eq!(asked.query.value("resourceVersion"), Some(&*state.version.to_string()));
        let (watcher, lines) = mpsc::unbounded_channel();
        state.watchers.push(watcher);
        Reply::Lines(lines)
    }

    /// Replaces the slice of its name, and notifies the watchers.
    fn put(&self, name: &str, pods: &[&str]) {
        let state = &mut *self.0.lock().unwrap();
        state.version += 1;
        let slice = slice(name, pods, state.version);
        state.slices.retain(|known| known["metadata"]["name"] != name);
        state.slices.push(slice.clone());
        state.tell(&json!({"type": "MODIFIED", "object": slice}));
    }

    fn delete(&self, name: &str) {
        let state = &mut *self.0.lock().unwrap();
        state.version += 1;
        state.slices.retain(|known| known["metadata"]["name"] != name);
        state.tell(&json!({"type": "DELETED", "object": slice(name, &[], state.version)}));
    }

    fn tell(&self, line: &str) {
        let state = &mut *self.0.lock().unwrap();
        state.watchers.retain(|watcher| watcher.send(line.to_owned()).is_ok());
    }

    /// Ends all watches gracefully.
    fn end(&self) {
        self.0.lock().unwrap().watchers.clear();
    }

    /// Waits for a watcher.
    async fn is_watched(&self) {
        while self.0.lock().unwrap().watchers.iter().all(mpsc::UnboundedSender::is_closed) {
            tokio::task::yield_now().await;
        }
    }
}

impl State {
    fn list(&self, go_on: Option<&str>) -> Reply {
        let at: usize = go_on.map_or(0, |at| at.parse().unwrap());
        let part: Vec<_> = self.slices.iter().skip(at).take(2).cloned().collect();
        let rest = if at + 2 < self.slices.len() { (at + 2).to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": self.version.to_string(), "continue": rest});
        Reply::json(json!({"kind": "EndpointSliceList", "metadata": metadata, "items": part}))
    }

    fn tell(&mut self, event: &Value) {
        self.watchers.retain(|watcher| watcher.send(format!("{event}\n")).is_ok());
    }
}

fn slice(name: &str, pods: &[&str], version: u64) -> Value {
    let endpoints: Vec<_> =
        pods.iter().map(|pod| json!({"addresses": [pod], "conditions": {"ready": true}})).collect();
    json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "grpc", "port": 80, "protocol": "TCP"}],
    })
}

fn watch(fake: &Fake) -> InstanceStream {
    discover(&format!("kubernetes://shop/echo:grpc?api=http://{}", fake.address)).unwrap().watch()
}

fn pods(pods: &[&str]) -> Vec<String> {
    pods.iter().map(|pod| format!("tcp@{pod}:80")).collect()
}

#[tokio::test]
async fn pods_are_listed_in_pages_and_then_watched() {
    let api = Api::default();
    for (name, pod) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        api.put(name, &[pod]);
    }
    let fake = api.serve().await;
    let mut sets = watch(&fake);
    assert_eq!(next_set(&mut sets).await, pods(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    let following = tokio::spawn(async move {
        let next = next_set(&mut sets).await;
        (sets, next)
    });
    api.is_watched().await;
    api.put("a", &["10.0.0.1", "10.0.0.4"]);
    let (mut sets, set) = following.await.unwrap();
    assert_eq!(set, pods(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]));
    api.delete("b");
    api.delete("c");
    until(&mut sets, &pods(&["10.0.0.1", "10.0.0.4"])).await;
    api.put("a", &[]);
    until(&mut sets, &[]).await;
}

#[tokio::test]
async fn bursts_of_changes_are_coalesced() {
    let api = Api::default();
    let fake = api.serve().await;
    let mut sets = watch(&fake);
    assert!(next_set(&mut sets).await.is_empty());
    let following = tokio::spawn(async move {
        let mut seen = 0;
        while next_set(&mut sets).await.len() < 1000 {
            seen += 1;
        }
        seen
    });
    api.is_watched().await;
    for at in 0..1000 {
        api.put(&format!("s{at}"), &[&format!("10.0.{}.{}", at / 256, at % 256)]);
    }
    assert!(following.await.unwrap() < 50);
}

#[tokio::test]
async fn ended_watch_resumes_at_its_resource_version() {
    let api = Api::default();
    api.put("a", &["10.0.0.1"]);
    let fake = api.serve().await;
    let mut sets = watch(&fake);
    assert_eq!(next_set(&mut sets).await.len(), 1);
    let following = tokio::spawn(async move { next_set(&mut sets).await });
    api.is_watched().await;
    // After a bookmark without changes, no new list is needed.
    let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "41"}}});
    api.0.lock().unwrap().version = 41;
    api.tell(&format!("{bookmark}\n"));
    // A watch that ends within a second of its response is listed again, and that may come late.
    tokio::time::sleep(Duration::from_secs(3)).await;
    api.end();
    api.is_watched().await;
    api.put("a", &["10.0.0.2"]);
    assert_eq!(following.await.unwrap(), pods(&["10.0.0.2"]));
    let lists = fake.asked().iter().filter(|asked| asked.query.value("watch").is_none()).count();
    assert_eq!(lists, 1);
}

#[tokio::test]
async fn expired_resource_version_lists_again() {
    let api = Api::default();
    api.put("a", &["10.0.0.1"]);
    let fake = api.serve().await;
    let mut sets = watch(&fake);
    assert_eq!(next_set(&mut sets).await.len(), 1);
    let following = tokio::spawn(async move {
        let set = next_set(&mut sets).await;
        (sets, set)
    });
    api.is_watched().await;
    // Missed by this watch.
    {
        let state = &mut *api.0.lock().unwrap();
        state.version += 1;
        state.slices = vec![slice("a", &["10.0.0.2"], state.version)];
    }
    let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}});
    api.tell(&format!("{bookmark}\n"));
    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}});
    api.tell(&format!("{gone}\n"));
    let (mut sets, set) = following.await.unwrap();
    assert_eq!(set, pods(&["10.0.0.2"]));
    // Again, reported by the HTTP status; expired twice in a row, it is an error with backoff.
    api.0.lock().unwrap().gone = 2;
    let following = tokio::spawn(async move {
        let error = next(&mut sets).await.unwrap_err();
        (error, next_set(&mut sets).await)
    });
    api.end();
    let (error, set) = following.await.unwrap();
    assert_eq!((error.code(), set), (Code::Unavailable, pods(&["10.0.0.2"])));
}

#[tokio::test]
async fn watch_reports_any_failure_and_continues() {
    let faults: [fn() -> Reply; 8] = [
        || Reply::status(500, "etcd is away"),
        || Reply::status(401, "Unauthorized"),
        || Reply::Half("{\"type\":".to_owned()),
        || Reply::Raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nnot json\n"),
        || Reply::Raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}\n"),
        || Reply::Raw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        || Reply::Raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
        || {
            Reply::Raw(
                "HTTP/1.1 200 OK\r\ncontent-length: 62\r\n\r\n{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"overloaded\"}}\n",
            )
        },
    ];
    let tried = faults.into_iter().map(|fault| async move {
        let api = Api::default();
        api.put("a", &["10.0.0.1"]);
        api.0.lock().unwrap().fault = Some(fault());
        let fake = api.serve().await;
        let mut sets = watch(&fake);
        assert_eq!(next_set(&mut sets).await.len(), 1);
        assert!(next(&mut sets).await.is_err(), "{:?}", fault());
        let following = tokio::spawn(async move { until(&mut sets, &pods(&["10.0.0.2"])).await });
        api.is_watched().await;
        api.put("a", &["10.0.0.2"]);
        following.await.unwrap();
    });
    join_all(tried).await;
}

#[tokio::test]
async fn unreadable_slice_does_not_hide_the_others() {
    let api = Api::default();
    api.put("a", &["10.0.0.1"]);
    api.0.lock().unwrap().slices.push(json!({"metadata": 7}));
    let fake = api.serve().await;
    let mut sets = watch(&fake);
    assert_eq!(next_set(&mut sets).await, pods(&["10.0.0.1"]));
    let following = tokio::spawn(async move {
        until(&mut sets, &pods(&["10.0.0.1", "10.0.0.3"])).await;
    });
    api.is_watched().await;
    let strange = json!({"type": "ADDED", "object": {"metadata": {"name": "z"}, "endpoints": 9}});
    api.tell(&format!("{strange}\n\n{}\n", json!({"type": "NEWER", "object": null})));
    api.put("b", &["10.0.0.3"]);
    following.await.unwrap();
}

#[tokio::test]
async fn endless_line_is_an_error() {
    let api = Api::default();
    api.put("a", &["10.0.0.1"]);
    let fake = api.serve().await;
    let mut sets = watch(&fake);
    assert_eq!(next_set(&mut sets).await.len(), 1);
    let following = tokio::spawn(async move { next(&mut sets).await });
    api.is_watched().await;
    for _ in 0..6 {
        api.tell(&"x".repeat(1 << 20));
    }
    let error = following.await.unwrap().unwrap_err();
    assert!(error.message().contains("4194304 bytes"), "{error:?}");
}

#[tokio::test]
async fn token_is_read_again_for_each_request() {
    let path = std::env::temp_dir().join(format!("polyrpc-token-{}", crate::fake::free_port()));
    std::fs::write(&path, "one\n").unwrap();
    let api = Api::default();
    let fake = api.serve().await;
    let kubernetes = Kubernetes::new(&format!("http://{}", fake.address)).unwrap().token_file(&path);
    let mut sets = kubernetes.service("shop", "echo").watch();
    assert!(next_set(&mut sets).await.is_empty());
    std::fs::write(&path, "two\n").unwrap();
    let following = tokio::spawn(async move { next(&mut sets).await });
    api.is_watched().await;
    following.abort();
    let asked = fake.asked();
    let shown: Vec<_> = asked.iter().map(|asked| asked.header("authorization").unwrap()).collect();
    assert_eq!(shown, ["Bearer one", "Bearer two"]);
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn dropped_watch_closes_its_connection() {
    let api = Api::default();
    let fake = api.serve().await;
    let mut sets = watch(&fake);
    assert!(next_set(&mut sets).await.is_empty());
    let following = tokio::spawn(async move { next(&mut sets).await });
    api.is_watched().await;
    following.abort();
    let watcher = api.0.lock().unwrap().watchers.pop().unwrap();
    // The system may still accept the first write after the end.
    while watcher.send("\n".to_owned()).is_ok() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn invalid_url_is_rejected() {
    for url in [
        "kubernetes://shop",
        "kubernetes://shop/a/b?api=http://h",
        "kubernetes://shop/echo?api=ftp://h",
        "kubernetes://shop/echo?api=http://h&network=pigeon",
        "kubernetes://shop/echo?apt=http://h",
        "kubernetes://shop/echo?api=http://h&token=t&token-file=/run/t",
        "kubernetes://shop/echo",
    ] {
        assert!(discover(url).is_err(), "{url}");
    }
    let error = discover("kubernetes://shop/echo").err().unwrap();
    assert_eq!(error.code(), Code::FailedPrecondition);
}
