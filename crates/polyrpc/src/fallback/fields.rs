//! HTTP fields that a forwarded call keeps.

use polyrpc_core::{Carrier, Metadata};

/// Removes fields that are valid for one connection or one message only.
pub(super) fn keep_end_to_end(metadata: &mut Metadata) {
    let of_message = |key: &str| key.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"));
    metadata.retain(|key, _| !Carrier::reserves(key) && !of_message(key));
}
