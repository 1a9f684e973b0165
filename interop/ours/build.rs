//! Writes the Rust code of the conformance suite's service.

fn main() -> Result<(), polyrpc_build::Error> {
    polyrpc_build::compile(["../proto/conformance.proto"], ["../proto"])
}
