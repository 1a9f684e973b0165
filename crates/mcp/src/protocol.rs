//! The requests of the protocol and their results, independent of the transport.

use bytes::Bytes;
use polyrpc::Status;
use polyrpc::client::CallOptions;
use polyrpc::server::Connector;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::caller::{self, Bounds, Reply};
use crate::json_rpc::{Error, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND};
use crate::settings::Settings;
use crate::tool::{Output, Tool, Tools};
use crate::version::Version;

/// State for answering a request.
pub(crate) struct Exchange<'e> {
    pub(crate) settings: &'e Settings,
    pub(crate) tools: &'e Tools,
    pub(crate) connector: &'e Connector,
    pub(crate) version: Version,
    /// Options of the calls of tools.
    pub(crate) options: &'e CallOptions,
}

/// Members of parameters that this server reads.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Params<'p> {
    pub(crate) protocol_version: Option<String>,
    pub(crate) cursor: Option<String>,
    pub(crate) name: Option<String>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'p RawValue>,
    #[serde(rename = "_meta")]
    pub(crate) meta: Option<Meta>,
}

/// The metadata of each request of the newest revision.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) protocol_version: Option<String>,
}

impl<'p> Params<'p> {
    pub(crate) fn parse(params: Option<&'p RawValue>) -> Result<Self, Error> {
        match params {
            None => Ok(Self::default()),
            Some(params) => serde_json::from_str(params.get())
                .map_err(|error| Error::new(INVALID_PARAMS, format!("the parameters are invalid: {error}"))),
        }
    }
}

impl Exchange<'_> {
    /// Answers a request.
    pub(crate) async fn answer(&self, method: &str, params: Params<'_>) -> Result<Value, Error> {
        match (method, self.version.has_handshake()) {
            ("initialize", _) => Ok(self.initialize(&params)),
            ("server/discover", _) => Ok(self.discover()),
            ("ping", true) => Ok(json!({})),
            ("tools/list", _) => self.list(&params),
            ("tools/call", _) => self.call(params).await,
            _ => Err(Error::new(METHOD_NOT_FOUND, format!("there is no method `{}`", cut(method)))),
        }
    }

    /// Agrees on the revision: that of the client if it is known here, else the newest with a handshake.
    fn initialize(&self, params: &Params<'_>) -> Value {
        let wanted = params.protocol_version.as_deref().and_then(Version::from_name);
        let version =
            wanted.filter(|version| version.has_handshake()).unwrap_or(Version::NEWEST_WITH_HANDSHAKE);
        let mut result = json!({
            "protocolVersion": version.as_str(),
            "capabilities": capabilities(),
            "serverInfo": self.server_info(),
        });
        if let Some(text) = &self.settings.instructions {
            result["instructions"] = text.as_str().into();
        }
        result
    }

    fn discover(&self) -> Value {
        let mut result = json!({
            "supportedVersions": Version::ALL.map(Version::as_str),
            "capabilities": capabilities(),
            "_meta": { "io.modelcontextprotocol/serverInfo": self.server_info() },
        });
        if let Some(text) = &self.settings.instructions {
            result["instructions"] = text.as_str().into();
        }
        mark_cacheable(&mut result);
        result
    }

    fn server_info(&self) -> Value {
        json!({ "name": self.settings.name, "version": self.settings.version })
    }

    /// A page of the tools. The cursor is the name of the last tool of the page before.
    fn list(&self, params: &Params<'_>) -> Result<Value, Error> {
        let rest = match params.cursor.as_deref() {
            None => self.tools.all(),
            Some(cursor) => self.tools.tools_after(cursor).ok_or_else(|| {
                Error::new(
                    INVALID_PARAMS,
                    "the cursor is unknown: the list may have changed, and begins without one",
                )
            })?,
        };
        let page = rest.get(..self.settings.page).unwrap_or(rest);
        let described: Vec<_> = page.iter().map(|tool| self.describe(tool)).collect();
        let mut result = json!({ "tools": described });
        if let Some(last) = page.last().filter(|_| page.len() < rest.len()) {
            result["nextCursor"] = last.name().into();
        }
        if !self.version.has_handshake() {
            mark_cacheable(&mut result);
        }
        Ok(result)
    }

    /// A tool, with the members that the revision defines.
    fn describe(&self, tool: &Tool) -> Value {
        let mut described = tool.description.clone();
        if let (Value::Object(members), Version::V2025March) = (&mut described, self.version) {
            members.remove("title");
            members.remove("outputSchema");
        }
        described
    }

    async fn call(&self, params: Params<'_>) -> Result<Value, Error> {
        let invalid = |text: String| Error::new(INVALID_PARAMS, text);
        let name = params.name.ok_or_else(|| invalid("the name of a tool is missing".into()))?;
        let tool =
            self.tools.find(&name).ok_or_else(|| invalid(format!("there is no tool `{}`", cut(&name))))?;
        let message = tool.message(params.arguments).map_err(invalid)?;
        let bounds = Bounds {
            timeout: self.settings.timeout,
            messages: self.settings.max_messages,
            length: self.settings.max_result,
        };
        let called = caller::call(self.connector, tool, message, self.options.clone(), bounds).await;
        let mut result = match called {
            Ok(reply) => content(tool.output, reply)?,
            Err(status) => failure(&status),
        };
        if self.version == Version::V2025March
            && let Value::Object(members) = &mut result
        {
            members.remove("structuredContent");
        }
        if !self.version.has_handshake() {
            result["resultType"] = "complete".into();
        }
        Ok(result)
    }
}

