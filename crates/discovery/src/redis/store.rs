//! Keys and values in the format of rpcx's Go store (rpcxio/libkv `store/redis`).

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polyrpc::Status;
use serde::{Deserialize, Serialize};

/// The store puts its own slash before every path.
pub(super) fn key(path: &str) -> String {
    format!("/{path}")
}

/// Value that the store keeps under a key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StoredEntry {
    key: String,
    /// Base64.
    value: String,
    /// Nanoseconds of the second in which it was written.
    last_index: u64,
}

impl StoredEntry {
    pub(super) fn json(path: &str, value: &str) -> Result<String, Status> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last_index = since.subsec_nanos().into();
        let kept = Self { key: path.to_owned(), value: STANDARD.encode(value), last_index };
        serde_json::to_string(&kept).map_err(|error| Status::internal(error.to_string()))
    }

    pub(super) fn read(json: &[u8]) -> Option<Vec<u8>> {
        let kept: Self = serde_json::from_slice(json).ok()?;
        STANDARD.decode(kept.value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_those_of_the_go_store() {
        let json = StoredEntry::json("/rpcx_test", "rpcx_path").unwrap();
        assert!(json.starts_with(r#"{"Key":"/rpcx_test","Value":"cnBjeF9wYXRo","LastIndex":"#), "{json}");
        assert_eq!(StoredEntry::read(json.as_bytes()).unwrap(), b"rpcx_path");
        for wrong in [&b""[..], b"{}", b"weight=1", br#"{"Key":"a","Value":"%","LastIndex":1}"#] {
            assert!(StoredEntry::read(wrong).is_none());
        }
    }
}
