//! Messages for the programs of the interop tests: gRPC's test service.

/// gRPC's test service.
#[allow(warnings, reason = "generated")]
pub mod testing {
    polyrpc::include_proto!("grpc.testing");
}

/// Load report of a server in the trailers of a reply.
#[allow(warnings, reason = "generated")]
pub mod orca {
    polyrpc::include_proto!("xds.data.orca.v3");
}
