#![doc = include_str!("../README.md")]

mod body;
mod pool;
mod routes;
mod rpc;

pub use body::{RequestBody, ResponseBody};
pub use routes::Routes;
pub use rpc::RpcService;

/// Any error, in the usual type of tower's crates.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
