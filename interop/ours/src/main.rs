//! PolyRPC's client against the servers of real peers: the cases that `polyrpc call` cannot express, since
//! they need a connection that lives on, or many calls on it.
//!
//! ```text
//! polyrpc-interop rpcx://127.0.0.1:8972
//! polyrpc-interop baidu-std://127.0.0.1:8002
//! polyrpc-interop grpc://127.0.0.1:10000
//! polyrpc-interop 'net-rpc://127.0.0.1:1234?codec=json'
//! polyrpc-interop gob://interop/go/bin/gob
//! ```
//!
//! The last is no server but a program to talk to.
//!
//! Prints a line for each case, `ok   NAME` or `FAIL NAME: why`, and exits with 1 if one failed.

mod baidu_std;
mod gob;
mod grpc;
mod net_rpc;
mod rpcx;

use std::process::ExitCode;

/// What became of a case: why it failed, if it did.
type Outcome = Result<(), String>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: polyrpc-interop URL");
        return ExitCode::from(2);
    };
    let cases = match url.split("://").next() {
        Some("rpcx") => rpcx::cases(&url).await,
        Some("baidu-std") => baidu_std::cases(&url).await,
        Some("grpc") => grpc::cases(&url).await,
        Some("net-rpc") => net_rpc::cases(&url).await,
        Some("gob") => gob::cases(url.trim_start_matches("gob://")),
        _ => {
            eprintln!("`{url}`: expected rpcx://, baidu-std://, grpc://, net-rpc:// or gob://");
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for (name, outcome) in cases {
        match outcome {
            Ok(()) => println!("ok   {name}"),
            Err(why) => {
                println!("FAIL {name}: {why}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Fails with this text unless it holds.
fn ensure(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(why()) }
}

/// How an unexpected error is told.
fn reported(error: polyrpc::Error) -> String {
    error.to_string()
}
