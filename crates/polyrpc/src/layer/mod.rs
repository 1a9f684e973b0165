//! What stands around calls, on both sides and whatever their shape: [`Layer`]s.
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
pub use crate::call::{Outcome, ResponseFuture, StreamType};

pub(crate) use self::list::Layers;
pub(crate) use self::next::{Erased, Innermost};

/// Something that stands around calls: it sees each call before it is answered, and its end before the caller does.
///
/// A layer may refuse a call, change what is asked, answer itself or wait first; around what [`next`](Next::call)
/// gives it may measure, change the end, or give up. One layer serves both sides, every protocol and calls of every
/// shape:
///
/// | | on a client ([`Builder::layer`](crate::client::Builder::layer)) | on a server ([`Server::layer`](crate::Server::layer)) |
/// |---|---|---|
/// | one message each way | ends with the reply | ends with the reply |
/// | one-way | ends when it is sent | ends when the handler has |
/// | streams | ends when the answer has, or the caller drops it | ends when the handler has |
/// | a stream beside a call (brpc) | the call, which ends with its reply | the call, which ends with its reply |
/// | a subscription (rest_rpc) | ends when the caller drops it | ends when the connection does |
///
/// A client's layers stand around the whole call: attempts on several servers are inside. The layer that was added first
/// is outermost. On a server the layers of the whole server stand outside of those of
/// [one service or method](crate::Server::layer_on).
///
/// Messages of streams are not shown. The future that `call` returns is polled by the task of the connection on a
/// server, also where the method is blocking, and by the caller's task on a client: it must not hold its thread. It is
/// dropped when the caller gives up, and must take what it has begun with it.
///
/// ```
/// use std::sync::Arc;
/// use polyrpc::layer::{Call, Ending, Layer, Next};
/// use polyrpc::{Client, Server, Status};
///
/// /// Refuses calls without a tenant, and prints how those of tenants ended.
/// struct Tenants;
///
/// impl Layer for Tenants {
///     async fn call(self: Arc<Self>, call: Call, next: Next) -> Ending {
///         let Some(tenant) = call.metadata().get("tenant").map(str::to_owned) else {
///             return Ending::failed(Status::permission_denied("no tenant"));
///         };
///         let method = call.method().to_owned();
///         let ending = next.call(call).await;
///         println!("{tenant} {method}: {:?}", ending.failure());
///         ending
///     }
/// }
///
/// # fn main() -> polyrpc::Result<()> {
/// let server = Server::new().register("echo", |text: String| async move { text }).layer(Tenants);
/// let client = Client::builder("rpcx://127.0.0.1:8972").layer(Tenants).build()?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    note = "a layer implements `polyrpc::layer::Layer`: `async fn call(self: Arc<Self>, call: Call, next: Next) -> Ending`"
)]
pub trait Layer: Send + Sync + 'static {
    /// Takes a call on its way, and gives its end.
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static;

    /// The only side on which the layer has a meaning; `None`: both. On the other side it is refused when the client is
    /// built, or the server binds.
    fn only_side(&self) -> Option<Side> {
        None
    }
}

/// A layer that somebody else holds too.
impl<L: Layer> Layer for Arc<L> {
    fn call(self: Arc<Self>, call: Call, next: Next) -> impl Future<Output = Outcome> + Send + 'static {
        L::call((*self).clone(), call, next)
    }

    fn only_side(&self) -> Option<Side> {
        (**self).only_side()
    }
}

/// On which side of a call one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Where it is made.
    Client,
    /// Where it is answered.
    Server,
}

impl Side {
    /// `client` or `server`.
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
