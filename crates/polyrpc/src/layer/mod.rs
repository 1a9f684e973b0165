//! Middleware around calls, on both sides and for every call type: [`Layer`]s.
//!
//! Ready-made ones are in [`layers`](crate::layers).

mod call;
pub(crate) mod hook;
mod list;
mod next;

use std::fmt;
use std::sync::Arc;

pub use self::call::Call;
pub use self::next::Next;
pub use crate::call::{Outcome, StreamType};

pub(crate) use self::list::Layers;
pub(crate) use self::next::{Erased, Innermost};

/// Middleware around calls: it sees each call before it is handled, and its outcome before the caller does.
///
/// A layer may reject a call, change the request, respond itself or wait first; around [`next`](Next::call) it may
/// measure, change the outcome, or cancel. One layer serves both sides, every protocol and calls of every type:
///
/// | | on a client ([`Builder::layer`](crate::client::Builder::layer)) | on a server ([`Server::layer`](crate::Server::layer)) |
/// |---|---|---|
/// | unary | ends with the reply | ends with the reply |
/// | one-way | ends when it is sent | ends when the handler has |
/// | streaming | ends when the response has, or the caller drops it | ends when the handler has |
/// | an attached stream (brpc) | the call, which ends with its reply | the call, which ends with its reply |
/// | a subscription (rest_rpc) | ends when the caller drops it | ends when the connection does |
///
/// A client's layers wrap the whole call: retries on several servers happen inside. The layer that was added first is
/// outermost. On a server the layers of the whole server are outside of those of
/// [one service or method](crate::Server::layer_on).
///
/// Messages of streams are not visible. The future that `call` returns is polled by the task of the connection on a
/// server, also for a blocking method, and by the caller's task on a client: it must not block. It is dropped when the
/// caller cancels; dropping it must cancel the work that it has started.
///
/// ```
/// use std::sync::Arc;
/// use polyrpc::layer::{Call, Outcome, Layer, Next};
/// use polyrpc::{Client, Server, Status};
///
/// /// Refuses calls without a tenant, and prints how those of tenants ended.
/// struct Tenants;
///
/// impl Layer for Tenants {
///     async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
///         let Some(tenant) = call.metadata().get("tenant").map(str::to_owned) else {
///             return Outcome::failed(Status::permission_denied("no tenant"));
///         };
///         let method = call.method().to_owned();
///         let ending = next.call(call).await;
///         println!("{tenant} {method}: {:?}", ending.failure());
///         ending
///     }
/// }
///
/// # fn main() -> polyrpc::Result<()> {
/// let server = Server::new().function("echo", |text: String| async move { text }).layer(Tenants);
/// let client = Client::builder("rpcx://127.0.0.1:8972").layer(Tenants).build()?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    note = "a layer implements `polyrpc::layer::Layer`: `async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome`"
)]
pub trait Layer: Send + Sync + 'static {
    /// Handles a call and returns its outcome.
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static;

    /// Returns the only side on which the layer works; `None`: both. On the other side it is an error when the client
    /// is built, or the server binds.
    fn only_side(&self) -> Option<Side> {
        None
    }
}

/// A shared layer.
impl<L: Layer> Layer for Arc<L> {
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static {
        L::call((*self).clone(), call, next)
    }

    fn only_side(&self) -> Option<Side> {
        (**self).only_side()
    }
}

/// A side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The caller.
    Client,
    /// The callee.
    Server,
}

impl Side {
    /// Returns `client` or `server`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
