use polyrpc::{Context, Result};

use crate::proto::helloworld::{Greeter, HelloReply, HelloRequest};

/// gRPC's example.
pub(super) struct Doorman;

impl Greeter for Doorman {
    async fn say_hello(&self, _: &mut Context, request: HelloRequest) -> Result<HelloReply> {
        Ok(HelloReply { message: format!("Hello {}", request.name), ..HelloReply::default() })
    }
}
