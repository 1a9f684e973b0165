//! Methods as tools.

mod input;
mod members;
mod name;
mod output;

use std::fmt;

use polyrpc::layer::StreamType;
use polyrpc_describe::{Method, Pattern};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

pub(crate) use self::input::Input;
pub(crate) use self::output::Output;

use crate::settings::Settings;

/// A method that programs can call as a tool.
#[derive(Debug, Clone)]
pub struct Tool {
    name: String,
    target: String,
    stream_type: StreamType,
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// As in the list of tools.
    pub(crate) description: Value,
}

/// Tools by their names.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    /// Sorted by name.
    tools: Vec<Tool>,
    omitted: Vec<OmittedMethod>,
}

/// A method that a pattern selects, and that cannot be a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedMethod {
    /// `Service/Method`, or a function.
    pub target: String,
    /// Why.
    pub reason: &'static str,
}

/// Why patterns yield no list of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsError(String);

impl Tools {
    /// Returns the tools that the patterns of an endpoint select. Other methods that a pattern with stars selects are
    /// [omitted](Self::omitted).
    pub(crate) fn select(methods: &[Method], settings: &Settings) -> Result<Self, ToolsError> {
        check_patterns(methods, &settings.patterns)?;
        let selected = methods.iter().filter(|method| settings.selects(&method.service, &method.name));
        let (mut callable, mut omitted) = (Vec::new(), Vec::new());
        for method in selected {
            match method.stream_type.client_streaming {
                false => callable.push(method),
                true => omitted.push(OmittedMethod { target: method.target(), reason: TAKES_STREAM }),
            }
        }
        let targets: Vec<_> = callable.iter().map(|method| method.target()).collect();
        let names = name::from_targets(&targets);
        let mut tools = Vec::with_capacity(callable.len());
        for (method, name) in callable.into_iter().zip(names) {
            tools.push(Tool::new(method, name, settings)?);
        }
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        // The same method may be declared in several files.
        tools.dedup_by(|one, other| one.target == other.target);
        Ok(Self { tools, omitted })
    }

    /// Returns the tools, sorted by name.
    pub fn all(&self) -> &[Tool] {
        &self.tools
    }

    /// Returns the methods that patterns with stars select, and that cannot be tools.
    pub fn omitted(&self) -> &[OmittedMethod] {
        &self.omitted
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        let index = self.tools.binary_search_by(|tool| tool.name.as_str().cmp(name)).ok()?;
        self.tools.get(index)
    }

    /// Returns the tools behind the one of this name; `None` if there is no such tool.
    pub(crate) fn tools_after(&self, name: &str) -> Option<&[Tool]> {
        let index = self.tools.binary_search_by(|tool| tool.name.as_str().cmp(name)).ok()?;
        self.tools.get(index + 1..)
    }
}

/// Rejects a pattern that selects nothing, since it is misspelled, and one that names a method which cannot be a tool.
fn check_patterns(methods: &[Method], patterns: &[Pattern]) -> Result<(), ToolsError> {
    for pattern in patterns {
        let mut selected =
            methods.iter().filter(|method| pattern.matches(&method.service, &method.name)).peekable();
        if selected.peek().is_none() {
            return Err(ToolsError(format!("no method matches `{pattern}`")));
        }
        if pattern.is_exact() && selected.all(|method| method.stream_type.client_streaming) {
            return Err(ToolsError(format!("`{pattern}` cannot be a tool: {TAKES_STREAM}")));
        }
    }
    Ok(())
}

impl Tool {
    fn new(method: &Method, name: String, settings: &Settings) -> Result<Self, ToolsError> {
        let wrong = |text| ToolsError(format!("{}: {text}", method.target()));
        let (input, input_schema) = Input::new(&method.input).map_err(wrong)?;
        let limit = method.stream_type.server_streaming.then_some(settings.max_messages);
        let (output, output_schema) = Output::new(&method.output, limit).map_err(wrong)?;
        let target = method.target();
        let mut text = method.description.clone().unwrap_or_else(|| format!("Calls {target}."));
        if let Some(limit) = limit {
            text.push_str(&format!("\n\nReturns a list of at most {limit} messages."));
        }
        if method.deprecated {
            text.push_str("\n\nDeprecated.");
        }
        let mut description = json!({
            "name": name,
            "title": target,
            "description": text,
            "inputSchema": input_schema,
        });
        if let Some(schema) = output_schema {
            description["outputSchema"] = schema;
        }
        let annotations = annotations(method);
        if !annotations.is_empty() {
            description["annotations"] = annotations.into();
        }
        Ok(Self { name, target, stream_type: method.stream_type, input, output, description })
    }

    /// Returns the name of the tool: 1 to 64 letters, digits, `_` and `-`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the method: `Service/Method`, or a function.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the message for the arguments of a call.
    ///
    /// # Errors
    ///
    /// If they are not an object, or an argument, or a member of one, is missing or unknown.
    pub(crate) fn message(&self, arguments: Option<&RawValue>) -> Result<String, String> {
        self.input.message(&self.description["inputSchema"], arguments)
    }

    /// Whether it returns a stream of messages.
    pub(crate) fn streams(&self) -> bool {
        self.stream_type.server_streaming
    }
}

/// Hints from the `idempotency_level` of a declaration; none without a declaration.
fn annotations(method: &Method) -> Map<String, Value> {
    let mut annotations = Map::new();
    if method.no_side_effects {
        annotations.insert("readOnlyHint".into(), true.into());
        annotations.insert("destructiveHint".into(), false.into());
    }
    if method.idempotent {
        annotations.insert("idempotentHint".into(), true.into());
    }
    annotations
}

impl fmt::Display for ToolsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ToolsError {}

const TAKES_STREAM: &str = "the method takes a stream";

#[cfg(test)]
mod tests;
