//! What is inside of a layer.

use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use polyrpc_core::Status;

use super::{Call, Layers};
use crate::client::Client;
use crate::service::{Ending, Entry, Handling, Way};

/// What is inside of a layer: the layers that were added after it, and the method, or the way to the server.
///
/// ```text
///   call ─▶ first layer ─▶ second layer ─▶ method, or server
///                 ◀─ ending ─    ◀─ ending ─
/// ```
pub struct Next {
    /// How many layers the call has passed.
    passed: usize,
    inmost: Inmost,
}

/// Where the call goes behind all layers.
enum Inmost {
    Method {
        entry: Arc<Entry>,
        way: Way,
        unreadable: fn(Status) -> Status,
    },
    /// `None`: one message each way.
    Server {
        client: Client,
        open: Option<Open>,
    },
}

/// Makes a call that goes on behind its beginning, and gives its end.
type Open = Box<dyn FnOnce(Client, Call) -> Pin<Box<dyn Future<Output = Ending> + Send>> + Send>;

impl Next {
    /// All that a call passes on a server. `unreadable` puts into the protocol's words that the method cannot read its
    /// request.
    pub(crate) fn to_method(entry: Arc<Entry>, way: Way, unreadable: fn(Status) -> Status) -> Self {
        Self { passed: 0, inmost: Inmost::Method { entry, way, unreadable } }
    }

    /// All that a call passes on a client. What has several messages is opened by `open`.
    pub(crate) fn to_server(client: Client, open: Option<Open>) -> Self {
        Self { passed: 0, inmost: Inmost::Server { client, open } }
    }

    /// Lets the call go on. Dropping the future cancels the call; the server may have begun it.
    pub fn call(mut self, call: Call) -> Handling {
        match self.layers().get(self.passed).cloned() {
            Some(layer) => {
                self.passed += 1;
                layer.call(call, self)
            }
            None => self.inmost.call(call),
        }
    }

    /// The same once more, for who makes a [call](Call::try_clone) several times; `None` on a server, and where messages
    /// come one by one.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.inmost {
            Inmost::Server { client, open: None } => Some(Self {
                passed: self.passed,
                inmost: Inmost::Server { client: client.clone(), open: None },
            }),
            _ => None,
        }
    }

    /// Whether the call comes to a method that runs on a thread which it may hold.
    pub fn is_blocking(&self) -> bool {
        matches!(&self.inmost, Inmost::Method { entry, .. } if entry.method().blocking())
    }

    /// On a client: what telemetry names as the server.
    #[cfg(feature = "otel")]
    pub(crate) fn target(&self) -> Option<&crate::client::Target> {
        match &self.inmost {
            Inmost::Method { .. } => None,
            Inmost::Server { client, .. } => Some(client.target()),
        }
    }

    fn layers(&self) -> &Layers {
        match &self.inmost {
            Inmost::Method { entry, .. } => entry.layers(),
            Inmost::Server { client, .. } => client.layers(),
        }
    }
}

impl Inmost {
    fn call(self, mut call: Call) -> Handling {
        match self {
            Self::Method { entry, way, unreadable } => {
                let begun =
                    call.into_incoming().and_then(|(cx, body)| entry.begin(cx, body, way, unreadable));
                begun.unwrap_or_else(|status| Box::pin(ready(Ending::failed(status))))
            }
            Self::Server { client, open: Some(open) } => open(client, call),
            Self::Server { client, open: None } => Box::pin(async move {
                match call.take_outgoing() {
                    Ok(outgoing) => client.send(outgoing).await.into(),
                    Err(status) => Ending::failed(status),
                }
            }),
        }
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.layers().len().saturating_sub(self.passed);
        f.debug_struct("Next").field("layers", &layers).finish_non_exhaustive()
    }
}
