//! What the programs of the interop tests share: the messages of gRPC's test service.

/// gRPC's test service.
#[allow(warnings, reason = "generated")]
pub mod testing {
    polyrpc::include_proto!("grpc.testing");
}

/// What a server tells of its load behind an answer.
#[allow(warnings, reason = "generated")]
pub mod orca {
    polyrpc::include_proto!("xds.data.orca.v3");
}
