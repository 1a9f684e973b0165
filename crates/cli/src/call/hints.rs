//! Hints after a failed call.

use polyrpc::{Client, Code, Status};

use super::{Options, protocol_probe, suggestion};
use crate::failure::Failure;
use crate::message::Translator;
use crate::reflection::Trace;

/// The failure of a call, with a hint. The server is queried again only after it has responded in a way that a user
/// cannot have intended.
pub(super) async fn of_call(
    status: &Status,
    client: &Client,
    options: &Options,
    translator: Option<&Translator>,
) -> Failure {
    let failure = Failure::of_call(status, &options.url);
    if failure.has_hint() {
        return failure;
    }
    if options.no_reflection {
        return failure.or_hint(missing_schema_hint(status, translator));
    }
    if protocol_probe::may_be_of_another_protocol(status) {
        return failure.or_hint(protocol_probe::hint(&options.url, &options.common, &Trace::silent()).await);
    }
    let is_known = translator.is_some_and(Translator::has_schema);
    if status.code() == Code::Unimplemented && !is_known {
        let failure = failure.or_hint(suggestion::of_target(client, options).await);
        return failure.or_hint(missing_schema_hint(status, translator));
    }
    failure.or_hint(missing_schema_hint(status, translator))
}

/// Whether the message may have been encoded in a way that the method cannot decode.
fn missing_schema_hint(status: &Status, translator: Option<&Translator>) -> Option<String> {
    let codes = [Code::Unimplemented, Code::InvalidArgument, Code::Internal];
    let missing_schema_hint =
        translator.filter(|_| codes.contains(&status.code())).and_then(Translator::missing_schema_hint);
    missing_schema_hint.map(str::to_owned)
}
