//! Hints after a failed call.

use polyrpc::{Client, Code, Protocol, Scope, Status};
use polyrpc_wire::rest_rpc;

use super::{Options, protocol_probe, suggestion};
use crate::failure::Failure;
use crate::message::{Translator, split};
use crate::reflection::Trace;

/// Facts about a failed call that hints depend on.
#[derive(Clone, Copy, Default)]
pub(super) struct FailureFacts<'a> {
    pub(super) translator: Option<&'a Translator>,
    /// The server has answered in the protocol of the URL.
    pub(super) has_answered: bool,
    /// Size of the message in bytes.
    pub(super) request: usize,
}

/// The failure of a call, with a hint. The server is queried again only after it has responded in a way that a user
/// cannot have intended.
pub(super) async fn call_failure(
    status: &Status,
    client: &Client,
    options: &Options,
    known: FailureFacts<'_>,
) -> Failure {
    let translator = known.translator;
    let failure = Failure::from_status(status, &options.url);
    if failure.has_hint() {
        return failure;
    }
    if status.scope() == Scope::Connection && known.request > COMMON_MESSAGE_LIMIT {
        return failure.with_hint(format!(
            "the message has {} bytes; many servers close the connection of one with more than {COMMON_MESSAGE_LIMIT}",
            known.request
        ));
    }
    let failure = failure.or_hint(number_hint(status, client, options));
    let failure = failure.or_hint(name_hint(status, client, options));
    let failure = failure.or_hint(schema_hint(status, client, translator));
    if options.no_reflection {
        return failure.or_hint(missing_schema_hint(status, translator));
    }
    if protocol_probe::may_be_of_another_protocol(status) {
        if known.has_answered {
            return failure;
        }
        return failure.or_hint(protocol_probe::hint(&options.url, &options.common, &Trace::silent()).await);
    }
    let is_known = translator.is_some_and(Translator::has_schema);
    if status.code() == Code::Unimplemented && !is_known {
        let failure = failure.or_hint(suggestion::suggest_target(client, options).await);
        return failure.or_hint(missing_schema_hint(status, translator));
    }
    failure.or_hint(missing_schema_hint(status, translator))
}

/// The function that a server of rest_rpc knows only by its number.
fn number_hint(status: &Status, client: &Client, options: &Options) -> Option<String> {
    let name = match split(&options.target) {
        Some((service, method)) => rest_rpc::function_name(service, method),
        None => options.target.clone(),
    };
    let number = rest_rpc::number(&name).to_string();
    let is_about = client.protocol() == Protocol::RestRpc
        && status.code() == Code::Unimplemented
        && status.message().contains(&number);
    is_about.then(|| format!("{number} is the number of `{name}`: the server has no function of that name"))
}

/// What to call instead of a number where methods have names.
fn name_hint(status: &Status, client: &Client, options: &Options) -> Option<String> {
    let protocol = client.protocol();
    if matches!(protocol, Protocol::FbRpc | Protocol::RestRpc) || status.code() != Code::Unimplemented {
        return None;
    }
    let number = number_of(&options.target)?;
    let protocol = protocol.as_str();
    Some(format!(
        "`{number}` is a number of fb_rpc or rest_rpc; over {protocol} a method is called by its name"
    ))
}

/// Returns the number at the end of a target, such as `#7` or `#7,0`.
fn number_of(target: &str) -> Option<&str> {
    let number = &target[target.find('#')?..];
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    number[1..].split(',').all(is_number).then_some(number)
}

/// What fb_rpc needs: it has numbers for methods, and its messages have no names of fields.
pub(super) fn schema_hint(
    status: &Status,
    client: &Client,
    translator: Option<&Translator>,
) -> Option<String> {
    let is_undeclared =
        client.protocol() == Protocol::FbRpc && !translator.is_some_and(Translator::has_schema);
    let is_about = matches!(status.code(), Code::InvalidArgument | Code::Internal);
    (is_undeclared && is_about)
        .then(|| "name the .fbs that declares the method with --schema FILE".to_owned())
}

/// Limit of a message's size that brpc, rpcx and this project's servers have by default, in bytes.
const COMMON_MESSAGE_LIMIT: usize = 64 << 20;

/// Returns the hint to pass a schema, if the method has none: the server may be unable to decode the message.
fn missing_schema_hint(status: &Status, translator: Option<&Translator>) -> Option<String> {
    let codes = [Code::Unimplemented, Code::InvalidArgument, Code::Internal];
    let missing_schema_hint =
        translator.filter(|_| codes.contains(&status.code())).and_then(Translator::missing_schema_hint);
    missing_schema_hint.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_target_is_recognised() {
        for (target, number) in [
            ("Test/#0", Some("#0")),
            ("Test#7", Some("#7")),
            ("test.Echo/Echo#12,0", Some("#12,0")),
            ("#887912700", Some("#887912700")),
            ("Test/C#", None),
            ("Test/a#b", None),
            ("Test/Echo", None),
        ] {
            assert_eq!(number_of(target), number, "{target}");
        }
    }
}
