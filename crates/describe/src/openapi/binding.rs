//! Methods at the paths of their `google.api.http` rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use polyrpc::Json;
use polyrpc::payload::schema::{Field, Message, Spelling, WellKnown};
use polyrpc_wire::http::rule::{Binding, BindingBody, Variable};
use serde_json::{Map, Value, json};

use super::Document;
use super::operation::Operation;
use crate::{Comments, Content, Method};

impl Document {
    pub(super) fn binding(&mut self, method: &Method, binding: &Binding) -> Result<(), String> {
        let (Content::Message(input, comments), Content::Message(output, replied)) =
            (&method.input, &method.output)
        else {
            return Err(format!("{}: a rule needs messages of a .proto", method.target()));
        };
        let wrong = |name: &str| format!("{}: a rule names the unknown field `{name}`", method.target());
        let (path, mut parameters, notes) = self.path(input, comments, binding)?;
        let mut operation = Operation::new(method);
        let bound = top_level(input, binding);
        match &binding.body {
            BindingBody::None => parameters.extend(self.query(input, comments, &bound)),
            BindingBody::Whole => operation = operation.body(self.rest(input, comments, &bound)),
            BindingBody::Field(name) => {
                let field = field(input, name).ok_or_else(|| wrong(name))?;
                let schema = self.canonical.field(input, field, comments);
                operation =
                    operation.body(json!({ "content": { "application/json": { "schema": schema } } }));
                let mut taken = bound.clone();
                taken.insert(field.name().to_owned());
                parameters.extend(self.query(input, comments, &taken));
            }
        }
        let response = match &binding.response {
            None => self.canonical.schema(&method.output),
            Some(name) => {
                let field = field(output, name).ok_or_else(|| wrong(name))?;
                self.canonical.field(output, field, replied)
            }
        };
        operation =
            operation.parameters(parameters).response(json!({ "application/json": { "schema": response } }));
        operation = notes.into_iter().fold(operation, Operation::note);
        let verb = match binding.verb.as_str() {
            // The rule accepts any HTTP method; a description names one.
            "*" => "post".to_owned(),
            verb => verb.to_ascii_lowercase(),
        };
        match VERBS.contains(&verb.as_str()) {
            true => self.add(&verb, &path, method, operation),
            // OpenAPI 3.1 has no place for other HTTP methods.
            false => {
                self.omitted.push(format!("{} {path}", binding.verb));
                Ok(())
            }
        }
    }

    /// The path as a template of OpenAPI, whose parameters are single segments, and these parameters.
    fn path(
        &mut self,
        input: &Message,
        comments: &Arc<Comments>,
        binding: &Binding,
    ) -> Result<(String, Vec<Value>, Vec<String>), String> {
        let (mut path, mut parameters, mut notes) = (String::new(), Vec::new(), Vec::new());
        let mut wildcards = Vec::new();
        for variable in &binding.variables {
            let field = variable.field.join(".");
            for n in 1..=variable.wildcards {
                let name = match variable.wildcards {
                    1 => field.clone(),
                    _ => format!("{field}_{n}"),
                };
                wildcards.push((name, self.segment(input, comments, variable)));
            }
            if variable.rest {
                notes.push(format!("`{field}` may have slashes, escaped as %2F."));
            }
        }
        let (mut wildcards, mut unnamed) = (wildcards.into_iter(), 0);
        for (n, segment) in binding.path.split('/').enumerate() {
            path.push_str(if n > 0 { "/" } else { "" });
            // Behind the last wildcard there may be a verb.
            let found = ["{}", "**", "*"]
                .into_iter()
                .find_map(|wildcard| Some((wildcard, segment.strip_prefix(wildcard)?)));
            let Some((wildcard, verb)) = found else {
                path.push_str(segment);
                continue;
            };
            let own = if wildcard == "{}" { wildcards.next() } else { None };
            let (name, schema) = own.unwrap_or_else(|| {
                // The text that a wildcard without a variable matches is unused.
                unnamed += 1;
                (format!("any_{unnamed}"), json!({ "type": "string" }))
            });
            path.push_str(&format!("{{{name}}}{verb}"));
            parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
        }
        Ok((path, parameters, notes))
    }

