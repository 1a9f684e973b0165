//! Description of a method's messages: from the user's files, or else from the server.

use std::time::Duration;

use polyrpc::{Client, Code, Error, Protocol};
use tokio::time::timeout;

use super::Options;
use super::hints;
use crate::failure::Failure;
use crate::message::{SchemaSource, Translator};
use crate::reflection::Reflection;

/// How the method's messages are encoded.
///
/// The user's files come first, then the server's reflection. The descriptions of this program's own services
/// do not apply to another server.
pub(super) async fn translator(client: &Client, options: &Options) -> Result<Translator, Failure> {
    let (target, message) = (options.target.as_str(), &options.message);
    let translator = Translator::of_files(client, target, message)?;
    if translator.has_schema() {
        return Ok(translator);
    }
    let described = match message.needs_types(client, target) && !options.no_reflection {
        true => described(client, options).await?,
        false => None,
    };
    if let Some(set) = described {
        let types = message.types(&SchemaSource::new(&set, "the server's own description")?, target)?;
        return Ok(Translator::described(client, target, message, types));
    }
    match message.message_types() {
        // The method may not need a description; it reports a message that it cannot use.
        None => Ok(Translator::undescribed(client, target, message)),
        Some((request, _)) => Err(Failure::new(format!("nothing declares the message `{request}`"))
            .with_hint("name a file that does with --proto FILE or --descriptor-set FILE")),
    }
}

/// The server's description of the method's service, as a `FileDescriptorSet`.
async fn described(client: &Client, options: &Options) -> Result<Option<Vec<u8>>, Failure> {
    if client.protocol() != Protocol::Grpc {
        let Some(other) = options.by_grpc() else { return Ok(None) };
        // The server may not support gRPC at all.
        let answer = timeout(AT_MOST, reflected(&other, options)).await;
        return Ok(answer.ok().and_then(Result::ok).flatten());
    }
    match reflected(client, options).await {
        Ok(set) => Ok(set),
        Err(error) if matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded) => {
            Err(hints::of_call(error.status(), client, options, None).await)
        }
        // The call may succeed although the query failed.
        Err(_) => Ok(None),
    }
}

async fn reflected(client: &Client, options: &Options) -> Result<Option<Vec<u8>>, Error> {
    let reflection = Reflection::new(client, options.query_options());
    options.message.reflected(reflection, &options.target).await
}

/// Timeout of queries by another protocol than the user's.
const AT_MOST: Duration = Duration::from_secs(1);
