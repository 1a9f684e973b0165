//! Former spellings of URLs: words after `+` that have become parameters.

use polyrpc_core::protocol::{Parameter, Parameters};
use polyrpc_wire::Protocol;

use super::parameters::url_parameters;

/// Returns the words that have become parameters, joined by `+`, and those parameters.
#[cold]
pub(super) fn spelling(protocol: Protocol, scheme: &str, words: &[&str]) -> Option<(String, String)> {
    let declared = url_parameters(protocol.descriptor());
    let declared: Vec<_> = declared.into_iter().filter(|known| known.belongs_to(scheme)).collect();
    let whole = words.join("+");
    if let Some(now) = renamed(&whole, scheme, &declared) {
        return Some((whole, now.to_owned()));
    }
    let spelled = words.iter().filter_map(|word| {
        let now = renamed(word, scheme, &declared).map(str::to_owned);
        Some((*word, now.or_else(|| value(word, &declared))?))
    });
    let (former, mut now): (Vec<_>, Vec<_>) = spelled.unzip();
    if now.iter().filter(|now| now.starts_with("transport=")).count() > 1 {
        // The empty host implies it.
        now.retain(|now| now != "transport=unix");
    }
    (!former.is_empty()).then(|| (former.join("+"), now.join("&")))
}

fn renamed(word: &str, scheme: &str, declared: &[Parameter]) -> Option<&'static str> {
    let (_, now) = RENAMED.into_iter().find(|(former, _)| *former == word)?;
    Parameters::parse(now, scheme, declared).is_ok().then_some(now)
}

/// Returns the parameter that has the word as a value.
fn value(word: &str, declared: &[Parameter]) -> Option<String> {
    let tag = word.strip_prefix('v').unwrap_or(word);
    let has = |value: &str| declared.iter().find(|known| known.values.contains(&value));
    let (known, value) =
        has(word).map(|known| (known, word)).or_else(|| has(tag).map(|known| (known, tag)))?;
    Some(format!("{}={value}", known.name))
}

/// Former words that are not the value of a parameter.
const RENAMED: [(&str, &str); 7] = [
    ("http", "transport=http-connect"),
    ("h2", "http_version=2"),
    ("two-dots", "version=frpc-two-dots"),
    ("brpc+two-dots", "version=brpc-two-dots"),
    ("two-dots+brpc", "version=brpc-two-dots"),
    ("pr3197", "version=brpc-two-dots"),
    ("v0.21-big-endian", "version=0.21&byte_order=big"),
];
