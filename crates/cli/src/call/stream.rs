//! Streaming calls.

use std::future::pending;

use bytes::Bytes;
use polyrpc::client::{self, RawReceiver, RawSender};
use polyrpc::streaming::StreamOptions;
use polyrpc::{Client, Metadata};
use polyrpc_core::protocol::Streams;

use super::input::Input;
use super::report::{Ending, Received, Report};
use super::{Options, argument, hints};
use crate::failure::Failure;
use crate::message::Translator;
use crate::terminal;

/// A running call, and its description.
struct Streaming<'a> {
    client: &'a Client,
    options: &'a Options,
    translator: &'a Translator,
    report: Report,
}

/// Sends messages and prints responses concurrently until the server ends the call.
pub(super) async fn call(
    client: &Client,
    options: &Options,
    translator: &Translator,
    mut report: Report,
) -> Result<(), Failure> {
    if options.oneway || options.attachment.is_some() {
        return Err(Failure::new(format!(
            "{} streams: it has no attachment and always answers",
            options.target
        )));
    }
    let target = translator.target(&options.target);
    let call_options =
        client::CallOptions { timeout: options.common.timeout, ..options.call_options(client)? };
    report.sending(target, None, &call_options.metadata);
    let streaming = Streaming { client, options, translator, report };
    if client.protocol().descriptor().capabilities.streams == Streams::Attached
        && !translator.shape().client_streams
    {
        // The only message is sent with the call, which is answered before the stream continues.
        let message = translator.request(&argument(options.argument())?)?;
        return match client.open_stream_raw(target, message, call_options, StreamOptions::default()).await {
            Ok((_, call)) => streaming.receive(call.split().1).await,
            Err(error) => Err(streaming.failed(&error).await),
        };
    }
    let (sender, receiver) = match client.open_raw(target, call_options, translator.format()).await {
        Ok(call) => call.split(),
        Err(error) => return Err(streaming.failed(&error).await),
    };
    tokio::select! {
        received = streaming.receive(receiver) => received,
        failure = send(sender, options, translator) => Err(failure),
    }
}

/// Sends every message. Ready only if one of them is invalid: then the call is given up.
async fn send(sender: RawSender, options: &Options, translator: &Translator) -> Failure {
    let sent = match translator.shape().client_streams {
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
    let message = translator.request(&argument(options.argument())?)?;
    if sender.send(message.bytes).await.is_ok() {
        let _ = sender.finish().await;
    }
    Ok(())
}

async fn send_all(mut sender: RawSender, options: &Options, translator: &Translator) -> Result<(), Failure> {
    let mut values = Input::of(options.argument())?.values();
    let mut count = 0;
    while let Some(value) = values.recv().await {
        count += 1;
        let message = value.and_then(|value| translator.request(&value));
        let message = message.map_err(|failure| failure.within(format_args!("message {count}")))?;
        if sender.send(message.bytes).await.is_err() {
            return Ok(());
        }
    }
    let _ = sender.finish().await;
    Ok(())
}

impl Streaming<'_> {
    async fn receive(&self, mut receiver: RawReceiver) -> Result<(), Failure> {
        let headers = match receiver.metadata().await {
            Ok(headers) => headers.clone(),
            Err(error) => return Err(self.failed(&error).await),
        };
        let mut received = Received { messages: 0, bytes: 0, format: self.translator.format().as_str() };
        loop {
            match receiver.next().await {
                Ok(Some(message)) => {
                    received.messages += 1;
                    received.bytes += message.bytes.len();
                    if !terminal::print(&self.translator.reply(&message)?)? {
                        return Ok(());
                    }
                }
                Ok(None) => {
                    self.ended_well(received, &headers, receiver.trailers());
                    return Ok(());
                }
                Err(error) => return Err(self.failed(&error).await),
            }
        }
    }

    fn ended_well(&self, received: Received, headers: &Metadata, trailers: &Metadata) {
        self.report.ended_well(&Ending { received, headers, trailers, attachment: &Bytes::new() });
    }

    async fn failed(&self, error: &polyrpc::Error) -> Failure {
        self.report.failed(error.status());
        hints::of_call(error.status(), self.client, self.options, Some(self.translator)).await
    }
}
