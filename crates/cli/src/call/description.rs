//! Description of a method's messages: from the user's files, or else from the server.

use std::time::Duration;

use polyrpc::{Client, Code, Error, Protocol};
use tokio::time::timeout;

use super::Options;
use super::hints::{self, FailureFacts};
use crate::failure::Failure;
use crate::message::{SchemaSource, Translator};
use crate::reflection::Reflection;

/// How the method's messages are encoded, and where this is known from.
pub(super) struct Description {
    pub(super) translator: Translator,
    /// The server has described the method in the protocol of the call.
    pub(super) is_by_call: bool,
    /// Why the server has not described the method, although it may be able to.
    failure: Option<String>,
}

impl Description {
    fn from_files(translator: Translator) -> Self {
        Self { translator, is_by_call: false, failure: None }
    }

    /// Why a reply cannot be decoded, and what would help.
    pub(super) fn undecodable_hint(&self) -> String {
        let failure =
            self.failure.as_ref().map(|why| format!(" (the query of its description failed: {why})"));
        let failure = failure.unwrap_or_default();
        format!(
            "nothing describes the method{failure}, so the reply is shown as it came; name its .proto with --proto \
             FILE or --descriptor-set FILE"
        )
    }
}

/// Finds out how the method's messages are encoded.
///
/// The user's files come first, then the server's reflection. The descriptions of this program's own services
/// do not apply to another server.
pub(super) async fn describe(client: &Client, options: &Options) -> Result<Description, Failure> {
    let (target, message) = (options.target.as_str(), &options.message);
    let translator = Translator::from_files(client, target, message)?;
    if translator.has_schema() {
        return Ok(Description::from_files(translator));
    }
    let reflected = match message.needs_types(client, target) && !options.no_reflection {
        true => query_description(client, options).await?,
        false => ReflectionResult::default(),
    };
    if let Some(set) = reflected.set {
        let types = message.types(&SchemaSource::new(&set, "the server's own description")?, target)?;
        let translator = Translator::with_description(client, target, message, types);
        let is_by_call = client.protocol() == Protocol::Grpc;
        return Ok(Description { translator, is_by_call, failure: None });
    }
    match message.message_types() {
        // The method may not need a description; it reports a message that it cannot use.
        None => {
            let translator = Translator::without_description(client, target, message);
            Ok(Description { translator, is_by_call: false, failure: reflected.failure })
        }
        Some((request, _)) => Err(Failure::new(format!("nothing declares the message `{request}`"))
            .with_hint("name a file that does with --proto FILE or --descriptor-set FILE")),
    }
}

/// Result of a reflection query.
#[derive(Default)]
struct ReflectionResult {
    /// The description of the method's service, as a `FileDescriptorSet`.
    set: Option<Vec<u8>>,
    /// Reason why the query failed; `None` if it succeeded or the server has no reflection.
    failure: Option<String>,
}

impl ReflectionResult {
    fn from_answer(answer: Result<Option<Vec<u8>>, Error>) -> Self {
        match answer {
            Ok(set) => Self { set, failure: None },
            Err(error) if error.code() == Code::Unimplemented => Self::default(),
            Err(error) => Self { set: None, failure: Some(error.to_string()) },
        }
    }
}

async fn query_description(client: &Client, options: &Options) -> Result<ReflectionResult, Failure> {
    if client.protocol() != Protocol::Grpc {
        let Some(other) = options.grpc_client() else { return Ok(ReflectionResult::default()) };
        // The server may not support gRPC at all.
        return Ok(match timeout(QUERY_TIMEOUT, query_reflection(&other, options)).await {
            Ok(answer) => ReflectionResult::from_answer(answer),
            Err(_) => {
                ReflectionResult { set: None, failure: Some(format!("no answer within {QUERY_TIMEOUT:?}")) }
            }
        });
    }
    match query_reflection(client, options).await {
        Err(error) if matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded) => {
            Err(hints::call_failure(error.status(), client, options, FailureFacts::default()).await)
        }
        // The call may succeed although the query failed.
        answer => Ok(ReflectionResult::from_answer(answer)),
    }
}

async fn query_reflection(client: &Client, options: &Options) -> Result<Option<Vec<u8>>, Error> {
    let reflection = Reflection::new(client, options.query_options());
    options.message.query_reflection(reflection, &options.target).await
}

/// Timeout of queries by another protocol than the user's.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
