//! Redaction of secrets in the debug output of a call.

use std::fmt;

use bytes::Bytes;
use polyrpc_core::Metadata;

/// Metadata without the values of entries that are likely to be secret (`authorization`, `cookie`, `x-api-key`, …).
pub(crate) struct RedactedMetadata<'a>(pub(crate) &'a Metadata);

impl fmt::Debug for RedactedMetadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in self.0.iter() {
            match is_secret(name) {
                true => map.entry(&name, &REDACTED),
                false => map.entry(&name, value),
            };
        }
        map.finish()
    }
}

/// Shows whether there is a credential, but not its value.
pub(crate) fn redact(credential: Option<&Bytes>) -> Option<fmt::Arguments<'static>> {
    credential.map(|_| REDACTED)
}

/// Returns whether a setting, a header or a metadata entry of this name is likely to contain a secret.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_', '.'], "");
    let parts = [
        "authorization",
        "cookie",
        "password",
        "passwd",
        "secret",
        "token",
        "credential",
        "apikey",
        "accesskey",
        "privatekey",
        "signature",
    ];
    matches!(&*name, "auth" | "xauth" | "pwd" | "pass") || parts.iter().any(|part| name.contains(part))
}

const REDACTED: fmt::Arguments<'static> = format_args!("<redacted>");
