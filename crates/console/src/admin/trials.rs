//! Calls that users make on `/try`.

use std::sync::Arc;

use bytes::Bytes;
use polyrpc::Streaming;
use polyrpc::fallback::HttpResponse;
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::console::{Console, State};
use crate::observed::ObservedServer;
use crate::pages;
use crate::request::{PageFormat, PageRequest, Verb};
use crate::respond;
use crate::trial::{Trial, TrialResult};

/// The calls in flight of `/try`, whose number is limited.
#[derive(Debug)]
pub(super) struct Trials(Arc<Semaphore>);

/// Maximum number of concurrent calls.
const MAX_CALLS: usize = 4;

/// Messages of a stream that wait for the browser.
const CHANNEL_CAPACITY: usize = 16;

impl Trials {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CALLS)))
    }

    /// Answers a request, which may make a call.
    pub(super) async fn answer(&self, console: &Console, request: PageRequest) -> HttpResponse {
        let state = console.state();
        let page = match respond::admit(state, &request) {
            Ok(page) => page,
            Err(refusal) => return respond::response(refusal),
        };
        if page.name != "try" || request.verb != Verb::Post {
            let reply = (page.answer)(state, &request);
            return respond::response(respond::compress(state, &request, reply));
        }
        let Ok(permit) = self.0.clone().try_acquire_owned() else {
            return respond::response(pages::failure(&request, 503, "Too many methods are tried."));
        };
        let (server, trial) = match pages::trial(state, &request) {
            Ok(trial) => trial,
            Err(failure) => return respond::response(failure),
        };
        let (author, target) = (request.caller.name.as_str(), trial.target.as_str());
        tracing::info!(author, target, protocol = trial.protocol, "a method is called by hand");
        if trial.streams() && request.format != PageFormat::Json {
            return stream(console.clone(), request, server, trial, permit);
        }
        let result = match trial.streams() {
            true => collect_messages(&trial, &server).await,
            false => trial.make(&server).await,
        };
        respond::response(pages::trial_result(state, &request, &server, &trial, result))
    }
}

/// Makes a call that streams, and returns its result with all messages.
async fn collect_messages(trial: &Trial, server: &ObservedServer) -> TrialResult {
    let (lines, mut received) = mpsc::channel::<String>(CHANNEL_CAPACITY);
    let mut messages = String::new();
    let collect = async {
        while let Some(line) = received.recv().await {
            messages += &line;
            messages.push('\n');
        }
    };
    let (result, ()) = tokio::join!(trial.stream(server, lines), collect);
    TrialResult { reply: messages, ..result }
}

/// Answers with the messages of a stream as they arrive, so that a browser shows them without a script.
fn stream(
    console: Console,
    request: PageRequest,
    server: ObservedServer,
    trial: Trial,
    permit: OwnedSemaphorePermit,
) -> HttpResponse {
    let content_type = match request.format {
        PageFormat::Html | PageFormat::Part => "text/html; charset=utf-8",
        PageFormat::Text | PageFormat::Json => "text/plain; charset=utf-8",
    };
    let body = Streaming::produce(move |sender| async move {
        let _permit = permit;
        let around = |state: &State, result| pages::around_messages(state, &request, &server, &trial, result);
        sender.send(Bytes::from(around(console.state(), TrialResult::default()).0)).await?;
        let (lines, mut received) = mpsc::channel::<String>(CHANNEL_CAPACITY);
        let forward = async {
            while let Some(line) = received.recv().await {
                sender.send(Bytes::from(pages::message_line(&request, &line))).await?;
            }
            polyrpc::Result::Ok(())
        };
        let (result, ()) = tokio::try_join!(make_call(&trial, &server, lines), forward)?;
        sender.send(Bytes::from(around(console.state(), result).1)).await?;
        Ok(())
    });
    let mut response = respond::with_common_fields(HttpResponse::new(200, Bytes::new()));
    response.headers.append("content-type", content_type);
    response.body = body;
    response
}

async fn make_call(
    trial: &Trial,
    server: &ObservedServer,
    lines: Sender<String>,
) -> polyrpc::Result<TrialResult> {
    Ok(trial.stream(server, lines).await)
}
