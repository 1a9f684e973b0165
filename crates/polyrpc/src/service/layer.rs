//! What every call passes on its way to its method, whatever protocol brought it.

use std::fmt;
use std::sync::Arc;

use polyrpc_wire::Status;

use super::entry::Entry;
use super::{Context, Handling, Shape};
use crate::codec::Body;
use crate::streaming::{Incoming, Outgoing};

/// Something that stands before methods: it sees each call before the method does, and its end before the caller does.
///
/// A layer may refuse a call, change what the method is given, add to the context or wait first; around what
/// [`next`](Next::call) returns it may measure, change the end, or give up. One layer serves every protocol, and calls
/// of every shape. [`Server::layer`](crate::Server::layer) puts it before all methods,
/// [`Server::layer_on`](crate::Server::layer_on) before some. Layers run in the order in which they were added, those of
/// the whole server first: the first one added is the outermost, sees a call first and its end last.
///
/// `call` runs on the connection's task, also where the method is `blocking`: it must not hold its thread. What it
/// returns is polled there too.
///
/// ```
/// use polyrpc::codec::Body;
/// use polyrpc::service::{Handling, Layer, Next};
/// use polyrpc::{Context, Server, Status};
///
/// /// Refuses who does not name a tenant, and tells what became of the calls of those who do.
/// struct Tenants;
///
/// impl Layer for Tenants {
///     fn call(&self, cx: Context, body: Body, next: Next<'_>) -> Result<Handling, Status> {
///         let Some(tenant) = cx.metadata().get("tenant").map(str::to_owned) else {
///             return Err(Status::permission_denied("no tenant"));
///         };
///         let method = cx.method().to_owned();
///         let handling = next.call(cx, body)?;
///         Ok(Box::pin(async move {
///             let ending = handling.await;
///             println!("{tenant} {method}: {:?}", ending.failure());
///             ending
///         }))
///     }
/// }
///
/// let server = Server::new().register("echo", |text: String| async move { text }).layer(Tenants);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    note = "a layer implements `polyrpc::service::Layer`: `fn call(&self, cx: Context, body: Body, next: Next<'_>)`"
)]
pub trait Layer: Send + Sync + 'static {
    /// Takes a call on its way to its method.
    ///
    /// `body` is the request. It is empty where the caller sends its messages one by one, which a layer does not see:
    /// [`Next::shape`] tells.
    ///
    /// # Errors
    ///
    /// Why the method is not to be reached, or could not read its request: its handler did not run.
    fn call(&self, cx: Context, body: Body, next: Next<'_>) -> Result<Handling, Status>;
}

/// A layer that somebody else has a hand on too.
impl<L: Layer + ?Sized> Layer for Arc<L> {
    fn call(&self, cx: Context, body: Body, next: Next<'_>) -> Result<Handling, Status> {
        (**self).call(cx, body, next)
    }
}

/// What lies behind a layer: the layers that were added after it, and the method.
///
/// ```text
///   call ─▶ first layer ─▶ second layer ─▶ method
///                 ◀─ ending ─    ◀─ ending ─
/// ```
pub struct Next<'a> {
    entry: Held<'a>,
    /// How many layers the call has passed.
    passed: usize,
    way: Way,
    unreadable: fn(Status) -> Status,
}

/// Where the method is.
enum Held<'a> {
    Here(&'a Arc<Entry>),
    /// Kept by a layer that waits before it goes on.
    Kept(Arc<Entry>),
}

/// How the messages of a call come and leave.
pub(crate) enum Way {
    /// One each way.
    Whole,
    /// One comes, and any number leave.
    Answers(Outgoing),
    /// Any number come, and perhaps leave.
    Streams(Incoming, Outgoing),
}

impl<'a> Next<'a> {
    /// All that a call passes. `unreadable` puts into the protocol's words that the method cannot read its request.
    pub(crate) fn all(entry: &'a Arc<Entry>, way: Way, unreadable: fn(Status) -> Status) -> Self {
        Self { entry: Held::Here(entry), passed: 0, way, unreadable }
    }

    /// Lets the call go on. The handler runs in what is returned, or, if it never waits, may have run already.
    ///
    /// # Errors
    ///
    /// What a layer behind this one refused the call for, or why the method cannot read its request: its handler did not
    /// run.
    pub fn call(self, cx: Context, body: Body) -> Result<Handling, Status> {
        let Self { entry, passed, way, unreadable } = self;
        let entry = match &entry {
            Held::Here(entry) => entry,
            Held::Kept(entry) => entry,
        };
        match entry.layers().get(passed) {
            Some(layer) => {
                let next = Next { entry: Held::Here(entry), passed: passed + 1, way, unreadable };
                layer.call(cx, body, next)
            }
            None => entry.begin(cx, body, way, unreadable),
        }
    }

    /// Keeps it for later: a layer that must wait for something before it lets the call go on takes this into its
    /// future.
    ///
    /// ```
    /// # use polyrpc::codec::Body;
    /// # use polyrpc::service::{Ending, Handling, Layer, Next};
    /// # use polyrpc::{Context, Status};
    /// # struct Patient(std::sync::Arc<tokio::sync::Semaphore>);
    /// impl Layer for Patient {
    ///     fn call(&self, cx: Context, body: Body, next: Next<'_>) -> Result<Handling, Status> {
    ///         let (room, next) = (self.0.clone(), next.keep());
    ///         Ok(Box::pin(async move {
    ///             let _permit = room.acquire_owned().await;
    ///             match next.call(cx, body) {
    ///                 Ok(handling) => handling.await,
    ///                 Err(status) => Ending::failed(status),
    ///             }
    ///         }))
    ///     }
    /// }
    /// ```
    pub fn keep(self) -> Next<'static> {
        let Self { entry, passed, way, unreadable } = self;
        let entry = match entry {
            Held::Here(entry) => entry.clone(),
            Held::Kept(entry) => entry,
        };
        Next { entry: Held::Kept(entry), passed, way, unreadable }
    }

    /// In which directions the method has several messages.
    pub fn shape(&self) -> Shape {
        self.entry().method().shape()
    }

    /// Whether the method runs on a thread where it may hold it.
    pub fn blocking(&self) -> bool {
        self.entry().method().blocking()
    }

    fn entry(&self) -> &Entry {
        match &self.entry {
            Held::Here(entry) => entry,
            Held::Kept(entry) => entry,
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.entry().layers().len();
        f.debug_struct("Next").field("method", self.entry()).field("layers", &(layers - self.passed)).finish()
    }
}
