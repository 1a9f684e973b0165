//! Metadata of another server's response, some of which the protocol of the caller cannot carry: they are left out. The
//! call was processed, and its result is worth more than a header.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polyrpc_core::{Carrier, Metadata};

use crate::rate_limited::EventLimiter;

/// Removes the entries that cannot be carried, counts them, and logs at most one per second.
#[cold]
pub(crate) fn remove_unsupported(carrier: Carrier, metadata: &mut Metadata) {
    if carrier == Carrier::Map {
        return keep_last_values(metadata);
    }
    metadata.retain(|key, value| {
        // HTTP's content type is exempt, as in the responses of handlers.
        let reason = match key.eq_ignore_ascii_case("content-type") {
            true => None,
            false => carrier.refusal(key, value),
        };
        if let Some(reason) = reason {
            record(key, reason);
        }
        reason.is_none()
    });
}

/// Keeps only the last value of each key, as a peer would that receives them all.
fn keep_last_values(metadata: &mut Metadata) {
    metadata.merge_duplicates(|key, values| {
        values
            .iter()
            .skip(1)
            .for_each(|_| record(key, "it has several values, of which only the last is sent"));
        values.last().cloned().unwrap_or_default()
    });
}

fn record(key: &str, reason: &str) {
    REMOVED.fetch_add(1, Ordering::Relaxed);
    if let Some(suppressed) = LOGGED.allow() {
        tracing::warn!(key, reason, suppressed, "metadata of a relayed response were left out");
    }
}

/// Returns how many metadata entries were removed in this process.
pub(crate) fn removed_metadata_count() -> u64 {
    REMOVED.load(Ordering::Relaxed)
}

static REMOVED: AtomicU64 = AtomicU64::new(0);

static LOGGED: EventLimiter = EventLimiter::new(1, Duration::from_secs(1));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_keeps_the_last_value_of_a_key_and_the_others_are_counted() {
        let before = removed_metadata_count();
        let mut metadata = Metadata::new();
        [("k", "1"), ("other", "x"), ("k", "2"), ("k", "3")]
            .into_iter()
            .for_each(|(key, value)| metadata.append(key, value));
        remove_unsupported(Carrier::Map, &mut metadata);
        assert_eq!(metadata, Metadata::from_iter([("k", "3"), ("other", "x")]));
        // Other tests may count, too.
        assert!(removed_metadata_count() >= before + 2);
    }
}
