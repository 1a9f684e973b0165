//! Metadata on the wire: the user fields, and those request fields that are metadata in other protocols, under the
//! names of brpc's HTTP headers (brpc `policy/http_rpc_protocol.cpp`).

use std::str;

use bytes::Bytes;
use polyrpc_core::Metadata;

use super::meta::{Meta, Request};

const LOG_ID: &str = "log-id";
const REQUEST_ID: &str = "x-request-id";
const TRACE_ID: &str = "x-bd-trace-id";
const SPAN_ID: &str = "x-bd-span-id";
const PARENT_SPAN_ID: &str = "x-bd-parent-span-id";

/// Reads all metadata in `meta`; its values share `bytes`, which `meta` was parsed from.
pub(super) fn read(meta: &Meta<'_>, bytes: &Bytes) -> Metadata {
    let mut metadata = Metadata::new();
    for (key, value) in &meta.user_fields {
        // A key that is not UTF-8 could not be looked up.
        if let Ok(key) = str::from_utf8(key) {
            metadata.append(key.to_owned(), bytes.slice_ref(value));
        }
    }
    metadata.dedup_keep_last();
    if let Some(request) = &meta.request {
        add_fields(&mut metadata, request, bytes);
    }
    metadata
}

fn add_fields(metadata: &mut Metadata, request: &Request<'_>, bytes: &Bytes) {
    let ids = [
        (LOG_ID, request.log_id),
        (TRACE_ID, request.trace_id),
        (SPAN_ID, request.span_id),
        (PARENT_SPAN_ID, request.parent_span_id),
    ];
    for (key, id) in ids {
        if let Some(id) = id {
            metadata.insert(key, id.cast_unsigned().to_string());
        }
    }
    if let Some(id) = request.request_id.filter(|id| !id.is_empty()) {
        metadata.insert(REQUEST_ID, bytes.slice_ref(id));
    }
}

/// Moves the entries with a dedicated field in `request` there and returns the others.
pub(super) fn write<'m>(metadata: &'m Metadata, request: &mut Request<'m>) -> Vec<(&'m [u8], &'m [u8])> {
    let mut fields = user_fields(metadata);
    fields.retain(|(key, value)| !take(request, key, value));
    fields
}

/// Whether an entry was stored in a dedicated field of `request`. An id that is not a number is not stored.
fn take<'m>(request: &mut Request<'m>, key: &[u8], value: &'m [u8]) -> bool {
    let field = match str::from_utf8(key) {
        Ok(LOG_ID) => &mut request.log_id,
        Ok(TRACE_ID) => &mut request.trace_id,
        Ok(SPAN_ID) => &mut request.span_id,
        Ok(PARENT_SPAN_ID) => &mut request.parent_span_id,
        Ok(REQUEST_ID) if !value.is_empty() => {
            request.request_id = Some(value);
            return true;
        }
        _ => return false,
    };
    *field = str::from_utf8(value).ok().and_then(|id| id.parse().ok()).map(u64::cast_signed);
    field.is_some()
}

/// Returns all entries as user fields; a response has no other place for them.
pub(super) fn user_fields(metadata: &Metadata) -> Vec<(&[u8], &[u8])> {
    metadata.iter().map(|(key, value)| (key.as_bytes(), &value[..])).collect()
}
