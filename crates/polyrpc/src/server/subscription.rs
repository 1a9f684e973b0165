//! A subscription as a call that passes through layers.

use std::borrow::Cow;
use std::future::{pending, ready};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt;
use polyrpc_core::{Format, Head, Status, Topic};
use tokio::sync::oneshot;

use crate::call::{CallKind, ConnectionFacts, Context, Outcome, ResponseFuture, StreamType};
use crate::codec::Body;
use crate::layer::Layers;
use crate::service::{Method, MethodRole, Route};

/// A subscription that passes through layers.
pub(super) struct SubscriptionAdmission {
    /// The layers: resolves when one of them ends the subscription.
    pub(super) handling: ResponseFuture,
    /// Resolves when the layers admit it. The result is sent from within `handling`, which must be polled.
    pub(super) admitted: oneshot::Receiver<()>,
}

/// Passes a subscription through layers.
pub(super) fn pass_layers(
    topic: &Topic,
    layers: &Layers,
    connection: &Arc<ConnectionFacts>,
) -> SubscriptionAdmission {
    let (admit, admitted) = oneshot::channel();
    let method = Arc::new(SubscriptionMethod(Mutex::new(Some(admit))));
    let entry = Route::new("", &name(topic), method, MethodRole::Subscription);
    entry.layer(layers.clone());
    let cx = Context::new(connection.clone(), None, Head::default(), Bytes::new(), Format::Raw);
    let cx = cx.with_route(entry.name().clone(), None);
    let site = cx.site();
    let begun = entry.take(cx, Body::new(Format::Raw, Bytes::new()), CallKind::Whole, |status| status);
    let handling = begun.unwrap_or_else(|status| Box::pin(ready(Outcome::failed(status))));
    let guarded = AssertUnwindSafe(handling).catch_unwind();
    let handling =
        Box::pin(guarded.map(move |ended| ended.unwrap_or_else(|panic| site.handle_panic(&*panic))));
    SubscriptionAdmission { handling, admitted }
}

/// Returns the method name that layers see: the topic, or the number that identifies it since rest_rpc v0.21.
fn name(topic: &Topic) -> Cow<'_, str> {
    match topic {
        Topic::Name(name) => String::from_utf8_lossy(name),
        Topic::Id(id) => format!("#{id}").into(),
    }
}

/// The innermost step: the subscription stays open until its connection ends.
struct SubscriptionMethod(Mutex<Option<oneshot::Sender<()>>>);

impl Method for SubscriptionMethod {
    fn start(&self, _: Context, _: Body) -> Result<ResponseFuture, Status> {
        let admit = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The receiver is gone if the connection has just ended.
        let _ = admit.map(|admit| admit.send(()));
        Ok(Box::pin(pending()))
    }

    fn stream_type(&self) -> StreamType {
        StreamType { client_streaming: false, server_streaming: true }
    }
}
