//! The command line that results show, to repeat the measurement. Credentials are removed, since results are published.

use polyrpc::discovery::redacted;
use polyrpc_record::redact::is_credential;

/// The command line, quoted for a shell and without its credentials.
pub(super) fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let words = remove_credentials(arguments.skip(1)).into_iter().map(quote);
    ["polyrpc".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(argument: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%…".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument,
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

fn remove_credentials(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut before: Option<Mask> = None;
    let mut words = Vec::new();
    for word in arguments {
        if let Some(mask) = before.take() {
            words.push(mask(&word));
            continue;
        }
        let joined = OPTIONS.iter().find_map(|(option, mask)| {
            let rest = strip_option(&word, option)?;
            let given = &word[..word.len() - rest.len()];
            // The value of a short option may follow it without a separator.
            let value = rest.strip_prefix('=').or_else(|| (option.len() == 2).then_some(rest));
            Some((given, *mask, value.filter(|value| !value.is_empty())))
        });
        words.push(match joined {
            Some((given, mask, Some(value))) => format!("{given}={}", mask(value)),
            Some((given, mask, None)) if given.len() == word.len() => {
                before = Some(mask);
                word
            }
            _ if is_url(&word) => redacted(&word),
            _ => word,
        });
    }
    words
}

/// Returns the rest of a word behind an option. A flag may precede a short option, as in `-kH`.
fn strip_option<'w>(word: &'w str, option: &str) -> Option<&'w str> {
    match option.strip_prefix("--") {
        Some(_) => word.strip_prefix(option),
        None => word.strip_prefix('-')?.trim_start_matches(FLAG).strip_prefix(option.strip_prefix('-')?),
    }
}

/// The short option that has no value, `--insecure`.
const FLAG: char = 'k';

/// Options whose values are, or may be, credentials, each with a function that masks its value.
const OPTIONS: [(&str, Mask); 4] =
    [("--auth", mask_all), ("--kcp-key", mask_all), ("--header", mask_header), ("-H", mask_header)];

/// Returns the masked form of an option's value.
type Mask = fn(&str) -> String;

fn mask_all(_: &str) -> String {
    MASK.to_owned()
}

/// Returns a header, without its value if recordings remove values of this header.
fn mask_header(text: &str) -> String {
    match text.find([':', '=']) {
        Some(at) if is_credential(&text[..at].trim().to_ascii_lowercase()) => {
            format!("{}: {MASK}", text[..at].trim())
        }
        _ => text.to_owned(),
    }
}

/// Whether the whole word is a URL. A message that only contains one is no URL, and is not changed.
fn is_url(word: &str) -> bool {
    let scheme = word.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-".contains(c)))
}

/// Replacement for a credential.
const MASK: &str = "…";

#[cfg(test)]
mod tests {
    use super::*;

    fn to_command_line(words: &[&str]) -> String {
        let words = ["/x/polyrpc", "bench"].into_iter().chain(words.iter().copied());
        command_line(words.map(str::to_owned))
    }

    #[test]
    fn reported_command_is_quoted_for_a_shell() {
        assert_eq!(
            to_command_line(&["rpcx://h:1", "Arith/Mul", r#"{"A":7}"#, "it's", ""]),
            r#"polyrpc bench rpcx://h:1 Arith/Mul '{"A":7}' 'it'\''s' ''"#
        );
    }

    #[test]
    fn reported_command_has_no_credentials() {
        for (words, expected) in [
            (&["--auth", "SECRET", "-n", "2"][..], "--auth … -n 2"),
            (&["--auth=SECRET"], "--auth=…"),
            (&["-H", "Authorization: Bearer SECRET"], "-H 'Authorization: …'"),
            (&["-Hauthorization=SECRET"], "'-H=authorization: …'"),
            (&["-H=cookie: SECRET"], "'-H=cookie: …'"),
            (&["-kH", "Authorization: Bearer SECRET", "add"], "-kH 'Authorization: …' add"),
            (&["-kHcookie=SECRET", "add"], "'-kH=cookie: …' add"),
            (&["--header=x-api-key: SECRET"], "'--header=x-api-key: …'"),
            (&["--header", "session-token=SECRET"], "--header 'session-token: …'"),
            (&["--kcp-key", "00ff"], "--kcp-key …"),
            (&["-H", "tenant: a", "add"], "-H 'tenant: a' add"),
            (&["rpcx+etcd://me:SECRET@h:1/base"], "'rpcx+etcd://me:***@h:1/base'"),
        ] {
            assert_eq!(to_command_line(words), format!("polyrpc bench {expected}"), "{words:?}");
        }
    }
}
