//! Services of `serve` and `demo`, each written once for every protocol.

mod arith;
mod benchmark;
mod echo;
pub(crate) mod fields;
mod greeter;
mod hello;

use polyrpc::Server;
use polyrpc::introspection::Health;
use polyrpc::payload::ByteString;

use crate::fbs::test::BenchmarkServiceServer;
use crate::proto;
use crate::proto::example::EchoServiceServer;
use crate::proto::helloworld::GreeterServer;
use crate::proto::pb::HelloServer;
use crate::proto::{ArithServer, PBArithServer};

pub use arith::Calculator;

/// Descriptions of their protobuf messages.
pub(crate) const DESCRIPTOR_SETS: [&[u8]; 4] = [
    proto::FILE_DESCRIPTOR_SET,
    proto::example::FILE_DESCRIPTOR_SET,
    proto::helloworld::FILE_DESCRIPTOR_SET,
    proto::pb::FILE_DESCRIPTOR_SET,
];

/// A server of all of them.
pub fn server() -> Server {
    shared_server().service(GreeterServer::new(greeter::Doorman)).service(flatbuffers_benchmark())
}

/// A server of those that `bench suite` needs too.
pub(crate) fn shared_server() -> Server {
    Server::new()
        .service(EchoServiceServer::new(echo::Echo))
        .service(ArithServer::new(Calculator))
        .service(PBArithServer::new(Calculator))
        .service(HelloServer::new(hello::Benchmark))
        // rest_rpc's clients may send any bytes as a text.
        .function("echo", |text: ByteString| async move { text })
        // As in rest_rpc's examples: in struct_pack another integer width is another signature.
        .function("add", |a: i32, b: i32| async move { a.wrapping_add(b) })
        .health(&Health::new())
        .reflection()
}

/// The service that FlatBuffers are measured with.
pub(crate) fn flatbuffers_benchmark() -> BenchmarkServiceServer<impl crate::fbs::test::BenchmarkService> {
    BenchmarkServiceServer::new(benchmark::Benchmark)
}
