//! Which protocol a server speaks that did not understand a call.
//!
//! It is called by every protocol, with a method that no server has: a protocol in which it says so is its own.

use std::time::Duration;

use futures_util::future::join_all;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::net_rpc::Codec;
use polyrpc::payload::Json;
use polyrpc::rest_rpc::Generation;
use polyrpc::{Code, Error, Format, Scope, Status, tls};

use super::CommonOptions;
use crate::reflection::Trace;

/// Whether an answer, or its absence, may be that of a server which speaks another protocol.
pub(crate) fn may_be_of_another_protocol(status: &Status) -> bool {
    let text = status.message();
    let connected = !text.starts_with("cannot connect") || text.contains("TLS");
    connected && (status.scope() == Scope::Connection || status.code() == Code::DeadlineExceeded)
}

/// What the server at a URL seems to speak, unless that is what the URL says.
pub(crate) async fn hint(url: &str, options: &CommonOptions, trace: &Trace) -> Option<String> {
    let (scheme, place) = url.split_once("://")?;
    let name = scheme.split('+').next()?;
    let is_plain = scheme.split('+').skip(1).all(|word| PLAIN.contains(&word) || is_of(name, word));
    if !is_plain {
        return None;
    }
    let candidates = candidates(scheme, name);
    let tried = join_all(candidates.iter().map(|scheme| try_protocol(scheme, place, options))).await;
    let mut spoken = Vec::new();
    for (scheme, tried) in candidates.iter().zip(tried) {
        let Some(answer) = tried else { continue };
        let failure = answer.as_ref().err().map(Error::status);
        trace.by(&format!("{scheme}://{place}")).show(NOBODYS, "whether the server speaks this", failure);
        if is_spoken(&answer) {
            spoken.push(scheme);
        }
    }
    // A server that is slow or broken in its own protocol speaks it nevertheless.
    if spoken.iter().any(|spoken| *spoken == scheme) {
        return None;
    }
    let spoken = spoken.first()?;
    Some(format!("this looks like {}: try {spoken}://{place}", words(spoken)))
}

/// What a scheme stands for in a sentence.
fn words(scheme: &str) -> String {
    let (name, rest) = scheme.split_once('+').unwrap_or((scheme, ""));
    let rest: Vec<_> = rest.split('+').filter(|word| !word.is_empty()).collect();
    let told = match name {
        "grpc" => "gRPC",
        "grpcs" => "gRPC with TLS",
        "http" => "HTTP",
        "https" => "HTTPS",
        "baidu-std" => "brpc (baidu_std)",
        "net-rpc" => "Go's net/rpc",
        "rest-rpc" => "rest_rpc",
        other => other,
    };
    match rest.as_slice() {
        [] => told.to_owned(),
        ["tls"] => format!("{told} with TLS"),
        rest => format!("{told} {}", rest.join(" ")),
    }
}

/// The ways to call the server, the likeliest first.
fn candidates(scheme: &str, name: &str) -> Vec<String> {
    let mut schemes = vec![scheme.to_owned()];
    let unix = if scheme.split('+').any(|word| word == "unix") { "+unix" } else { "" };
    let mut add = |scheme: String| {
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    };
    if name == "rest-rpc" {
        // From the newest, whose header is the longest and has the most to be recognised by.
        for generation in Generation::ALL.into_iter().rev() {
            add(format!("rest-rpc+{generation}{unix}"));
        }
    }
    match (name, scheme.contains("+tls")) {
        ("grpcs" | "https", _) => add(name.trim_end_matches('s').to_owned() + unix),
        (_, true) => add(scheme.replace("+tls", "")),
        ("grpc" | "http", false) => add(format!("{name}s{unix}")),
        (_, false) => add(format!("{scheme}+tls")),
    }
    for other in
        ["grpc", "rpcx", "baidu-std", "net-rpc+http", "http", "net-rpc", "net-rpc+json", "rest-rpc+v0.20"]
    {
        add(format!("{other}{unix}"));
    }
    schemes
}

/// Calls the server by this protocol, if it can be called by it.
async fn try_protocol(scheme: &str, place: &str, options: &CommonOptions) -> Option<Result<(), Error>> {
    let builder = options.to_anybody().client(&format!("{scheme}://{place}")).ok()?;
    let mut builder = builder.timeout(AT_MOST).connect_timeout(AT_MOST).retries(0);
    if has_tls(scheme) {
        // Whether a server speaks TLS is known whatever its certificate is, and nothing is told to it.
        builder = builder.tls(tls::Client::new().dangerously_accept_any_certificate());
    }
    let client = builder.build().ok()?;
    let format = client.only_format().unwrap_or_else(|| match scheme.split('+').next() {
        Some("rest-rpc") => client.generation().map_or(Format::MessagePackArray, Generation::format),
        Some("rpcx") => Format::Json(Json::Go),
        Some("baidu-std" | "grpc" | "grpcs") => Format::Protobuf,
        _ => Format::Json(Json::Brpc),
    });
    let bytes: &[u8] = match format {
        Format::MessagePackArray => b"\x90",
        Format::Json(_) => b"{}",
        _ => b"",
    };
    let options = CallOptions { timeout: Some(AT_MOST), ..CallOptions::default() };
    Some(client.call_raw(NOBODYS, Body::new(format, bytes.to_vec()), options).await.map(drop))
}

/// Whether an answer, whatever it says, is one of the protocol by which the server was called.
fn is_spoken(answer: &Result<(), Error>) -> bool {
    let Err(error) = answer else { return true };
    let unanswered = matches!(
        error.code(),
        Code::DeadlineExceeded | Code::Unavailable | Code::Cancelled | Code::InvalidArgument
    );
    error.status().scope() == Scope::Call && !unanswered
}

fn has_tls(scheme: &str) -> bool {
    scheme.split('+').any(|word| matches!(word, "tls" | "grpcs" | "https"))
}

fn is_of(name: &str, word: &str) -> bool {
    match name {
        "rest-rpc" => word.parse::<Generation>().is_ok(),
        "net-rpc" => Codec::named(&[word]).is_ok(),
        _ => false,
    }
}

/// Words of a URL besides which the place behind it stays what it is.
const PLAIN: [&str; 5] = ["unix", "tls", "http", "json-rpc", "h2"];

/// A method that no server has.
const NOBODYS: &str = "polyrpc.Probe/Probe";

/// How long one protocol is tried; all are tried at once.
const AT_MOST: Duration = Duration::from_millis(700);
