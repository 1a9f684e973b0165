//! Every protocol over every transport that carries it.

use std::time::Duration;

use polyrpc::client::{Builder, CallOptions, CircuitBreaker, FailMode};
use polyrpc::codec::Body;
use polyrpc::discovery::{Discover, Instance, Network};
use polyrpc::tls::{self, Pem};
use polyrpc::{Client, Format, client};

use super::addresses::Addresses;

/// A protocol, and the transport below it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combination {
    protocol: &'static Protocol,
    carrier: &'static Carrier,
}

#[derive(Debug)]
struct Protocol {
    name: &'static str,
    /// Scheme of its URLs, with parameters.
    scheme: &'static str,
    method: Method,
    /// Whether HTTP's CONNECT can start its connections.
    connects: bool,
}

#[derive(Debug)]
enum Method {
    /// A text, echoed by the method of this name.
    Text(&'static str),
    /// Bytes: fb_rpc carries FlatBuffers, or bytes for a method that does not decode them.
    Bytes,
}

#[derive(Debug)]
struct Carrier {
    name: &'static str,
    network: Network,
    tls: bool,
    address: fn(&Addresses) -> String,
}

const fn protocol(name: &'static str, scheme: &'static str, method: &'static str) -> Protocol {
    Protocol { name, scheme, method: Method::Text(method), connects: false }
}

const fn protocol_with_connect(name: &'static str, scheme: &'static str) -> Protocol {
    Protocol { name, scheme, method: Method::Text("Plain/Echo"), connects: true }
}

static PROTOCOLS: [Protocol; 11] = [
    protocol("baidu_std", "baidu-std", "Plain/Echo"),
    protocol_with_connect("rpcx", "rpcx"),
    protocol("gRPC", "grpc", "Plain/Echo"),
    protocol("gRPC-Web", "grpc-web", "Plain/Echo"),
    protocol("Connect", "connect", "Plain/Echo"),
    protocol("HTTP", "http", "Plain/Echo"),
    protocol("JSON-RPC", "http?dialect=json-rpc", "Plain.Echo"),
    protocol("rest_rpc", "rest-rpc", "echo"),
    protocol_with_connect("net/rpc gob", "net-rpc"),
    protocol_with_connect("net/rpc JSON", "net-rpc?codec=json"),
    Protocol { name: "fb_rpc", scheme: "fb-rpc", method: Method::Bytes, connects: false },
];

static CARRIERS: [Carrier; 8] = [
    Carrier { name: "TCP", network: Network::Tcp, tls: false, address: |addresses| addresses.tcp.clone() },
    Carrier { name: "TLS", network: Network::Tcp, tls: true, address: |addresses| addresses.tls.clone() },
    Carrier {
        name: "Unix",
        network: Network::Unix,
        tls: false,
        address: |addresses| addresses.unix.display().to_string(),
    },
    Carrier {
        name: "WebSocket",
        network: Network::Ws,
        tls: false,
        address: |addresses| addresses.tcp.clone(),
    },
    Carrier {
        name: "WebSocket+TLS",
        network: Network::Wss,
        tls: true,
        address: |addresses| addresses.tls.clone(),
    },
    Carrier { name: "KCP", network: Network::Kcp, tls: false, address: |addresses| addresses.kcp.clone() },
    Carrier { name: "QUIC", network: Network::Quic, tls: true, address: |addresses| addresses.quic.clone() },
    Carrier {
        name: "CONNECT",
        network: Network::Http,
        tls: false,
        address: |addresses| addresses.tcp.clone(),
    },
];

/// Every protocol over every transport that carries it.
pub(crate) fn combinations() -> Vec<Combination> {
    let carried = |protocol: &'static Protocol| {
        CARRIERS
            .iter()
            .filter(|carrier| carrier.network != Network::Http || protocol.connects)
            .map(move |carrier| Combination { protocol, carrier })
    };
    PROTOCOLS.iter().flat_map(carried).collect()
}

impl Combination {
    /// Its name, as `rpcx over KCP`.
    pub(crate) fn name(self) -> String {
        format!("{} over {}", self.protocol.name, self.carrier.name)
    }

