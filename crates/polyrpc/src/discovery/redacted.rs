//! URLs for logs and error texts.

use super::Network;
use crate::call::is_secret;

/// Redacts the secrets of a URL for logs and error texts: the password before the host, and the query parameters with
/// names such as `password`, `token` or `secret`.
///
/// It accepts any text, since a malformed URL may be the very reason to print it.
///
/// ```
/// use polyrpc::discovery::redacted;
///
/// assert_eq!(redacted("etcd://root:hunter2@a:2379,b:2379/base"), "etcd://root:***@a:2379,b:2379/base");
/// assert_eq!(redacted("consul://a:8500/base?token=s3cr3t&tls"), "consul://a:8500/base?token=***&tls");
/// assert_eq!(redacted("rpcx://127.0.0.1:8972"), "rpcx://127.0.0.1:8972");
/// ```
#[must_use]
pub fn redacted(url: &str) -> String {
    let (scheme, rest) =
        url.split_once("://").map_or(("", url), |(scheme, rest)| (&url[..scheme.len() + 3], rest));
    let (user, rest) = split_user(rest);
    let (rest, settings) =
        rest.split_once('?').map_or((rest, None), |(rest, settings)| (rest, Some(settings)));
    let mut text = String::from(scheme);
    if let Some(user) = user {
        text.push_str(user.split_once(':').map_or(user, |(name, _)| name));
        text.push_str(if user.contains(':') { ":***@" } else { "@" });
    }
    match settings {
        Some(settings) => {
            text.push_str(rest);
            text.push('?');
            text.push_str(&redact_settings(settings));
        }
        // brpc's URLs of Nacos are settings only: `nacos://serviceName=Echo&password=…`.
        None if rest.split('/').next().is_some_and(|start| start.contains('=')) => {
            text.push_str(&redact_settings(rest));
        }
        None => text.push_str(rest),
    }
    text
}

fn redact_settings(settings: &str) -> String {
    let settings = settings.split('&').map(|setting| match setting.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => setting.to_owned(),
    });
    settings.collect::<Vec<_>>().join("&")
}

/// Splits off the user information before the host. A password may contain characters that should have been escaped,
/// including those that end a host; therefore the last `@` counts, unless the part before it is a host already.
fn split_user(rest: &str) -> (Option<&str>, &str) {
    let authority = rest.find(['/', '?']).unwrap_or(rest.len());
    let begins_with_host =
        rest[..authority].rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok());
    let at = match rest[..authority].rfind('@') {
        None if begins_with_host => None,
        None => rest.rfind('@'),
        at => at,
    };
    let Some(at) = at else { return (None, rest) };
    let (user, after_user) = (&rest[..at], &rest[at + 1..]);
    // List of instances: `tcp@a:1,tcp@b:2`.
    let is_network = rest.split_once('@').is_some_and(|(first, _)| first.parse::<Network>().is_ok());
    match is_network {
        true => (None, rest),
        false => (Some(user), after_user),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_redacted_in_urls() {
        for (url, shown) in [
            ("etcd://root:hunter2@a:1,b:2/base/S", "etcd://root:***@a:1,b:2/base/S"),
            ("rpcx+redis://:hunter2@h:1/base?db=1", "rpcx+redis://:***@h:1/base?db=1"),
            ("a://me:hun@ter2@h:1", "a://me:***@h:1"),
            ("a://me:hun/ter2@h:1/base", "a://me:***@h:1/base"),
            ("a://me:hun?ter2@h:1/base", "a://me:***@h:1/base"),
            ("me:hunter2@h:1", "me:***@h:1"),
            ("a://me@h:1", "a://me@h:1"),
            ("a://h/?password=hunter2", "a://h/?password=***"),
            (
                "nacos://serviceName=S&groupName=a/b&password=hunter2",
                "nacos://serviceName=S&groupName=a/b&password=***",
            ),
            (
                "a://h/?x=1&accessToken=hunter2&PASSWORD=hunter2&tls",
                "a://h/?x=1&accessToken=***&PASSWORD=***&tls",
            ),
        ] {
            assert_eq!(redacted(url), shown, "{url}");
            assert!(!redacted(url).contains("ter2"), "{url}");
        }
    }

    #[test]
    fn other_texts_are_unchanged() {
        for text in [
            "",
            "://",
            "rpcx://127.0.0.1:8972",
            "rpcx:///run/a@b.sock?transport=unix",
            "rpcx+list://tcp@a:1,kcp@b:2",
            "http://h:1/users/me@example.org",
            "http://h/?user=me@example.org",
            "dns://[::1]:53/_rpc._tcp.example?",
            "ü://é:ß",
        ] {
            assert_eq!(redacted(text), text);
        }
    }

    #[test]
    fn secret_names_are_recognized_in_any_spelling() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "Set-Cookie",
            "X-API-Key",
            "x-auth-token",
            "__AUTH",
            "api_key",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["author", ":authority", "traceparent", "user", "key", "content-type"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
