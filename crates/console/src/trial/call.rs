use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::propagation::{self, CallScope, Trace, TraceParent};
use polyrpc::{Address, Client, Format, Json, Metadata, Status};
use serde::Serialize;

use crate::observed::ObservedServer;

/// The protocols that carry JSON, with the schemes of their URLs.
pub(crate) const PROTOCOLS: [(&str, &str); 6] = [
    ("http", "HTTP"),
    ("grpc", "gRPC"),
    ("baidu-std", "baidu_std"),
    ("rpcx", "rpcx"),
    ("http?dialect=json-rpc", "JSON-RPC 2.0"),
    ("net-rpc?codec=json", "Go net/rpc"),
];

/// A call to make.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    /// `Service/Method`, or a function.
    pub(crate) target: String,
    /// One of [`PROTOCOLS`].
    pub(crate) protocol: &'static str,
    /// The message, as JSON.
    pub(crate) message: String,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) timeout: Duration,
}

/// A call that was made.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TrialResult {
    /// `None` if it succeeded.
    pub(crate) failure: Option<String>,
    pub(crate) reply: String,
    pub(crate) metadata: Vec<(String, String)>,
    /// Microseconds, with the time to connect.
    pub(crate) took: u64,
    pub(crate) trace: String,
}

/// Maximum length of a reply that is shown.
const LONGEST: usize = 256 << 10;

/// Maximum time of a call.
const PATIENCE: Duration = Duration::from_secs(30);

/// Parts of names whose values are not shown.
const SECRET: [&str; 5] = ["auth", "token", "cookie", "key", "password"];

impl Trial {
    /// Makes the call.
    pub(crate) async fn make(&self, server: &ObservedServer) -> TrialResult {
        let own = TraceParent::root(false);
        // The server records it, and shows it on `/rpcz`.
        let scope = CallScope::default().with_trace(Trace::new(own).recorded());
        let began = Instant::now();
        let result = propagation::scope(scope, self.call(server)).await;
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let trace = format!("{:032x}", own.trace_id());
        match result {
            Ok((reply, metadata)) => TrialResult { failure: None, reply, metadata, took, trace },
            Err(status) => {
                let (reply, metadata) = (String::new(), shown(status.headers()));
                TrialResult { failure: Some(status.to_string()), reply, metadata, took, trace }
            }
        }
    }

    async fn call(&self, server: &ObservedServer) -> Result<(String, Vec<(String, String)>), Status> {
        let address = local_address(server)
            .ok_or_else(|| Status::unavailable("the server listens on no TCP address"))?;
        let client = Client::new(&url(self.protocol, &address))?;
        let mut metadata = Metadata::new();
        for (name, value) in &self.metadata {
            metadata.append(name.clone(), value.clone());
        }
        let options =
            CallOptions { metadata, timeout: Some(self.timeout.min(PATIENCE)), ..CallOptions::default() };
        let message = Body::new(Format::Json(Json::default()), self.message.clone());
        let reply = client.call_raw(&self.target, message, options).await?;
        let text = String::from_utf8_lossy(&reply.message.bytes);
        let end = text.floor_char_boundary(LONGEST);
        Ok((text.get(..end).unwrap_or_default().to_owned(), shown(&reply.metadata)))
    }
}

/// Returns the address of a server's first TCP listener, as this machine reaches it.
pub(crate) fn local_address(server: &ObservedServer) -> Option<String> {
    let address = server.monitor.addresses().iter().find_map(|address| match address {
        Address::Tcp(address) => Some(address.clone()),
        _ => None,
    })?;
    Some(match address.parse::<SocketAddr>() {
        Ok(SocketAddr::V4(v4)) if v4.ip().is_unspecified() => {
            format!("{}:{}", Ipv4Addr::LOCALHOST, v4.port())
        }
        Ok(SocketAddr::V6(v6)) if v6.ip().is_unspecified() => {
            format!("[{}]:{}", Ipv6Addr::LOCALHOST, v6.port())
        }
        _ => address,
    })
}

/// Returns the URL of a server by a protocol of [`PROTOCOLS`].
pub(crate) fn url(protocol: &str, address: &str) -> String {
    match protocol.split_once('?') {
        Some((scheme, parameters)) => format!("{scheme}://{address}?{parameters}"),
        None => format!("{protocol}://{address}"),
    }
}

fn shown(metadata: &Metadata) -> Vec<(String, String)> {
    let value = |name: &str, value: &[u8]| match SECRET.iter().any(|part| name.contains(part)) {
        true => "***".to_owned(),
        false => String::from_utf8_lossy(value).into_owned(),
    };
    metadata.iter().map(|(name, bytes)| (name.to_owned(), value(name, bytes))).collect()
}