    /// The instance of a server for this combination.
    pub(crate) fn instance(self, addresses: &Addresses) -> Instance {
        Instance::new(self.carrier.network, (self.carrier.address)(addresses))
    }

    /// A builder of a client of these servers, which trusts certificates of this authority.
    pub(crate) fn builder(self, discover: impl Discover, authority: &str) -> Builder {
        let (scheme, parameters) = match self.protocol.scheme.split_once('?') {
            Some((scheme, parameters)) => (scheme, format!("?{parameters}")),
            None => (self.protocol.scheme, String::new()),
        };
        let tls = if self.carrier.tls && self.carrier.network == Network::Tcp { "+tls" } else { "" };
        let builder = Client::builder(&format!("{scheme}{tls}://cluster{parameters}")).discover(discover);
        match self.carrier.tls {
            // Whatever address a network gives to the server.
            true => {
                builder.tls(tls::Client::new().ca(Pem::bytes(authority.to_owned())).server_name("localhost"))
            }
            false => builder,
        }
    }

    /// A client that makes idempotent calls, and retries them on other servers, with defaults otherwise.
    ///
    /// # Errors
    ///
    /// If the client cannot be built.
    pub(crate) fn caller(self, builder: Builder, timeout: Duration) -> client::Result<Caller> {
        self.non_idempotent_caller(builder.idempotent().timeout(timeout))
    }

    /// A client whose calls are not idempotent, unless the builder says so.
    ///
    /// # Errors
    ///
    /// If the client cannot be built.
    pub(crate) fn non_idempotent_caller(self, builder: Builder) -> client::Result<Caller> {
        Ok(Caller { client: builder.build()?, method: &self.protocol.method })
    }
}

/// A builder of a client that calls another server too if there is no reply in time, and ejects one whose calls fail.
pub(crate) fn with_hedging(builder: Builder) -> Builder {
    let breaker = CircuitBreaker::consecutive(3, Duration::from_secs(3));
    builder.fail_mode(FailMode::Failbackup).backup_after(BACKUP).circuit_breaker(breaker)
}

/// Time after which another server is called too.
const BACKUP: Duration = Duration::from_millis(50);

/// A client of one protocol over one transport. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    client: Client,
    method: &'static Method,
}

impl Caller {
    /// Calls a method that echoes, and compares its answer.
    ///
    /// # Errors
    ///
    /// If the call fails, or its answer is another text.
    pub(crate) async fn echo(&self, text: &str) -> Result<(), String> {
        let echoed = match self.method {
            Method::Text(method) => self
                .client
                .call::<String>(method, text)
                .await
                .map(|answer| answer.as_bytes() == text.as_bytes()),
            Method::Bytes => {
                let body = Body::new(Format::Raw, text.as_bytes().to_vec());
                let answer = self.client.call_raw("Bare/#0", body, CallOptions::default()).await;
                answer.map(|answer| answer.message.bytes == text.as_bytes())
            }
        };
        match echoed {
            Ok(true) => Ok(()),
            Ok(false) => Err("the answer is wrong".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Caller {
    /// Calls a function that records this id; in fb_rpc, which has no functions, the method that echoes.
    ///
    /// # Errors
    ///
    /// If the call fails, or its answer is another id.
    pub(crate) async fn call_once(&self, id: u64) -> Result<(), String> {
        match self.method {
            Method::Bytes => self.echo(&id.to_string()).await,
            Method::Text(_) => match self.client.call::<u64>("once", &id).await {
                Ok(answer) if answer == id => Ok(()),
                Ok(answer) => Err(format!("the answer to {id} is {answer}")),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use polyrpc::discovery::List;

    use super::*;

    #[test]
    fn every_way_has_a_client_and_a_name_of_its_own() {
        let mut names: Vec<_> = combinations().into_iter().map(Combination::name).collect();
        assert_eq!(names.len(), 11 * 7 + 3);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 11 * 7 + 3);
        for combination in combinations() {
            let builder = combination.builder(List::new([]), "");
            // Certificates are read when it connects.
            let caller = combination.caller(builder, Duration::from_secs(1));
            caller.unwrap_or_else(|error| panic!("{}: {error}", combination.name()));
        }
    }
}
