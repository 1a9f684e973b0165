//! Streaming calls.

use std::cell::Cell;
use std::future::pending;

use bytes::Bytes;
use polyrpc::client::{self, RawReceiver, RawSender};
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Metadata, Status};
use polyrpc_core::protocol::Streams;
use tokio::time::timeout;

use super::description::Description;
use super::hints::{self, FailureFacts};
use super::input::Input;
use super::report::{Ending, ReceivedMessages, Report};
use super::{Options, read_argument};
use crate::failure::Failure;
use crate::message::Translator;
use crate::terminal;

/// A running call, and its description.
struct Streaming<'a> {
    client: &'a Client,
    options: &'a Options,
    translator: &'a Translator,
    report: Report,
    /// Whether the server has sent something: then it uses the protocol of the URL.
    has_answered: Cell<bool>,
}

/// Why a call has no result.
enum StreamFailure {
    /// The call failed.
    Call(Status),
    /// A message is invalid, or cannot be printed.
    Message(Failure),
}

impl From<polyrpc::Error> for StreamFailure {
    fn from(error: polyrpc::Error) -> Self {
        Self::Call(error.status().clone())
    }
}

impl From<Failure> for StreamFailure {
    fn from(failure: Failure) -> Self {
        Self::Message(failure)
    }
}

/// Sends messages and prints responses concurrently until the server ends the call.
pub(super) async fn call(
    client: &Client,
    options: &Options,
    Description { translator, is_by_call, .. }: &Description,
    mut report: Report,
) -> Result<(), Failure> {
    if options.oneway || options.attachment.is_some() || options.save_attachment.is_some() {
        return Err(Failure::new(format!(
            "{} streams: it has no attachment and always answers",
            options.target
        )));
    }
    if client.protocol().descriptor().capabilities.streams == Streams::None {
        return Err(Failure::new(format!("{} has no streams", client.protocol().as_str())));
    }
    let target = translator.target(&options.target);
    let call_options =
        client::CallOptions { timeout: options.common.timeout, ..options.call_options(client)? };
    report.on_start(target, None, &call_options.metadata);
    let streaming = Streaming { client, options, translator, report, has_answered: Cell::new(*is_by_call) };
    if client.protocol().descriptor().capabilities.streams == Streams::Attached
        && !translator.stream_type().client_streaming
    {
        // The only message is sent with the call, which is answered before the stream continues.
        let message = translator.encode_request(&read_argument(options.argument())?)?;
        let called = async {
            let opened = client.open_stream_raw(target, message, call_options, StreamOptions::default());
            streaming.receive(opened.await?.1.split().1).await
        };
        return streaming.report_end(streaming.limit_time(called).await).await;
    }
    let called = async {
        let (sender, receiver) = client.open_raw(target, call_options, translator.format()).await?.split();
        tokio::select! {
            received = streaming.receive(receiver) => received,
            failure = send(sender, options, translator) => Err(StreamFailure::Message(failure)),
        }
    };
    // Other streams have the deadline of their call.
    let ended = match client.protocol().descriptor().capabilities.streams {
        Streams::Attached => streaming.limit_time(called).await,
        _ => called.await,
    };
    streaming.report_end(ended).await
}

/// Sends every message. Ready only if one of them is invalid: then the call is given up.
async fn send(sender: RawSender, options: &Options, translator: &Translator) -> Failure {
    let sent = match translator.stream_type().client_streaming {
        true => send_all(sender, options, translator).await,
        false => send_one(sender, options, translator).await,
    };
    match sent {
        Err(failure) => failure,
        // The response contains the result of the call.
        Ok(()) => pending().await,
    }
}

async fn send_one(mut sender: RawSender, options: &Options, translator: &Translator) -> Result<(), Failure> {
    let message = translator.encode_request(&read_argument(options.argument())?)?;
    if sender.send(message.bytes).await.is_ok() {
        let _ = sender.finish().await;
    }
    Ok(())
}

async fn send_all(mut sender: RawSender, options: &Options, translator: &Translator) -> Result<(), Failure> {
    let mut values = Input::parse(options.argument())?.read_values();
    let mut count = 0;
    while let Some(value) = values.recv().await {
        count += 1;
        let message = value.and_then(|value| translator.encode_request(&value));
        let message = message.map_err(|failure| failure.with_subject(format_args!("message {count}")))?;
        if sender.send(message.bytes).await.is_err() {
            return Ok(());
        }
    }
    let _ = sender.finish().await;
    Ok(())
}

impl Streaming<'_> {
    /// Limits a call whose stream continues after its reply, which ends the deadline of the call itself.
    async fn limit_time(
        &self,
        called: impl Future<Output = Result<(), StreamFailure>>,
    ) -> Result<(), StreamFailure> {
        let Some(time) = self.options.common.timeout() else { return called.await };
        let late = || {
            StreamFailure::Call(Status::deadline_exceeded(format!("the stream did not end within {time:?}")))
        };
        timeout(time, called).await.unwrap_or_else(|_| Err(late()))
    }

    async fn receive(&self, mut receiver: RawReceiver) -> Result<(), StreamFailure> {
        let headers = receiver.metadata().await?.clone();
        let mut received =
            ReceivedMessages { messages: 0, bytes: 0, format: self.translator.format().as_str() };
        loop {
            match receiver.next().await? {
                Some(message) => {
                    self.has_answered.set(true);
                    received.messages += 1;
                    received.bytes += message.bytes.len();
                    if !terminal::print(&self.translator.decode_reply(&message)?)? {
                        return Ok(());
                    }
                }
                None => {
                    self.report_success(received, &headers, receiver.trailers());
                    return Ok(());
                }
            }
        }
    }

    fn report_success(&self, received: ReceivedMessages, headers: &Metadata, trailers: &Metadata) {
        self.report.on_success(&Ending { received, headers, trailers, attachment: &Bytes::new() });
    }

    /// Reports a failed call, with a hint.
    async fn report_end(&self, ended: Result<(), StreamFailure>) -> Result<(), Failure> {
        let status = match ended {
            Ok(()) => return Ok(()),
            Err(StreamFailure::Message(failure)) => return Err(failure),
            Err(StreamFailure::Call(status)) => status,
        };
        self.report.on_failure(&status);
        let known = FailureFacts {
            translator: Some(self.translator),
            has_answered: self.has_answered.get(),
            request: 0,
        };
        Err(hints::call_failure(&status, self.client, self.options, known).await)
    }
}
