//! What each protocol carries, and several on one port.

mod attached_streams;
mod detection;
mod empty_bodies;
mod flatbuffers;
#[cfg(feature = "tls")]
mod grpc_web_client;
mod http2;
#[cfg(all(feature = "kcp", feature = "quic"))]
mod kcp_and_quic;
mod loopback;
mod metadata;
mod net_rpc;
#[cfg(feature = "tls")]
mod one_port;
mod rest_rpc;
mod rpcx_numbers;
mod rpcx_reflection;
mod streams;
mod transfer;
mod values;
mod web;
mod websocket;
