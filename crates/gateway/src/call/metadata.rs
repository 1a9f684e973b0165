//! Converts the metadata of requests for the upstream, and that of responses for the caller.

use bytes::{BufMut, Bytes, BytesMut};
use polyrpc::fallback::RawRequest;
use polyrpc::{Metadata, Protocol, Result};
use polyrpc_core::Carrier;
use polyrpc_core::protocol::MetadataSupport;

use super::refusal;
use crate::config::{Credential, MetadataPolicy};
use crate::origin::{self, Proxies};
use crate::upstream::Upstream;

/// Returns the metadata for the upstream.
pub(super) fn onward(call: &RawRequest, proxies: &Proxies, upstream: &Upstream) -> Result<Metadata> {
    let mut metadata = call.metadata().clone();
    if call.protocol().descriptor().capabilities.has_fields() {
        keep_end_to_end(&mut metadata);
    }
    if upstream.spec.credential != Credential::Pass {
        metadata.retain(|key, _| !is_credential(key));
    }
    // Any client could claim to forward a call.
    if !proxies.sent(call) {
        metadata.retain(|key, _| !origin::is_forwarded(key));
    }
    if upstream.spec.forwarded {
        origin::append_peer(&mut metadata, call);
    }
    let protocol = upstream.protocol();
    match protocol.descriptor().capabilities.metadata {
        MetadataSupport::Carried(carrier) => {
            count_hop(&mut metadata)?;
            match carrier {
                // A key has only one value.
                Carrier::Map => join(&mut metadata),
                _ => keep_end_to_end(&mut metadata),
            }
            check_count(protocol, &metadata)?;
            Ok(metadata)
        }
        MetadataSupport::Refused => {
            let custom = metadata.iter().map(|(key, _)| key).find(|key| !describes_client(key));
            match (custom, upstream.spec.metadata) {
                (Some(key), MetadataPolicy::Refuse) => Err(refusal::metadata(protocol, key)),
                _ => Ok(Metadata::new()),
            }
        }
    }
}

/// Removes HTTP fields that are valid only for one connection, one message or one protocol.
pub(super) fn keep_end_to_end(metadata: &mut Metadata) {
    metadata.retain(|key, _| !Carrier::reserves(key) && !is_of_message_or_protocol(key));
}

/// Whether a field describes a message, or belongs to gRPC-Web or Connect.
fn is_of_message_or_protocol(key: &str) -> bool {
    let starts = |start: &str| key.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
    starts("content-") || starts("connect-") || key.eq_ignore_ascii_case("x-grpc-web")
}

/// Joins several values of a key by commas, as HTTP does (RFC 9110, section 5.3).
fn join(metadata: &mut Metadata) {
    metadata.merge_duplicates(|_, values| {
        let mut joined = BytesMut::new();
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                joined.put_slice(b", ");
            }
            joined.put_slice(value);
        }
        joined.freeze()
    });
}

/// Counts the gateways that the call has passed.
fn count_hop(metadata: &mut Metadata) -> Result<()> {
    let hops: u8 = metadata.get(HOPS).and_then(|hops| hops.parse().ok()).unwrap_or(0);
    if hops >= MOST_HOPS {
        return Err(refusal::too_many_hops());
    }
    metadata.insert(HOPS, Bytes::from_static(PASSED[usize::from(hops)].as_bytes()));
    Ok(())
}

/// Rejects metadata that would make the upstream close a connection that other calls share.
fn check_count(protocol: Protocol, metadata: &Metadata) -> Result<()> {
    let most = protocol.descriptor().capabilities.most_metadata.saturating_sub(OF_CLIENT);
    match metadata.len() {
        count if count > most => Err(refusal::too_much_metadata(protocol, count, most)),
        _ => Ok(()),
    }
}

fn is_credential(key: &str) -> bool {
    // The last one is that of rpcx, which callers of other protocols could send as plain metadata.
    let known = ["authorization", "proxy-authorization", "cookie", "__auth"];
    known.iter().any(|known| known.eq_ignore_ascii_case(key))
}

/// Whether HTTP clients add the field automatically, so that it may be dropped.
fn describes_client(key: &str) -> bool {
    let known = [
        "user-agent",
        "x-user-agent",
        "accept",
        "origin",
        "referer",
        "dnt",
        "pragma",
        "cache-control",
        "priority",
        HOPS,
    ];
    let families = ["accept-", "sec-", "x-forwarded-", "if-", "trace"];
    let key = key.to_ascii_lowercase();
    known.contains(&key.as_str()) || families.iter().any(|family| key.starts_with(family))
}

/// Entries reserved for those that the client adds itself: credential, timeout, trace.
const OF_CLIENT: usize = 16;

/// Metadata key for the number of gateways that a call has passed.
const HOPS: &str = "x-polyrpc-hops";
const MOST_HOPS: u8 = 8;

/// The numbers behind those below [`MOST_HOPS`].
const PASSED: [&str; MOST_HOPS as usize] = ["1", "2", "3", "4", "5", "6", "7", "8"];
