//! Byte streams and whole files next to the calls, as in rpcx (`_streamservice`, `_filetransfer`).
//!
//! ```text
//!   client                                    server
//!     │  call: Stream, TransferFile, …          │
//!     │ ──────────────────────────────────────▶ │  judges it as any call
//!     │ ◀────────────────────────────────────── │  a token, and where to go with it
//!     │                                         │
//!     │  second connection: the token, bytes    │
//!     │ ◀─────────────────────────────────────▶ │  your function
//! ```
//!
//! The call is like any other: every protocol carries it, and the listener's authenticator checks it. The bytes use a
//! connection of their own, which starts with the token and ends with the bytes. A token is valid for one connection
//! within [half a minute](crate::server::Limits::transfer_token_timeout).
//!
//! rpcx's server has a separate port for these connections. Here they use the port that was called and are recognised
//! by their tokens; [`advertise`](Streams::advertise) directs clients elsewhere. As in rpcx the bytes are sent in
//! plaintext, so a listener that accepts only TLS needs a plaintext one next to it; a listener at every address should
//! be advertised.
//!
//! ```
//! use std::collections::HashMap;
//!
//! use polyrpc::transfer::{ByteStream, Files, Streams};
//! use polyrpc::{Client, Result, Server, Status};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let server = Server::new()
//!     .streams(Streams::new(|mut stream: ByteStream, _request| async move {
//!         let mut word = [0; 5];
//!         stream.read_exact(&mut word).await?;
//!         stream.write_all(&[b"echo ", &word[..]].concat()).await?;
//!         Ok(())
//!     }))
//!     .files(Files::new().on_download(|request| async move {
//!         match request.name.as_str() {
//!             "motd" => Ok(&b"good morning"[..]),
//!             _ => Err(Status::not_found("no such file").into()),
//!         }
//!     }))
//!     .bind("127.0.0.1:0")
//!     .await?
//!     .start();
//!
//! let client = Client::new(&format!("rpcx://{}", server.address()))?;
//! let mut stream = client.byte_stream(&HashMap::new()).await?;
//! stream.write_all(b"hello").await?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer).await?;
//! assert_eq!(answer, "echo hello");
//!
//! let mut file = Vec::new();
//! client.download_file("motd", &HashMap::new(), &mut file).await?;
//! assert_eq!(file, b"good morning");
//! # Ok(())
//! # }
//! ```

mod messages;
mod request;

mod files;
mod streams;
mod tokens;

mod client;
mod stream;

pub use files::{Files, Upload};
pub use request::Request;
pub use stream::ByteStream;
pub use streams::Streams;

pub(crate) use stream::{TransferredBytes, poll_drain};
pub(crate) use tokens::{DataConnections, LENGTH, Start, TokenMatch};

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::Result;
use crate::call::Context;
use crate::service::{MethodRole, Router};

/// Work on a data connection.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Checks a request, in addition to the authenticator.
type Authorize = Arc<dyn Fn(&Context, &Request) -> Result<()> + Send + Sync>;

/// Adds the services that grant tokens, if there are any, and registers the data connections that they expect.
pub(crate) fn add(
    router: &mut Router,
    streams: Option<Streams>,
    files: Option<Files>,
    tokens: usize,
    token_timeout: Duration,
) -> Option<Arc<DataConnections>> {
    if streams.is_none() && files.is_none() {
        return None;
    }
    let data = Arc::new(DataConnections::new(tokens, token_timeout));
    if let Some(streams) = streams {
        router.add_standard(MethodRole::Transfer, streams.into_service(&data));
    }
    if let Some(files) = files {
        router.add_standard(MethodRole::Transfer, files.into_service(&data));
    }
    Some(data)
}
