//! A server of every protocol that returns what it gets, and remembers what came with it.

use std::sync::{Arc, Mutex, PoisonError};

use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::server::ServerHandle;
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Bytes, Result, Server, Status, Streaming};

/// What came with the last call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ReceivedFields {
    pub(crate) has_deadline: bool,
    pub(crate) tenant: Option<String>,
    pub(crate) authorization: Option<String>,
}

impl ReceivedFields {
    fn new(call: &RawRequest) -> Self {
        let text = |key| call.metadata().get(key).map(str::to_owned);
        Self {
            has_deadline: call.remaining().is_some(),
            tenant: text("tenant"),
            authorization: text("authorization"),
        }
    }
}

pub(crate) struct Backend {
    handle: ServerHandle,
    seen: Arc<Mutex<ReceivedFields>>,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let seen = Arc::<Mutex<ReceivedFields>>::default();
        let remembered = seen.clone();
        let server = Server::new()
            .function("Echo", |text: String| async move { text })
            .function("Fail", |_: String| async { Err::<String, _>(Status::not_found("no such text")) })
            .fallback(move |call: RawRequest| answer(call, remembered.clone()));
        Self { handle: server.bind("127.0.0.1:0").await.unwrap().start(), seen }
    }

    pub(crate) fn address(&self) -> String {
        self.handle.address().to_string()
    }

    /// Returns what came with the last call, and forgets it.
    pub(crate) fn take_seen(&self) -> ReceivedFields {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends two messages.
async fn count(body: Bytes, sender: Sender<Bytes>) {
    for _ in 0..2 {
        if sender.send(body.clone()).await.is_err() {
            return;
        }
    }
    let _ = sender.close().await;
}

async fn answer(mut call: RawRequest, seen: Arc<Mutex<ReceivedFields>>) -> Result<RawResponse> {
    *seen.lock().unwrap_or_else(PoisonError::into_inner) = ReceivedFields::new(&call);
    // fb_rpc has only numbers: that of Fail is 1.
    if matches!(call.method(), "Fail" | "#1") {
        return Err(Status::not_found("no such text").into());
    }
    if call.offered_streams() > 0 && call.method() == "Count" {
        let body = call.body().await?.bytes;
        for (_, sender) in call.accept_streams(StreamOptions::default())? {
            tokio::spawn(count(body.clone(), sender));
        }
        return Ok(RawResponse::message(Bytes::new()));
    }
    if call.offered_streams() > 0 {
        for (mut messages, sender) in call.accept_streams(StreamOptions::default())? {
            tokio::spawn(async move {
                while let Ok(Some(message)) = messages.message().await {
                    if sender.send(message).await.is_err() {
                        return;
                    }
                }
            });
        }
        return Ok(RawResponse::message(call.body().await?.bytes));
    }
    if call.is_streamed() && call.method() == "Count" {
        let body = call.body().await?.bytes;
        return Ok(RawResponse::messages(Streaming::from_iter([body.clone(), body])));
    }
    if call.is_streamed() && call.method() == "Watch" {
        return Ok(RawResponse::messages(call.messages()));
    }
    let attachment = call.attachment().clone();
    let body = call.body().await?;
    let mut response = RawResponse::message(body.bytes);
    (response.attachment, response.format) = (attachment, Some(body.format));
    Ok(response)
}
