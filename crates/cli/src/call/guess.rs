//! Guesses the protocol of a server that did not understand a call.
//!
//! A method that no server has is called over every protocol: the server speaks those in which it reports that.

use std::time::Duration;

use futures_util::future::join_all;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::net_rpc::Codec;
use polyrpc::payload::Json;
use polyrpc::rest_rpc::Generation;
use polyrpc::{Code, Format, Scope, Status, tls};

use super::CommonOptions;

/// Whether a response, or its absence, may be that of a server of another protocol.
pub(crate) fn may_be_of_another_protocol(status: &Status) -> bool {
    let text = status.message();
    let connected = !text.starts_with("cannot connect") || text.contains("TLS");
    connected && (status.scope() == Scope::Connection || status.code() == Code::DeadlineExceeded)
}

/// The protocol that the server at a URL seems to speak, unless it is that of the URL.
pub(crate) async fn hint(url: &str, options: &CommonOptions) -> Option<String> {
    let (scheme, place) = url.split_once("://")?;
    let name = scheme.split('+').next()?;
    let is_plain = scheme.split('+').skip(1).all(|word| PLAIN.contains(&word) || is_of(name, word));
    if !is_plain {
        return None;
    }
    let candidates = candidates(scheme, name);
    let answered = join_all(candidates.iter().map(|scheme| speaks(scheme, place, options))).await;
    let spoken: Vec<_> =
        candidates.iter().zip(answered).filter(|(_, answered)| *answered).map(|(scheme, _)| scheme).collect();
    // A server that is slow or broken still speaks its protocol.
    if spoken.iter().any(|spoken| *spoken == scheme) {
        return None;
    }
    let spoken = spoken.first()?;
    Some(format!("this looks like {}: try {spoken}://{place}", words(spoken)))
}

/// Name of a scheme's protocol in a sentence.
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

/// URLs to try, the likeliest first.
fn candidates(scheme: &str, name: &str) -> Vec<String> {
    let mut schemes = vec![scheme.to_owned()];
    let unix = if scheme.split('+').any(|word| word == "unix") { "+unix" } else { "" };
    let mut add = |scheme: String| {
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    };
    if name == "rest-rpc" {
        // Newest first: its header is the longest and the most distinctive.
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

/// Whether the server responds to a call over this protocol in any way.
async fn speaks(scheme: &str, place: &str, options: &CommonOptions) -> bool {
    let Ok(builder) = options.to_anybody().client(&format!("{scheme}://{place}")) else {
        return false;
    };
    let mut builder = builder.timeout(AT_MOST).connect_timeout(AT_MOST).retries(0);
    if has_tls(scheme) {
        // The probe sends nothing sensitive, and any certificate shows that the server speaks TLS.
        builder = builder.tls(tls::Client::new().dangerously_accept_any_certificate());
    }
    let Ok(client) = builder.build() else { return false };
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
    match client.call_raw(NOBODYS, Body::new(format, bytes.to_vec()), options).await {
        Ok(_) => true,
        Err(error) => {
            let unanswered = matches!(
                error.code(),
                Code::DeadlineExceeded | Code::Unavailable | Code::Cancelled | Code::InvalidArgument
            );
            error.status().scope() == Scope::Call && !unanswered
        }
    }
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

/// Parts of a scheme that do not change the address.
const PLAIN: [&str; 5] = ["unix", "tls", "http", "json-rpc", "h2"];

/// A method that no server has.
const NOBODYS: &str = "polyrpc.Probe/Probe";

/// Timeout of one protocol; all are tried concurrently.
const AT_MOST: Duration = Duration::from_millis(700);
