//! Handlers of `serve --vectors`, in addition to the demo's services: those that the recorded conversations of brpc,
//! rpcx and rest_rpc were made with, and those that the interop tests of gRPC implementations need.

mod arith;
mod echo;
mod old;
mod plain;
mod rest_rpc;
mod rich;
mod shapes;
mod testing;
mod thrift;
mod transfer;

use polyrpc::Server;

pub(crate) use old::{gencode, protobuf};

use crate::proto::example::EchoServiceServer;
use crate::proto::grpc::testing::TestServiceServer;

pub(crate) use rest_rpc::publish;

/// The server with these handlers, which replace services of the same name.
pub(crate) fn add_to(server: Server) -> Server {
    rest_rpc::add_to(server)
        .service(EchoServiceServer::new(echo::Echo))
        .service(arith::service())
        .service(TestServiceServer::new(testing::Tested))
        .service(thrift::service())
        .service(plain::echo())
        .service(plain::router())
        .service(shapes::service())
        .alias_method("math/times", "Arith/Mul")
        .function("a.fake.service/mul", |args: plain::Args| async move {
            plain::Reply { c: args.a.wrapping_mul(args.b) }
        })
        .streams(transfer::streams())
        .files(transfer::files())
}
