use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use polyrpc_wire::{Protocol, Status};
use tokio::time::Instant;

use super::Client;
use super::request::{Options, Response};
use crate::codec::{Body, Codec};

/// What stands around every call of a client that is one message each way: it may change the call and its end, answer
/// in place of the server, or make the call again.
///
/// It sees the request encoded and the reply opened, once a call: attempts on several servers, and their hooks
/// ([`Hook`](super::Hook)), are inside. The layer that was added first is outermost. Calls with several messages in a
/// direction, and streams beside calls, pass by.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use polyrpc::Status;
/// use polyrpc::client::{Layer, Next, Outgoing, Response};
/// use polyrpc::codec::Body;
///
/// /// Says in whose name calls are made.
/// struct Tenant(&'static str);
///
/// impl Layer for Tenant {
///     fn call<'a>(
///         &'a self,
///         mut call: Outgoing<'a>,
///         next: Next<'a>,
///     ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
///         call.options.metadata.insert("tenant", self.0);
///         next.call(call)
///     }
/// }
///
/// # fn main() -> polyrpc::Result<()> {
/// let client = polyrpc::Client::builder("rpcx://127.0.0.1:8972").layer(Tenant("blue")).build()?;
/// # Ok(())
/// # }
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Makes the call by `next`, in its own way.
    ///
    /// # Errors
    ///
    /// What the caller gets in place of a reply.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the caller gives up, and must take what it has begun with it.
    fn call<'a>(
        &'a self,
        call: Outgoing<'a>,
        next: Next<'a>,
    ) -> BoxFuture<'a, Result<Response<Body>, Status>>;
}

/// A call on its way to the server.
#[derive(Debug, Clone)]
pub struct Outgoing<'a> {
    /// The service; empty for a plain function.
    pub service: &'a str,
    /// The method, or the function's name.
    pub method: &'a str,
    /// The encoded request, not compressed yet.
    pub body: Body,
    /// What else the call says; the time-out is the client's where the call has none of its own.
    pub options: Options,
    /// The protocol that will carry it.
    pub protocol: Protocol,
}

impl Outgoing<'_> {
    /// The request as a value.
    ///
    /// # Errors
    ///
    /// When the bytes are no `T`.
    pub fn decode<C: Codec<T>, T>(&self) -> Result<T, Status> {
        C::decode(self.body.clone(), None)
    }

    /// The same call with this request, in the format of the one it had.
    ///
    /// # Errors
    ///
    /// When the codec cannot write it.
    pub fn with_message<C: Codec<T>, T>(mut self, message: T) -> Result<Self, Status> {
        self.body = C::encode_request(message, self.body.format, None)?;
        Ok(self)
    }

    /// Leaves it the time until then.
    pub(super) fn end_by(&mut self, deadline: Option<Instant>) {
        self.options.timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    }
}

/// What is inside of a layer: other layers, and the way to the server. To make the call more than once, copy it.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    client: &'a Client,
    inside: &'a [Arc<dyn Layer>],
}

impl<'a> Next<'a> {
    /// Makes the call.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call; the server may have begun it.
    pub fn call(self, call: Outgoing<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        match self.inside.split_first() {
            Some((layer, inside)) => layer.call(call, Self { inside, ..self }),
            None => Box::pin(self.client.send(call)),
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("inside", &self.inside.len()).finish()
    }
}

/// The layers of a client, outermost first. Most clients have none and pay nothing.
#[derive(Clone, Default)]
pub(super) struct Layers(Option<Arc<[Arc<dyn Layer>]>>);

impl Layers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The same with one more inside of all others.
    pub(super) fn with(&self, layer: impl Layer) -> Self {
        let outside = self.0.iter().flat_map(|layers| layers.iter().cloned());
        Self(Some(outside.chain([Arc::new(layer) as Arc<dyn Layer>]).collect()))
    }

    /// What is inside of no layer.
    pub(super) fn outermost<'a>(&'a self, client: &'a Client) -> Next<'a> {
        Next { client, inside: self.0.as_deref().unwrap_or_default() }
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layers").field(&self.0.as_ref().map_or(0, |layers| layers.len())).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use polyrpc_wire::{Code, Format};

    use super::*;
    use crate::codec::Serde;

    /// Notes when it is passed, on the way out and back.
    struct Noted(&'static str, Arc<Mutex<Vec<String>>>);

    impl Layer for Noted {
        fn call<'a>(
            &'a self,
            call: Outgoing<'a>,
            next: Next<'a>,
        ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
            Box::pin(async move {
                self.1.lock().unwrap().push(format!("{} {}/{}", self.0, call.service, call.method));
                let ended = next.call(call).await;
                self.1.lock().unwrap().push(format!("{} back", self.0));
                ended
            })
        }
    }

    /// Asks twice, under another name the second time.
    struct Twice;

    impl Layer for Twice {
        fn call<'a>(
            &'a self,
            call: Outgoing<'a>,
            next: Next<'a>,
        ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
            Box::pin(async move {
                match next.call(call.clone()).await {
                    Err(status) if status.code() == Code::NotFound => {
                        next.call(Outgoing { method: "second", ..call }).await
                    }
                    ended => ended,
                }
            })
        }
    }

    /// Answers by itself.
    struct Wall;

    impl Layer for Wall {
        fn call<'a>(
            &'a self,
            call: Outgoing<'a>,
            _: Next<'a>,
        ) -> BoxFuture<'a, Result<Response<Body>, Status>> {
            let refused = Status::permission_denied(format!("{} by {}", call.method, call.protocol.as_str()));
            Box::pin(std::future::ready(Err(refused)))
        }
    }

    fn client() -> Client {
        Client::mock(|call| match &*call.method {
            "first" => Err(Status::not_found("first").into()),
            method => call.answer::<Serde, _>(&method.to_owned()),
        })
    }

    #[tokio::test]
    async fn the_layer_that_was_added_first_is_outermost() {
        let noted = Arc::<Mutex<Vec<String>>>::default();
        let client = client().layered(Noted("a", noted.clone())).layered(Noted("b", noted.clone()));
        let reply: String = client.call("S/m", &()).await.unwrap();
        assert_eq!(reply, "m");
        assert_eq!(*noted.lock().unwrap(), ["a S/m", "b S/m", "b back", "a back"]);
    }

    #[tokio::test]
    async fn a_layer_may_call_again_and_elsewhere_or_not_at_all() {
        let twice = client().layered(Twice);
        assert_eq!(twice.call::<String>("first", &()).await.unwrap(), "second");
        let body = Body::new(Format::MessagePack, Vec::new());
        assert!(twice.call_raw("first", body, Options::default()).await.is_ok());
        let walled = twice.layered(Wall).call::<String>("first", &()).await.unwrap_err();
        assert_eq!((walled.code(), walled.message()), (Code::PermissionDenied, "first by rpcx"));
    }

    #[tokio::test]
    async fn the_client_without_the_layer_stays_as_it_was() {
        let plain = client();
        let walled = plain.layered(Wall);
        assert!(walled.call::<String>("m", &()).await.is_err());
        assert!(plain.call::<String>("m", &()).await.is_ok());
    }
}
