//! Converts the metadata of requests for the upstream, and that of responses for the caller.

use bytes::{BufMut, Bytes, BytesMut};
use polyrpc::fallback::RawRequest;
use polyrpc::{Metadata, Protocol, Result};
use polyrpc_core::Carrier;
use polyrpc_core::carrier::is_binary;
use polyrpc_core::protocol::MetadataSupport;

use super::{binary, refusal};
use crate::config::{Credential, MetadataPolicy};
use crate::origin::{self, Proxies};
use crate::upstream::Upstream;

/// Returns the metadata for the upstream.
pub(super) fn convert_request(call: &RawRequest, proxies: &Proxies, upstream: &Upstream) -> Result<Metadata> {
    let mut metadata = call.metadata().clone();
    if call.protocol().descriptor().capabilities.has_fields() {
        keep_end_to_end(&mut metadata);
    }
    if upstream.spec.credential != Credential::Pass {
        metadata.retain(|key, _| !is_credential(key));
    }
    // Any client could claim to forward a call.
    if !proxies.has_sender_of(call) {
        metadata.retain(|key, _| !origin::is_forwarded(key));
    }
    if upstream.spec.forwarded {
        origin::append_peer(&mut metadata, call);
    }
    let (from, protocol) = (call.protocol(), upstream.protocol());
    match protocol.descriptor().capabilities.metadata {
        MetadataSupport::Carried(carrier) => {
            count_hop(&mut metadata)?;
            binary::translate(from, protocol, &mut metadata).map_err(|key| refusal::not_base64(&key))?;
            match carrier {
                // Keys have one value.
                Carrier::Map => join(from, protocol, &mut metadata)?,
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

/// Prepares what an upstream sent with its response for the caller.
pub(super) fn convert_response(from: Protocol, caller: Protocol, metadata: &mut Metadata) -> Result<()> {
    if caller.descriptor().capabilities.has_fields() {
        keep_end_to_end(metadata);
    }
    binary::translate_response(from, caller, metadata);
    match caller.descriptor().capabilities.metadata {
        MetadataSupport::Carried(Carrier::Map) => {
            join(from, caller, metadata)?;
            check_count(caller, metadata)
        }
        _ => Ok(()),
    }
}

/// Removes fields of HTTP that are valid for one connection, one message or one protocol only.
fn keep_end_to_end(metadata: &mut Metadata) {
    metadata.retain(|key, _| !Carrier::reserves(key) && !is_of_message_or_protocol(key));
}

/// Whether a field describes a message, or belongs to gRPC-Web or Connect.
fn is_of_message_or_protocol(key: &str) -> bool {
    let starts = |start: &str| key.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
    starts("content-") || starts("connect-") || key.eq_ignore_ascii_case("x-grpc-web")
}

/// Joins several values of a key by commas, as HTTP does (RFC 9110, section 5.3). Bytes may have commas of their own, so
/// that several binary values are refused.
fn join(from: Protocol, to: Protocol, metadata: &mut Metadata) -> Result<()> {
    let has_bytes = binary::are_bytes(from);
    let mut inseparable = None;
    metadata.merge_duplicates(|key, values| {
        if has_bytes && is_binary(key) {
            inseparable.get_or_insert_with(|| key.to_owned());
        }
        let mut joined = BytesMut::new();
        for (n, value) in values.iter().enumerate() {
            if n > 0 {
                joined.put_slice(b", ");
            }
            joined.put_slice(value);
        }
        joined.freeze()
    });
    match inseparable {
        Some(key) => Err(refusal::several_binary_values(to, &key)),
        None => Ok(()),
    }
}

/// Counts the gateways that the call has passed.
fn count_hop(metadata: &mut Metadata) -> Result<()> {
    let hops: u8 = metadata.get(HOPS).and_then(|hops| hops.parse().ok()).unwrap_or(0);
    if hops >= MAX_HOPS {
        return Err(refusal::too_many_hops());
    }
    metadata.insert(HOPS, Bytes::from_static(HOP_COUNTS[usize::from(hops)].as_bytes()));
    Ok(())
}

/// Refuses metadata for which the receiver would end a connection that other calls share. What the gateway adds is not the
/// caller's: there is room for it.
fn check_count(protocol: Protocol, metadata: &Metadata) -> Result<()> {
    let max = protocol.descriptor().capabilities.most_metadata.saturating_sub(RESERVED_ENTRIES);
    if metadata.len() <= max {
        return Ok(());
    }
    let is_own = |key: &str| [HOPS, origin::FORWARDED_FOR].contains(&key);
    match metadata.iter().filter(|(key, _)| !is_own(key)).count() {
        count if count > max => Err(refusal::too_much_metadata(protocol, count, max)),
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

/// Room for the entries that the gateway and its client add: hops, the caller's address, the mark of a copy, credential,
/// timeout, trace.
const RESERVED_ENTRIES: usize = 16;

/// Metadata key for the number of gateways that a call has passed.
const HOPS: &str = "x-polyrpc-hops";
const MAX_HOPS: u8 = 8;

/// The numbers behind those below [`MAX_HOPS`].
const HOP_COUNTS: [&str; MAX_HOPS as usize] = ["1", "2", "3", "4", "5", "6", "7", "8"];
