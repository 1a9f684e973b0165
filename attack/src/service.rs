//! Services of the server under attack: the same methods once with plain types, for the well-behaved clients, and once
//! with undecoded bytes, for the attackers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use polyrpc::introspection::Health;
use polyrpc::{Context, Result, Server, Status, Streaming};

/// Called by the well-behaved clients.
#[polyrpc::service]
pub(crate) trait Plain {
    /// Echoes the text.
    async fn echo(&self, text: String) -> Result<String>;
    /// Echoes every message.
    async fn talk(&self, texts: Streaming<String>) -> Result<Streaming<String>>;
}

/// Called by the attackers.
#[polyrpc::service(codec = polyrpc::codec::Raw)]
pub(crate) trait Bare {
    /// Echoes message and attachment.
    async fn echo(&self, cx: &mut Context, message: Bytes) -> Result<Bytes>;
    /// Blocks for an hour.
    async fn wait(&self, message: Bytes) -> Result<Bytes>;
    /// Returns 1 MiB.
    async fn blob(&self, message: Bytes) -> Result<Bytes>;
    /// Streams messages of 16 KiB as long as they are read.
    async fn pour(&self, message: Bytes) -> Result<Streaming<Bytes>>;
    /// Echoes every message.
    async fn talk(&self, messages: Streaming<Bytes>) -> Result<Streaming<Bytes>>;
    /// Reachable only with the right credential; its reply identifies it.
    async fn secret(&self, message: Bytes) -> Result<Bytes>;
}

/// The reply of [`Bare::secret`].
pub(crate) const SECRET: &str = "\"the-secret-handler-ran\"";

/// Length of the reply of [`Bare::blob`].
pub(crate) const BLOB: usize = 1 << 20;

const HOUR: Duration = Duration::from_secs(3600);

struct Target {
    /// A JSON reply as long as a blob: a string of letters.
    blob: Bytes,
}

impl Plain for Target {
    async fn echo(&self, text: String) -> Result<String> {
        Ok(text)
    }

    async fn talk(&self, mut texts: Streaming<String>) -> Result<Streaming<String>> {
        Ok(Streaming::produce(move |sender| async move {
            while let Some(text) = texts.message().await? {
                sender.send(text).await?;
            }
            Ok(())
        }))
    }
}

impl Bare for Target {
    async fn echo(&self, cx: &mut Context, message: Bytes) -> Result<Bytes> {
        cx.reply_options().attachment = cx.attachment().clone();
        Ok(message)
    }

    async fn wait(&self, message: Bytes) -> Result<Bytes> {
        tokio::time::sleep(HOUR).await;
        Ok(message)
    }

    async fn blob(&self, _: Bytes) -> Result<Bytes> {
        // A copy: unread replies must count as memory.
        Ok(Bytes::copy_from_slice(&self.blob))
    }

    async fn pour(&self, _: Bytes) -> Result<Streaming<Bytes>> {
        Ok(Streaming::produce(move |sender| async move {
            loop {
                sender.send(Bytes::from(vec![b'x'; 16 << 10])).await?;
            }
        }))
    }

    async fn talk(&self, mut messages: Streaming<Bytes>) -> Result<Streaming<Bytes>> {
        Ok(Streaming::produce(move |sender| async move {
            while let Some(message) = messages.message().await? {
                sender.send(message).await?;
            }
            Ok(())
        }))
    }

    async fn secret(&self, _: Bytes) -> Result<Bytes> {
        Ok(Bytes::from_static(SECRET.as_bytes()))
    }
}

/// A server with all services.
pub(crate) fn server() -> Server {
    let blob: Bytes = [&b"\""[..], &vec![b'x'; BLOB - 2], b"\""].concat().into();
    Server::new()
        .service(PlainServer::new(Target { blob: Bytes::new() }))
        .service(BareServer::new(Target { blob }))
        .function("echo", |text: String| async move { text })
        .function("wait", |text: String| async move {
            tokio::time::sleep(HOUR).await;
            text
        })
        .function("blob", |_: String| async move { "x".repeat(BLOB) })
        .health(&Health::new())
        .reflection()
}

/// The credential that the guarded listener accepts.
pub(crate) const TOKEN: &str = "the-right-token";

/// The authenticator of the guarded listener.
pub(crate) fn authenticate(credential: Option<&[u8]>) -> std::result::Result<(), Status> {
    match credential {
        Some(credential) if credential == TOKEN.as_bytes() => Ok(()),
        _ => Err(Status::unauthenticated("the token is wrong")),
    }
}

/// Counts calls that were executed more than once: each call has a unique id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Executions>>);

#[derive(Debug, Default)]
struct Executions {
    ids: HashSet<u64>,
    repeated: u64,
}

impl Ledger {
    /// A function that records the id of its call, and returns it.
    pub(crate) fn once_function(&self) -> impl Fn(u64) -> std::future::Ready<u64> + Clone + use<> {
        let ledger = self.clone();
        move |id| {
            let mut executions = ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !executions.ids.insert(id) {
                executions.repeated += 1;
            }
            std::future::ready(id)
        }
    }

    /// Number of calls whose id had been executed before.
    pub(crate) fn repeated(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).repeated
    }
}
