use std::time::Duration;

use polyrpc_describe::Pattern;

/// What an endpoint offers, and its bounds.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) path: String,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) instructions: Option<String>,
    /// Origins of web pages that may call.
    pub(crate) origins: Vec<String>,
    /// Length of a request in bytes.
    pub(crate) max_request: usize,
    /// Length of a result in bytes.
    pub(crate) max_result: usize,
    /// Requests at a time.
    pub(crate) max_requests: usize,
    /// Messages of a batch.
    pub(crate) max_batch: usize,
    /// Messages of a stream that a result has.
    pub(crate) max_messages: usize,
    /// Tools of a page of the list.
    pub(crate) page: usize,
    /// Time of a call.
    pub(crate) timeout: Duration,
}

impl Settings {
    pub(crate) fn new(patterns: Vec<Pattern>) -> Self {
        Self {
            path: "mcp".to_owned(),
            patterns,
            name: "polyrpc".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
            origins: Vec::new(),
            max_request: 1 << 20,
            max_result: 1 << 20,
            max_requests: 64,
            max_batch: 32,
            max_messages: 1_000,
            page: 100,
            timeout: Duration::from_secs(60),
        }
    }

    /// Whether the patterns select a method.
    pub(crate) fn selects(&self, service: &str, method: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(service, method))
    }
}
