//! etcd, Redis and ZooKeeper: the same for all, against the real programs where they are installed.

mod fake;

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fake::{Program, entry, free_port, next, next_set, until};
use futures_util::StreamExt;
use futures_util::stream;
use polyrpc::discovery::{Discover, Entry, Register};
use polyrpc_discovery::{discover, register};

/// A registry that a test has for itself.
struct Registry {
    kind: Kind,
    port: u16,
    started: u32,
    program: Option<Program>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Etcd,
    Redis,
    ZooKeeper,
}

/// What of it is built in.
fn kinds() -> Vec<Kind> {
    [
        (cfg!(feature = "etcd"), Kind::Etcd),
        (cfg!(feature = "redis"), Kind::Redis),
        (cfg!(feature = "zookeeper"), Kind::ZooKeeper),
    ]
    .into_iter()
    .filter_map(|(built_in, kind)| built_in.then_some(kind))
    .collect()
}

impl Registry {
    /// `None`, said aloud, where it is not installed.
    async fn start(kind: Kind) -> Option<Self> {
        let mut registry = Self { kind, port: free_port(), started: 0, program: None };
        registry.begin().await.then_some(registry)
    }

    /// Begins, or begins again, with nothing in it.
    async fn begin(&mut self) -> bool {
        self.started += 1;
        let directory = self.directory();
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        self.program = match self.kind {
            Kind::Etcd => self.etcd(),
            Kind::Redis => self.redis(),
            Kind::ZooKeeper => self.zookeeper(),
        };
        if self.program.is_none() {
            return false;
        }
        let start = Instant::now();
        while !self.answers().await {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?} does not begin", self.kind);
        }
        true
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{:?}-{}-{}", self.kind, self.port, self.started))
    }

    fn etcd(&self) -> Option<Program> {
        let (client, peer) =
            (format!("http://127.0.0.1:{}", self.port), format!("http://127.0.0.1:{}", free_port()));
        Program::start("etcd", |command| {
            command.args(["--name", "one", "--log-level", "error", "--data-dir"]).arg(self.directory());
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &format!("one={peer}")]);
        })
    }

    fn redis(&self) -> Option<Program> {
        Program::start("redis-server", |command| {
            command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(["--port", &self.port.to_string()]).arg("--dir").arg(self.directory());
        })
    }

    fn zookeeper(&self) -> Option<Program> {
        let settings = self.directory().join("zoo.cfg");
        let lines = format!(
            "tickTime=500\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n",
            self.directory().display(),
            self.port
        );
        fs::write(&settings, lines).unwrap();
        let jar = "/usr/share/java/zookeeper.jar";
        if !PathBuf::from(jar).exists() {
            return Program::start("zookeeper", |_| {});
        }
        Program::start("java", |command| {
            command.args(["-Xmx128m", "-cp", &format!("/etc/zookeeper/conf:{jar}")]);
            command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(settings);
        })
    }

    /// Whether it serves, not merely listens.
    async fn answers(&self) -> bool {
        if TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            return false;
        }
        let probe = self.discover("Probe");
        next(&mut probe.watch()).await.is_ok()
    }

    fn kill(&mut self) {
        self.program = None;
    }

    fn url(&self, path: &str) -> String {
        let word = match self.kind {
            Kind::Etcd => "etcd",
            Kind::Redis => "redis",
            Kind::ZooKeeper => "zookeeper",
        };
        format!("{word}://127.0.0.1:{}/rpcx_test{path}", self.port)
    }

    fn discover(&self, service: &str) -> Box<dyn Discover> {
        discover(&self.url(&format!("/{service}"))).unwrap()
    }

    fn register(&self) -> Box<dyn Register> {
        register(&self.url("")).unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.kill();
        for started in 1..=self.started {
            self.started = started;
            let _ = fs::remove_dir_all(self.directory());
        }
    }
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

fn arith(address: &str, attributes: &str) -> Entry {
    entry("Arith", address, attributes)
}

