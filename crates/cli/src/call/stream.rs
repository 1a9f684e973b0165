//! Streaming calls.

use std::future::pending;

use polyrpc::Client;
use polyrpc::client::{self, RawReceiver, RawSender};
use polyrpc::protocol::Streams;
use polyrpc::streaming::StreamOptions;

use super::input::Input;
use super::{Options, argument, tell};
use crate::failure::Failure;
use crate::message::Translator;
use crate::terminal;

/// Sends what there is to send and prints what comes, both at once, until the server ends the call.
pub(super) async fn call(client: &Client, options: &Options, translator: &Translator) -> Result<(), Failure> {
    if options.oneway || options.attachment.is_some() {
        return Err(Failure::new(format!(
            "{} streams: it has no attachment and always answers",
            options.target
        )));
    }
    let beside = client::CallOptions { timeout: options.beside.timeout, ..options.beside_message()? };
    let failed = |error: polyrpc::Error| Failure::of_call(error.status(), &options.url);
    if client.protocol().descriptor().capabilities.streams == Streams::Beside
        && !translator.shape().client_streams
    {
        // The only message is sent with the call, which is answered before the stream goes on.
        let message = translator.request(&argument(options.argument.as_deref())?)?;
        let opened = client.open_stream_raw(&options.target, message, beside, StreamOptions::default()).await;
        let (_, receiver) = opened.map_err(failed)?.1.split();
        return receive(receiver, options, translator).await;
    }
    let call = client.open_raw(&options.target, beside, translator.format()).await;
    let (sender, receiver) = call.map_err(failed)?.split();
    tokio::select! {
        received = receive(receiver, options, translator) => received,
        failure = send(sender, options, translator) => Err(failure),
    }
}

/// Sends every message. Ready only when one of them is wrong: then the call is not worth its answer.
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
    let message = translator.request(&argument(options.argument.as_deref())?)?;
    if sender.send(message.bytes).await.is_ok() {
        let _ = sender.finish().await;
    }
    Ok(())
}

async fn send_all(mut sender: RawSender, options: &Options, translator: &Translator) -> Result<(), Failure> {
    let mut values = Input::of(options.argument.as_deref())?.values();
    while let Some(value) = values.recv().await {
        let message = translator.request(&value?)?;
        if sender.send(message.bytes).await.is_err() {
            return Ok(());
        }
    }
    let _ = sender.finish().await;
    Ok(())
}

async fn receive(
    mut receiver: RawReceiver,
    options: &Options,
    translator: &Translator,
) -> Result<(), Failure> {
    let failed = |error: polyrpc::Error| Failure::of_call(error.status(), &options.url);
    if options.verbose {
        tell(receiver.metadata().await.map_err(failed)?);
    }
    while let Some(message) = receiver.next().await.map_err(failed)? {
        if !terminal::print(&translator.reply(&message)?)? {
            return Ok(());
        }
    }
    if options.verbose {
        tell(receiver.trailers());
    }
    Ok(())
}
