use std::io;
use std::sync::Arc;

use polyrpc_core::{Format, Json};
use polyrpc_wire::rest_rpc::Version;
use polyrpc_wire::{Protocol, fb_rpc, net_rpc};

use super::Shared;
use super::authentication::Authenticator;
use super::proxy_header::TrustedProxies;
use crate::service::Router;
use crate::transport::{Address, tls};

/// Shared state of the connections of one listening socket.
pub(super) struct ListenerContext {
    pub(super) server: Arc<Shared>,
    pub(super) address: Address,
    /// Limits for sessions.
    pub(super) limits: polyrpc_core::Limits,
    pub(super) allowed: Vec<Protocol>,
    pub(super) authenticator: Option<Authenticator>,
    /// Connections make room for others first until their peer has shown a valid credential.
    pub(super) expects_credentials: bool,
    pub(super) tls: Option<tls::Acceptor>,
    /// Protocols between which a connection may change without an explicit switch.
    pub(super) family: Vec<Protocol>,
    /// Protocol to use without detection by the first bytes.
    pub(super) fixed_protocol: Option<Protocol>,
    /// Peers whose connections begin with a header of the PROXY protocol.
    pub(super) proxies: Option<TrustedProxies>,
}

impl ListenerContext {
    pub(super) fn new(
        server: Arc<Shared>,
        protocols: &ListenerProtocols,
        authenticator: Option<Authenticator>,
        tls: Option<tls::Server>,
        options: &ListenerOptions,
        address: Address,
    ) -> Self {
        let (allowed, fixed_protocol) = match protocols {
            ListenerProtocols::Every => (server.protocols().collect(), None),
            ListenerProtocols::Sniffed(allowed) => (allowed.clone(), None),
            ListenerProtocols::NetRpc(_) => (vec![Protocol::NetRpc], Some(Protocol::NetRpc)),
            // Frames identify both the protocol and the magic.
            ListenerProtocols::FbRpc(_) => (vec![Protocol::FbRpc], None),
            ListenerProtocols::RestRpc(_) => (vec![Protocol::RestRpc], Some(Protocol::RestRpc)),
        };
        let switches =
            |protocol: &Protocol| options.allow_protocol_switch && SWITCHABLE_PROTOCOLS.contains(protocol);
        let family = allowed.iter().copied().filter(switches).collect();
        let limits = server.limits.wire();
        let tls = tls.map(|tls| tls::Acceptor::new(tls, &allowed));
        Self {
            server,
            address,
            limits,
            tls,
            allowed,
            expects_credentials: options.expects_credentials || authenticator.is_some(),
            authenticator,
            family,
            fixed_protocol,
            proxies: options.proxies.clone(),
        }
    }

    /// Whether a connection may start with a token and then carry raw bytes only. Such connections are in clear text
    /// and are distinguished from calls by their first bytes.
    pub(super) fn takes_data(&self) -> bool {
        let is_socket = matches!(self.address, Address::Tcp(_) | Address::Unix(_));
        is_socket
            && self.fixed_protocol.is_none()
            && !self.tls.as_ref().is_some_and(tls::Acceptor::is_required)
    }
}

/// Settings of a listener that are safe only with certain clients.
#[derive(Debug, Default)]
pub(super) struct ListenerOptions {
    pub(super) trust_http: bool,
    pub(super) trust_grpc: bool,
    pub(super) lenient_http: bool,
    pub(super) allow_protocol_switch: bool,
    pub(super) hosts: Vec<String>,
    pub(super) expects_credentials: bool,
    pub(super) json: Option<Json>,
    pub(super) proxies: Option<TrustedProxies>,
}

/// The protocols between which brpc's server lets a connection change (brpc `input_messenger.cpp`).
const SWITCHABLE_PROTOCOLS: [Protocol; 4] =
    [Protocol::BaiduStd, Protocol::FbRpc, Protocol::Grpc, Protocol::Http];

impl ListenerProtocols {
    /// Checks whether the listener can carry all methods of the server. Where gob is only one of several protocols,
    /// methods that it cannot carry are logged and accepted.
    ///
    /// # Errors
    ///
    /// The methods that cannot be called by this listener.
    pub(super) fn check(&self, router: &Router) -> io::Result<()> {
        let by_name = match self {
            Self::NetRpc(net_rpc::Codec::Gob) => true,
            Self::Sniffed(allowed) if allowed.contains(&Protocol::NetRpc) => {
                allowed.len() < Protocol::ALL.len()
            }
            _ => return Ok(()),
        };
        let methods = router.entries().filter(|entry| !entry.is_standard());
        for entry in methods {
            let Err(status) = entry.method().check(Format::Gob) else { continue };
            let (service, name) = (entry.name().service(), entry.name().method());
            let dot = if service.is_empty() { "" } else { "." };
            let text = format!("{service}{dot}{name} cannot be called by net/rpc: {}", status.message());
            if by_name {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            tracing::warn!("{text}");
        }
        Ok(())
    }
}

/// Protocols of a listening socket.
#[derive(Debug, Clone)]
pub(super) enum ListenerProtocols {
    /// Any protocol of the server, detected by the first bytes of a connection.
    Every,
    /// One of these, detected by the first bytes of a connection.
    Sniffed(Vec<Protocol>),
    /// Only net/rpc, with any first bytes.
    NetRpc(net_rpc::Codec),
    /// Only this version of rest_rpc.
    RestRpc(Version),
    /// Only fb_rpc with this magic.
    FbRpc(fb_rpc::Magic),
}

impl ListenerProtocols {
    /// Returns the codec of net/rpc that is used without detection by the first bytes.
    pub(super) fn codec(&self) -> Option<net_rpc::Codec> {
        match self {
            Self::NetRpc(codec) => Some(*codec),
            _ => None,
        }
    }
}
