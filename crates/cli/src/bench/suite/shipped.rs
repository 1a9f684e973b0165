//! The suites and the peers that come with this program.

/// Names and definitions, in the order in which `all` measures them.
pub(super) const SUITES: [(&str, &str); 5] = [
    ("rest_rpc-brpc", include_str!("definitions/rest_rpc-brpc.toml")),
    ("brpc-grpc", include_str!("definitions/brpc-grpc.toml")),
    ("rpcx-grpc", include_str!("definitions/rpcx-grpc.toml")),
    ("flatbuffers", include_str!("definitions/flatbuffers.toml")),
    ("grpc-connections", include_str!("definitions/grpc-connections.toml")),
];

/// Peers of these suites.
pub(super) const PEERS: &str = include_str!("definitions/peers.toml");
