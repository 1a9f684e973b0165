//! Generates the Rust code of the `.proto` and `.fbs` files. Neither `protoc` nor `flatc` is needed.

fn main() -> Result<(), polyrpc_build::Error> {
    polyrpc_build::compile(["echo_proto/echo.proto"], ["echo_proto"])?;
    polyrpc_build::compile(["flatbuffers/benchmark.fbs"], ["flatbuffers"])?;
    polyrpc_build::compile(["http_annotations/shelf.proto"], ["http_annotations"])?;
    polyrpc_build::compile(["messages/shop.proto"], ["messages"])?;
    polyrpc_build::Config::new()
        .files(["greeter/helloworld.proto"])
        .includes(["greeter"])
        .blocking(["helloworld.Greeter.SayHello"])
        .compile()
}
