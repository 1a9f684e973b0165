//! Subscriptions to the topics of a server.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream;
use polyrpc_core::{Call, Format, Scope, Status};
use serde::de::DeserializeOwned;

use super::streaming_call::{CallReceiver, StreamingCall};
use crate::Streaming;
use crate::call::{CallOptions, Outcome, OutgoingCall, StreamType};
use crate::client::call_defaults::unreadable;
use crate::client::cluster::{CallAttempt, CallConnection, RoutingOptions};
use crate::client::layered_call::LayerGuard;
use crate::client::pool::Pool;
use crate::client::{Backend, Client, Result};
use crate::codec::{Body, decode_plain, decode_published};
use crate::layer::Call as LayeredCall;

impl Client {
    /// Subscribes to the messages that the server publishes under `key` and `token` (rest_rpc since v0.05); an empty
    /// token means none.
    ///
    /// The server does not acknowledge the subscription. If the connection breaks, another one is made and the
    /// subscription is sent again, as long as the stream is polled; messages published meanwhile are lost. A stream
    /// that is not read while much is published ends with an error. Dropping it ends the subscription.
    ///
    /// # Errors
    ///
    /// If there is no connection, or the protocol has no topics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the subscription.
    pub async fn subscribe<T>(&self, key: &str, token: &str) -> Result<Streaming<T>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        match &self.backend {
            Backend::Mock(_) => return Err(Status::unimplemented("a mocked client has no topics").into()),
            Backend::Combo(_) => {
                return Err(Status::unimplemented("a subscription cannot go to several servers").into());
            }
            Backend::Network(_) | Backend::Channel(_) | Backend::Server(_) => {}
        }
        let mut subscription = Subscription {
            client: self.clone(),
            key: key.to_owned(),
            token: token.to_owned(),
            format: self.defaults.preferred_format(Format::Raw),
            limit: self.defaults.max_decompressed,
            receiving: None,
            around: None,
        };
        if self.layers().is_empty() {
            subscription.start().await?;
        } else {
            subscription = subscription.begin_within_layers().await?;
        }
        Ok(Streaming::from_stream(stream::unfold(subscription, |mut subscription| async move {
            let message = subscription.next().await.and_then(|body| read(&body));
            Some((message.map_err(Into::into), subscription))
        })))
    }
}

impl Client {
    /// Returns a connection to a publishing server.
    async fn connect_for(&self, topic: &str) -> Result<CallConnection, Status> {
        match &self.backend {
            Backend::Network(pool) => acquire_from(pool).await,
            Backend::Server(server) => acquire_from(server.pool()).await,
            Backend::Channel(channel) => {
                let call = Call::new("", topic, Format::Raw, Bytes::new());
                CallAttempt::through_channel(channel, call, RoutingOptions::default()).connect().await
            }
            Backend::Combo(_) | Backend::Mock(_) => {
                Err(Status::unimplemented("there is no server to subscribe to"))
            }
        }
    }

    /// Returns when the next connection may be attempted; `None` if never.
    fn next_attempt(&self) -> Option<Instant> {
        match &self.backend {
            Backend::Network(pool) => pool.next_attempt(),
            Backend::Server(server) => server.pool().next_attempt(),
            // The channel probes its servers itself.
            Backend::Channel(_) => Some(Instant::now() + PAUSE),
            Backend::Combo(_) | Backend::Mock(_) => None,
        }
    }
}

async fn acquire_from(pool: &Arc<Pool>) -> Result<CallConnection, Status> {
    match pool.try_acquire() {
        Some(connection) => Ok(connection.into()),
        None => pool.acquire().await.map(CallConnection::from),
    }
}

/// Up to v0.20 a published text is sent verbatim; since v0.21 a value is encoded like a result.
fn read<T: DeserializeOwned + 'static>(body: &Body) -> Result<T, Status> {
    match body.format {
        Format::RestRpc => decode_plain(body),
        _ => decode_published(&body.bytes),
    }
    .map_err(|status| unreadable(&status))
}

/// Pause between a broken connection and the next one.
const PAUSE: Duration = Duration::from_millis(100);

struct Subscription {
    client: Client,
    key: String,
    token: String,
    format: Format,
    limit: usize,
    /// `None` once the connection broke.
    receiving: Option<CallReceiver>,
    /// Layers of the subscription.
    around: Option<LayerGuard>,
}

impl Subscription {
    /// Returns the next published message.
    async fn next(&mut self) -> Result<Body, Status> {
        let Some(mut around) = self.around.take() else { return self.next_published().await };
        let next = {
            let next = pin!(self.next_published());
            match select(poll_fn(|cx| around.poll(cx)), next).await {
                Either::Left((ending, _)) => Err(ending),
                Either::Right((next, _)) => Ok(next),
            }
        };
        let ended = match next {
            Ok(Ok(body)) => {
                self.around = Some(around);
                return Ok(body);
            }
            Ok(Err(status)) => {
                around.finish(Outcome::failed(status));
                poll_fn(|cx| around.poll(cx)).await
            }
            Err(ending) => ending,
        };
        let (result, _) = ended.into_end();
        Err(result.err().unwrap_or_else(|| Status::cancelled("a layer ended the subscription")))
    }

    /// Subscribes within the layers of the client.
    async fn begin_within_layers(mut self) -> Result<Self, Status> {
        let client = self.client.clone();
        let shape = StreamType { client_streaming: false, server_streaming: true };
        let (body, protocol) = (Body::new(self.format, Bytes::new()), client.protocol());
        let key = self.key.clone();
        let call =
            OutgoingCall { service: "", method: &key, body, options: CallOptions::default(), protocol };
        let open = move |_, mut call: LayeredCall| async move {
            (_, self.key, _) = call.take_names()?;
            self.start().await?;
            Ok(self)
        };
        let (mut subscription, around) = client.open_within_layers(call, shape, open).await?;
        subscription.around = Some(around);
        Ok(subscription)
    }

    async fn next_published(&mut self) -> Result<Body, Status> {
        loop {
            let Some(receiving) = &mut self.receiving else {
                self.begin_again().await?;
                continue;
            };
            match poll_fn(|cx| receiving.poll_next(cx)).await {
                Some(Ok(body)) => return Ok(body),
                Some(Err(status)) if status.scope() == Scope::Call => return Err(status),
                // The connection broke.
                Some(Err(_)) | None => self.receiving = None,
            }
        }
    }

    /// Subscribes on a connection that takes it.
    async fn start(&mut self) -> Result<(), Status> {
        loop {
            let connection = self.client.connect_for(&self.key).await?;
            match connection.slot().subscribe(&self.key, &self.token) {
                Ok(id) => {
                    let opened = StreamingCall::new(Arc::new(connection), id);
                    let (_, receiving) = opened.halves(self.format, self.limit);
                    self.receiving = Some(receiving);
                    return Ok(());
                }
                // The connection has just ended, or another call was faster: the pool does not return such a connection
                // twice.
                Err(status) if status.scope() == Scope::Connection => {}
                Err(status) => return Err(status),
            }
        }
    }

    /// Subscribes again until it succeeds.
    async fn begin_again(&mut self) -> Result<(), Status> {
        loop {
            // Pauses also if a server accepts connections and closes them, so as not to flood it.
            tokio::time::sleep(PAUSE).await;
            match (self.start().await, self.client.next_attempt()) {
                (Err(status), Some(next)) if status.scope() == Scope::Connection => {
                    tokio::time::sleep_until(next.into()).await;
                }
                (begun, _) => return begun,
            }
        }
    }
}
