//! KCP, a reliable stream over UDP that carries any protocol. Compatible with `kcp-go`, and so with rpcx.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use polyrpc::kcp::{Algorithm, Cipher, Config, derive_key};
//! use polyrpc::server::Listen;
//!
//! let cipher = Cipher::new(Algorithm::Aes, &derive_key(b"rpcx-key", b"rpcx-salt", 4096))?;
//! let config = Config::rpcx(cipher);
//! let listen = Listen::on("0.0.0.0:8973").kcp(config.clone());
//! let server = polyrpc::Server::new().bind(listen).await?.start();
//!
//! let client = polyrpc::Client::builder("rpcx://localhost:8973?transport=kcp").kcp(config).build()?;
//! # Ok(())
//! # }
//! ```

// The conversation itself, its encryption and its error correction are a state machine of `polyrpc-kcp`. Modules:
// `endpoint` is the task that owns a socket, `conversation_table` its conversations, `backlog` those that wait to be
// accepted, `conversation` the state shared by a stream and that task, `timers` the timers, `stream` the interface to
// the rest of the crate.

mod endpoint;

mod backlog;
mod conversation;
mod conversation_table;
mod timers;

mod stream;

#[cfg(test)]
mod tests;

pub use polyrpc_kcp::{Algorithm, Cipher, Config, ConfigError, Shards, Tuning, derive_key};

pub(crate) use self::endpoint::{Listener, connect};
