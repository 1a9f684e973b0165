//! Writes the Rust code of the `.proto`. `protoc` is not needed.

fn main() -> Result<(), polyrpc_build::Error> {
    polyrpc_build::compile(["proto/greeter.proto"], ["proto"])
}
