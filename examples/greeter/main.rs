//! Heavy and light methods side by side on one server: brpc's gRPC greeter. It runs until Ctrl-C or SIGTERM.
//!
//!     cargo run --release -p polyrpc-examples --bin greeter [ADDRESS] [--heavy ADDITIONS]
//!
//! `SayHello` computes, so build.rs marks it as blocking: it gets a thread of its own, and those who call
//! `SayHelloAgain` meanwhile do not wait for it. That thread gives way to whoever else wants its core, too.

// build.rs wrote it from helloworld.proto.
#[allow(warnings)]
mod helloworld {
    polyrpc::include_proto!("helloworld");
}

use std::hint::black_box;
use std::time::Duration;

use polyrpc::{Context, Cores, Result, Server, signal};

use crate::helloworld::{Greeter, GreeterServer, HelloReply, HelloRequest};

struct Doorman {
    heavy: u64,
}

impl Greeter for Doorman {
    async fn say_hello(&self, cx: &mut Context, request: HelloRequest) -> Result<HelloReply> {
        add_up(self.heavy);
        self.say_hello_again(cx, request).await
    }

    async fn say_hello_again(&self, _: &mut Context, request: HelloRequest) -> Result<HelloReply> {
        Ok(HelloReply { message: format!("Hello {}", request.name), ..Default::default() })
    }
}

/// Additions that the compiler cannot leave out.
fn add_up(count: u64) -> u64 {
    (0..count).fold(0, |sum, n| black_box(sum + n))
}

#[tokio::main]
async fn main() -> Result<()> {
    let (address, heavy) = arguments();
    let cores = Cores::builder().idle_blocking().start()?;
    let greeter = GreeterServer::new(Doorman { heavy });
    let server = Server::new().executor(cores).service(greeter).bind(address).await?;
    println!("listening on {}", server.address());
    server.run_until(signal::shutdown(), Duration::from_secs(10)).await;
    Ok(())
}

fn arguments() -> (String, u64) {
    let (mut address, mut heavy) = ("127.0.0.1:50051".to_owned(), 10_000_000);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--heavy" => match arguments.next().map(|count| count.parse()) {
                Some(Ok(count)) => heavy = count,
                _ => usage(),
            },
            option if option.starts_with('-') => usage(),
            _ => address = argument,
        }
    }
    (address, heavy)
}

fn usage() -> ! {
    eprintln!("usage: greeter [ADDRESS] [--heavy ADDITIONS]");
    std::process::exit(2)
}
