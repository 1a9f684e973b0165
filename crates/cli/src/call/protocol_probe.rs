//! Detects the protocol of a server that did not understand a call.
//!
//! A method that no server has is called over every protocol: the server supports those in which it reports that.

use std::time::Duration;

use futures_util::future::join_all;
use polyrpc::client::CallOptions;
use polyrpc::codec::Body;
use polyrpc::rest_rpc::Version;
use polyrpc::{Code, Error, Format, Json, Scope, Status, tls};

use super::CommonOptions;
use crate::reflection::Trace;
use crate::url::Url;

/// Whether a response, or its absence, may be that of a server of another protocol.
pub(crate) fn may_be_of_another_protocol(status: &Status) -> bool {
    let text = status.message();
    let connected = !text.starts_with("cannot connect") || text.contains("TLS");
    connected && (status.scope() == Scope::Connection || status.code() == Code::DeadlineExceeded)
}

/// The protocol that the server at a URL seems to use, unless it is that of the URL.
pub(crate) async fn hint(url: &str, options: &CommonOptions, trace: &Trace) -> Option<String> {
    let url = Url::parse(url)?;
    let is_plain = matches!(url.parameter("transport"), None | Some("tcp" | "unix" | "http-connect"));
    if url.registry.is_some() || !is_plain {
        return None;
    }
    let candidates = candidates(&url);
    let tried = join_all(candidates.iter().map(|candidate| try_protocol(candidate, options))).await;
    let mut spoken = Vec::new();
    for (candidate, tried) in candidates.iter().zip(tried) {
        let Some(answer) = tried else { continue };
        let failure = answer.as_ref().err().map(Error::status);
        trace.with_url(&candidate.to_string()).show(PROBE_METHOD, "a probe of this protocol", failure);
        if is_supported(&answer) {
            spoken.push(candidate);
        }
    }
    // A server that is slow or broken still uses its protocol.
    if spoken.iter().any(|spoken| **spoken == url) {
        return None;
    }
    let spoken = spoken.first()?;
    Some(format!("this looks like {}: try {}", describe(spoken), spoken.quote()))
}

/// Name of a URL's protocol in a sentence.
fn describe(url: &Url) -> String {
    let name = match (&*url.protocol, url.tls) {
        ("grpc", false) => "gRPC",
        ("grpc", true) => "gRPC with TLS",
        ("http", false) => "HTTP",
        ("http", true) => "HTTPS",
        ("baidu-std", _) => "brpc (baidu_std)",
        ("net-rpc", _) => "Go's net/rpc",
        ("rest-rpc", _) => "rest_rpc",
        (other, _) => other,
    };
    let details = url.parameters.iter().filter_map(|(name, value)| match (&**name, &**value) {
        ("version", tag) if tag.starts_with("0.") => Some(format!("v{tag}")),
        ("version" | "codec", value) => Some(value.to_owned()),
        ("byte_order", value) => Some(format!("{value}-endian")),
        ("transport", "http-connect") => Some("over HTTP".to_owned()),
        _ => None,
    });
    let with_tls = (url.tls && !name.starts_with("gRPC") && name != "HTTPS").then(|| "with TLS".to_owned());
    [name.to_owned()].into_iter().chain(details).chain(with_tls).collect::<Vec<_>>().join(" ")
}

/// URLs to try, the likeliest first.
fn candidates(url: &Url) -> Vec<Url> {
    let mut candidates = vec![url.clone()];
    let mut add = |candidate: Url| {
        if !candidates.contains(&candidate) {
            candidates.push(candidate);
        }
    };
    if url.protocol == "rest-rpc" {
        // Newest first: its header is the longest and the most distinctive.
        for version in Version::ALL.into_iter().rev() {
            add(Url::new("rest-rpc", url.server(), version.url_parameters()));
        }
    }
    add(Url { tls: !url.tls, ..url.clone() });
    for (protocol, parameters) in OTHERS {
        add(Url::new(protocol, url.server(), parameters));
    }
    candidates
}

