//! The client of tonic, and client and server of tarpc, for `polyrpc bench suite`:
//!
//!     rust-peer serve tarpc --listen=127.0.0.1:0
//!     rust-peer call tonic --address 127.0.0.1:50051 --contract say581 --message FILE --callers 100 --connections 10
//!
//! A server prints "listening ADDRESS". A client prints "begin" when its measurement begins, and a line of JSON at its
//! end.

mod grpc;
mod load;
mod tarpc_hello;

use std::error::Error;

use load::Load;

mod example {
    tonic::include_proto!("example");
}
mod helloworld {
    tonic::include_proto!("helloworld");
}
mod pb {
    tonic::include_proto!("pb");
}

/// PolyRPC's server uses it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    allow_open_files();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match words.as_slice() {
        ["serve", "tarpc", listen] => {
            let listen = listen.strip_prefix("--listen=").ok_or("expected --listen=ADDRESS")?;
            end_with_standard_input();
            runtime.block_on(tarpc_hello::serve(listen))
        }
        ["call", system, options @ ..] => {
            let load = Load::parse(options)?;
            match *system {
                "tonic" => runtime.block_on(grpc::call(load)),
                "tarpc" => runtime.block_on(tarpc_hello::call(load)),
                _ => Err(format!("there is no client of {system}").into()),
            }
        }
        _ => Err("usage: rust-peer serve tarpc --listen=ADDRESS | rust-peer call tonic|tarpc …".into()),
    }
}

/// As many as allowed: suites open 10,000 connections. If this fails, the first one over the limit reports it.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Ends a server whose starter was killed.
fn end_with_standard_input() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(0);
    });
}
