//! Writes the Rust code of the services of the conformance suite and of gRPC's tests.

fn main() -> Result<(), polyrpc_build::Error> {
    polyrpc_build::compile(
        ["../proto/conformance.proto", "../proto/grpc_testing.proto", "../proto/orca.proto"],
        ["../proto"],
    )
}