fn capabilities() -> Value {
    json!({ "tools": { "listChanged": false } })
}

/// Members of results that clients of the newest revision may keep, for a while and for the same credential.
fn mark_cacheable(result: &mut Value) {
    result["resultType"] = "complete".into();
    result["ttlMs"] = TTL_MS.into();
    result["cacheScope"] = "private".into();
}

/// The result of a tool that has replied.
fn content(output: Output, reply: Reply) -> Result<Value, Error> {
    let (structured, text) = match reply {
        Reply::Message(bytes) => {
            let text = decode_utf8(&bytes)?;
            let value = parse_json(&text)?;
            let structured = match output {
                Output::Message => Some(value),
                Output::Value | Output::Messages => Some(json!({ "result": value })),
                Output::Any => Some(value).filter(Value::is_object),
            };
            (structured, text)
        }
        Reply::Messages { messages, truncated } => {
            let values = messages.iter().map(|bytes| parse_json(&decode_utf8(bytes)?));
            let values: Result<Vec<_>, Error> = values.collect();
            let whole = json!({ "messages": values?, "truncated": truncated });
            let text = whole.to_string();
            (Some(whole), text)
        }
    };
    let mut result = json!({ "content": [{ "type": "text", "text": text }], "isError": false });
    if let Some(structured) = structured {
        result["structuredContent"] = structured;
    }
    Ok(result)
}

/// The result of a tool whose call has failed: a model may try again with other arguments.
fn failure(status: &Status) -> Value {
    let mut text = format!("{}: {}", status.code().as_str(), status.message());
    if let Some(number) = status.number() {
        text.push_str(&format!(" (number {number})"));
    }
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

fn decode_utf8(bytes: &Bytes) -> Result<String, Error> {
    let wrong = |_| Error::new(INTERNAL_ERROR, "the reply is not UTF-8");
    String::from_utf8(bytes.to_vec()).map_err(wrong)
}

/// An empty message has no text in some formats.
fn parse_json(text: &str) -> Result<Value, Error> {
    if text.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_str(text).map_err(|_| Error::new(INTERNAL_ERROR, "the reply is not JSON"))
}

/// The beginning of a name that may have any length.
fn cut(name: &str) -> String {
    name.chars().take(100).collect()
}

/// How long a client may keep a list, in milliseconds: tools change when a configuration is loaded again.
const TTL_MS: u64 = 60_000;
