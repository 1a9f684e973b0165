//! Descriptions of a listener's methods for programs: MCP tools and an OpenAPI document.

use polyrpc::Server;
use polyrpc::server::ServerHandle;
use polyrpc_describe::{OpenApi, OpenApiPage, Pattern};
use polyrpc_mcp::Mcp;

use crate::config::{Config, OpenApi as OpenApiSpec, Tools};
use crate::config_error::{ConfigError, ConfigErrors};
use crate::listener;
use crate::plan::{self, CheckWarning, Plan};
use crate::recording;

/// Reads all files of a configuration, and tries every route with the methods that its schemas declare and the formats
/// that callers of its listeners send. It makes no connections, so it does not query reflection. Returns the
/// rejections that affect only some callers.
///
/// # Errors
///
/// All invalid parts, routes that reject every caller, and patterns of methods that match nothing.
pub fn check(config: &Config) -> Result<Vec<CheckWarning>, ConfigErrors> {
    let of_listeners = listener::check(config);
    let checked = plan::check(config);
    let mut notes = match (checked, of_listeners.is_empty()) {
        (Ok(notes), true) => notes,
        (Ok(_), false) => return Err(ConfigErrors(of_listeners)),
        (Err(ConfigErrors(mut problems)), _) => {
            problems.extend(of_listeners);
            return Err(ConfigErrors(problems));
        }
    };
    notes.extend(check_recording(config)?);
    let documents = Documents::new(config)?;
    // Reflection may declare more methods.
    if config.schema.reflect.is_empty() {
        documents.offer(&Plan::to_check(config)?)?;
    }
    Ok(notes)
}

/// Like [`check`], but also queries the reflection of the servers in `schema.reflect`, and tries their methods too.
///
/// # Errors
///
/// As [`check`], and if one of these servers does not answer.
pub async fn check_online(config: &Config) -> Result<Vec<CheckWarning>, ConfigErrors> {
    let mut plan = Plan::to_check(config)?;
    let missing = plan.reflect(&config.schema.reflect, None).await;
    let line = |name: &str| config.upstream.iter().find(|spec| spec.name == name).map_or(0, |spec| spec.line);
    let unasked = missing.iter().map(|(name, why)| {
        ConfigError::new(line(name), format!("upstream `{name}` cannot be asked for its reflection: {why}"))
    });
    let problems: Vec<_> = unasked.chain(listener::check(config)).collect();
    if !problems.is_empty() {
        return Err(ConfigErrors(problems));
    }
    let mut notes = plan::check_routes(&plan, config, false)?;
    notes.extend(check_recording(config)?);
    Documents::new(config)?.offer(&plan)?;
    Ok(notes)
}

fn check_recording(config: &Config) -> Result<Vec<CheckWarning>, ConfigError> {
    let line = config.record.as_ref().map_or(0, |record| record.line);
    Ok(recording::check(config)?.into_iter().map(|text| CheckWarning { line, text }).collect())
}

/// The documents of one listener, whose calls go through its own authenticator and limits.
#[derive(Debug, Clone)]
pub(crate) struct Documents {
    tools: Option<Mcp>,
    page: Option<OpenApiPage>,
    lines: Lines,
}

/// Lines of the tables.
#[derive(Debug, Clone, Copy)]
struct Lines {
    tools: usize,
    page: usize,
}

impl Lines {
    fn new(config: &Config) -> Self {
        Self {
            tools: config.mcp.as_ref().map_or(0, |spec| spec.line),
            page: config.openapi.as_ref().map_or(0, |spec| spec.line),
        }
    }
}

impl Documents {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let tools = config.mcp.as_deref().map(tools).transpose();
        let page = config.openapi.as_deref().map(page).transpose();
        let lines = Lines::new(config);
        Ok(Self {
            tools: tools.map_err(|text| ConfigError::new(lines.tools, format!("[mcp]: {text}")))?,
            page: page.map_err(|text| ConfigError::new(lines.page, format!("[openapi]: {text}")))?,
            lines,
        })
    }

    /// Adds the documents to the server of the listener.
    pub(crate) fn add_to(&self, mut server: Server) -> Server {
        if let Some(tools) = &self.tools {
            server = tools.serve(server);
        }
        if let Some(page) = &self.page {
            server = page.serve(server);
        }
        server
    }

    /// Sends the calls of tools through this listener from now on.
    pub(crate) fn start(&self, server: &ServerHandle) {
        if let Some(tools) = &self.tools {
            tools.connect(server.connector());
        }
    }

    /// Describes the methods of a plan.
    pub(crate) fn offer(&self, plan: &Plan) -> Result<(), ConfigError> {
        if self.tools.is_none() && self.page.is_none() {
            return Ok(());
        }
        let methods = plan.methods();
        let wrong = |table: &str, line: usize, text: String| {
            let hint = "a method needs a schema, and a route that takes it from HTTP callers: see --check";
            ConfigError::new(line, format!("[{table}]: {text}")).with_hint(Some(hint.to_owned()))
        };
        if let Some(tools) = &self.tools {
            tools.offer(&methods).map_err(|error| wrong("mcp", self.lines.tools, error.to_string()))?;
        }
        if let Some(page) = &self.page {
            page.offer(&methods).map_err(|text| wrong("openapi", self.lines.page, text))?;
        }
        Ok(())
    }
}

fn tools(spec: &Tools) -> Result<Mcp, String> {
    let mut builder = Mcp::builder(spec.tools.iter().cloned())
        .name("polyrpc-gateway", env!("CARGO_PKG_VERSION"))
        .origins(spec.origins.iter().cloned());
    if let Some(path) = &spec.path {
        builder = builder.path(path);
    }
    if let Some(timeout) = spec.timeout {
        builder = builder.timeout(timeout.0);
    }
    if let Some(text) = &spec.instructions {
        builder = builder.instructions(text);
    }
    builder.build().map_err(|error| error.to_string())
}

fn page(spec: &OpenApiSpec) -> Result<OpenApiPage, String> {
    let patterns: Result<Vec<Pattern>, _> = spec.methods.iter().map(|pattern| pattern.parse()).collect();
    let title = spec.title.clone().unwrap_or_else(|| "polyrpc-gateway".to_owned());
    Ok(OpenApiPage::new(
        OpenApi::new(title),
        patterns.map_err(|error: polyrpc_describe::PatternError| error.to_string())?,
    ))
}
