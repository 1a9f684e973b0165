//! The service, for the server and for the tests.

/// Code that `build.rs` generated from `proto/greeter.proto`: the messages, the service trait, and the client.
#[allow(warnings)]
pub mod greeter {
    polyrpc::include_proto!("greeter");
}

use polyrpc::introspection::Health;
use polyrpc::{Context, Result, Server, Status};

use crate::greeter::{Greeter, GreeterServer, HelloReply, HelloRequest};

/// Greets by name.
pub struct Host;

impl Greeter for Host {
    async fn hello(&self, _: &mut Context, request: HelloRequest) -> Result<HelloReply> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("there is no name"))?;
        }
        Ok(HelloReply { message: format!("Hello, {}", request.name), ..Default::default() })
    }
}

/// The server, with gRPC's health service and reflection.
pub fn server() -> Server {
    Server::new().service(GreeterServer::new(Host)).health(&Health::new()).reflection()
}