    /// The schema of a variable's value in a path; a part of the value is a text.
    fn segment(&mut self, input: &Message, comments: &Arc<Comments>, variable: &Variable) -> Value {
        let mut message = input.clone();
        let Some((last, around)) = variable.field.split_last() else { return json!({ "type": "string" }) };
        for name in around {
            let inner = field(&message, name).and_then(|field| field.kind().message());
            match inner {
                Some(id) => message = message.pool().message_at(id),
                None => return json!({ "type": "string" }),
            }
        }
        match field(&message, last) {
            Some(field) if variable.wildcards == 1 => self.canonical.field(&message, field, comments),
            _ => json!({ "type": "string" }),
        }
    }

    /// Query parameters: every field that texts can represent; fields of nested messages are named by their paths.
    fn query(&mut self, input: &Message, comments: &Arc<Comments>, taken: &BTreeSet<String>) -> Vec<Value> {
        let mut parameters = Vec::new();
        self.query_of(input, comments, "", taken, DEPTH, &mut parameters);
        parameters
    }

    fn query_of(
        &mut self,
        message: &Message,
        comments: &Arc<Comments>,
        prefix: &str,
        taken: &BTreeSet<String>,
        depth: usize,
        parameters: &mut Vec<Value>,
    ) {
        let free = |field: &&Field| !prefix.is_empty() || !taken.contains(field.name());
        for field in message.fields().iter().filter(free).filter(|field| !field.is_extension()) {
            if parameters.len() >= MAX_PARAMETERS {
                return;
            }
            let name = format!("{prefix}{}", field.json_name());
            let inner = field.kind().message().map(|id| message.pool().message_at(id));
            match inner.filter(|inner| !is_text(inner)) {
                _ if field.is_map() => {}
                Some(inner) if depth > 0 && !field.is_repeated() => {
                    self.query_of(&inner, comments, &format!("{name}."), taken, depth - 1, parameters);
                }
                Some(_) => {}
                None => {
                    let schema = self.canonical.field(message, field, comments);
                    parameters.push(json!({ "name": name, "in": "query", "schema": schema }));
                }
            }
        }
    }

    /// A body with every field that is not in the path.
    fn rest(&mut self, input: &Message, comments: &Arc<Comments>, bound: &BTreeSet<String>) -> Value {
        let schema = match bound.is_empty() {
            true => self.canonical.schema(&Content::Message(input.clone(), comments.clone())),
            false => {
                let mut properties = Map::new();
                for field in input.fields().iter().filter(|field| !bound.contains(field.name())) {
                    let schema = self.canonical.field(input, field, comments);
                    properties.insert(crate::definitions::name(Json::Proto3, field).to_owned(), schema);
                }
                json!({ "type": "object", "properties": properties, "additionalProperties": false })
            }
        };
        json!({ "content": { "application/json": { "schema": schema } } })
    }
}

/// The fields of the request that the path determines entirely.
fn top_level(input: &Message, binding: &Binding) -> BTreeSet<String> {
    let whole = binding.variables.iter().filter_map(|variable| match variable.field.as_slice() {
        [name] => field(input, name).map(|field| field.name().to_owned()),
        _ => None,
    });
    whole.collect()
}

/// A field by its declared name or its name in JSON.
fn field<'m>(message: &'m Message, name: &str) -> Option<&'m Field> {
    message.fields().get(message.index_spelled(Spelling::Json, name, usize::MAX)? as usize)
}

/// Whether the JSON of a message is a text, or may be one.
fn is_text(message: &Message) -> bool {
    use WellKnown::{Duration, FieldMask, Timestamp, Wrapper};
    matches!(message.well_known(), Some(Timestamp | Duration | FieldMask | Wrapper))
}

/// What an item of a path may have.
const VERBS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// Depth of nested messages that are described as parameters. The server accepts more.
const DEPTH: usize = 3;

/// Number of parameters after which no more are described.
const MAX_PARAMETERS: usize = 200;
