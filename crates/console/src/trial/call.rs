use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::layer::StreamType;
use polyrpc::propagation::{self, CallScope, Trace, TraceParent};
use polyrpc::{Address, Client, Format, Json, Metadata, Status};
use serde::Serialize;

use crate::observed::ObservedServer;

/// The protocols that carry JSON, with the schemes of their URLs.
pub(crate) const PROTOCOLS: [(&str, &str); 7] = [
    ("http", "HTTP"),
    ("grpc", "gRPC"),
    ("connect", "Connect"),
    ("baidu-std", "baidu_std"),
    ("rpcx", "rpcx"),
    ("http?dialect=json-rpc", "JSON-RPC 2.0"),
    ("net-rpc?codec=json", "Go net/rpc"),
];

/// Those that carry streams; the first carries every shape on every server.
pub(crate) const STREAMING: [&str; 3] = ["grpc", "connect", "baidu-std"];

/// A call to make.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    /// `Service/Method`, or a function.
    pub(crate) target: String,
    /// One of [`PROTOCOLS`].
    pub(crate) protocol: &'static str,
    pub(crate) stream_type: StreamType,
    /// The message as JSON; if the method takes a stream, messages one after the other.
    pub(crate) message: String,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) timeout: Duration,
}

/// A call that was made.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct TrialResult {
    /// `None` if it succeeded.
    pub(crate) failure: Option<String>,
    /// The reply as JSON; the messages of a stream, a line each.
    pub(crate) reply: String,
    /// Notes about the reply.
    pub(crate) note: Option<&'static str>,
    pub(crate) metadata: Vec<(String, String)>,
    /// Microseconds, with the time to connect.
    pub(crate) took: u64,
    pub(crate) trace: String,
}

/// Received data of a call.
#[derive(Debug, Default)]
pub(super) struct ReceivedReply {
    pub(super) reply: String,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) note: Option<&'static str>,
}

/// Maximum length of a reply that is shown.
const MAX_REPLY_LEN: usize = 256 << 10;

/// Parts of names whose values are not shown.
const SECRET: [&str; 5] = ["auth", "token", "cookie", "key", "password"];

impl Trial {
    /// Whether the method sends or takes a stream.
    pub(crate) fn streams(&self) -> bool {
        !self.stream_type.is_unary()
    }

    /// Makes a unary call.
    pub(crate) async fn make(&self, server: &ObservedServer) -> TrialResult {
        self.record(self.call(server)).await
    }

    /// Lets the server record the call and show it on `/rpcz`.
    pub(super) async fn record(
        &self,
        call: impl Future<Output = Result<ReceivedReply, Status>>,
    ) -> TrialResult {
        let own = TraceParent::root(false);
        let scope = CallScope::default().with_trace(Trace::new(own).recorded());
        let began = Instant::now();
        let result = propagation::scope(scope, call).await;
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (failure, received) = match result {
            Ok(received) => (None, received),
            Err(status) => {
                let metadata = hide_secrets(status.headers());
                (Some(status.to_string()), ReceivedReply { metadata, ..ReceivedReply::default() })
            }
        };
        let ReceivedReply { reply, metadata, note } = received;
        TrialResult { failure, reply, note, metadata, took, trace: format!("{:032x}", own.trace_id()) }
    }

    async fn call(&self, server: &ObservedServer) -> Result<ReceivedReply, Status> {
        let client = self.client(server)?;
        let message = Body::new(Format::Json(Json::default()), self.message.clone());
        let reply = client.call_raw(&self.target, message, self.options()).await?;
        let text = String::from_utf8_lossy(&reply.message.bytes);
        let end = text.floor_char_boundary(MAX_REPLY_LEN);
        let note = (end < text.len()).then_some("The reply is longer: this is its beginning.");
        let reply_text = text.get(..end).unwrap_or_default().to_owned();
        Ok(ReceivedReply { reply: reply_text, metadata: hide_secrets(&reply.metadata), note })
    }

    pub(super) fn client(&self, server: &ObservedServer) -> Result<Client, Status> {
        let address = local_address(server)
            .ok_or_else(|| Status::unavailable("the server listens on no TCP address"))?;
        Ok(Client::new(&url(self.protocol, &address))?)
    }

    pub(super) fn options(&self) -> CallOptions {
        let mut metadata = Metadata::new();
        for (name, value) in &self.metadata {
            metadata.append(name.clone(), value.clone());
        }
        CallOptions { metadata, timeout: Some(self.timeout), ..CallOptions::default() }
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

pub(super) fn hide_secrets(metadata: &Metadata) -> Vec<(String, String)> {
    // rpcx and baidu_std keep the case of names.
    let is_secret = |name: &str| SECRET.iter().any(|part| name.contains(part));
    let value = |name: &str, value: &[u8]| match is_secret(&name.to_lowercase()) {
        true => "***".to_owned(),
        false => String::from_utf8_lossy(value).into_owned(),
    };
    metadata.iter().map(|(name, bytes)| (name.to_owned(), value(name, bytes))).collect()
}