#[tokio::test]
async fn who_is_registered_is_found_with_what_changes_until_he_withdraws() {
    for kind in kinds() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let (server, mut sets) = (registry.register(), registry.discover("Arith").watch());
        assert_eq!(next_set(&mut sets).await, lines(&[]), "{kind:?}");

        server.publish(&arith("tcp@h:1", "weight=3&group=a&group=b")).await.unwrap();
        until(&mut sets, &lines(&["tcp@h:1 group=a&group=b&weight=3"])).await;
        server.publish(&arith("tcp@h:1", "weight=5")).await.unwrap();
        until(&mut sets, &lines(&["tcp@h:1 weight=5"])).await;

        // Its neighbour's name begins with its own.
        server.publish(&entry("ArithToo", "tcp@h:2", "")).await.unwrap();
        server.publish(&arith("quic@h:3", "")).await.unwrap();
        until(&mut sets, &lines(&["tcp@h:1 weight=5", "quic@h:3"])).await;

        server.withdraw(&arith("tcp@h:1", "")).await.unwrap();
        until(&mut sets, &lines(&["quic@h:3"])).await;
        server.withdraw(&arith("quic@h:3", "")).await.unwrap();
        until(&mut sets, &lines(&[])).await;
        server.withdraw(&arith("quic@h:3", "")).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_instance_hides_none_and_is_told_once() {
    for kind in kinds() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let server = registry.register();
        // The next service's path lies below this one's, as an instance's does.
        server.publish(&entry("Arith/nonsense", "tcp@h:9", "")).await.unwrap();
        server.publish(&arith("tcp@h:1", "weight=x&state=%zz")).await.unwrap();
        let mut sets = registry.discover("Arith").watch();
        until(&mut sets, &lines(&["tcp@h:1 weight=x"])).await;
        let complaint = next(&mut sets).await.unwrap_err();
        assert!(complaint.message().contains("`nonsense`"), "{kind:?}: {complaint}");
        server.publish(&arith("tcp@h:2", "")).await.unwrap();
        assert_eq!(next(&mut sets).await.unwrap().len(), 2, "{kind:?}");
        server.publish(&arith("tcp@h:3", "")).await.unwrap();
        assert_eq!(next(&mut sets).await.unwrap().len(), 3, "{kind:?}");
    }
}

#[tokio::test]
async fn who_dies_without_a_word_is_gone_after_his_time() {
    for kind in kinds() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let services = ["Arith", "Echo"];
        let [mut sets, mut others] = services.map(|service| registry.discover(service).watch());
        let server = registry.register();
        for service in services {
            let short_lived = Entry { ttl: Duration::from_secs(2), ..entry(service, "tcp@h:1", "") };
            server.publish(&short_lived).await.unwrap();
        }
        until(&mut sets, &lines(&["tcp@h:1"])).await;
        until(&mut others, &lines(&["tcp@h:1"])).await;
        drop(server);
        let start = Instant::now();
        until(&mut sets, &lines(&[])).await;
        until(&mut others, &lines(&[])).await;
        // Redis tells of it late; etcd takes as much again to notice.
        assert!(start.elapsed() < Duration::from_secs(8), "{kind:?}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn after_a_crash_in_which_all_is_lost_everything_is_soon_there_again() {
    for kind in kinds() {
        let Some(mut registry) = Registry::start(kind).await else { continue };
        let server = registry.register();
        let entry = arith("tcp@h:1", "weight=3");
        server.publish(&entry).await.unwrap();
        let publishing = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                let _ = server.publish(&entry).await;
            }
        });
        let mut sets = registry.discover("Arith").watch();
        until(&mut sets, &lines(&["tcp@h:1 weight=3"])).await;

        registry.kill();
        // While nobody answers there are failures, and no set at all.
        for _ in 0..3 {
            next(&mut sets).await.unwrap_err();
        }
        registry.begin().await;
        let back = Instant::now();
        until(&mut sets, &lines(&["tcp@h:1 weight=3"])).await;
        assert!(back.elapsed() < Duration::from_secs(10), "{kind:?}: {:?}", back.elapsed());
        publishing.abort();
    }
}

#[tokio::test]
async fn a_thousand_instances_are_found_soon_by_who_watches_and_by_who_comes() {
    for kind in kinds() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let server = registry.register();
        let mut sets = registry.discover("Arith").watch();
        assert_eq!(next_set(&mut sets).await, lines(&[]), "{kind:?}");
        let all = (1..=1000).map(|port| arith(&format!("tcp@h:{port}"), "weight=1"));
        stream::iter(all).for_each_concurrent(8, async |entry| server.publish(&entry).await.unwrap()).await;
        let start = Instant::now();
        while next_set(&mut sets).await.len() != 1000 {}
        // One change at a time it would take 50 s.
        assert!(start.elapsed() < Duration::from_secs(20), "{kind:?}: {:?}", start.elapsed());
        assert_eq!(next_set(&mut registry.discover("Arith").watch()).await.len(), 1000, "{kind:?}");
    }
}

#[test]
fn a_url_must_say_which_service_and_nothing_that_is_not_understood() {
    for kind in kinds() {
        let word = match kind {
            Kind::Etcd => "etcd",
            Kind::Redis => "redis",
            Kind::ZooKeeper => "zookeeper",
        };
        for (place, why) in [("h:1", "which service"), ("h:1/base/S?color=red", "`color`")] {
            let error = discover(&format!("{word}://{place}")).err().unwrap();
            assert!(error.message().contains(why), "{error}");
        }
    }
}
