use std::time::Duration;

use polyrpc_describe::Pattern;

/// The tools and the limits of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) path: String,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) instructions: Option<String>,
    /// Origins of web pages that may call.
    pub(crate) origins: Vec<String>,
    /// Maximum length of a request in bytes.
    pub(crate) max_request: usize,
    /// Maximum length of a result in bytes.
    pub(crate) max_result: usize,
    /// Maximum of concurrent requests.
    pub(crate) max_requests: usize,
    /// Maximum of messages in a batch.
    pub(crate) max_batch: usize,
    /// Maximum of messages of a stream in a result.
    pub(crate) max_messages: usize,
    /// Number of tools on a page of the list.
    pub(crate) page: usize,
    /// Timeout of a call.
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
