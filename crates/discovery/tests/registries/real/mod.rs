//! Real registries, if installed: etcd, Redis and ZooKeeper from Debian, Consul as `consul`,
//! and for Nacos `rnacos`, a reimplementation.

// Each test uses only a part of it.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use polyrpc::discovery::{Discover, Registrar};
#[cfg(feature = "etcd")]
use polyrpc::{Client, Format, client::CallOptions, codec::Body};
use polyrpc_discovery::{discover, registrar};

use crate::fake::{Program, free_port, next};

/// A registry for a single test.
pub struct Registry {
    pub kind: Kind,
    pub port: u16,
    started: u32,
    program: Option<Program>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Etcd,
    Redis,
    ZooKeeper,
    Consul,
    Nacos,
}

impl Kind {
    /// Its URL scheme.
    pub fn word(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Redis => "redis",
            Self::ZooKeeper => "zookeeper",
            Self::Consul => "consul",
            Self::Nacos => "nacos",
        }
    }

    /// How long a dead server with a TTL of two seconds may remain listed.
    pub fn memory(self) -> Duration {
        match self {
            // Redis reports expiry late; etcd takes as long again.
            Self::Etcd | Self::Redis | Self::ZooKeeper => Duration::from_secs(8),
            // A Consul session lasts at least ten seconds, and expires up to that much later.
            Self::Consul => Duration::from_secs(25),
            // `rnacos` uses its own timeout of half a minute, where Nacos honours the entry's TTL.
            Self::Nacos => Duration::from_secs(60),
        }
    }
}

/// All compiled-in registries.
pub fn kinds() -> Vec<Kind> {
    let others = [(cfg!(feature = "consul"), Kind::Consul), (cfg!(feature = "nacos"), Kind::Nacos)];
    let others = others.into_iter().filter_map(|(built_in, kind)| built_in.then_some(kind));
    trees().into_iter().chain(others).collect()
}

/// Those in which clients can write arbitrary entries below a service.
pub fn trees() -> Vec<Kind> {
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
    /// `None`, with a message, if it is not installed.
    pub async fn start(kind: Kind) -> Option<Self> {
        let mut registry = Self { kind, port: free_port(), started: 0, program: None };
        registry.begin().await.then_some(registry)
    }

    /// Starts or restarts it, empty.
    pub async fn begin(&mut self) -> bool {
        self.started += 1;
        let directory = self.directory();
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        self.program = match self.kind {
            Kind::Etcd => self.etcd(),
            Kind::Redis => self.redis(),
            Kind::ZooKeeper => self.zookeeper(),
            Kind::Consul => self.consul(),
            Kind::Nacos => self.nacos(),
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

    fn consul(&self) -> Option<Program> {
        let [server, lan, wan] = [free_port(), free_port(), free_port()].map(|port| port.to_string());
        Program::start("consul", |command| {
            // It keeps everything in memory.
            command.args(["agent", "-dev", "-disable-host-node-id"]);
            command.args([
                "-bind",
                "127.0.0.1",
                "-client",
                "127.0.0.1",
                "-http-port",
                &self.port.to_string(),
            ]);
            command.args(["-grpc-port", "-1", "-grpc-tls-port", "-1", "-dns-port", "-1"]);
            command.args(["-server-port", &server, "-serf-lan-port", &lan, "-serf-wan-port", &wan]);
        })
    }

    fn nacos(&self) -> Option<Program> {
        let [grpc, console] = [free_port(), free_port()].map(|port| port.to_string());
        Program::start("rnacos", |command| {
            command.env("RNACOS_SDK_HOST", "127.0.0.1").env("RNACOS_CONSOLE_HOST", "127.0.0.1");
            command.env("RNACOS_HTTP_PORT", self.port.to_string()).env("RNACOS_GRPC_PORT", grpc);
            command.env("RNACOS_HTTP_CONSOLE_PORT", console).env("RNACOS_DATA_DIR", self.directory());
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

    pub fn kill(&mut self) {
        self.program = None;
    }

    pub fn url(&self, path: &str) -> String {
        // Nacos has no paths.
        let base = if self.kind == Kind::Nacos { "" } else { "/rpcx_test" };
        format!("{}://127.0.0.1:{}{base}{path}", self.kind.word(), self.port)
    }

    pub fn discover(&self, service: &str) -> Box<dyn Discover> {
        discover(&self.url(&format!("/{service}"))).unwrap()
    }

    pub fn registrar(&self) -> Box<dyn Registrar> {
        registrar(&self.url("")).unwrap()
    }
}

/// Entries of foreign clients.
impl Registry {
    /// Writes a raw entry below the service; names that are invalid in this registry are skipped.
    pub async fn write(&self, name: &[u8], value: &[u8]) {
        match self.kind {
            #[cfg(feature = "etcd")]
            Kind::Etcd => {
                self.etcd_call("", "KV/Put", &[&[b"/rpcx_test/Arith/", name].concat(), value]).await;
            }
            #[cfg(feature = "redis")]
            Kind::Redis => {
                let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let mut set = redis::cmd("SET");
                set.arg([b"//rpcx_test/Arith/", name].concat()).arg(value);
                set.query_async::<()>(&mut connection).await.unwrap();
            }
            #[cfg(feature = "zookeeper")]
            Kind::ZooKeeper => {
                let Ok(name) = std::str::from_utf8(name) else { return };
                let client =
                    zookeeper_client::Client::connect(&format!("127.0.0.1:{}", self.port)).await.unwrap();
                let persistent =
                    zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
                client.create(&format!("/rpcx_test/Arith/{name}"), value, &persistent).await.unwrap();
            }
            #[allow(unreachable_patterns)]
            _ => unreachable!("the registry is not compiled in"),
        }
    }
}

#[cfg(feature = "etcd")]
impl Registry {
    /// Makes calls that our client never makes. The fields are those of the request in order; an empty token means none.
    pub async fn etcd_call(&self, token: &str, method: &str, fields: &[&[u8]]) -> Vec<u8> {
        let mut question = Vec::new();
        for (number, field) in (1..).zip(fields) {
            buffa::types::put_bytes_field(number, field, &mut question);
        }
        let mut options = CallOptions::default();
        if !token.is_empty() {
            options.metadata.insert("token", token.to_owned());
        }
        let client = Client::new(&format!("grpc://127.0.0.1:{}", self.port)).unwrap();
        let question = Body::new(Format::Protobuf, question);
        client
            .call_raw(&format!("etcdserverpb.{method}"), question, options)
            .await
            .unwrap()
            .message
            .bytes
            .to_vec()
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
