use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use polyrpc::Server;
use polyrpc::fallback::HttpRequest;
use polyrpc::server::{Connector, ServerHandle};
use polyrpc_describe::{Method, PatternError};
use tokio::sync::Semaphore;

use crate::http::{self, Endpoint};
use crate::settings::Settings;
use crate::tool::{Tools, ToolsError};

/// An endpoint of the Model Context Protocol on the port of a server. Clones are the same endpoint.
#[derive(Clone)]
pub struct Mcp(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    /// `None` before the endpoint is started.
    tools: ArcSwapOption<Tools>,
    connector: ArcSwapOption<Connector>,
}

/// Settings of an endpoint.
#[derive(Debug, Clone)]
pub struct Builder {
    patterns: Vec<String>,
    settings: Settings,
}

impl Mcp {
    /// Sets up an endpoint that offers the methods that [`Pattern`](crate::Pattern)s select. Without a pattern there
    /// are no tools.
    pub fn builder<P: Into<String>>(patterns: impl IntoIterator<Item = P>) -> Builder {
        let patterns = patterns.into_iter().map(Into::into).collect();
        Builder { patterns, settings: Settings::new(Vec::new()) }
    }

    /// Adds the endpoint to a server. Until it is [started](Self::start), requests are answered with 503.
    #[must_use]
    pub fn serve(&self, server: Server) -> Server {
        let endpoint = self.clone();
        let name = self.0.endpoint.settings.path.clone();
        server.pages([name.as_str()], move |request: HttpRequest| {
            let endpoint = endpoint.0.clone();
            async move {
                let running = endpoint.tools.load_full().zip(endpoint.connector.load_full());
                let running = running.map(|(tools, connector)| (tools, Connector::clone(&connector)));
                Ok(http::answer(&endpoint.endpoint, running, request).await)
            }
        })
    }

    /// Offers the methods of a running server, to which the endpoint was [added](Self::serve).
    ///
    /// # Errors
    ///
    /// If a pattern selects nothing, or names a method that cannot be a tool.
    pub fn start(&self, server: &ServerHandle) -> Result<Arc<Tools>, ToolsError> {
        let monitor = server.monitor();
        let methods = Method::from_server(&monitor.methods(), &monitor.descriptors());
        let tools = self.offer(&methods)?;
        self.connect(server.connector());
        Ok(tools)
    }

    /// Offers these methods from now on, for servers that forward calls instead of having the methods, such as
    /// gateways. The server must answer them, including over HTTP in JSON.
    ///
    /// # Errors
    ///
    /// If a pattern selects nothing, or names a method that cannot be a tool. Then nothing changes.
    pub fn offer(&self, methods: &[Method]) -> Result<Arc<Tools>, ToolsError> {
        let tools = Arc::new(Tools::select(methods, &self.0.endpoint.settings)?);
        for omitted in tools.omitted() {
            tracing::info!(method = omitted.target, reason = omitted.reason, "a method is not a tool");
        }
        self.0.tools.store(Some(tools.clone()));
        Ok(tools)
    }

    /// Sends the calls of tools to this server from now on.
    pub fn connect(&self, connector: Connector) {
        self.0.connector.store(Some(Arc::new(connector)));
    }

    /// Returns the path of the endpoint, with a slash before it.
    pub fn path(&self) -> String {
        format!("/{}", self.0.endpoint.settings.path)
    }
}

impl Builder {
    /// Sets the path of the endpoint: one segment. The default is `mcp`.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.settings.path = path.into().trim_matches('/').to_owned();
        self
    }

    /// Sets the name and the version that clients see.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        (self.settings.name, self.settings.version) = (name.into(), version.into());
        self
    }

    /// Sets a text that clients may pass to a model: the purpose of the server, and how its tools relate.
    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.settings.instructions = Some(text.into());
        self
    }

    /// Lets pages of these origins call from a browser: `https://app.example`. By default no page may.
    #[must_use]
    pub fn origins<O: Into<String>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        self.settings.origins = origins.into_iter().map(Into::into).collect();
        self
    }

    /// Limits the time of a call. The default is 60 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Limits the length of a request in bytes. The default is 1 MiB.
    #[must_use]
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.settings.max_request = bytes;
        self
    }

    /// Limits the length of a result in bytes. The default is 1 MiB.
    #[must_use]
    pub fn max_result(mut self, bytes: usize) -> Self {
        self.settings.max_result = bytes;
        self
    }

    /// Limits the number of messages of a stream in a result. The default is 1,000.
    #[must_use]
    pub fn max_messages(mut self, count: usize) -> Self {
        self.settings.max_messages = count;
        self
    }

    /// Limits the number of concurrent requests; further ones are answered with 503. The default is 64.
    #[must_use]
    pub fn max_requests(mut self, count: usize) -> Self {
        self.settings.max_requests = count.min(Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the number of tools on a page of the list. The default is 100.
    #[must_use]
    pub fn page(mut self, tools: usize) -> Self {
        self.settings.page = tools.max(1);
        self
    }

    /// Creates the endpoint.
    ///
    /// # Errors
    ///
    /// If a pattern is invalid, or the path is not one segment.
    pub fn build(self) -> Result<Mcp, BuildError> {
        let Self { patterns, mut settings } = self;
        settings.patterns =
            patterns.iter().map(|pattern| pattern.parse()).collect::<Result<_, PatternError>>()?;
        if settings.path.is_empty() || settings.path.contains(['/', '?', '#', '%']) {
            let path = settings.path.escape_debug();
            return Err(BuildError(format!("`{path}` is not one segment of a path")));
        }
        let endpoint = Endpoint::new(settings);
        Ok(Mcp(Arc::new(Inner {
            endpoint,
            tools: ArcSwapOption::empty(),
            connector: ArcSwapOption::empty(),
        })))
    }
}

/// Why an endpoint cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError(String);

impl From<PatternError> for BuildError {
    fn from(error: PatternError) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}

impl fmt::Debug for Mcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mcp").field("settings", &self.0.endpoint.settings).finish_non_exhaustive()
    }
}
