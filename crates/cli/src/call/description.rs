//! What a method's messages are: as the user's files say, or else as the server says.

use std::time::Duration;

use polyrpc::{Client, Code, Error, Protocol};
use tokio::time::timeout;

use super::Options;
use super::advice;
use crate::failure::Failure;
use crate::message::{SchemaSource, Translator};
use crate::reflection::Reflection;

/// How the method's messages travel.
///
/// The files that the user names come first, then the server's reflection. What is known of this program's own services
/// says nothing of another server.
pub(super) async fn translator(client: &Client, options: &Options) -> Result<Translator, Failure> {
    let (target, message) = (options.target.as_str(), &options.message);
    let translator = Translator::of_files(client, target, message)?;
    if translator.knows_the_method() {
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
        // The method may do without a description: what it thinks of the message, it will say.
        None => Ok(Translator::undescribed(client, target, message)),
        Some((request, _)) => Err(Failure::new(format!("nothing declares the message `{request}`"))
            .with_hint("name a file that does with --proto FILE or --descriptor-set FILE")),
    }
}

/// What the server says of the method's service, as a `FileDescriptorSet`.
async fn described(client: &Client, options: &Options) -> Result<Option<Vec<u8>>, Failure> {
    if client.protocol() != Protocol::Grpc {
        let Some(other) = options.by_grpc() else { return Ok(None) };
        // Whether it speaks gRPC at all is not known.
        let asked = timeout(AT_MOST, reflected(&other, options)).await;
        return Ok(asked.ok().and_then(Result::ok).flatten());
    }
    match reflected(client, options).await {
        Ok(set) => Ok(set),
        Err(error) if matches!(error.code(), Code::Unavailable | Code::DeadlineExceeded) => {
            Err(advice::of_call(error.status(), client, options, None).await)
        }
        // The call may succeed although the question did not.
        Err(_) => Ok(None),
    }
}

async fn reflected(client: &Client, options: &Options) -> Result<Option<Vec<u8>>, Error> {
    let reflection = Reflection::new(client, options.asking());
    options.message.reflected(reflection, &options.target).await
}

/// How long a server is asked by a protocol that the user does not speak with it.
const AT_MOST: Duration = Duration::from_secs(1);
