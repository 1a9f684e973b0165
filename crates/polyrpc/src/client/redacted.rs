//! What of a call may be printed.

use std::fmt;

use bytes::Bytes;
use polyrpc_core::Metadata;

use crate::discovery::is_secret;

/// Metadata without the values of entries that are likely to be secret (`authorization`, `cookie`, `x-api-key`, …).
pub(super) struct RedactedMetadata<'a>(pub(super) &'a Metadata);

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

/// Whether there is a credential, and not which.
pub(super) fn redacted(credential: Option<&Bytes>) -> Option<fmt::Arguments<'static>> {
    credential.map(|_| REDACTED)
}

const REDACTED: fmt::Arguments<'static> = format_args!("<redacted>");
