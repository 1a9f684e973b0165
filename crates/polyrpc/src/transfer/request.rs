use std::collections::HashMap;
use std::path::{Component, Path};

use crate::call::Peer;

/// Request of a client for a byte stream, or to upload or download a file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// Name of the file, as sent by the client: it may be any path. See [`file_name`](Self::file_name). Empty for a
    /// byte stream.
    pub name: String,
    /// Number of bytes that a client will upload, if it names one. Go's clients send 0 for an empty file, which counts
    /// as none here.
    pub size: Option<u64>,
    /// Metadata of the client.
    pub metadata: HashMap<String, String>,
    /// Peer that sent the request.
    pub peer: Peer,
}

impl Request {
    /// Returns the name if it is a plain file name: no folder, no parent, no root.
    pub fn file_name(&self) -> Option<&str> {
        let mut parts = Path::new(&self.name).components();
        let sole = matches!(parts.next(), Some(Component::Normal(part)) if part == self.name.as_str());
        (sole && parts.next().is_none() && !self.name.contains(['\\', '\0'])).then_some(&self.name)
    }
}