/// Further protocols to try, with the parameters of their URLs.
const OTHERS: [(&str, &str); 8] = [
    ("grpc", ""),
    ("rpcx", ""),
    ("baidu-std", ""),
    ("net-rpc", "transport=http-connect"),
    ("http", ""),
    ("net-rpc", ""),
    ("net-rpc", "codec=json"),
    ("rest-rpc", "version=0.20"),
];

/// Calls the server over this protocol, if the URL is valid.
async fn try_protocol(url: &Url, options: &CommonOptions) -> Option<Result<(), Error>> {
    let builder = options.without_credentials().client(&url.to_string()).ok()?;
    let mut builder = builder.timeout(PROBE_TIMEOUT).connect_timeout(PROBE_TIMEOUT).retries(0);
    if url.tls {
        // The probe sends nothing sensitive, and any certificate shows that the server uses TLS.
        builder = builder.tls(tls::Client::new().dangerously_accept_any_certificate());
    }
    let client = builder.build().ok()?;
    let format = client.only_format().unwrap_or_else(|| match &*url.protocol {
        "rest-rpc" => client.rest_rpc_version().map_or(Format::MessagePackArray, Version::format),
        "rpcx" => Format::Json(Json::Go),
        "baidu-std" | "grpc" => Format::Protobuf,
        _ => Format::Json(Json::Brpc),
    });
    let bytes: &[u8] = match format {
        Format::MessagePackArray => b"\x90",
        Format::Json(_) => b"{}",
        _ => b"",
    };
    let options = CallOptions { timeout: Some(PROBE_TIMEOUT), ..CallOptions::default() };
    Some(client.call_raw(PROBE_METHOD, Body::new(format, bytes.to_vec()), options).await.map(drop))
}

/// Whether a response, even a failure, shows that the server supports the protocol of the call.
fn is_supported(answer: &Result<(), Error>) -> bool {
    let Err(error) = answer else { return true };
    let unanswered = matches!(
        error.code(),
        Code::DeadlineExceeded | Code::Unavailable | Code::Cancelled | Code::InvalidArgument
    );
    error.status().scope() == Scope::Call && !unanswered
}

/// A method that no server has.
const PROBE_METHOD: &str = "polyrpc.Probe/Probe";

/// Timeout of one protocol; all are tried concurrently.
const PROBE_TIMEOUT: Duration = Duration::from_millis(700);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_urls_of_the_same_server() {
        for (url, second) in [
            ("rpcx+tls://h:1", "rpcx://h:1"),
            ("https://h:1/?dialect=json-rpc", "http://h:1/?dialect=json-rpc"),
            ("grpc:///run/x", "grpcs:///run/x"),
            ("rest-rpc://h:1?version=0.20", "rest-rpc://h:1?version=0.21&byte_order=big"),
        ] {
            let candidates = candidates(&Url::parse(url).unwrap());
            assert_eq!((&*candidates[0].to_string(), &*candidates[1].to_string()), (url, second));
            for candidate in &candidates {
                assert!(polyrpc::Client::new(&candidate.to_string()).is_ok(), "{candidate}");
            }
        }
    }

    #[test]
    fn protocol_description_names_version_codec_and_tls() {
        for (url, description) in [
            ("grpcs://h:1", "gRPC with TLS"),
            ("rpcx+tls://h:1", "rpcx with TLS"),
            ("https://h", "HTTPS"),
            ("rest-rpc://h:1?version=0.21&byte_order=big", "rest_rpc v0.21 big-endian"),
            ("rest-rpc://h:1?version=2022-12-23", "rest_rpc 2022-12-23"),
            ("net-rpc://h:1?transport=http-connect", "Go's net/rpc over HTTP"),
            ("net-rpc://h:1?codec=json", "Go's net/rpc json"),
        ] {
            assert_eq!(describe(&Url::parse(url).unwrap()), description);
        }
    }
}
